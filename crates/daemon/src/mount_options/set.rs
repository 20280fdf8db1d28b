//! What each word of `-o` sets, and which words mean nothing here.

use std::time::Duration;

use holdfast::{Atime, Discard};
use holdfast_service::{mode, owner, size};

use super::DaemonOptions;
use super::generic::{Fate, fate};

/// A batch of the log is much larger, whatever else it holds.
const LOG_DATA_MAX: u64 = 512 << 10;

impl DaemonOptions {
    /// Sets one option of a list.
    ///
    /// # Errors
    /// It is unknown, means nothing here, or its value is wrong.
    pub fn set(&mut self, option: &str) -> Result<(), String> {
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (option, None),
        };
        if self.set_flag(name) {
            return Ok(());
        }
        match fate(name) {
            Some(Fate::Ignored) => Ok(()),
            Some(Fate::Refused(why)) => Err(format!("option {name} {why}")),
            None => self.set_value(option, name, value),
        }
    }

    /// Whether `name` is an option without a value; then it is set.
    fn set_flag(&mut self, name: &str) -> bool {
        match name {
            "ro" => self.read_only = true,
            "rw" => self.read_only = false,
            "noatime" => self.atime = Some(Atime::Never),
            "relatime" | "atime" => self.atime = Some(Atime::Relative),
            "strictatime" => self.atime = Some(Atime::Always),
            "nostrictatime" if self.atime == Some(Atime::Always) => {
                self.atime = Some(Atime::Relative);
            }
            "nostrictatime" => {}
            "xattr" => self.noxattr = false,
            "noxattr" => self.noxattr = true,
            "allow_other" => self.allow_other = Some(true),
            "noallow_other" => self.allow_other = Some(false),
            "default_permissions" => self.nodefault_permissions = false,
            "nodefault_permissions" => self.nodefault_permissions = true,
            "dev" => self.nodev = false,
            "nodev" => self.nodev = true,
            "suid" => self.nosuid = false,
            "nosuid" => self.nosuid = true,
            "symfollow" => self.nosymfollow = false,
            "nosymfollow" => self.nosymfollow = true,
            "diratime" => self.nodiratime = false,
            "nodiratime" => self.nodiratime = true,
            "sync" => self.sync = true,
            "async" => self.sync = false,
            "dirsync" => self.dirsync = true,
            "handover" => self.handover = true,
            "nohandover" => self.handover = false,
            "supervised" => self.supervised = true,
            "nosupervised" => self.supervised = false,
            "remount" => self.remount = true,
            "exec" => self.noexec = false,
            "noexec" => self.noexec = true,
            "discard" => self.discard = Discard::On,
            "nodiscard" => self.discard = Discard::Off,
            "nofail" => self.nofail = true,
            // As mount(8) says: unless later options say otherwise, for which it puts them behind.
            "user" | "users" => (self.noexec, self.nosuid, self.nodev) = (true, true, true),
            "owner" | "group" => (self.nosuid, self.nodev) = (true, true),
            _ => return false,
        }
        true
    }

    /// How owners are shown and made.
    fn set_owners(&mut self, name: &str, value: &str) -> Result<(), String> {
        let owners = &mut self.owners;
        match name {
            "uid" => owners.uid = Some(owner::user(value)?),
            "gid" => owners.gid = Some(owner::group(value)?),
            "umask" => {
                let why = || format!("option umask={value} is not octal, like umask=022");
                let umask = mode::octal(value).ok().filter(|umask| *umask <= 0o777);
                owners.umask = umask.ok_or_else(why)?;
            }
            _ => owners.squash = value.parse()?,
        }
        Ok(())
    }

    fn set_value(&mut self, option: &str, name: &str, value: Option<&str>) -> Result<(), String> {
        let wanted = || value.ok_or_else(|| format!("option {name} needs a value: {name}=..."));
        match name {
            "commit" => {
                let seconds = wanted()?;
                let number = seconds
                    .parse()
                    .map_err(|_| format!("option commit={seconds} is not a number of seconds"))?;
                self.commit = Some(number);
            }
            "threads" => {
                let threads = wanted()?;
                let number = threads.parse().ok().filter(|number| (1..=64).contains(number));
                let why = || format!("option threads={threads} is not a number from 1 to 64");
                self.threads = Some(number.ok_or_else(why)?);
            }
            "spin" => {
                let micros = wanted()?;
                let number = micros.parse().ok().filter(|number| *number <= 10_000);
                let why =
                    || format!("option spin={micros} is not a number of microseconds up to 10000");
                self.spin = Some(Duration::from_micros(number.ok_or_else(why)?));
            }
            "transport" => self.transport = wanted()?.parse()?,
            "open" => self.opens = wanted()?.parse()?,
            "snapdir" => self.snapdir = wanted()?.parse()?,
            "cache" => self.cache = Some(size::parse(wanted()?)?),
            "dirty_bytes" => self.dirty_bytes = Some(size::parse(wanted()?)?),
            "dirty" => {
                let how = wanted()?;
                self.dirty = how.parse().map_err(|why| match size::parse(how) {
                    // What this option meant before.
                    Ok(_) => format!("{why}; for a limit of memory write dirty_bytes={how}"),
                    Err(_) => why,
                })?;
            }
            "accounting" => self.accounting = wanted()?.parse()?,
            "batch" => self.batching = wanted()?.parse()?,
            "rename_log" => self.rename_log = wanted()?.parse()?,
            "fsync_wait" => self.fsync_wait = wanted()?.parse()?,
            "log_data" => {
                let bytes = size::parse(wanted()?)?;
                if bytes > LOG_DATA_MAX {
                    let most = size::show(LOG_DATA_MAX);
                    return Err(format!(
                        "option {option} is more than {most}, which a batch holds"
                    ));
                }
                self.log_data = usize::try_from(bytes).ok();
            }
            "slow_fsync" => {
                let millis = wanted()?;
                let why = || format!("option {option} is not a number of milliseconds");
                self.slow_fsync = Some(Duration::from_millis(millis.parse().map_err(|_| why())?));
            }
            "recover" => self.recover = Some(seconds(wanted()?)?),
            "context" | "fscontext" | "defcontext" | "rootcontext" => {
                self.labels.push(format!("{name}={}", wanted()?));
            }
            "uid" | "gid" | "umask" | "squash" => self.set_owners(name, wanted()?)?,
            "branch" => self.branch = Some(unquoted(wanted()?).into()),
            "snapshot" => {
                self.snapshot = Some(unquoted(wanted()?).into());
                self.read_only = true;
            }
            "log" => self.log = Some(wanted()?.into()),
            "fsname" => self.fsname = Some(wanted()?.into()),
            _ => {
                return Err(format!(
                    "unknown mount option {option:?}; `holdfast mount --help` lists them"
                ));
            }
        }
        Ok(())
    }
}

/// A value without the quotes that keep its commas together.
fn unquoted(value: &str) -> &str {
    value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(value)
}

/// Seconds with a fraction, more than none.
fn seconds(text: &str) -> Result<Duration, String> {
    let number = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    number
        .filter(|time| !time.is_zero())
        .ok_or_else(|| format!("option recover={text} is not a number of seconds above 0"))
}
