//! What everything that opens an image shares: how it is mounted, the second opinion, and the comparison of two looks.

use std::sync::Arc;

use holdfast_check::Options;
use holdfast_device::Device;
use holdfast_script::Trees;

use crate::{Checkpoints, Setup};

/// Commits and checkpoints that the simulator adds are no part of a recovery; and thousands of threads for
/// thousands of images cost more than all the rest.
pub(crate) fn quiet(setup: &Setup) -> Setup {
    let mut setup = Setup { checkpoints: Checkpoints::Never, ..setup.clone() };
    setup.mount.threads = false;
    setup
}

/// Asks the second opinion.
pub(crate) fn clean(device: &Arc<dyn Device>, when: &str) -> Result<(), String> {
    let options = Options { data: true, ..Options::default() };
    let report = holdfast_check::check(device.as_ref(), &options)
        .map_err(|error| format!("check {when}: {error}"))?;
    if report.is_clean() {
        return Ok(());
    }
    let findings: Vec<String> = report.findings.iter().map(ToString::to_string).collect();
    Err(format!("check {when}:\n{}", findings.join("\n")))
}

pub(crate) fn same(first: &Trees, second: &Trees) -> Result<(), String> {
    let differences = first.differences(second);
    match differences.is_empty() {
        true => Ok(()),
        false => Err(format!("another mount shows something else:\n{}", differences.join("\n"))),
    }
}
