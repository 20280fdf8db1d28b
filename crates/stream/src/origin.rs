//! Which snapshot a snapshot is a copy of: items beside that of the snapshot say it, which come and go with it.

use std::io;

use holdfast::{FileSystem, OriginItem, Snapshot};
use holdfast_base::Timestamp;

use crate::error::Doing;
use crate::record::{IDS_MAX, Identity, Named};
use crate::{Result, StreamError, partial};

/// Takes a snapshot of a branch, as a copy of those.
pub(crate) fn take(fs: &FileSystem, branch: u64, name: &str, ids: &[Identity]) -> Result<()> {
    let origin = |id: &Identity| OriginItem {
        volume: id.volume,
        number: id.number,
        lsn: id.lsn,
        created: Timestamp { secs: id.secs, nanos: id.nanos },
        reserved: [0; 4],
    };
    // One that no volume can have is none.
    let origins = ids.iter().map(origin).filter(|of| OriginItem::decode(&of.bytes()).is_ok());
    let origins: Vec<OriginItem> = origins.take(OriginItem::MOST).collect();
    let taken = fs.snapshot_of_copy(branch, name.as_bytes(), &origins);
    taken.map(drop).doing(|| format!("snapshot {name}"))
}

/// What a snapshot is called anywhere: its own id, and those of the snapshots that it is a copy of.
pub(crate) fn ids(volume: [u8; 16], snapshot: &Snapshot) -> Vec<Identity> {
    let copied = snapshot.origins().iter().map(|of| Identity {
        volume: of.volume,
        number: of.number,
        lsn: of.lsn,
        secs: of.created.secs,
        nanos: of.created.nanos,
    });
    let mut ids: Vec<Identity> = std::iter::once(own(volume, snapshot)).chain(copied).collect();
    ids.dedup();
    ids.truncate(IDS_MAX);
    ids
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
pub(crate) fn named(volume: [u8; 16], snapshot: &Snapshot) -> Named {
    let (branch, name) = (snapshot.branch().name().into(), snapshot.name().into());
    Named { branch, snapshot: name, ids: ids(volume, snapshot) }
}

/// A snapshot that is this one, or a copy of it, or of the same.
pub(crate) fn find(volume: &holdfast::Volume, wanted: &[Identity]) -> Result<Option<Snapshot>> {
    let uuid = volume.info().doing(|| "the volume".into())?.uuid;
    let all = snapshots(volume).doing(|| "the snapshots".into())?;
    // The newest first: mostly it is that.
    let is_it = |of: &Snapshot| ids(uuid, of).iter().any(|id| wanted.contains(id));
    Ok(all.into_iter().rev().find(is_it))
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
