//! The engine as a script's target: a volume on any device, without a kernel.
//!
//! Does what the kernel does before it calls a filesystem: resolves paths name
//! by name, refuses to follow symbolic links, looks before it creates, checks
//! how a handle was opened. Everything else is the engine's own answer, and the
//! caller is root.
//!
//! `remount` unmounts cleanly and mounts again; `crash` drops the mounted
//! filesystem without an unmount, as SIGKILL would. For a power cut the simulator
//! takes the filesystem away with [`Engine::kill`] and mounts an image of the
//! device with [`Engine::mount_on`].

mod attr;
mod branches;
mod bytes;
mod checkpoints;
mod names;

use std::sync::Arc;
use std::time::Duration;

use holdfast_base::{InodeNo, prng};
use holdfast_check::{Options, Report};
use holdfast_device::Device;
use holdfast_posix::{
    Attr, Caller, Discard, FileSystem, FileType, FsError, MkfsOptions, MountOptions, NewSize,
};
use holdfast_script::{Answer, BranchOp, Errno, FileKind, FileRef, Op, Outcome, Path, Target};

use branches::Mounts;
use checkpoints::Beside;
pub use checkpoints::Checkpoints;

/// Fixed values for what is random elsewhere: a script leaves the same bytes each time.
const CHANCE: u64 = 1;

/// What an operation answers before it becomes an outcome.
type Answered = Result<Answer, Refused>;

/// The number that a system call would return.
#[derive(Debug)]
struct Refused(Errno);

impl From<Errno> for Refused {
    fn from(errno: Errno) -> Refused {
        Refused(errno)
    }
}

impl From<FsError> for Refused {
    fn from(error: FsError) -> Refused {
        Refused(Errno::from_raw(error.errno()))
    }
}

/// How volumes of an [`Engine`] are made and mounted.
#[derive(Clone, Debug)]
pub struct Setup {
    /// What mkfs decides.
    pub mkfs: MkfsOptions,
    /// How it is mounted, each time.
    pub mount: MountOptions,
    /// The second opinion is asked after every clean unmount; what it finds fails the unmount.
    pub check: bool,
    /// Commits and checkpoints that nothing asks for.
    pub checkpoints: Checkpoints,
}

impl Setup {
    /// With the second opinion after every clean unmount. It reads from the device, so not where calls are counted.
    pub fn checked(self) -> Setup {
        Setup { check: true, ..self }
    }

    /// What became free goes back to the device at once: before the next operation, or by a thread.
    pub fn discarding(mut self) -> Setup {
        self.mount.discard = Discard::On;
        self.mount.discard_delay = Duration::ZERO;
        self
    }

    /// Nodes of `node_size` bytes, no background commit (so that the same script writes the same), and room
    /// for `inode_cache` inodes that no handle holds.
    pub fn new(node_size: usize, inode_cache: usize) -> Setup {
        Setup {
            mkfs: MkfsOptions {
                node_size,
                label: "script".into(),
                uuid: Some(*b"holdfast scripts"),
                owner: (0, 0),
                ..MkfsOptions::default()
            },
            mount: MountOptions {
                commit_secs: 0,
                inode_cache,
                // What a script reads again comes from the device.
                recent_bytes: 0,
                ..MountOptions::default()
            },
            check: false,
            checkpoints: Checkpoints::Never,
        }
    }
}

/// Reads a whole volume without the engine, data included. What is wrong is the error, one finding a line.
pub fn judge(device: &dyn Device) -> Result<Report, String> {
    let options = Options { data: true, ..Options::default() };
    let report = holdfast_check::check(device, &options).map_err(|error| error.to_string())?;
    if report.is_clean() {
        return Ok(report);
    }
    let findings: Vec<String> = report.findings.iter().map(ToString::to_string).collect();
    Err(findings.join("\n"))
}

/// A mounted volume under a script.
#[derive(Debug)]
pub struct Engine {
    setup: Setup,
    device: Arc<dyn Device>,
    /// None after [`Engine::kill`], or if the volume could not be mounted again.
    mounts: Mounts,
    beside: Option<Beside>,
    operations: u64,
    caller: Caller,
    written: usize,
}

/// The type in the script's words.
fn kind(file_type: FileType) -> FileKind {
    FileKind::from_mode(file_type.mode_bits()).expect("scripts know all types")
}

/// A filesystem is never asked to look into what is no directory.
fn expect_dir(found: &Attr) -> Result<(), Errno> {
    match found.file_type {
        FileType::Directory => Ok(()),
        FileType::Symlink => Err(Errno::ELOOP),
        _ => Err(Errno::ENOTDIR),
    }
}

impl Engine {
    /// Makes a volume on `device`, the same one each time, and mounts it.
    pub fn create(device: Arc<dyn Device>, setup: Setup) -> Result<Engine, FsError> {
        {
            let _pinned = prng::pin(CHANCE);
            FileSystem::mkfs(&device, &setup.mkfs)?;
        }
        Engine::open(device, setup)
    }

    /// Mounts the volume on `device`.
    pub fn open(device: Arc<dyn Device>, setup: Setup) -> Result<Engine, FsError> {
        let mut engine = Engine {
            setup,
            device: Arc::clone(&device),
            mounts: Mounts::none(),
            beside: None,
            operations: 0,
            caller: Caller::root(),
            written: 0,
        };
        engine.mount_on(device)?;
        Ok(engine)
    }

    /// The mounted filesystem, which is the branch in which the script is; ENOTCONN if there is none.
    pub fn filesystem(&self) -> Result<&FileSystem, Errno> {
        self.here().map(|here| &*here.filesystem)
    }

    /// Whether all operations so far are durable; what writes left in memory does not count.
    pub fn is_durable(&self) -> bool {
        self.filesystem().is_ok_and(FileSystem::is_durable)
    }

    /// The device under it.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// Bytes that the last write or append brought in; fewer than it wanted only if it was refused.
    pub fn written(&self) -> usize {
        self.written
    }

    /// Ends the filesystem without an unmount. Handles are gone.
    pub fn kill(&mut self) {
        self.beside = None;
        self.mounts.kill();
    }

    /// Mounts the volume on another device, after [`Engine::kill`] or [`Engine::unmount`].
    pub fn mount_on(&mut self, device: Arc<dyn Device>) -> Result<(), FsError> {
        self.kill();
        self.device = device;
        let filesystem = FileSystem::mount(Arc::clone(&self.device), self.setup.mount.clone())?;
        let filesystem = self.mounts.begin(filesystem, &self.setup.mount)?;
        let beside = self.setup.checkpoints.beside();
        self.beside = beside.map(|work| Beside::start(filesystem, work));
        Ok(())
    }

    /// Closes all handles, unmounts cleanly, and asks for the second opinion if the setup says so.
    pub fn unmount(&mut self) -> Result<(), FsError> {
        self.beside = None;
        if !self.mounts.unmount()? {
            return Ok(());
        }
        match self.setup.check.then(|| judge(&*self.device)) {
            Some(Err(findings)) => Err(FsError::Io(format!("check finds: {findings}"))),
            _ => Ok(()),
        }
    }

    // What the kernel does with paths.

    /// One step of a walk.
    fn step(&self, dir: &Attr, name: &[u8]) -> Result<Attr, Refused> {
        expect_dir(dir)?;
        Ok(self.filesystem()?.lookup(&self.caller, dir.inode, name)?)
    }

    /// What `path` names.
    fn find(&self, path: &Path) -> Result<Attr, Refused> {
        let root = self.filesystem()?.getattr(InodeNo::ROOT)?;
        path.names().try_fold(root, |dir, name| self.step(&dir, name))
    }

    /// The directory that holds the last name. Names of the root cannot change: EBUSY.
    fn parent<'a>(&self, path: &'a Path) -> Result<(Attr, &'a [u8]), Refused> {
        let (parent, name) = path.split().ok_or(Errno::EBUSY)?;
        let dir = self.find(&parent)?;
        expect_dir(&dir)?;
        Ok((dir, name))
    }

    /// The attributes of what an operation on attributes means.
    fn place(&self, place: &FileRef) -> Result<Attr, Refused> {
        match place {
            FileRef::Path(path) => self.find(path),
            FileRef::Handle(handle) => {
                let inode = self.handle(handle)?.inode();
                Ok(self.filesystem()?.getattr(inode)?)
            }
        }
    }

    /// Mounts again after `end` has ended the filesystem.
    fn again(&mut self, end: impl FnOnce(&mut Engine) -> Result<(), FsError>) -> Answered {
        end(self)
            .and_then(|()| self.mount_on(Arc::clone(&self.device)))
            .inspect_err(|error| eprintln!("mounting again: {error}"))?;
        Ok(Answer::Done)
    }

    fn answer(&mut self, op: &Op) -> Answered {
        match op {
            Op::Mkdir { .. }
            | Op::Mkfile { .. }
            | Op::Mknod { .. }
            | Op::Symlink { .. }
            | Op::Readlink { .. }
            | Op::Link { .. }
            | Op::Unlink { .. }
            | Op::Rmdir { .. }
            | Op::Rename { .. }
            | Op::Ls { .. } => self.names(op),
            Op::Open { .. }
            | Op::Tmpfile { .. }
            | Op::Close { .. }
            | Op::Write { .. }
            | Op::Append { .. }
            | Op::Read { .. }
            | Op::Sum { .. }
            | Op::Truncate { .. }
            | Op::Fallocate { .. }
            | Op::Seek { .. }
            | Op::Fsync { .. }
            | Op::Fdatasync { .. }
            | Op::Fsyncdir { .. } => self.bytes(op),
            Op::Stat { .. }
            | Op::Chmod { .. }
            | Op::Chown { .. }
            | Op::Utimes { .. }
            | Op::Setxattr { .. }
            | Op::Getxattr { .. }
            | Op::Removexattr { .. }
            | Op::Listxattr { .. } => self.attributes(op),
            Op::Sync => {
                for branch in self.mounts.all() {
                    branch.sync()?;
                }
                self.filesystem()?;
                Ok(Answer::Done)
            }
            Op::Grow { bytes } => {
                self.filesystem()?.resize(NewSize::Bytes(*bytes))?;
                Ok(Answer::Done)
            }
            // The engine has no call for it; small caches in the setup do the same all the time.
            Op::Evict => Ok(Answer::Done),
            Op::Remount => self.again(Engine::unmount),
            Op::Shrink { bytes } => self.again(|engine| {
                engine.unmount()?;
                FileSystem::shrink(&engine.device, *bytes, &mut |_| ())?;
                Ok(())
            }),
            Op::Crash => self.again(|engine| {
                engine.kill();
                Ok(())
            }),
            Op::Branch(op) => self.branches(op),
            Op::Tree => Ok(self.everything()?),
        }
    }
}

impl Target for Engine {
    fn apply(&mut self, op: &Op) -> Outcome {
        let answer = self.answer(op);
        self.operations += 1;
        if let Ok(filesystem) = self.filesystem() {
            // A failure stops the volume: the next operation that needs it hears of it.
            let _ = match self.setup.checkpoints {
                Checkpoints::After(n) if self.operations.is_multiple_of(n) => {
                    filesystem.checkpoint()
                }
                Checkpoints::CommitsAfter(n) if self.operations.is_multiple_of(n) => {
                    filesystem.commit()
                }
                Checkpoints::RestsAfter(n) if self.operations.is_multiple_of(n) => {
                    filesystem.rest()
                }
                _ => Ok(()),
            };
        }
        answer.map_err(|Refused(errno)| errno).into()
    }

    fn branch(&mut self, op: &BranchOp) -> Outcome {
        self.apply(&Op::Branch(op.clone()))
    }
}
