//! How far a receive has come, in a file of the fork, of which a snapshot is kept: a *resume point*.
//!
//! The file has the number of the snapshot. So no other one is taken for a resume point, whatever it is called, or grew out of.

use holdfast::{Branch, Snapshot, Volume};
use holdfast_base::{InodeNo, Timestamp};
use holdfast_posix::{FileType, OpenFlags, SetAttr, SetTime, WriteHow};
use serde::{Deserialize, Serialize};

use super::of_volume;
use super::tree::Tree;
use crate::error::Doing;
use crate::files::Entry;
use crate::record::{Attributes, Begin, Resume, TABLE_MAX, Time};
use crate::token::Token;
use crate::{Result, partial};

/// The file, in the parking directory.
const FILE: &[u8] = b"state";
/// Most bytes of it: an entry of the table has two numbers of up to 10 bytes and a type, all else is names and identities.
const BYTES_MAX: u64 = TABLE_MAX as u64 * 21 + (64 << 10);
/// Most bytes of the number with which it begins.
const NUMBER_BYTES: u64 = 10;

/// How far a receive has come.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Headway {
    /// The number of the snapshot that keeps it.
    number: u64,
    pub(super) begin: Begin,
    /// The number of the snapshot here that the fork has grown out of: the base.
    pub(super) base: Option<u64>,
    /// Bytes of the body of the first record, as it came first.
    pub(super) begin_bytes: u64,
    pub(super) resume: Resume,
    pub(super) records: u64,
    pub(super) data_bytes: u64,
    pub(super) files: u64,
    root: Attributes,
    /// Sender's number, own number, type.
    table: Vec<(u64, u64, u8)>,
}

fn time(of: Option<SetTime>) -> Time {
    let of = match of {
        Some(SetTime::At(time)) => time,
        _ => Timestamp::default(),
    };
    Time { secs: of.secs, nanos: of.nanos }
}

impl Headway {
    pub(super) fn of(tree: &Tree<'_>, number: u64, resume: Resume, records: u64) -> Headway {
        let SetAttr { perm, uid, gid, atime, mtime, btime, .. } = tree.files.root;
        let root = Attributes {
            id: 0,
            perm: perm.unwrap_or(0o755),
            uid: uid.unwrap_or(0),
            gid: gid.unwrap_or(0),
            accessed: time(atime),
            modified: time(mtime),
            created: time(btime.map(SetTime::At)),
        };
        let entries = tree.files.table.iter();
        let table = entries.map(|(id, of)| (*id, of.inode.0, of.file_type as u8)).collect();
        let (begin, data_bytes, files) =
            (tree.begin.clone(), tree.files.data_bytes, tree.files.files);
        let begin = Begin { resume: None, ..begin };
        let (base, begin_bytes) = (tree.base_number(), tree.begin_bytes);
        Headway {
            number,
            begin,
            base,
            begin_bytes,
            resume,
            records,
            data_bytes,
            files,
            root,
            table,
        }
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = (u64, Entry)> {
        self.table.iter().filter_map(|(id, inode, file_type)| {
            let file_type = FileType::from_raw(*file_type)?;
            Some((*id, Entry { inode: InodeNo(*inode), file_type }))
        })
    }

    pub(super) fn root(&self) -> SetAttr {
        let at = |time: Time| Timestamp { secs: time.secs, nanos: time.nanos };
        SetAttr {
            perm: Some(self.root.perm),
            uid: Some(self.root.uid),
            gid: Some(self.root.gid),
            atime: Some(SetTime::At(at(self.root.accessed))),
            mtime: Some(SetTime::At(at(self.root.modified))),
            btime: Some(at(self.root.created)),
            ..SetAttr::default()
        }
    }

    pub(super) fn write(&self, tree: &Tree<'_>) -> Result<()> {
        let bytes = postcard::to_allocvec(self).expect("plain fields go into memory");
        let (fs, caller) = (&tree.files.fs, &tree.files.caller);
        let what = || "how far it has come".to_string();
        let flags = OpenFlags::WRITE | OpenFlags::TRUNCATE;
        let dir = tree.files.parking.inode;
        let (_, file) = fs.create(caller, dir, FILE, 0o600, flags, false).doing(what)?;
        let mut at = 0;
        while at < bytes.len() {
            let how = WriteHow::default();
            let len = fs.write(caller, &file, at as u64, &bytes[at..], how).doing(what)?;
            if len == 0 {
                let full: std::io::Result<()> = Err(std::io::ErrorKind::StorageFull.into());
                return full.doing(what);
            }
            at += len;
        }
        Ok(())
    }

    /// What was kept last of a fork.
    pub(super) fn last(branch: &Branch) -> Result<Option<(Headway, Snapshot)>> {
        let Some(directory) = partial::directory_in(branch.name()) else { return Ok(None) };
        let all = of_volume(branch.snapshots())?;
        for snapshot in all.into_iter().rev() {
            if let Some(state) = Headway::in_snapshot(&snapshot, &directory)? {
                return Ok(Some((state, snapshot)));
            }
        }
        Ok(None)
    }

    /// What a snapshot keeps, if it is a resume point. What makes no sense is of no use: the receive begins anew.
    fn in_snapshot(snapshot: &Snapshot, directory: &str) -> Result<Option<Headway>> {
        let opened = of_volume(snapshot.open())?;
        let state = Headway::read(&opened, &format!("/{directory}/state"), snapshot.number());
        of_volume(opened.close())?;
        Ok(state)
    }

    /// Reads the state of the snapshot with this number. A user, or a stream, may have put anything there: no more is read than
    /// a state can have, and of one with another number only that.
    fn read(opened: &Volume, path: &str, number: u64) -> Option<Headway> {
        let found = opened.symlink_metadata(path).ok()?;
        if !found.is_file() || found.len() > BYTES_MAX {
            return None;
        }
        let file = opened.open_file(path).ok()?;
        let mut begin = vec![0; found.len().min(NUMBER_BYTES) as usize];
        file.read_exact_at(&mut begin, 0).ok()?;
        if postcard::take_from_bytes::<u64>(&begin).ok()?.0 != number {
            return None;
        }
        let mut bytes = vec![0; found.len() as usize];
        file.read_exact_at(&mut bytes, 0).ok()?;
        postcard::from_bytes(&bytes).ok()
    }
}

/// Deletes resume points that a crash has left in branches: behind the last step of a receive, before it was over.
pub(super) fn sweep(volume: &Volume) -> Result<()> {
    for branch in of_volume(volume.branches())? {
        if partial::is_receiving(branch.name()) {
            continue;
        }
        for snapshot in of_volume(branch.snapshots())? {
            if let Some(directory) = partial::directory_in(snapshot.name())
                // One that does not open is no matter of this receive.
                && matches!(Headway::in_snapshot(&snapshot, &directory), Ok(Some(_)))
            {
                // It is held, perhaps.
                let _ = snapshot.delete();
            }
        }
    }
    Ok(())
}

impl Tree<'_> {
    /// Keeps durably how far it has come: a snapshot of the fork as it is, with the state in it.
    pub(super) fn keep(&mut self, place: Resume, records: u64) -> Result<()> {
        let (stream, sent) = (&self.begin.stream, &self.begin.snapshot.snapshot);
        let name = partial::resume_point(stream, place.position, sent);
        if self.kept.as_ref().is_some_and(|kept| kept.name() == name) {
            return Ok(());
        }
        self.files.open = None;
        let put = |tree: &Self, number| Headway::of(tree, number, place, records).write(tree);
        let snapshot = self.take(&name, put)?;
        if let Some(before) = self.kept.replace(snapshot) {
            before.delete().doing(|| "how far it had come".into())?;
        }
        Ok(())
    }

    /// Goes on with what was kept.
    pub(super) fn restore(&mut self, state: &Headway, kept: Snapshot) {
        self.files.table.extend(state.entries());
        self.begin_bytes = state.begin_bytes;
        self.files.root = state.root();
        (self.files.data_bytes, self.files.files) = (state.data_bytes, state.files);
        self.kept = Some(kept);
    }
}

/// Each receive that was cut: the name of its branch, what it is, and a token with which `send` goes on.
pub fn tokens(volume: &Volume) -> Result<Vec<(String, Begin, Token)>> {
    let mut found = Vec::new();
    for branch in of_volume(volume.branches())? {
        if partial::is_receiving(branch.name())
            && let Some((state, _)) = Headway::last(&branch)?
            && let Some(token) = Token::new(&state.begin, state.begin_bytes, state.resume)
        {
            found.push((branch.name().to_owned(), state.begin, token));
        }
    }
    Ok(found)
}
