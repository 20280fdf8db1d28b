//! What a scrub that was stopped has verified: a file by the id of the volume, in `$XDG_STATE_HOME/holdfast`, for root in
//! `/var/lib/holdfast`, otherwise in `~/.local/state/holdfast`, of the process that does the work: the daemon of a volume in use.
//!
//! It is a note and no promise: one that is lost, or too old, costs reading anew. It says nothing that harms if it is of another
//! state of the volume: what is younger than the scrub is judged whatever it says.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use holdfast_base::Timestamp;
use uuid::Uuid;

/// A scrub that began earlier is made anew: what it has verified may have rotted since. Longer than a month, so that a scrub each
/// month comes to its end however often it is stopped.
const AGE_MAX: u64 = 35 * 24 * 3600;

/// A scrub that was stopped.
pub(super) struct State {
    /// Seconds since 1970.
    pub(super) began: u64,
    pub(super) scrub: Vec<u8>,
}

/// Where it is kept.
pub(super) struct Place {
    dir: PathBuf,
    name: String,
}

/// Seconds since 1970.
pub(super) fn now() -> u64 {
    u64::try_from(Timestamp::now().secs).unwrap_or(0)
}

impl Place {
    /// For the volume with this id; `None`: this user has no directory for it.
    pub(super) fn of(uuid: &[u8; 16]) -> Option<Place> {
        let from = |name: &str| {
            std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute())
        };
        let dir = match from("XDG_STATE_HOME") {
            Some(dir) => dir.join("holdfast"),
            None if rustix::process::geteuid().is_root() => "/var/lib/holdfast".into(),
            None => from("HOME")?.join(".local/state/holdfast"),
        };
        Some(Place { dir, name: format!("{}.scrub", Uuid::from_bytes(*uuid)) })
    }

    /// What was kept, unless it is too old or makes no sense.
    pub(super) fn load(&self) -> Option<State> {
        let bytes = fs::read(self.dir.join(&self.name)).ok()?;
        let (began, scrub) = bytes.split_first_chunk::<8>()?;
        let began = u64::from_le_bytes(*began);
        let is_recent = (began..began.saturating_add(AGE_MAX)).contains(&now());
        is_recent.then(|| State { began, scrub: scrub.to_vec() })
    }

    /// Keeps it, or says in the log why not. Returns whether it is kept.
    pub(super) fn keep(&self, state: &State) -> bool {
        match self.write(state) {
            Ok(()) => true,
            Err(error) => {
                let dir = self.dir.display();
                tracing::warn!("{dir}: how far the scrub has come cannot be kept: {error}");
                false
            }
        }
    }

    fn write(&self, state: &State) -> io::Result<()> {
        fs::create_dir_all(&self.dir)?;
        let new = self.dir.join(format!("{}.new", self.name));
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
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
