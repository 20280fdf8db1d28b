//! The side of a command: work on a volume is carried out by its daemon, if one serves it, and otherwise here, on the volume at rest.

mod conversation;
mod lineage;
mod pipes;
mod relay;

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use holdfast::VolumeOptions;
use holdfast_base::clock::Deadline;
use holdfast_control::Name;
use holdfast_device::HostFile;
use holdfast_service::outcome::{Context, Failure, Outcome, plain_words, shown};
use holdfast_service::work::{At, AtRest, Job, Tree, Work, carry_out, files};
use rustix::fs::OFlags;

pub use self::conversation::Conversation;
use self::pipes::Here;
pub use self::pipes::{Input, Pipes};
use self::relay::Ran;
use crate::control_socket::message::{self, DaemonAnswer, Question};
use crate::control_socket::{Daemon, HELLO, OTHER_VERSION, id};
use crate::mounts::{self, Mount};
use crate::{ask, opening, report};

/// How long a daemon gets to open its volume, and to look whether it may do the work.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long mounts get to hand over pages of mapped files.
const PAGES: Duration = Duration::from_secs(60);

/// A volume, by its file or by a directory in which it is mounted, and a tree in it.
#[derive(Clone, Debug)]
pub struct Located {
    /// As it was called.
    name: String,
    image: PathBuf,
    mount: Option<Mount>,
    tree: Tree,
    /// Hears sentences for the person.
    note: fn(&str),
}

impl Located {
    /// Finds what a path is in. The branch and the snapshot are those that are named in it; `note` hears sentences for the person.
    ///
    /// # Errors
    /// It is a directory in which nothing of ours is mounted.
    pub fn of(
        path: &Path,
        branch: Option<Name>,
        snapshot: Option<Name>,
        note: fn(&str),
    ) -> Result<Located, Failure> {
        let name = shown(path);
        let real = mounts::real_path(path);
        let mounts = mounts::or_none(mounts::list()).context("/proc/self/mountinfo")?;
        let mount = mounts.into_iter().rev().find(|mount| mount.dir == real);
        if mount.is_none() && path.is_dir() {
            return Err(not_mounted(path));
        }
        let image = mount.as_ref().map_or_else(|| path.into(), |mount| mount.source.clone());
        let at = mount.as_ref().map(|mount| At {
            dir: Name(mount.dir.as_os_str().as_bytes().into()),
            device: mount.device.clone(),
        });
        Ok(Located { name, image, mount, tree: Tree { at, branch, snapshot }, note })
    }

    /// Whether it is named by its file, and no daemon has that.
    pub fn is_at_rest(&self) -> bool {
        self.mount.is_none() && id(&self.image).is_some_and(|id| Daemon::of(&id, HELLO).is_err())
    }

    /// As it was called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The file or device of the volume.
    pub fn image(&self) -> &Path {
        &self.image
    }

    /// The branch and the snapshot by their names: those that it was called by, or what is mounted where it was named, as far as the
    /// daemon tells this user.
    pub fn names(&self) -> [Option<Name>; 2] {
        let Tree { branch, snapshot, .. } = self.tree();
        if branch.is_some() {
            return [branch, snapshot];
        }
        let report = self.mount.as_ref().and_then(|mount| report::ask(mount).ok());
        let mounted = report.and_then(|report| report.mounted);
        let name = |text: String| Name(text.into_bytes());
        match mounted {
            Some(mounted) => [Some(name(mounted.branch)), snapshot.or(mounted.snapshot.map(name))],
            None => [None, snapshot],
        }
    }

    /// The tree in it.
    pub fn tree(&self) -> Tree {
        self.tree.clone()
    }

    /// Whether another place is in the same volume.
    pub fn has(&self, other: &Located) -> bool {
        id(&self.image).is_some_and(|own| id(&other.image) == Some(own))
    }

    /// Carries work out, where the volume is.
    ///
    /// # Errors
    /// It is not done, or not to its end; or its daemon does not say so.
    pub fn run(&self, work: Work, mut pipes: Pipes<'_>) -> Outcome {
        let job = self.job(work, pipes.json);
        match self.by_daemon(&job, &mut pipes)? {
            Some(outcome) => outcome,
            None => {
                self.expect_at_rest()?;
                self.at_rest(&job, pipes)
            }
        }
    }

    /// Begins to ask for files, if a daemon serves the volume; `None`: it is at rest.
    ///
    /// # Errors
    /// The daemon refuses or does not answer.
    pub fn converse(&self, what: files::FileAccess) -> Result<Option<Conversation>, Failure> {
        let job = self.job(Work::Files(what), false);
        let hand_over = |mounted: &[At]| self.hand_over_pages(mounted, false);
        if let Some((daemon, proof)) = self.daemon(&job)?
            && self.agree(&daemon, &proof, &job)?
            && let Some(conversation) =
                Conversation::begin(self.name.clone(), daemon, self.note, &hand_over)?
        {
            return Ok(Some(conversation));
        }
        self.expect_at_rest().map(|()| None)
    }

    fn job(&self, work: Work, json: bool) -> Job {
        Job { volume: self.name.clone(), at: self.tree.at.clone(), json, work }
    }

    fn at_rest(&self, job: &Job, pipes: Pipes<'_>) -> Outcome {
        let options = VolumeOptions::new();
        let door = opening::open_volume(&self.image, &options, !job.work.needs().changes())?;
        let heads = AtRest { volume: &door, name: &self.name };
        let done = carry_out(job, &door, &heads, &Here::new(pipes, self.note));
        let closed = door.close();
        let code = done?;
        closed.context(&self.name)?;
        Ok(code)
    }

    /// Fails if there is a mount whose daemon cannot be asked.
    fn expect_at_rest(&self) -> Result<(), Failure> {
        let Some(mount) = &self.mount else { return Ok(()) };
        let dir = mount.dir.display();
        let why = format!("the daemon of {dir} is not to be reached through its control socket");
        Err(Failure::plain(why).with_hint_about("holdfast umount", &mount.dir))
    }

    /// Has work carried out by the daemon that serves the volume. `None`: there is none, or it is about to end, and does nothing any more.
    /// Until it has closed the volume, an opening waits. Nothing was read and written then, so it can be done anew.
    ///
    /// # Errors
    /// The daemon does not begin with it.
    fn by_daemon(&self, job: &Job, pipes: &mut Pipes<'_>) -> Result<Option<Outcome>, Failure> {
        match self.daemon(job)? {
            Some((daemon, proof)) => self.live(&daemon, &proof, job, pipes),
            None => Ok(None),
        }
    }

    /// The daemon that serves it, if one does, with a proof that this user may have the work done.
    fn daemon(&self, job: &Job) -> Result<Option<(Daemon, File)>, Failure> {
        let (access, right) = match job.work.needs().changes() {
            true => (OFlags::RDWR, "write"),
            false => (OFlags::RDONLY, "read"),
        };
        let failed = |why: &str| Err(Failure::plain(format!("{}: {why}", self.name)));
        let Ok(proof) = holdfast_device::open_bytes(&self.image, access) else {
            return match &self.mount {
                // It is told when it is opened.
                None => Ok(None),
                Some(_) => failed(&format!(
                    "only users who may {right} {} may do this",
                    self.image.display()
                )),
            };
        };
        let Ok(id) = HostFile::of(&proof) else { return Ok(None) };
        match Daemon::of(&id, HELLO) {
            Ok(daemon) => Ok(Some((daemon, proof))),
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                failed(&plain_words(&error))
            }
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                failed("its daemon does not answer")
            }
            Err(_) => Ok(None),
        }
    }

    /// Has it carried out by this daemon; as [`Self::by_daemon`].
    fn live(
        &self,
        daemon: &Daemon,
        proof: &File,
        job: &Job,
        pipes: &mut Pipes<'_>,
    ) -> Result<Option<Outcome>, Failure> {
        if !self.agree(daemon, proof, job)? {
            return Ok(None);
        }
        let is_question = matches!(job.work, Work::Lineage { .. });
        let hand_over = |mounted: &[At]| self.hand_over_pages(mounted, is_question);
        // The mount of a question may answer it.
        let goes_on = self.mount.is_none() || is_question;
        Ok(match relay::run(daemon.stream.as_fd(), pipes, self.note, &hand_over) {
            Ok(Ran::NotBegun(why)) => return why.map_or(Ok(None), Err),
            // It was unmounted a moment ago, and its daemon had not noticed yet.
            Ok(Ran::Cut(_)) if goes_on => None,
            // Or it has ended without a word. What only reads can be done anew.
            Ok(Ran::Broken(_)) if goes_on && !job.work.needs().changes() => None,
            Ok(Ran::Cut(outcome) | Ran::To(outcome)) => Some(outcome),
            Ok(Ran::Broken(error)) | Err(error) => Some(Err(self.silent(daemon, &error))),
        })
    }

    /// Asks a daemon for work, up to where frames follow; false: it does nothing any more.
    fn agree(&self, daemon: &Daemon, proof: &File, job: &Job) -> Result<bool, Failure> {
        let name = &self.name;
        let question = Question::Work(Box::new(job.clone()));
        if !message::fits(&question) {
            return Err(Failure::plain(format!(
                "{name}: the names of this command are too long for the daemon of a mounted volume; name fewer files, or shorter paths"
            )));
        }
        match daemon.ask(&question, &[proof.as_fd()], PATIENCE) {
            Ok(DaemonAnswer::Begins) => Ok(true),
            Ok(DaemonAnswer::Ending) => Ok(false),
            Ok(DaemonAnswer::Refused { why }) => Err(Failure::plain(format!("{name}: {why}"))),
            Ok(_) => Err(Failure::plain(format!("{name}: its daemon answers nonsense"))),
            // It has ended meanwhile.
            Err(error) if has_ended(&error) => Ok(false),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                let sentence = format!("{name}: {OTHER_VERSION}");
                Err(Failure::plain(sentence).with_hint_about("holdfast restart", Path::new(name)))
            }
            Err(error) => Err(self.silent(daemon, &error)),
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

    /// Has the kernel hand over what programs have in memory of mapped files. A mount that does not answer has handed over nothing, which fails where
    /// `all` is needed: a snapshot without it is none. What was written by calls is there all the same.
    fn hand_over_pages(&self, mounted: &[At], all: bool) -> Result<(), Failure> {
        let until = Deadline::after(PAGES);
        let mounts = mounts::or_none(mounts::list()).context("/proc/self/mountinfo")?;
        let image = mounts::real_path(&self.image);
        // Of those that a daemon names only ours, and of this volume.
        let is_meant = |mount: &&Mount| {
            mount.source == image && mounted.iter().any(|at| at.device == mount.device)
        };
        let each = mounts.iter().filter(is_meant);
        let done = each.map(|mount| ask::hand_over_pages(&mount.dir, until.left()));
        match done.fold(Ok(()), io::Result::and) {
            Err(error) if all => Err(Failure::of(&self.name, &error)),
            _ => Ok(()),
        }
    }
}

/// The sentence for a directory that is no volume, nor where one is mounted; or for one where it is, for commands that want the file.
pub fn not_mounted(dir: &Path) -> Failure {
    let name = shown(dir);
    Failure::plain(match mounts::around(dir) {
        Ok(Some(mount)) if mount.dir == mounts::real_path(dir) => {
            format!("{name} is a mounted directory; name the volume, {}", shown(&mount.source))
        }
        Ok(Some(mount)) => format!("{name} lies in the mount {}; name that", shown(&mount.dir)),
        _ => format!("{name} is not a mounted Holdfast volume"),
    })
}

/// Whether the other side of a connection has ended: before it was asked, with the question unread, or without an answer.
fn has_ended(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::control_socket::frames::{self, Kind};
    use crate::control_socket::message::QUESTION_MAX;

    /// A daemon may end at any moment before it has begun: then the work is done on the volume at rest. Behind that only what changes nothing is.
    #[test]
    fn a_daemon_that_ends_before_it_has_begun_is_no_failure() {
        let hear = |from: &UnixStream| message::receive::<Question>(from, QUESTION_MAX, HELLO);
        let begins = |daemon: &UnixStream| {
            drop(hear(daemon).unwrap());
            message::send(daemon, &DaemonAnswer::Begins, &[], HELLO).unwrap();
        };
        let wants_pages = |daemon: &mut UnixStream| {
            begins(daemon);
            daemon.write_all(&frames::frame(Kind::Pages, b"[]")).unwrap();
        };
        type Ends<'a> = &'a (dyn Fn(UnixStream) + Sync);
        let moments: [(&str, bool, Ends<'_>); 6] = [
            ("before it is asked", false, &drop),
            ("with the question unread", false, &|daemon| {
                rustix::io::read(&daemon, &mut [0; 1][..]).unwrap();
            }),
            ("without an answer", false, &|daemon| drop(hear(&daemon).unwrap())),
            ("when it has answered", false, &|daemon| begins(&daemon)),
            ("with the word unread that it may begin", true, &|mut daemon| {
                wants_pages(&mut daemon);
                rustix::io::read(&daemon, &mut [0; 1][..]).unwrap();
            }),
            ("when it may begin", true, &|mut daemon| {
                wants_pages(&mut daemon);
                assert_eq!(frames::read(&mut daemon).unwrap().0, Kind::Go);
            }),
        ];
        let tree = Tree::default();
        let (name, image) = ("v".into(), "v".into());
        let located = Located { name, image, mount: None, tree: tree.clone(), note: |_| {} };
        for (when, has_begun, ends) in moments {
            for changes in [false, true] {
                let (stream, there) = UnixStream::pair().unwrap();
                let daemon = Daemon { stream, pid: 1, user: 0 };
                let proof = tempfile::tempfile().unwrap();
                let work = match changes {
                    false => Work::Print { tree: tree.clone(), path: Name((*b"f").into()) },
                    true => Work::Trim { least: 0 },
                };
                let job = located.job(work, false);
                let input = Input::Made(Box::new(io::empty()));
                let mut pipes = Pipes::to(io::sink());
                pipes.inputs.extend(changes.then_some(input));
                let done = std::thread::scope(|scope| {
                    scope.spawn(|| ends(there));
                    located.live(&daemon, &proof, &job, &mut pipes)
                });
                match done {
                    Ok(None) if !changes => {}
                    // What was to be read is there still.
                    Ok(None) if !has_begun => assert_eq!(pipes.inputs.len(), 1, "{when}"),
                    Ok(Some(Err(_))) if has_begun => {}
                    done => panic!("{when}: {done:?}"),
                }
            }
        }
    }
}
