//! How commands read places and names.

use clap::builder::{OsStringValueParser, TypedValueParser};
use holdfast_service::branches::by_time::Purpose;

use super::place::SnapshotName;
use super::{Name, TreeLocation};

/// A name. Whether it can be one is judged by the engine.
pub(crate) fn name() -> impl TypedValueParser<Value = Name> {
    OsStringValueParser::new().map(Name::of)
}

/// A branch that is there: its name, or `:NAME` as it stands behind a place.
pub(crate) fn branch() -> impl TypedValueParser<Value = Name> {
    name().map(|name| name.0.strip_prefix(b":").map(|bare| Name(bare.into())).unwrap_or(name))
}

/// A snapshot that is there.
pub(crate) fn snapshot() -> impl TypedValueParser<Value = SnapshotName> {
    OsStringValueParser::new().map(|text| SnapshotName::parse(&text))
}

/// A place with whatever stands behind it.
pub(crate) fn place() -> impl TypedValueParser<Value = TreeLocation> {
    OsStringValueParser::new().map(|text| TreeLocation::parse(&text))
}

/// A place with no more than a branch behind it.
pub(crate) fn branch_place() -> impl TypedValueParser<Value = TreeLocation> {
    place().try_map(|place| match place.snapshot {
        None => Ok(place),
        Some(_) => {
            Err("it names a snapshot; a mounted directory, a volume or a branch is wanted here")
        }
    })
}

/// A place with nothing behind it.
pub(crate) fn volume_place() -> impl TypedValueParser<Value = TreeLocation> {
    branch_place().try_map(|place| match place.branch {
        None => Ok(place),
        Some(_) => Err("it names a branch; a mounted directory or a volume is wanted here"),
    })
}

/// What becomes of the head that the branch had.
#[derive(Debug, clap::Args)]
pub(crate) struct Keep {
    /// Delete what the branch was.
    #[arg(long, conflicts_with = "keep")]
    discard: bool,
    /// Keep what the branch was as a snapshot of this name.
    #[arg(long, value_name = "NAME", value_parser = name())]
    keep: Option<Name>,
}

impl Keep {
    /// The name of the snapshot, if it is kept: without one on the command line by the time.
    pub(crate) fn name(&self, purpose: Purpose) -> Option<Name> {
        match (self.discard, &self.keep) {
            (true, _) => None,
            (false, Some(keep)) => Some(keep.clone()),
            (false, None) => Some(purpose.new_name()),
        }
    }
}
