//! Extended attributes, and seven of our own that answer questions about a mount. An eighth is in `remount`.
//!
//! `system.holdfast.sync`: reading it makes everything durable that was done before. The kernel does not forward
//! sync(2) and syncfs(2), so this is how `holdfast sync` reaches us. As with those, every user may call it.
//! `system.holdfast.report`: what the serving program says of itself, and `holdfast.stats`: the counters, one `name
//! value` a line. Both are for root and the user of the mount. `holdfast.fsync`: what the last fsync of this file or
//! directory cost, in such lines and in `says` lines for people; ENODATA if none is known. Every user with permission
//! to read the file may read it. `system.holdfast.pending`: which requests for data are under way, for all. `system.holdfast.shown`: which volume this is and what is shown of it, for all. `system.holdfast.snapshot`: of which snapshot the file is, for all. Of the last fsync the path of the file in the volume stands there for root and the user of the mount only. None of them is listed or stored.
//!
//! The kernel checks no permission for names in `system.`, on purpose: that is left to the filesystem. For all others
//! it wants permission to read the file. It lets only the user of the mount in, not even root, unless `allow_other`
//! says so. Where the kernel asks for no attributes (`noxattr`) ours are read by ioctl(2), with the same rights. Commands
//! come by the same ioctl, see `control`.

use std::fmt::Write as _;

use holdfast_base::InodeNo;
use holdfast_base::units::BLOCK_BYTES;
use holdfast_posix::{Caller, FileSystem, Whereabouts, XattrFlags};
use holdfast_wire::ask::{Piece, VALUE_MAX};
use zerocopy::{FromBytes, IntoBytes};

use super::{CHANGE_XATTR, CONTROL, REMOUNT_XATTR, Server};
use crate::caller::Capability;
use crate::flags;
use crate::fsyncs::SyncKind;
use crate::interface::{Answer, Errno, Request, XattrReply};
use crate::options::Report;
use crate::statistics::Operation;

/// Reading this attribute of anything inside the mount makes the whole volume durable. It is empty.
pub const SYNC_XATTR: &[u8] = b"system.holdfast.sync";
/// The value of this attribute of anything inside the mount is [`FuseOptions::report`](crate::FuseOptions).
pub const REPORT_XATTR: &[u8] = b"system.holdfast.report";
/// The value of this attribute of anything inside the mount is the list of counters.
pub const STATS_XATTR: &[u8] = b"holdfast.stats";

/// The value of this attribute tells what the last fsync of its file or directory cost.
pub const FSYNC_XATTR: &[u8] = b"holdfast.fsync";

/// The value of this attribute says which requests for data are under way: how many have come, how they come, and each thread that
/// may have one in hand. The module `page_writes` has the argument.
pub const PENDING_XATTR: &[u8] = b"system.holdfast.pending";

/// The value of this attribute of anything inside the mount says which volume that is, and what is shown of it: fields that end with a 0, as
/// `Server::shown` has them. So the library finds the mount of a branch (`holdfast/src/mounted/shown.rs`).
pub const SHOWN_XATTR: &[u8] = b"system.holdfast.shown";

/// The value of this attribute of anything that is of a snapshot is the number of that, in decimal digits: in a mount of it, and below
/// `.snapshots` (`Server::asks_for_snapshot`). ENODATA of all else, so that a directory of the volume is not taken for a snapshot.
pub const SNAPSHOT_XATTR: &[u8] = b"system.holdfast.snapshot";

/// All of these that can be read.
const OWN: [&[u8]; 7] = [
    SYNC_XATTR,
    REPORT_XATTR,
    STATS_XATTR,
    FSYNC_XATTR,
    PENDING_XATTR,
    SHOWN_XATTR,
    SNAPSHOT_XATTR,
];

/// The last long value that was asked for in pieces.
#[derive(Debug, Default)]
pub(super) struct Asked {
    number: u32,
    value: Vec<u8>,
}

/// Attributes that only root sees begin so.
const TRUSTED: &[u8] = b"trusted.";
/// Access control lists begin so. Setting one changes the permission bits.
const ACL: &[u8] = b"system.posix_acl_";
/// The list that new files in a directory inherit.
pub(super) const DEFAULT_ACL: &[u8] = b"system.posix_acl_default";

impl Server {
    /// The value of an attribute; with `size` 0 only its length.
    pub fn getxattr(
        &self,
        request: &Request,
        inode: InodeNo,
        name: &[u8],
        size: u32,
    ) -> Answer<XattrReply> {
        let fs = self.fs()?;
        let value = match name {
            SYNC_XATTR => {
                // Of everything, so of the root: wherever in the mount it was asked for.
                self.durable(&fs, InodeNo::ROOT, SyncKind::Sync, || fs.sync())?;
                Vec::new()
            }
            REPORT_XATTR | STATS_XATTR if !self.is_owner(request) => {
                return Err(Errno(libc::EACCES));
            }
            REPORT_XATTR => {
                let report = self.options.report.as_ref().and_then(Report::make);
                report.ok_or(Errno(libc::ENODATA))?
            }
            STATS_XATTR => self.stats(&fs).into_bytes(),
            PENDING_XATTR => self.page_writes.describe().into_bytes(),
            SHOWN_XATTR => shown(&fs, self.options.host_file)?,
            SNAPSHOT_XATTR => match fs.snapshot_name()? {
                Some(_) => fs.tree_number().to_string().into_bytes(),
                None => return Err(Errno(libc::ENODATA)),
            },
            FSYNC_XATTR => {
                // A reader of the file need not be allowed to see the directories above.
                let place = self.is_owner(request).then(|| fs.whereabouts(inode));
                let path = place.as_ref().and_then(Whereabouts::path);
                self.fsyncs.describe(inode, path).ok_or(Errno(libc::ENODATA))?.into_bytes()
            }
            _ => {
                let _timed = self.timed(Operation::Other);
                self.expect_no_list(name)?;
                fs.getxattr(&self.caller(&fs, request)?, inode, name)?
            }
        };
        fit(value, size)
    }

    /// The names of all attributes; with `size` 0 only their length.
    pub fn listxattr(&self, request: &Request, inode: InodeNo, size: u32) -> Answer<XattrReply> {
        let _timed = self.timed(Operation::Other);
        let fs = self.fs()?;
        let mut names = fs.listxattr(&Caller::root(), inode)?;
        // The kernel does not filter this list.
        let is_trusted = |name: &Vec<u8>| name.starts_with(TRUSTED);
        if names.iter().any(is_trusted) && !self.is_capable(request, Capability::Administer) {
            names.retain(|name| !is_trusted(name));
        }
        names.retain(|name| self.expect_no_list(name).is_ok());
        let mut list = Vec::new();
        for name in names {
            list.extend_from_slice(&name);
            list.push(0);
        }
        fit(list, size)
    }

    /// Sets an attribute; `flags` are those of setxattr(2). With `kill_sgid` an access control list clears set-gid: the
    /// kernel knows the groups of the caller.
    pub fn setxattr(
        &self,
        request: &Request,
        inode: InodeNo,
        name: &[u8],
        value: &[u8],
        flags: i32,
        kill_sgid: bool,
    ) -> Answer<()> {
        let fs = self.fs()?;
        if name == REMOUNT_XATTR {
            return match self.is_owner(request) {
                true => self.remount(value),
                false => Err(Errno(libc::EACCES)),
            };
        }
        if name == CHANGE_XATTR {
            return match self.is_owner(request) {
                true => self.permits.add(value),
                false => Err(Errno(libc::EACCES)),
            };
        }
        if OWN.contains(&name) {
            return Err(Errno(libc::EPERM));
        }
        let _timed = self.timed(Operation::Attributes);
        self.expect_no_list(name)?;
        let mut flags = flags::xattr(flags)?;
        flags.set(XattrFlags::KILL_SGID, kill_sgid);
        fs.setxattr(&self.caller(&fs, request)?, inode, name, value, flags)?;
        if self.acl_is_news(name) {
            self.tell_attr_changed(inode);
        }
        Ok(())
    }

    /// Whether the kernel does not know that setting this attribute changes the permission bits:
    /// it knows only if it obeys the lists itself.
    fn acl_is_news(&self, name: &[u8]) -> bool {
        !self.is_trusting() && name.starts_with(ACL)
    }

    /// Removes an attribute.
    pub fn removexattr(&self, request: &Request, inode: InodeNo, name: &[u8]) -> Answer<()> {
        let _timed = self.timed(Operation::Attributes);
        let fs = self.fs()?;
        self.expect_no_list(name)?;
        Ok(fs.removexattr(&self.caller(&fs, request)?, inode, name)?)
    }

    /// Fails if it is an access control list where there are none.
    fn expect_no_list(&self, name: &[u8]) -> Answer<()> {
        match name.starts_with(ACL) && !self.has_lists() {
            true => Err(Errno(libc::EOPNOTSUPP)),
            false => Ok(()),
        }
    }

    /// Whether this, as it comes by ioctl(2), asks of which snapshot something is.
    pub(crate) fn asks_for_snapshot(piece: &[u8]) -> bool {
        let piece = Piece::read_from_bytes(piece);
        piece.is_ok_and(|piece| piece.content() == Some(SNAPSHOT_XATTR))
    }

    /// Reads one of our own attributes for a program that asks by ioctl(2), where there are no others.
    pub(crate) fn ask(&self, request: &Request, inode: InodeNo, piece: &[u8]) -> Answer<Vec<u8>> {
        let piece = Piece::read_from_bytes(piece).map_err(|_| Errno(libc::EINVAL))?;
        if let Some(command) = piece.content().and_then(|text| text.strip_prefix(CONTROL)) {
            let answer = self.control(request, command)?;
            return Ok(Piece::new(answer.len() as u32, 0, &answer).as_bytes().to_vec());
        }
        let name = piece.content().filter(|name| OWN.contains(name));
        let name = name.ok_or(Errno(libc::EOPNOTSUPP))?;
        let at = piece.at as usize;
        let new = match at {
            0 => match self.getxattr(request, inode, name, VALUE_MAX)? {
                XattrReply::Bytes(value) => Some(value),
                XattrReply::Length(_) => return Err(Errno(libc::EIO)),
            },
            // Long values are not for all.
            _ if !self.is_owner(request) => return Err(Errno(libc::EACCES)),
            _ => None,
        };
        let mut asked = self.asked.lock();
        if let Some(value) = new {
            let number = asked.number.wrapping_add(1);
            *asked = Asked { number, value };
        } else if asked.number != piece.value {
            return Err(Errno(libc::EAGAIN));
        }
        let rest = asked.value.get(at..).ok_or(Errno(libc::EINVAL))?;
        let length = asked.value.len() as u32;
        Ok(Piece::new(length, asked.number, rest).as_bytes().to_vec())
    }

    fn stats(&self, fs: &FileSystem) -> String {
        let mut text = String::new();
        for reading in fs.counters().list() {
            let _ = writeln!(text, "{} {}", reading.name, reading.value);
        }
        for (kind, count) in self.requests().list() {
            let _ = writeln!(text, "fuse_{} {count}", kind.name());
        }
        text
    }
}

/// Id, bytes, bytes of a node, number and name of the branch, `@` and the name of the snapshot if it is one, label; and of what holds the
/// volume, if that is known, `file` or `block`, device and inode; a 0 behind each. More may follow one day.
fn shown(fs: &FileSystem, host_file: Option<(bool, u64, u64)>) -> Answer<Vec<u8>> {
    let superblock = fs.superblock();
    let geometry = &superblock.geometry;
    let bytes = geometry.volume_blocks.saturating_mul(BLOCK_BYTES);
    let (uuid, node_size) = (superblock.uuid.as_u128(), geometry.node_size);
    let mut text =
        format!("{uuid:032x}\0{bytes}\0{node_size}\0{}\0", fs.branch_number()?).into_bytes();
    text.extend_from_slice(&fs.branch_name()?);
    text.push(0);
    if let Some(name) = fs.snapshot_name()? {
        text.push(b'@');
        text.extend_from_slice(&name);
    }
    text.push(0);
    text.extend_from_slice(superblock.label.as_bytes());
    text.push(0);
    if let Some((is_block_device, device, inode)) = host_file {
        let kind = if is_block_device { "block" } else { "file" };
        text.extend_from_slice(format!("{kind}\0{device}\0{inode}\0").as_bytes());
    }
    Ok(text)
}

/// What the caller's buffer of `size` bytes gets.
fn fit(bytes: Vec<u8>, size: u32) -> Answer<XattrReply> {
    let length = u32::try_from(bytes.len()).map_err(|_| Errno(libc::E2BIG))?;
    if size == 0 {
        Ok(XattrReply::Length(length))
    } else if length > size {
        Err(Errno(libc::ERANGE))
    } else {
        Ok(XattrReply::Bytes(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::fresh;

    #[test]
    fn a_value_fits_or_says_how_long_it_is() {
        let value = b"12345".to_vec();
        assert_eq!(fit(value.clone(), 0), Ok(XattrReply::Length(5)));
        assert_eq!(fit(value.clone(), 4), Err(Errno(libc::ERANGE)));
        assert_eq!(fit(value.clone(), 5), Ok(XattrReply::Bytes(value.clone())));
        assert_eq!(fit(Vec::new(), 1), Ok(XattrReply::Bytes(Vec::new())));
    }

    #[test]
    fn which_users_may_read_which_attribute_of_the_mount() {
        let fs = fresh::mount(&fresh::volume());
        let mut server = fresh::server(&fs);
        let ask_of = |server: &Server, uid, name| {
            let request = Request { uid, gid: uid, pid: 0 };
            server.getxattr(&request, InodeNo::ROOT, name, 65536)
        };
        let me = rustix::process::getuid().as_raw();
        let stranger = me + 4711;
        assert_eq!(
            ask_of(&server, me, REPORT_XATTR),
            Err(Errno(libc::ENODATA)),
            "nobody makes one"
        );
        server.options.report = Some(Report::new(|| Some(b"all is well".to_vec())));
        let ask = |uid, name| ask_of(&server, uid, name);
        for uid in [0, me] {
            assert_eq!(ask(uid, REPORT_XATTR), Ok(XattrReply::Bytes(b"all is well".to_vec())));
            assert!(matches!(ask(uid, STATS_XATTR), Ok(XattrReply::Bytes(_))));
        }
        for name in [REPORT_XATTR, STATS_XATTR] {
            assert_eq!(ask(stranger, name), Err(Errno(libc::EACCES)));
        }
        let root = Request { uid: 0, gid: 0, pid: 0 };
        let mode = crate::interface::Mode { mode: libc::S_IFREG | 0o644, umask: 0 };
        server.mknod(&root, InodeNo::ROOT, b"f", mode, 0).unwrap();
        assert!(!fs.is_durable());
        assert_eq!(ask(stranger, SYNC_XATTR), Ok(XattrReply::Bytes(Vec::new())));
        assert!(fs.is_durable(), "as sync(2), for everybody");
        let Ok(XattrReply::Bytes(shown)) = ask(stranger, SHOWN_XATTR) else {
            panic!("every user may know what is mounted")
        };
        let fields: Vec<&[u8]> = shown.split(|byte| *byte == 0).collect();
        assert_eq!((fields.len(), fields[4], fields[5]), (8, &b"main"[..], &b""[..]));
        assert_eq!(ask(me, SNAPSHOT_XATTR), Err(Errno(libc::ENODATA)), "it is a branch");
        for name in OWN {
            let set = server.setxattr(&root, InodeNo::ROOT, name, b"", 0, false);
            assert_eq!(set, Err(Errno(libc::EPERM)));
        }
        server.close();
    }
}
