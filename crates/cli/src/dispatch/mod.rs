//! Where work on a volume is carried out: in its daemon, if one serves it, and otherwise here, on the volume at rest.

mod conversation;
mod here;
mod input;
mod output;
mod pump;

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use holdfast::VolumeOptions;
use holdfast_base::clock::Deadline;
use holdfast_device::HostFile;
use holdfast_service::work::{At, AtRest, Job, Tree, Work, carry_out, files};
use rustix::fs::OFlags;

pub(crate) use self::conversation::Conversation;
use self::here::Here;
pub(crate) use self::input::Input;
pub(crate) use self::output::Output;
use holdfast_daemon::control_socket::message::{self, DaemonAnswer, Question};
use holdfast_daemon::control_socket::{Daemon, HELLO, id};
use holdfast_daemon::interrupt::Interrupt;
use holdfast_daemon::mounts::{self, Mount};
use holdfast_daemon::{ask, opening};

use self::pump::Ran;
use crate::branches::{Ask, Name, Place, Reply};
use crate::outcome::{Context, Failure, Outcome, plain_words, printed, shown};

/// How long a daemon gets to open its volume, and to look whether it may do the work.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long mounts get to hand over pages of mapped files.
const PAGES: Duration = Duration::from_secs(60);

/// Where a command's bytes come from and go to.
pub(crate) struct Pipes {
    /// What is read, one behind the other.
    pub(crate) inputs: Vec<Input>,
    /// Where bytes go that it writes.
    pub(crate) output: Output,
    /// Show on a terminal how far it has come.
    pub(crate) shows_progress: bool,
    /// What it counts there.
    pub(crate) counts: &'static str,
    /// What it means that standard output cannot be written.
    pub(crate) not_written: fn(io::Error) -> Failure,
    /// Ctrl-C stops the work, and its last words are shown. Without it the command just ends.
    pub(crate) interrupt: Option<Interrupt>,
    /// How long a daemon may take; `None`: for ever.
    pub(crate) patience: Option<Duration>,
}

impl Pipes {
    /// Only standard output, for people: a reader that has gone is no failure.
    pub(crate) fn out() -> Pipes {
        let not_written = |error| match printed(Err(error)) {
            Err(failure) => failure,
            Ok(()) => Failure::plain(""),
        };
        Pipes {
            inputs: Vec::new(),
            output: Output::Stdout,
            shows_progress: false,
            counts: "files",
            not_written,
            interrupt: None,
            patience: None,
        }
    }
}

/// A volume, by its file or by a directory in which it is mounted.
#[derive(Clone, Debug)]
pub(crate) struct Located {
    /// As it was called.
    name: String,
    image: PathBuf,
    mount: Option<Mount>,
}

impl Located {
    /// Finds what a place is in.
    ///
    /// # Errors
    /// It is a directory in which nothing of ours is mounted.
    pub(crate) fn of(place: &Place) -> Result<Located, Failure> {
        let path = &place.path;
        let name = shown(path);
        let real = mounts::real_path(path);
        let mounts = mounts::or_none(mounts::list()).context("/proc/self/mountinfo")?;
        if let Some(mount) = mounts.into_iter().rev().find(|mount| mount.dir == real) {
            let image = mount.source.clone();
            return Ok(Located { name, image, mount: Some(mount) });
        }
        match path.is_dir() {
            true => Err(Failure::plain(format!("{name} is not a mounted Holdfast volume"))),
            false => Ok(Located { name, image: path.clone(), mount: None }),
        }
    }

    /// Whether it is named by its file, and no daemon has that.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.mount.is_none() && id(&self.image).is_some_and(|id| Daemon::of(&id, HELLO).is_err())
    }

    /// As it was called.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The file or device of the volume.
    pub(crate) fn image(&self) -> &Path {
        &self.image
    }

    /// What a place in it means.
    pub(crate) fn tree(&self, place: &Place) -> Tree {
        Tree { at: self.at(), branch: place.branch.clone(), snapshot: place.snapshot.clone() }
    }

    fn at(&self) -> Option<At> {
        self.mount.as_ref().map(|mount| At {
            dir: Name(mount.dir.as_os_str().as_bytes().into()),
            device: mount.device.clone(),
        })
    }

    /// Whether another place is in the same volume.
    pub(crate) fn has(&self, other: &Located) -> bool {
        id(&self.image).is_some_and(|own| id(&other.image) == Some(own))
    }

    /// Carries work out, where the volume is.
    pub(crate) fn run(&self, work: Work, pipes: Pipes) -> Outcome {
        match self.by_daemon(work, pipes)? {
            Done::Ended(outcome) => outcome,
            Done::Not(job, pipes) => {
                self.expect_at_rest()?;
                self.at_rest(&job, pipes)
            }
        }
    }

    /// Has a question about branches and snapshots answered, where the volume is. `None`: no daemon has begun with it, and there is a
    /// mount, by which it can be asked.
    ///
    /// # Errors
    /// It is not answered; if it is about a change, that may be done all the same.
    pub(crate) fn ask(
        &self,
        place: &Place,
        ask: &Ask,
        has_mount: bool,
        patience: Duration,
    ) -> Result<Option<Reply>, Failure> {
        let said = Rc::new(RefCell::new(Vec::new()));
        let output = Output::Made(said.clone());
        let pipes = Pipes { output, patience: Some(patience), ..Pipes::out() };
        let work = Work::Lineage { tree: self.tree(place), ask: ask.clone() };
        match (self.by_daemon(work, pipes), has_mount) {
            (Ok(Done::Ended(outcome)), _) => outcome,
            (_, true) => return Ok(None),
            (Ok(Done::Not(job, pipes)), false) => self.at_rest(&job, pipes),
            (Err(failure), false) => Err(failure),
        }?;
        let reply = serde_json::from_slice(&said.borrow());
        reply.map(Some).map_err(io::Error::from).context(&self.name)
    }

    /// Has work carried out by the daemon, if one serves the volume.
    ///
    /// # Errors
    /// The daemon does not begin with it.
    fn by_daemon(&self, work: Work, pipes: Pipes) -> Result<Done, Failure> {
        let job = Box::new(Job { volume: self.name.clone(), at: self.at(), work });
        match self.daemon(&job)? {
            Some(daemon) => self.live(&daemon, job, pipes),
            None => Ok(Done::Not(job, pipes)),
        }
    }

    fn at_rest(&self, job: &Job, pipes: Pipes) -> Outcome {
        let options = VolumeOptions::new();
        let door = opening::open_volume(&self.image, &options, !job.work.needs().changes())?;
        let here = Here::new(pipes);
        let heads = AtRest { volume: &door, name: &self.name };
        let done = carry_out(job, &door, &heads, &here);
        here.end();
        let closed = door.close();
        let code = done?;
        closed.context(&self.name)?;
        Ok(code)
    }

    /// The daemon that serves it, if one does, with a proof that this user may have the work done.
    fn daemon(&self, job: &Job) -> Result<Option<(Daemon, File)>, Failure> {
        let access = if job.work.needs().changes() { OFlags::RDWR } else { OFlags::RDONLY };
        let Ok(proof) = holdfast_device::open_bytes(&self.image, access) else {
            return match &self.mount {
                // It is told when it is opened.
                None => Ok(None),
                Some(_) => Err(Failure::plain(format!(
                    "{}: this takes the right to {} {}",
                    self.name,
                    if job.work.needs().changes() { "write" } else { "read" },
                    self.image.display()
                ))),
            };
        };
        let Ok(id) = HostFile::of(&proof) else { return Ok(None) };
        match Daemon::of(&id, HELLO) {
            Ok(daemon) => Ok(Some((daemon, proof))),
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                Err(Failure::plain(format!("{}: {}", self.name, plain_words(&error))))
            }
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                Err(Failure::plain(format!("{}: its daemon does not answer", self.name)))
            }
            Err(_) => Ok(None),
        }
    }

    /// The sentence for a daemon that does not say how it has ended.
    fn silent(&self, daemon: &Daemon, error: &io::Error) -> Failure {
        let (name, pid) = (&self.name, daemon.pid);
        Failure::plain(match error.kind() {
            io::ErrorKind::TimedOut => {
                format!(
                    "{name}: its daemon (process {pid}) does not answer; it may be waiting for its device, and may still do it"
                )
            }
            _ if has_ended(error) => format!(
                "{name}: the volume was unmounted, its daemon (process {pid}) has ended, or it has waited too long for this command, before this was done, or before it could say so"
            ),
            _ => format!("{name}: its daemon (process {pid}): {}", plain_words(error)),
        })
    }

    /// Asks a daemon for work, up to where frames follow. The job comes back; false: the daemon does nothing any more.
    fn agree(
        &self,
        daemon: &Daemon,
        proof: &File,
        job: Box<Job>,
    ) -> Result<(bool, Box<Job>), Failure> {
        let name = &self.name;
        let question = Question::Work(job);
        if !message::fits(&question) {
            return Err(Failure::plain(format!(
                "{name}: the names of this command are too long for the daemon of a mounted volume; name fewer files, or shorter paths"
            )));
        }
        let answer = daemon.ask(&question, &[proof.as_fd()], PATIENCE);
        let Question::Work(job) = question else { unreachable!("it was made above") };
        let mounted = match answer {
            Ok(DaemonAnswer::Prepared { mounted }) => mounted,
            Ok(DaemonAnswer::Ending) => return Ok((false, job)),
            Ok(DaemonAnswer::Refused { why }) => {
                return Err(Failure::plain(format!("{name}: {why}")));
            }
            Ok(_) => return Err(Failure::plain(format!("{name}: its daemon answers nonsense"))),
            // It has ended meanwhile.
            Err(error) if has_ended(&error) => return Ok((false, job)),
            Err(error) => return Err(self.silent(daemon, &error)),
        };
        let handed_over = self.hand_over_pages(&mounted)?;
        if let (Work::Lineage { .. }, Err(error)) = (&job.work, handed_over) {
            // A snapshot without them is none.
            return Err(Failure::of(name, &error));
        }
        match daemon.tell(&Question::Begin, HELLO) {
            Ok(()) => Ok((true, job)),
            // It has begun nothing.
            Err(error) if has_ended(&error) => Ok((false, job)),
            Err(error) => Err(self.silent(daemon, &error)),
        }
    }

    /// Begins to ask for files, if a daemon serves the volume; `None`: it is at rest.
    ///
    /// # Errors
    /// The daemon refuses or does not answer.
    pub(crate) fn converse(&self, what: files::What) -> Result<Option<Conversation>, Failure> {
        let work = Work::Files(what);
        let job = Box::new(Job { volume: self.name.clone(), at: self.at(), work });
        if let Some((daemon, proof)) = self.daemon(&job)?
            && self.agree(&daemon, &proof, job)?.0
        {
            return Conversation::new(self.name.clone(), daemon).map(Some);
        }
        self.expect_at_rest().map(|()| None)
    }

    /// Fails if there is a mount whose daemon cannot be asked.
    fn expect_at_rest(&self) -> Result<(), Failure> {
        let Some(mount) = &self.mount else { return Ok(()) };
        let dir = mount.dir.display();
        let why = format!("the daemon of {dir} is not to be reached through its control socket");
        Err(Failure::plain(why).with_hint_about("holdfast umount", &mount.dir))
    }

    /// Has it carried out by the daemon.
    fn live(
        &self,
        (daemon, proof): &(Daemon, File),
        job: Box<Job>,
        pipes: Pipes,
    ) -> Result<Done, Failure> {
        let job = match self.agree(daemon, proof, job)? {
            (true, job) => job,
            (false, job) => return Ok(Done::Not(job, pipes)),
        };
        let hand_over = |mounted: &[At]| self.hand_over_pages(mounted).map(drop);
        // Nothing was written where it is done anew.
        let again = Pipes {
            output: pipes.output.again(),
            shows_progress: pipes.shows_progress,
            counts: pipes.counts,
            not_written: pipes.not_written,
            interrupt: pipes.interrupt.clone(),
            patience: pipes.patience,
            ..Pipes::out()
        };
        // The mount of a question may answer it.
        let goes_on = self.mount.is_none() || matches!(job.work, Work::Lineage { .. });
        match pump::run(daemon.stream.as_fd(), pipes, &hand_over) {
            // It was unmounted a moment ago, and its daemon had not noticed yet.
            Ok(Ran::Cut(_)) if goes_on => Ok(Done::Not(job, again)),
            // Or it has ended without a word. What only reads can be done anew.
            Ok(Ran::Broken(_)) if goes_on && !job.work.needs().changes() => {
                Ok(Done::Not(job, again))
            }
            Ok(Ran::Cut(outcome) | Ran::To(outcome)) => Ok(Done::Ended(outcome)),
            Ok(Ran::Broken(error)) => Ok(Done::Ended(Err(self.silent(daemon, &error)))),
            Err(error) => Ok(Done::Ended(Err(self.silent(daemon, &error)))),
        }
    }

    /// Has the kernel hand over what programs have in memory of mapped files. A mount that does not answer has handed over nothing,
    /// which is returned; what was written by calls is there all the same.
    fn hand_over_pages(&self, mounted: &[At]) -> Result<io::Result<()>, Failure> {
        let until = Deadline::after(PAGES);
        let mut all = Ok(());
        for dir in self.dirs_of(mounted)? {
            let done = ask::hand_over_pages(&dir, until.left());
            all = all.and(done);
        }
        Ok(all)
    }

    /// Where mounts are to be found that a daemon names: only ours, and of this volume.
    fn dirs_of(&self, mounted: &[At]) -> Result<Vec<PathBuf>, Failure> {
        let mounts = mounts::or_none(mounts::list()).context("/proc/self/mountinfo")?;
        let image = mounts::real_path(&self.image);
        let is_meant = |mount: &Mount| {
            mount.source == image && mounted.iter().any(|at| at.device == mount.device)
        };
        Ok(mounts.into_iter().filter(is_meant).map(|mount| mount.dir).collect())
    }
}

/// What became of work that a daemon was asked for.
enum Done {
    Ended(Outcome),
    /// There is none, or it is about to end, and does nothing any more. Until it has closed the volume, an opening waits.
    Not(Box<Job>, Pipes),
}

/// Whether the other side of a connection has ended: before it was asked, with the question unread, or without an answer.
fn has_ended(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use holdfast_daemon::control_socket::message::QUESTION_MAX;

    use super::*;

    /// A daemon may end at any moment before it has begun: then the work is done on the volume at rest.
    #[test]
    fn a_daemon_that_ends_before_it_has_begun_is_no_failure() {
        let hear = |from: &UnixStream| message::receive::<Question>(from, QUESTION_MAX, HELLO);
        let pages = DaemonAnswer::Prepared { mounted: Vec::new() };
        let moments: [(&str, &(dyn Fn(UnixStream) + Sync)); 6] = [
            ("before it is asked", &drop),
            ("with the question unread", &|daemon| {
                rustix::io::read(&daemon, &mut [0; 1][..]).unwrap();
            }),
            ("without an answer", &|daemon| drop(hear(&daemon).unwrap())),
            ("when it has answered", &|daemon| {
                drop(hear(&daemon).unwrap());
                message::send(&daemon, &pages, &[], HELLO).unwrap();
            }),
            ("with the word unread that it may begin", &|daemon| {
                drop(hear(&daemon).unwrap());
                message::send(&daemon, &pages, &[], HELLO).unwrap();
                rustix::io::read(&daemon, &mut [0; 1][..]).unwrap();
            }),
            ("when it may begin", &|daemon| {
                drop(hear(&daemon).unwrap());
                message::send(&daemon, &pages, &[], HELLO).unwrap();
                drop(hear(&daemon).unwrap());
            }),
        ];
        let tree = Tree { at: None, branch: None, snapshot: None };
        let located = Located { name: "v".into(), image: "v".into(), mount: None };
        for (when, ends) in moments {
            let (stream, there) = UnixStream::pair().unwrap();
            let daemon = Daemon { stream, pid: 1, user: 0 };
            let proof = tempfile::tempfile().unwrap();
            let work = Work::Print { tree: tree.clone(), path: Name((*b"f").into()) };
            let job = Box::new(Job { volume: "v".into(), at: None, work });
            let done = std::thread::scope(|scope| {
                scope.spawn(|| ends(there));
                located.live(&(daemon, proof), job, Pipes::out())
            });
            match done {
                Ok(Done::Not(..)) => {}
                Ok(Done::Ended(outcome)) => panic!("{when}: {outcome:?}"),
                Err(failure) => panic!("{when}: {failure:?}"),
            }
        }
    }
}
