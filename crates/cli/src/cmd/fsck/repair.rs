//! `fsck -y`: what is found is repaired. The plan is made and proven before anything is written, and printed before it is carried out; as
//! JSON behind that, with what became of it.

use std::io::{self, Write};
use std::sync::Arc;

use holdfast::Hold;
use holdfast::device::Device;
use holdfast_check::{Issue, Report};
use holdfast_repair::{Planned, RepairError, RepairOptions, Unmended, plan};
use serde_json::Value;

use super::{
    Args, CORRECTED, ERRORS_LEFT, OPERATIONAL, check, print, printed, refuse_another, told, undo,
    writable,
};
use crate::outcome::{Context, Failure, Outcome, complain, shown};
use uuid::Uuid;

/// Repairs the volume, which was locked for reading until now: another program may have changed it since, so it is read again.
pub(super) fn run(args: &Args, read_only: Arc<dyn Device>) -> Outcome {
    drop(read_only);
    let operational = |failure: Failure| failure.with_code(OPERATIONAL);
    let device = writable(args).map_err(operational)?;
    if let Err(failure) = refuse_another(args, &*device) {
        return refused(args, || check(args, &*device), failure);
    }
    let hold = hold(args, device).map_err(operational)?;
    let device = hold.device();
    let report = check(args, &**device)?;
    let options = RepairOptions { data: args.data, accept_loss: args.accept_loss };
    let planned = match plan(&**device, &report, &options) {
        Ok(planned) => planned,
        Err(error) => return refused(args, || Ok(report), failure(args, &error)),
    };
    if !args.json {
        show(&planned)?;
    }
    if args.preen && planned.loses() {
        let target = args.target.display();
        let why = format!(
            "{target}: nothing was written, as something is lost by a repair; `holdfast fsck -y {target}` does it"
        );
        return refused(args, || Ok(report), Failure::new(ERRORS_LEFT, why));
    }
    if let Some(file) = &args.undo_file {
        undo::keep(file, &planned, &**device)?;
    }
    let unmended = planned.write(&**device).map_err(|error| {
        let target = args.target.display();
        let undo = match &args.undo_file {
            Some(file) => format!("; --undo {} puts back what was there", file.display()),
            None => String::new(),
        };
        let state = "the volume is as it was or as it is repaired, and `holdfast fsck` says which";
        Failure::new(OPERATIONAL, format!("{target}: {error}; {state}{undo}"))
    })?;
    for Unmended { block, why } in &unmended {
        let target = args.target.display();
        complain(&format!(
            "{target}: block {block} is not written again: {why}; what it is to hold stands in its other place alone"
        ));
    }
    // What a check was to find is not so then.
    let after = match unmended.is_empty() {
        true => Ok(planned.after.clone()),
        false => check(args, &**device),
    };
    hold.leave();
    let after = after?;
    if args.json {
        let unmended = unmended.iter().map(|one| one.block.0).collect();
        document(&report, serde_json::json!(planned.repairs), &after, unmended)?;
    } else {
        let mut out = io::stdout().lock();
        let bytes = holdfast_base::show::bytes(planned.bytes());
        printed(writeln!(out, "{}: repaired, {bytes} were written", shown(&args.target)))?;
        drop(out);
        print(args, &after)?;
    }
    let left = if after.is_clean() { 0 } else { ERRORS_LEFT };
    Ok(CORRECTED | left)
}

/// Says what a repair would do, or why it would do nothing; as JSON in one object with the report.
pub(super) fn preview(args: &Args, device: &dyn Device, report: &Report) -> Result<(), Failure> {
    let options = RepairOptions { data: args.data, accept_loss: args.accept_loss };
    let planned = match refuse_another(args, device) {
        Ok(()) => plan(device, report, &options).map_err(|error| error.to_string()),
        Err(failure) => Err(failure.sentence),
    };
    if args.json {
        let mut object = object(report);
        object["plan"] = match planned {
            Ok(planned) => serde_json::json!({
                "repairs": planned.repairs,
                "bytes": planned.bytes(),
                "loses": planned.loses(),
            }),
            Err(why) => serde_json::json!({ "refused": why }),
        };
        return told(&object);
    }
    match planned {
        Ok(planned) => {
            printed(writeln!(io::stdout().lock(), "with -y:"))?;
            show(&planned)
        }
        Err(why) => printed(writeln!(io::stdout().lock(), "with -y: {why}")),
    }
}

/// Keeps programs on other machines from writing to the volume. It is read again behind that.
fn hold(args: &Args, device: Arc<dyn Device>) -> Result<Hold, Failure> {
    let uuid = match holdfast_check::probe(&*device) {
        Some(summary) => Some(summary.uuid),
        // Only the far copy may be left.
        None => check(args, &*device)?.facts.superblock.map(|summary| summary.uuid),
    };
    let uuid = uuid.and_then(|uuid| Uuid::parse_str(&uuid).ok()).unwrap_or_default();
    Hold::take(device, uuid.into_bytes()).context(args.target.display())
}

/// At boot, a volume that cannot be mounted. It stays as it is if something would be lost by a repair.
pub(super) fn at_boot(args: &Args, device: Arc<dyn Device>, failed: Failure) -> Outcome {
    match check(args, &*device) {
        Ok(report)
            if !holdfast_repair::is_repaired(&report) && report.facts.superblock.is_some() =>
        {
            if !args.json {
                print(args, &report)?;
            }
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

/// Prints one object: the report, what was done, which blocks the device did not take of it, and what a check finds behind it.
fn document(
    report: &Report,
    repairs: Value,
    after: &Report,
    unmended: Vec<u64>,
) -> Result<(), Failure> {
    let mut object = object(report);
    object["repairs"] = repairs;
    object["after"] = serde_json::json!(after);
    object["unmended"] = unmended.into();
    told(&object)
}

/// The same of a superblock that was written back.
pub(super) fn superblock_document(
    report: &Report,
    done: &str,
    after: &Report,
) -> Result<(), Failure> {
    let superblock = [
        Issue::NoSuperblock,
        Issue::SuperblockInvalid,
        Issue::FarCopyInvalid,
        Issue::NewestSuperblockLost,
        Issue::Fault,
    ]
    .map(Issue::number);
    let answered = report.findings.iter().map(|finding| finding.id);
    let repair = |id| serde_json::json!({ "id": id, "tree": null, "path": null, "what": done, "loses": false });
    let repairs = answered.filter(|id| superblock.contains(id)).map(repair).collect();
    document(report, repairs, after, Vec::new())
}

/// Says why nothing is done; as JSON in one object with the report.
fn refused(
    args: &Args,
    report: impl FnOnce() -> Result<Report, Failure>,
    failure: Failure,
) -> Outcome {
    if args.json {
        let mut object = object(&report()?);
        object["refused"] = failure.sentence.clone().into();
        told(&object)?;
    }
    Err(failure)
}

fn object(report: &Report) -> Value {
    serde_json::to_value(report).expect("a report is plain numbers and strings")
}

/// Says what will be done.
fn show(planned: &Planned) -> Result<(), Failure> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    for repair in &planned.repairs {
        printed(writeln!(out, "{repair}"))?;
    }
    printed(out.flush())
}
