//! `holdfast tune`: another id or label for a volume that nobody uses.
//!
//! Power may fail at any write: the volume has the old ones then, or the new ones.

use std::path::PathBuf;

use uuid::Uuid;

use crate::outcome::{Failure, Outcome};
use crate::target;

/// Change the id or the label of a volume that is not mounted.
#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("what").required(true).multiple(true).args(["uuid", "label"])))]
pub(crate) struct Args {
    /// The new id: a UUID, or `random`. A copy of a volume needs one of its own. Its snapshots are others under it: `receive` takes
    /// none of them for a copy of what was sent, so the next stream must be a whole one, or continue a snapshot that is sent from here.
    #[arg(long, short = 'U', value_parser = uuid_of)]
    uuid: Option<Uuid>,
    /// A name that `holdfast info` shows, at most 64 bytes; empty for none.
    #[arg(long, short = 'L')]
    label: Option<String>,
    /// A file or a block device with a volume that is not mounted.
    target: PathBuf,
}

fn uuid_of(text: &str) -> Result<Uuid, String> {
    match text {
        "random" => Ok(Uuid::new_v4()),
        text => Uuid::parse_str(text).map_err(|error| error.to_string()),
    }
}

pub(crate) fn run(args: &Args) -> Outcome {
    if args.label.as_ref().is_some_and(|label| label.len() > 64) {
        return Err(Failure::plain("a label has at most 64 bytes"));
    }
    let device = target::open_device(&args.target, false)?;
    let uuid = args.uuid.map(Uuid::into_bytes);
    holdfast::set_identity(device.clone(), uuid, args.label.as_deref())
        .map_err(|error| target::not_opened(&args.target, &*device, &error))?;
    if let Some(uuid) = args.uuid {
        println!("{}: the id is {uuid}", args.target.display());
    }
    if let Some(label) = &args.label {
        println!("{}: the label is {label:?}", args.target.display());
    }
    Ok(0)
}
