//! Which snapshot a snapshot is a copy of.
//!
//! A received snapshot says so in an extended attribute of its root, together with its own number and the id of its volume. What
//! grows out of it inherits the attribute and has another number, and what copies files to another volume has another id: there it
//! counts for nothing.

use std::io;

use holdfast::{FileSystem, Snapshot};
use holdfast_base::InodeNo;
use holdfast_base::attribute::RECEIVED;
use holdfast_posix::{Caller, XattrFlags};
use serde::{Deserialize, Serialize};

use crate::error::Doing;
use crate::record::{IDS_MAX, Identity, Named};
use crate::{Result, StreamError, partial};

/// The value of the attribute.
#[derive(Debug, Serialize, Deserialize)]
struct Origin {
    /// The id of the volume of that.
    volume: [u8; 16],
    /// The number of the snapshot that this is about.
    number: u64,
    /// The snapshots that it is a copy of.
    ids: Vec<Identity>,
}

/// Writes into a tree that its next snapshot, if that gets this number, is a copy.
pub(crate) fn put(fs: &FileSystem, number: u64, ids: &[Identity]) -> Result<()> {
    let volume = *fs.superblock().uuid.as_bytes();
    let origin = Origin { volume, number, ids: ids.iter().take(IDS_MAX).cloned().collect() };
    let value = postcard::to_allocvec(&origin).expect("plain fields go into memory");
    let flags = XattrFlags::empty();
    fs.setxattr(&Caller::root(), InodeNo::ROOT, RECEIVED, &value, flags)
        .doing(|| "where the snapshot comes from".into())
}

/// What a snapshot is called anywhere: its own id, and those of the snapshots that it is a copy of. `fs` is anything of its volume.
pub(crate) fn ids(volume: [u8; 16], snapshot: &Snapshot, fs: &FileSystem) -> Result<Vec<Identity>> {
    let value = fs.root_attribute(snapshot.number(), RECEIVED);
    let value = value.doing(|| "where the snapshot comes from".into())?;
    let mut ids = vec![own(volume, snapshot)];
    let Some(value) = value else { return Ok(ids) };
    // Root can write anything there: what makes no sense says nothing.
    let origin = postcard::from_bytes::<Origin>(&value).ok();
    let is_of_this = |of: &Origin| (of.volume, of.number) == (volume, snapshot.number());
    let origin = origin.filter(is_of_this);
    ids.extend(origin.into_iter().flat_map(|origin| origin.ids));
    ids.dedup();
    ids.truncate(IDS_MAX);
    Ok(ids)
}

fn own(volume: [u8; 16], snapshot: &Snapshot) -> Identity {
    let created = holdfast_base::Timestamp::from(snapshot.created());
    Identity {
        volume,
        number: snapshot.number(),
        lsn: snapshot.lsn(),
        secs: created.secs,
        nanos: created.nanos,
    }
}

/// What a snapshot is called anywhere, and its name here.
pub(crate) fn named(volume: [u8; 16], snapshot: &Snapshot, fs: &FileSystem) -> Result<Named> {
    let (branch, name) = (snapshot.branch().name().into(), snapshot.name().into());
    Ok(Named { branch, snapshot: name, ids: ids(volume, snapshot, fs)? })
}

/// A snapshot that is this one, or a copy of it, or of the same.
pub(crate) fn find(volume: &holdfast::Volume, wanted: &[Identity]) -> Result<Option<Snapshot>> {
    let uuid = volume.info().doing(|| "the volume".into())?.uuid;
    let all = snapshots(volume).doing(|| "the snapshots".into())?;
    // None is opened: there may be thousands.
    let fs = volume.engine().doing(|| "the volume".into())?;
    // The newest first: mostly it is that.
    for snapshot in all.into_iter().rev() {
        if wanted.contains(&own(uuid, &snapshot)) {
            return Ok(Some(snapshot));
        }
        // One that is damaged is none; another one may be whole.
        let found = ids(uuid, &snapshot, &fs);
        if found.is_ok_and(|ids| ids.iter().any(|id| wanted.contains(id))) {
            return Ok(Some(snapshot));
        }
    }
    Ok(None)
}

/// All snapshots of a volume but those of receives, in the order in which they were taken.
fn snapshots(volume: &holdfast::Volume) -> io::Result<Vec<Snapshot>> {
    let mut all = Vec::new();
    for branch in volume.branches()? {
        if !partial::is_receiving(branch.name()) {
            all.extend(branch.snapshots()?);
        }
    }
    all.sort_by_key(Snapshot::number);
    Ok(all)
}

/// The snapshot of this id.
pub(crate) fn by_id(volume: &holdfast::Volume, id: &Identity) -> Result<Snapshot> {
    let uuid = volume.info().doing(|| "the volume".into())?.uuid;
    let all = snapshots(volume).doing(|| "the snapshots".into())?;
    all.into_iter().find(|snapshot| own(uuid, snapshot) == *id).ok_or_else(|| {
        StreamError::Refused(format!(
            "the volume has no snapshot {} any more that the token is of",
            id.number
        ))
    })
}
