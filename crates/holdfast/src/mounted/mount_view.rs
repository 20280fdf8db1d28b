//! What a mount shows of its volume, as its daemon says.

use std::io;
use std::os::fd::AsFd;

use holdfast_device::HostFile;
use holdfast_format::item::lineage::MAIN;
use holdfast_posix::{Caller, MountOptions};
use rustix::fs::Mode;
use rustix::io::Errno;

use super::{READ_DIRECTORY, TreeId, attributes};

/// The attribute that says it, to every user: fields that end with a 0. Later programs may add some.
const SHOWN: &str = "system.holdfast.shown";
/// The attribute of what is in a snapshot: the number of that.
const SNAPSHOT: &str = "system.holdfast.snapshot";

/// What a daemon says of its volume and of what it shows of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MountView {
    pub(crate) uuid: [u8; 16],
    pub(crate) size: u64,
    pub(crate) node_size: usize,
    pub(crate) label: String,
    pub(super) branch: u64,
    branch_name: Vec<u8>,
    /// Of the branch; `None`: the branch itself.
    snapshot_name: Option<Vec<u8>>,
    /// What holds the volume; `None` of a daemon that does not say it.
    pub(super) file: Option<HostFile>,
}

impl MountView {
    /// Asks the mount whose root this is.
    pub(super) fn by(root: impl AsFd) -> io::Result<MountView> {
        let said = ask(root, SHOWN)?;
        MountView::read(&said)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "its answer makes no sense"))
    }

    /// Whether both are of one volume: of one id, and in one file or device, as copies of a volume have its id.
    pub(crate) fn is_volume_of(&self, other: &MountView) -> bool {
        self.uuid == other.uuid && self.file == other.file
    }

    /// Whether it is a snapshot, and no branch.
    pub(super) fn is_snapshot(&self) -> bool {
        self.snapshot_name.is_some()
    }

    /// `uuid size node_size branch branch_name @snapshot_name label kind device inode`, with a 0 behind each: kind is `file` or `block`.
    fn read(said: &[u8]) -> Option<MountView> {
        let mut fields = said.split(|&b| b == 0);
        let mut text = || std::str::from_utf8(fields.next()?).ok();
        let uuid = u128::from_str_radix(text()?, 16).ok()?.to_be_bytes();
        let size = text()?.parse().ok()?;
        let node_size = text()?.parse().ok()?;
        let branch = text()?.parse().ok()?;
        let branch_name = fields.next()?.to_vec();
        let snapshot_name = match fields.next()? {
            [] => None,
            marked => Some(marked.strip_prefix(b"@")?.to_vec()),
        };
        let label = String::from_utf8_lossy(fields.next()?).into_owned();
        let mut text = || std::str::from_utf8(fields.next()?).ok();
        let file = match text() {
            Some(kind @ ("file" | "block")) => Some(HostFile {
                is_block_device: kind == "block",
                device: text()?.parse().ok()?,
                inode: text()?.parse().ok()?,
            }),
            _ => None,
        };
        Some(MountView { uuid, size, node_size, label, branch, branch_name, snapshot_name, file })
    }
}

/// The number of the snapshot that this place is in; `None` if it is in none, or the daemon an older program.
pub(super) fn snapshot(place: impl AsFd) -> io::Result<Option<u64>> {
    match ask(place, SNAPSHOT) {
        Ok(said) => {
            let number = std::str::from_utf8(&said).ok().and_then(|text| text.parse().ok());
            number.map(Some).ok_or_else(|| io::ErrorKind::InvalidData.into())
        }
        Err(error) => match error.raw_os_error() {
            Some(libc::ENODATA | libc::EOPNOTSUPP | libc::ENOTTY) => Ok(None),
            _ => Err(error),
        },
    }
}

/// The value of an attribute by which a mount is asked.
pub(super) fn ask(root: impl AsFd, name: &str) -> io::Result<Vec<u8>> {
    match attributes::get(&attributes::by_descriptor(&root), name.as_bytes()) {
        // A mount without attributes is asked by ioctl(2), which takes the right to read its root.
        Err(error) if Errno::from_io_error(&error) == Some(Errno::OPNOTSUPP) => {
            let open = rustix::fs::openat(root, ".", READ_DIRECTORY, Mode::empty())?;
            holdfast_wire::ask::attribute(open, name.as_bytes())
        }
        answered => answered,
    }
}

/// What a program wants to have open.
#[derive(Debug)]
pub(crate) struct Wanted<'a> {
    options: &'a MountOptions,
    caller: &'a Caller,
    /// This, whatever the options say; with the present name of a snapshot.
    meant: Option<(TreeId, Option<&'a [u8]>)>,
}

impl<'a> Wanted<'a> {
    pub(crate) fn new(options: &'a MountOptions, caller: &'a Caller) -> Wanted<'a> {
        Wanted { options, caller, meant: None }
    }

    /// A branch or snapshot of this number, which is called so by now if it is a snapshot.
    pub(crate) fn by_number(
        options: &'a MountOptions,
        caller: &'a Caller,
        meant: TreeId,
        name: Option<&'a [u8]>,
    ) -> Wanted<'a> {
        Wanted { options, caller, meant: Some((meant, name)) }
    }

    /// The kernel judges this process alone.
    pub(super) fn by_this_process(&self) -> Result<(), String> {
        if self.options.resumed > 0 {
            return Err("a server takes the volume itself".into());
        }
        let me = rustix::process::geteuid().as_raw();
        match self.caller.trusted || self.caller.uid == me {
            true => Ok(()),
            false => Err("calls as another user cannot go through a mount".into()),
        }
    }

    /// Where this is in a mount that shows `shown`: at its root, or the snapshot of a name in it. `None`: not there.
    pub(super) fn within(&self, shown: &MountView) -> Option<Option<String>> {
        let options = self.options;
        if let Some((meant, name)) = self.meant {
            return match (name, &shown.snapshot_name) {
                _ if meant.branch != shown.branch => None,
                (None, None) | (Some(_), Some(_)) => Some(None),
                (Some(name), None) => within(name),
                (None, Some(_)) => None,
            };
        }
        if let Some(number) = options.number {
            return (number == shown.branch && shown.snapshot_name.is_none()).then_some(None);
        }
        let is_branch = match &options.branch {
            Some(name) => *name == shown.branch_name,
            None => shown.branch == MAIN,
        };
        match (&options.snapshot, &shown.snapshot_name) {
            _ if !is_branch => None,
            (None, None) => Some(None),
            (Some(name), Some(shown)) => (name == shown).then_some(None),
            (Some(name), None) => within(name),
            (None, Some(_)) => None,
        }
    }

    /// Whether a place in the snapshot of this number is one in what is wanted, as far as that is known by a number.
    pub(super) fn is_snapshot(&self, number: Option<u64>) -> bool {
        self.meant.is_none_or(|(meant, _)| meant.snapshot == number)
    }
}

/// Below `.snapshots`, if this can be a name there.
fn within(name: &[u8]) -> Option<Option<String>> {
    let name = std::str::from_utf8(name).ok()?;
    let is_name = !name.is_empty() && !name.contains('/') && ![".", ".."].contains(&name);
    is_name.then(|| Some(name.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::VolumeOptions;

    fn shown(said: &[u8]) -> MountView {
        MountView::read(said).unwrap()
    }

    #[test]
    fn what_makes_no_sense_is_not_believed() {
        let whole =
            b"000000000000000000000000000000ff\x0065536\x0016384\x001\0main\0\0my label\0more\0";
        let read = shown(whole);
        assert_eq!((read.uuid[15], read.size, read.node_size), (255, 65536, 16384));
        assert_eq!(
            (read.branch, &read.branch_name[..], read.snapshot_name),
            (1, &b"main"[..], None)
        );
        assert_eq!((&read.label[..], read.file), ("my label", None));
        let of_file = shown(b"ff\x001\x001\x001\0main\0\0\0file\x007\x0012\0").file;
        assert_eq!(of_file, Some(HostFile { device: 7, inode: 12, is_block_device: false }));
        for nonsense in
            [&b""[..], b"x", b"ff\0many\x0016384\x001\0main\0\0\0", b"ff\x001\x001\x001\0main\0"]
        {
            assert_eq!(MountView::read(nonsense), None);
        }
    }

    #[test]
    fn a_mount_has_its_branch_and_the_snapshots_of_that() {
        let main = shown(format!("ff\x001\x001\x00{MAIN}\0main\0\0\0").as_bytes());
        let work = shown(b"ff\x001\x001\x00700\0work\0\0\0");
        let monday = shown(b"ff\x001\x001\x00700\0work\0@monday\0\0");
        let within = |options: VolumeOptions, shown: &MountView| {
            Wanted::new(&options.mount, &options.caller).within(shown)
        };
        let new = VolumeOptions::new;
        assert_eq!(within(new(), &main), Some(None));
        assert_eq!(within(new(), &work), None);
        assert_eq!(within(new().branch("work"), &work), Some(None));
        assert_eq!(within(new().number(700), &work), Some(None));
        assert_eq!(within(new().branch("work"), &monday), None);
        let of_work = || new().branch("work").snapshot("monday");
        assert_eq!(within(of_work(), &monday), Some(None));
        assert_eq!(within(of_work(), &work), Some(Some("monday".into())));
        for bad in ["..", ".", "", "a/b"] {
            assert_eq!(within(new().snapshot(bad), &main), None, "{bad:?}");
        }
    }

    #[test]
    fn a_number_is_meant_whatever_the_names_are() {
        let options = VolumeOptions::new().branch("work").snapshot("monday");
        let work = shown(b"ff\x001\x001\x00700\0work\0\0\0");
        let monday = shown(b"ff\x001\x001\x00700\0work\0@monday\0\0");
        let wanted = |meant, name: Option<&'static str>| {
            let name = name.map(str::as_bytes);
            Wanted::by_number(&options.mount, &options.caller, meant, name)
        };
        let branch = wanted(TreeId::branch(700), None);
        assert_eq!((branch.within(&work), branch.within(&monday)), (Some(None), None));
        assert!(branch.is_snapshot(None) && !branch.is_snapshot(Some(7)));
        let other = wanted(TreeId::branch(701), None);
        assert_eq!((other.within(&work), other.within(&monday)), (None, None));
        let tuesday = wanted(TreeId::snapshot(700, 7), Some("tuesday"));
        assert_eq!(tuesday.within(&work), Some(Some("tuesday".into())));
        // Its number decides.
        assert_eq!(tuesday.within(&monday), Some(None));
        assert!(tuesday.is_snapshot(Some(7)));
        assert!(!tuesday.is_snapshot(Some(8)) && !tuesday.is_snapshot(None));
        assert!(Wanted::new(&options.mount, &options.caller).is_snapshot(Some(8)));
    }
}
