//! `holdfast tune`: another id or label for a volume, another limit for a branch.
//!
//! Power may fail at any write: the volume has the old ones then, or the new ones.

use holdfast_base::units::BLOCK_BYTES;
use holdfast_service::size;
use holdfast_service::work::Work;
use holdfast_service::work::tune::{Limit, To};
use uuid::Uuid;

use crate::branches::{TreeLocation, arguments};
use crate::outcome::{Failure, Outcome};
use crate::pipes::answer;

/// Change the label or the id of a volume, or the limit of a branch.
///
/// Label and limit change while the volume is mounted as well, the id does not.
#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("what").required(true).multiple(true).args(["uuid", "label", "limit"])))]
pub(crate) struct Args {
    /// The new id: a UUID, or `random`. A copy of a volume needs one of its own. Its snapshots are others under it: `receive` takes
    /// none of them for a copy of what was sent, so the next stream must be a whole one, or continue a snapshot that is sent from here.
    #[arg(long, short = 'U', value_parser = uuid_of)]
    uuid: Option<Uuid>,
    /// A name that `holdfast info` shows, at most 64 bytes; empty for none.
    #[arg(long, short = 'L')]
    label: Option<String>,
    /// The most that the branch may refer to, rounded up to whole blocks of 4 KiB, or `none`; see `holdfast branch limit`.
    #[arg(long, value_name = "SIZE", value_parser = limit)]
    limit: Option<Limit>,
    /// Print one JSON object, for programs.
    #[arg(long)]
    json: bool,
    /// A mounted directory or a volume; :BRANCH may stand behind it, for --limit.
    #[arg(value_name = "PLACE", value_parser = arguments::branch_place())]
    place: TreeLocation,
}

fn uuid_of(text: &str) -> Result<Uuid, String> {
    match text {
        "random" => Ok(Uuid::new_v4()),
        text => Uuid::parse_str(text).map_err(|error| error.to_string()),
    }
}

/// Blocks, or `none`.
pub(super) fn limit(text: &str) -> Result<Limit, String> {
    match text {
        "none" => Ok(Limit(None)),
        text => match size::parse(text)?.div_ceil(BLOCK_BYTES) {
            0 => Err("0 is no limit; write `none` for that".into()),
            blocks => Ok(Limit(Some(blocks))),
        },
    }
}

pub(crate) fn run(args: &Args) -> Outcome {
    if args.label.as_ref().is_some_and(|label| label.len() > 64) {
        return Err(Failure::plain("a label has at most 64 bytes"));
    }
    if args.place.branch.is_some() && args.limit.is_none() {
        let why = "all branches share the label and the id: name the volume alone";
        return Err(Failure::new(2, why));
    }
    let located = args.place.located()?;
    let uuid = args.uuid.map(Uuid::into_bytes);
    let to = To { uuid, label: args.label.clone(), limit: args.limit };
    located.run(Work::Tune { tree: located.tree(), to }, answer(args.json))
}
