//! What all daemons serve that a user may ask, and what those of other users may take of root for that.
//!
//! Other users' daemons say and do what they like. Root gives all those of one user together so much time, and takes so many bytes of
//! them, however many there are and wherever they listen.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use holdfast_base::clock::Deadline;
use rustix::process::geteuid;

use super::connect::{Peer, connect};
use super::directory::Directory;
use super::message::{self, ANSWER_MAX, DaemonAnswer, Question, Served};
use super::{Daemon, LOCKED, OF_ROOT, lock, own_directories};

/// How long all daemons of one other user may take to answer root, and how many bytes they may say.
const TIME_OF_ONE_USER: Duration = Duration::from_secs(5);
const BYTES_OF_ONE_USER: usize = 4 << 20;
/// Users that root looks for in a directory, and sockets in one of them.
const USERS_MAX: usize = 10_000;
const SOCKETS_MAX: usize = 10_000;

/// What the daemons of this user and of root serve; for root those of all users. One that does not answer within `patience` is left
/// out. What this user's daemons have left that were killed is removed.
pub(crate) fn all_served(patience: Duration) -> Vec<(Peer, Served)> {
    let me = geteuid().as_raw();
    let mut found = Asked { patience, served: Vec::new() };
    let own = own_directories().into_iter().filter_map(|dir| Directory::trusted(dir, me));
    found.ask(own, &mut Allowance::trusted());
    if me != 0 {
        let of_root = Directory::trusted(OF_ROOT.into(), 0);
        found.ask(of_root, &mut Allowance::trusted());
        return found.served;
    }
    let named = [("/run/user", ""), ("/tmp", "holdfast-")];
    let users: BTreeSet<u32> =
        named.into_iter().flat_map(|(dir, prefix)| users_below(dir.as_ref(), prefix)).collect();
    for user in users.into_iter().filter(|user| *user != me) {
        found.ask(Directory::of_stranger(user), &mut Allowance::of_stranger());
    }
    found.served
}

/// Users after whose numbers directories of theirs below `dir` are called, with `prefix` in front. What others have called so neither
/// takes their places nor has root look for their homes.
fn users_below(dir: &Path, prefix: &str) -> Vec<u32> {
    let user = |entry: fs::DirEntry| {
        let name = entry.file_name();
        let digits = name.to_str()?.strip_prefix(prefix)?;
        let user: u32 = digits.parse().ok()?;
        let own = || entry.metadata().is_ok_and(|found| found.is_dir() && found.uid() == user);
        (user.to_string() == digits && own()).then_some(user)
    };
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter_map(user).take(USERS_MAX).collect()
}

/// What all daemons of a user may still take.
struct Allowance {
    until: Option<Deadline>,
    bytes: usize,
}

impl Allowance {
    fn trusted() -> Allowance {
        Allowance { until: None, bytes: usize::MAX }
    }

    fn of_stranger() -> Allowance {
        Allowance { until: Some(Deadline::after(TIME_OF_ONE_USER)), bytes: BYTES_OF_ONE_USER }
    }

    /// For one daemon; `None`: they have taken all.
    fn time(&self, patience: Duration) -> Option<Duration> {
        let left = self.until.as_ref().map_or(patience, |until| patience.min(until.left()));
        (!left.is_zero() && self.bytes > 0).then_some(left)
    }
}

/// Those that have answered.
struct Asked {
    patience: Duration,
    served: Vec<(Peer, Served)>,
}

impl Asked {
    /// Asks the daemons of a user that listen in these directories.
    fn ask(&mut self, dirs: impl IntoIterator<Item = Directory>, of: &mut Allowance) {
        let me = geteuid().as_raw();
        for dir in dirs {
            for name in dir.sockets(SOCKETS_MAX) {
                let Some(time) = of.time(self.patience) else { return };
                match served(&dir, &name, of, time) {
                    Ok(served) => self.served.push(served),
                    Err(error)
                        if error.kind() == io::ErrorKind::ConnectionRefused && dir.owner == me =>
                    {
                        sweep(dir.path(), &dir.path().join(name));
                    }
                    Err(_) => {}
                }
            }
        }
    }
}

fn served(
    dir: &Directory,
    name: &OsStr,
    of: &mut Allowance,
    time: Duration,
) -> io::Result<(Peer, Served)> {
    let until = Deadline::after(time);
    let most = of.bytes.min(ANSWER_MAX);
    let mut left = most;
    let answer = Daemon::at(dir, name, &mut left, time).and_then(|daemon| {
        message::send(&daemon.stream, &Question::List, &[], until.left())?;
        let answer = message::receive_of(&daemon.stream, &mut left, until.left())?;
        Ok((Peer { pid: daemon.pid, user: daemon.user }, answer))
    });
    of.bytes -= most - left;
    match answer? {
        (peer, DaemonAnswer::Served(served)) => Ok((peer, served)),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Removes a socket on which no daemon listens, unless one does by now.
fn sweep(dir: &Path, path: &Path) {
    let Ok(_lock) = lock::take(dir, LOCKED) else { return };
    let refused = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
    if connect(path, LOCKED).is_err_and(refused) {
        let _ = fs::remove_file(path);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn users_are_known_by_their_own_directories_and_other_names_count_for_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let me = geteuid().as_raw();
        let own = format!("holdfast-{me}");
        let others = (0..100).map(|at| format!("other-{at}"));
        let zeros = format!("holdfast-0{me}");
        for name in others.chain([own, zeros, format!("{me}"), format!("holdfast-{}", me + 1)]) {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        assert_eq!(users_below(dir.path(), "holdfast-"), [me]);
        assert_eq!(users_below(dir.path(), ""), [me]);
        fs::remove_dir(dir.path().join(me.to_string())).unwrap();
        fs::write(dir.path().join(me.to_string()), "").unwrap();
        assert_eq!(users_below(dir.path(), ""), [0; 0], "it is a file");
    }

    /// Daemons that say this to each caller.
    fn say(dir: &Path, count: usize, answer: &str) -> Vec<UnixListener> {
        fs::create_dir(dir).unwrap();
        fs::set_permissions(dir, fs::Permissions::from_mode(0o700)).unwrap();
        let one = |at| {
            let listener = UnixListener::bind(dir.join(format!("file-1-{at}.sock"))).unwrap();
            let (accepts, answer) = (listener.try_clone().unwrap(), answer.to_owned());
            std::thread::spawn(move || {
                let mut held = Vec::new();
                while let Ok((stream, _)) = accepts.accept() {
                    let soon = Duration::from_secs(60);
                    let hello = DaemonAnswer::Hello { protocol: message::PROTOCOL };
                    let _ = message::send(&stream, &hello, &[], soon);
                    let _ = message::send(&stream, &answer, &[], soon);
                    held.push(stream);
                }
            });
            listener
        };
        (0..count).map(one).collect()
    }

    #[test]
    fn all_daemons_of_a_user_have_one_allowance_in_all_their_directories() {
        let place = tempfile::tempdir().unwrap();
        let me = geteuid().as_raw();
        let dirs = ["one", "other"].map(|name| place.path().join(name));
        // Nonsense is counted as well.
        let listening = dirs.each_ref().map(|dir| say(dir, 5, &"x".repeat(1000)));
        let mut asked = Asked { patience: Duration::from_secs(60), served: Vec::new() };
        let dirs = || dirs.clone().into_iter().filter_map(|dir| Directory::trusted(dir, me));
        let mut of = Allowance { bytes: 10_000, ..Allowance::trusted() };
        asked.ask(dirs(), &mut of);
        assert_eq!((of.bytes, asked.served.len()), (0, 0), "the last ones are not asked");
        let mut of = Allowance { until: Some(Deadline::after(Duration::ZERO)), ..of };
        of.bytes = 10_000;
        asked.ask(dirs(), &mut of);
        assert_eq!(of.bytes, 10_000, "none is asked when their time is over");
        drop(listening);
    }
}
