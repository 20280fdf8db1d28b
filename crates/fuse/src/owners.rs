//! Whose files are, as a mount shows and makes them: what users of bindfs, NTFS and VFAT know as `uid=`, `gid=` and `umask=`, and those
//! of NFS as `squash`.
//!
//! A mount with another owner (`uid=`) is a view: everything is shown as that user's, and what is made there is the volume's,
//! which here is the owner of its root directory. So a volume has its own numbers, whichever numbers a user has where
//! it is mounted, and the next mount shows no traces of this one. The same holds for the group.
//!
//! Shown with another owner, a set-user-id program would run with the rights of that owner. So such bits are
//! neither shown nor set. Access control lists name users and groups of the volume, and could give what `umask=` takes away,
//! so they are neither obeyed nor seen in such a mount.

use holdfast_base::switch::Squash;
use holdfast_posix::{Attr, FileType, SetAttr};

use crate::interface::{Answer, Errno};

const SET_UID: u32 = 0o4000;
const SET_GID: u32 = 0o2000;

/// How a mount shows and makes owners. The default changes nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Owners {
    /// The user whose everything is.
    pub uid: Option<u32>,
    /// The group.
    pub gid: Option<u32>,
    /// Permission bits that nothing has.
    pub umask: u32,
    /// Which callers act as the owner of the root directory.
    pub squash: Squash,
}

impl Owners {
    /// Whether what is shown differs from what the volume has.
    pub(crate) fn is_view(&self) -> bool {
        self.uid.is_some() || self.gid.is_some() || self.umask != 0
    }

    /// Whether a caller acts as the owner of the root directory.
    pub(crate) fn squashes(&self, user: u32) -> bool {
        match self.squash {
            Squash::None => false,
            Squash::Root => user == 0,
            Squash::All => true,
        }
    }

    /// What is shown of an inode.
    pub(crate) fn show(&self, attr: &mut Attr) {
        if !self.is_view() {
            return;
        }
        attr.uid = self.uid.unwrap_or(attr.uid);
        attr.gid = self.gid.unwrap_or(attr.gid);
        attr.perm = self.perm(attr.file_type, attr.perm);
    }

    /// Permission bits, without those that nothing has here.
    pub(crate) fn perm(&self, file_type: FileType, perm: u32) -> u32 {
        perm & !self.hidden(file_type)
    }

    fn hidden(&self, file_type: FileType) -> u32 {
        // Of a directory set-gid is about what is made in it, and those of a link mean nothing.
        let (set_uid, set_gid) = match file_type {
            FileType::Directory => (SET_UID, 0),
            _ => (SET_UID, SET_GID),
        };
        let mut hidden = match file_type {
            FileType::Symlink => 0,
            _ => self.umask,
        };
        if self.uid.is_some() {
            hidden |= set_uid;
        }
        if self.gid.is_some() {
            hidden |= set_gid;
        }
        hidden
    }

    /// What a change means on the volume, of an inode that has these attributes there. Bits that `umask` hides stay as they
    /// are.
    ///
    /// # Errors
    /// EPERM: another owner than the one that is shown.
    pub(crate) fn stored(&self, now: &Attr, mut change: SetAttr) -> Answer<SetAttr> {
        for (shown, asked) in [(self.uid, &mut change.uid), (self.gid, &mut change.gid)] {
            match (shown, *asked) {
                (Some(shown), Some(id)) if id != shown => return Err(Errno(libc::EPERM)),
                (Some(_), Some(_)) => *asked = None,
                _ => {}
            }
        }
        if let Some(perm) = change.perm {
            let kept = now.perm & self.umask & self.hidden(now.file_type);
            change.perm = Some(self.perm(now.file_type, perm) | kept);
        }
        Ok(change)
    }
}

#[cfg(test)]
mod tests {
    use holdfast_base::{InodeNo, Timestamp};

    use super::*;

    fn attr(file_type: FileType, perm: u32) -> Attr {
        let time = Timestamp::default();
        Attr {
            inode: InodeNo(9),
            file_type,
            perm,
            nlink: 1,
            uid: 3,
            gid: 4,
            size: 0,
            blocks: 0,
            rdev: 0,
            atime: time,
            mtime: time,
            ctime: time,
            btime: time,
        }
    }

    fn shown(owners: Owners, file_type: FileType, perm: u32) -> (u32, u32, u32) {
        let mut attr = attr(file_type, perm);
        owners.show(&mut attr);
        (attr.uid, attr.gid, attr.perm)
    }

    #[test]
    fn what_is_shown_has_no_right_of_another_owner() {
        let (file, dir, link) = (FileType::Regular, FileType::Directory, FileType::Symlink);
        assert_eq!(shown(Owners::default(), file, 0o6777), (3, 4, 0o6777));
        let user = Owners { uid: Some(7), ..Owners::default() };
        assert_eq!(shown(user, file, 0o6755), (7, 4, 0o2755));
        let both = Owners { gid: Some(8), umask: 0o027, ..user };
        assert_eq!(shown(both, file, 0o6777), (7, 8, 0o750));
        assert_eq!(shown(both, dir, 0o7777), (7, 8, 0o3750), "a directory hands its group down");
        assert_eq!(shown(both, link, 0o777), (7, 8, 0o777));
    }

    #[test]
    fn a_change_is_of_what_is_shown() {
        let owners = Owners { uid: Some(7), umask: 0o027, ..Owners::default() };
        let stored = |perm, change| owners.stored(&attr(FileType::Regular, perm), change);
        let of = |uid, gid, perm| SetAttr { uid, gid, perm, ..SetAttr::default() };
        assert_eq!(stored(0o644, of(Some(7), Some(5), None)), Ok(of(None, Some(5), None)));
        assert_eq!(stored(0o644, of(Some(3), None, None)), Err(Errno(libc::EPERM)));
        // The bits that are not seen stay: 007 of the volume's, 750 of the caller's.
        assert_eq!(stored(0o617, of(None, None, Some(0o4750))), Ok(of(None, None, Some(0o757))));
        assert_eq!(stored(0o640, of(None, None, Some(0o777))), Ok(of(None, None, Some(0o750))));
    }

    #[test]
    fn who_is_squashed() {
        let of = |squash| {
            let owners = Owners { squash, ..Owners::default() };
            [0, 5].map(|user| owners.squashes(user))
        };
        assert_eq!(
            Squash::ALL.iter().map(|it| of(*it)).collect::<Vec<_>>(),
            [[false, false], [true, false], [true, true]]
        );
    }
}
