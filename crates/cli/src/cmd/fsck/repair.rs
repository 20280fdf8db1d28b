//! `fsck -y`: what is found is repaired. The plan is made and proven before anything is written, and printed before it is carried out.

use std::io::{self, Write};
use std::sync::Arc;

use holdfast::device::Device;
use holdfast_repair::{Planned, RepairError, RepairOptions, plan};

use super::{Args, CORRECTED, ERRORS_LEFT, OPERATIONAL, check, print, refuse_another};
use crate::outcome::{Failure, Outcome, printed};
use crate::target;

/// Repairs the volume, which was locked for reading until now: another program may have changed it since, so it is read again.
pub(super) fn run(args: &Args, read_only: Arc<dyn Device>) -> Outcome {
    drop(read_only);
    let operational = |failure: Failure| failure.with_code(OPERATIONAL);
    let device = target::open_device(&args.target, false).map_err(operational)?;
    refuse_another(args, &*device)?;
    let report = check(args, &*device)?;
    let options = RepairOptions { data: args.data, accept_loss: args.accept_loss };
    let planned = plan(&*device, &report, &options).map_err(|error| failure(args, &error))?;
    show(args, &planned)?;
    if args.preen && planned.loses() {
        let target = args.target.display();
        return Err(Failure::new(
            ERRORS_LEFT,
            format!(
                "{target}: nothing was written, as something is lost by a repair; `holdfast fsck -y {target}` does it"
            ),
        ));
    }
    planned.write(&*device).map_err(|error| {
        Failure::new(OPERATIONAL, format!("{}: {error}", args.target.display()))
    })?;
    if !args.json {
        let mut out = io::stdout().lock();
        let bytes = holdfast_base::show::bytes(planned.bytes());
        printed(writeln!(out, "{}: repaired, {bytes} were written", args.target.display()))?;
    }
    print(args, &planned.after)?;
    let left = if planned.after.is_clean() { 0 } else { ERRORS_LEFT };
    Ok(CORRECTED | left)
}

/// At boot, a volume that cannot be mounted. It stays as it is if something would be lost by a repair.
pub(super) fn at_boot(args: &Args, device: Arc<dyn Device>, failed: Failure) -> Outcome {
    match check(args, &*device) {
        Ok(report)
            if !holdfast_repair::is_repaired(&report) && report.facts.superblock.is_some() =>
        {
            print(args, &report)?;
            run(args, device)
        }
        _ => Err(failed),
    }
}

fn failure(args: &Args, error: &RepairError) -> Failure {
    let code = match error {
        RepairError::Refused(_) | RepairError::NoSpace(_) => ERRORS_LEFT,
        RepairError::Check(_) | RepairError::Device(_) => OPERATIONAL,
    };
    Failure::new(code, format!("{}: {error}", args.target.display()))
}

/// Says what will be done.
fn show(args: &Args, planned: &Planned) -> Result<(), Failure> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    if args.json {
        let line = serde_json::to_string(&planned.repairs).expect("repairs are plain strings");
        printed(writeln!(out, "{line}"))?;
    } else {
        for repair in &planned.repairs {
            printed(writeln!(out, "{repair}"))?;
        }
    }
    printed(out.flush())
}
