//! What a scrub that was stopped has verified: a file by the id of the volume, in `$XDG_STATE_HOME/holdfast`, for root in
//! `/var/lib/holdfast`, otherwise in `~/.local/state/holdfast`, of the process that does the work: the daemon of a volume in use.
//!
//! It is a note and no promise: one that is lost, or too old, costs reading anew. It holds for the file or device alone that was read: a
//! copy of the volume has the same id, and may have rotted elsewhere.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use holdfast_base::Timestamp;
use rustix::fs::OFlags;
use uuid::Uuid;

/// A scrub that began earlier is made anew: what it has verified may have rotted since. Longer than a month, so that a scrub each
/// month comes to its end however often it is stopped.
const AGE_MAX: u64 = 35 * 24 * 3600;

/// A scrub that was stopped.
pub(super) struct StoppedScrub {
    /// Seconds since 1970.
    pub(super) began: u64,
    pub(super) scrub: Vec<u8>,
}

/// Where it is kept.
pub(super) struct StateFile {
    dir: PathBuf,
    name: String,
}

/// Seconds since 1970.
pub(super) fn now() -> u64 {
    u64::try_from(Timestamp::now().secs).unwrap_or(0)
}

impl StateFile {
    /// For the volume with this id; `None`: this user has no directory for it.
    pub(super) fn of(uuid: &[u8; 16]) -> Option<StateFile> {
        let from = |name: &str| {
            std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute())
        };
        let dir = match from("XDG_STATE_HOME") {
            Some(dir) => dir.join("holdfast"),
            None if rustix::process::geteuid().is_root() => "/var/lib/holdfast".into(),
            None => from("HOME")?.join(".local/state/holdfast"),
        };
        Some(StateFile { dir, name: format!("{}.scrub", Uuid::from_bytes(*uuid)) })
    }

    /// What was kept of this file or device, unless it is too old or makes no sense.
    pub(super) fn load(&self, of: &str) -> Option<StoppedScrub> {
        let mut bytes = Vec::new();
        own(&self.dir.join(&self.name))?.read_to_end(&mut bytes).ok()?;
        let rest = bytes.strip_prefix(of.as_bytes())?.strip_prefix(b"\n")?;
        let (began, scrub) = rest.split_first_chunk::<8>()?;
        let began = u64::from_le_bytes(*began);
        let is_recent = (began..began.saturating_add(AGE_MAX)).contains(&now());
        is_recent.then(|| StoppedScrub { began, scrub: scrub.to_vec() })
    }

    /// Keeps it, or says in the log why not. Returns whether it is kept.
    pub(super) fn keep(&self, of: &str, state: &StoppedScrub) -> bool {
        match self.write(of, state) {
            Ok(()) => true,
            Err(error) => {
                let dir = self.dir.display();
                tracing::warn!("{dir}: how far the scrub has come cannot be kept: {error}");
                false
            }
        }
    }

    fn write(&self, of: &str, state: &StoppedScrub) -> io::Result<()> {
        fs::create_dir_all(&self.dir)?;
        let new = self.dir.join(format!("{}.new", self.name));
        // A link of another user there is not followed.
        let _ = fs::remove_file(&new);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        file.write_all(of.as_bytes())?;
        file.write_all(b"\n")?;
        file.write_all(&state.began.to_le_bytes())?;
        file.write_all(&state.scrub)?;
        file.sync_all()?;
        fs::rename(&new, self.dir.join(&self.name))?;
        File::open(&self.dir)?.sync_all()
    }

    /// The scrub has come to its end.
    pub(super) fn forget(&self) {
        match fs::remove_file(self.dir.join(&self.name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                let dir = self.dir.display();
                tracing::warn!("{dir}: what a scrub has kept cannot be removed: {error}");
            }
            _ => {}
        }
    }
}

/// A file that this user has made, and no other could have written: a note says that what it names was verified.
fn own(path: &Path) -> Option<File> {
    let how = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(how).open(path).ok()?;
    let found = file.metadata().ok()?;
    let is_own = found.uid() == rustix::process::geteuid().as_raw() && found.mode() & 0o022 == 0;
    (found.is_file() && is_own).then_some(file)
}
