//! What is asked of branches and snapshots: of the daemon by its socket or by a mount, or of a volume at rest.

use std::io;
use std::time::Duration;

use holdfast::FIRST_BRANCH;
use holdfast_control::{Ask, Branch, Failed, Name, Reply, Snapshot, in_parts};
use holdfast_service::outcome::{Context, Failure, Outcome, printable};
use holdfast_service::work::Work;

use super::{Located, Pipes};
use crate::ask;
use crate::mounts::{self, Mount};

/// How long a daemon gets to list what there is.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long it gets to change something: before a snapshot it writes what is in memory.
const PATIENCE_FOR_CHANGES: Duration = Duration::from_secs(600);

impl Located {
    /// Has it carried out, where the volume is. A mount is asked where the control socket does not lead to its daemon, and where the mount
    /// may only be read: nothing is changed by that.
    fn ask(&self, ask: &Ask) -> Result<Reply, Failure> {
        let mounts = match &self.mount {
            Some(mount) => vec![mount.clone()],
            None => {
                mounts::or_none(mounts::find_all(&self.image)).context("/proc/self/mountinfo")?
            }
        };
        // Of several of one volume any will do that may be written if something is to be changed.
        let best = mounts.iter().find(|mount| ask.only_looks() || is_writable(mount));
        let is_barred = self.mount.is_some() && best.is_none();
        let mount = best.or(mounts.first());
        let patience = if ask.only_looks() { PATIENCE } else { PATIENCE_FOR_CHANGES };
        let mut said = Vec::new();
        let done: Outcome = {
            let mut pipes = Pipes { patience: Some(patience), ..Pipes::to(&mut said) };
            let work = Work::Lineage { tree: self.tree(), ask: ask.clone() };
            let job = self.job(work, false);
            let by_daemon = if is_barred { Ok(None) } else { self.by_daemon(&job, &mut pipes) };
            match (by_daemon, mount) {
                (Ok(Some(outcome)), _) => outcome,
                (_, Some(mount)) => return believed(self.by_mount(mount, ask, patience)?),
                (Ok(None), None) => self.at_rest(&job, pipes),
                (Err(failure), None) => Err(failure),
            }
        };
        done?;
        let reply = serde_json::from_slice(&said).map_err(io::Error::from);
        believed(reply.context(&self.name)?)
    }

    fn by_mount(&self, mount: &Mount, ask: &Ask, patience: Duration) -> Result<Reply, Failure> {
        let mut ask = ask.clone();
        if self.mount.is_none() {
            // Whichever branches are mounted: what a script does must not depend on the mounts of others.
            ask.or_of(FIRST_BRANCH, None);
        }
        ask::lineage(&mount.dir, &ask, patience).map_err(|error| no_answer(mount, &error))
    }

    /// Has it carried out, and returns the branch and the number of what was made.
    ///
    /// # Errors
    /// It is not done; or, if the daemon has not answered, perhaps it is.
    pub fn done(&self, question: &Ask) -> Result<(Name, Option<u64>), Failure> {
        match self.ask(question)? {
            Reply::Done { branch, number } => Ok((branch, number)),
            other => Err(nonsense(&other)),
        }
    }

    /// Has a branch rolled back or become what a fork is; its name, and whether the kernel has forgotten all that was. Within it a sentence: the
    /// branch has changed since the fork was made, and nothing is done.
    ///
    /// # Errors
    /// Those of [`Self::done`].
    pub fn new_head(&self, question: &Ask) -> Result<Result<(Name, bool), String>, Failure> {
        match self.ask(question)? {
            Reply::RolledBack { branch, forgotten } => Ok(Ok((branch, forgotten))),
            Reply::Diverged { why } => Ok(Err(why)),
            other => Err(nonsense(&other)),
        }
    }

    /// All branches, and deletions that have failed.
    ///
    /// # Errors
    /// They cannot be listed.
    pub fn branches(&self) -> Result<(Vec<Branch>, Vec<Failed>), Failure> {
        let mut all_failed = Vec::new();
        let part = |after| match self.ask(&Ask::Branches { after })? {
            Reply::Branches { list, more, mut failed } => {
                all_failed.append(&mut failed);
                Ok((list, more))
            }
            other => Err(nonsense(&other)),
        };
        let all = in_parts(part)?;
        Ok((all, all_failed))
    }

    /// The name of the branch, all its snapshots, and deletions of such that have failed.
    ///
    /// # Errors
    /// They cannot be listed.
    pub fn snapshots(&self) -> Result<(Name, Vec<Snapshot>, Vec<Failed>), Failure> {
        let (mut name, mut all_failed) = (Name::default(), Vec::new());
        let part = |after| {
            let branch = self.tree.branch.clone().map(Into::into);
            match self.ask(&Ask::Snapshots { branch, after })? {
                Reply::Snapshots { branch, list, more, mut failed } => {
                    name = branch;
                    all_failed.append(&mut failed);
                    Ok((list, more))
                }
                other => Err(nonsense(&other)),
            }
        };
        let all = in_parts(part)?;
        Ok((name, all, all_failed))
    }

    /// The name of the branch, and one of its snapshots.
    ///
    /// # Errors
    /// There is none.
    pub fn snapshot(&self, name: &Name) -> Result<(Name, Snapshot), Failure> {
        let branch = self.tree.branch.clone().map(Into::into);
        match self.ask(&Ask::Snapshot { branch, name: name.into() })? {
            Reply::Snapshots { branch, mut list, .. } if list.len() == 1 => {
                Ok((branch, list.swap_remove(0)))
            }
            other => Err(nonsense(&other)),
        }
    }
}

fn believed(reply: Reply) -> Result<Reply, Failure> {
    match reply {
        Reply::Refused { why, .. } => Err(Failure::plain(why)),
        reply => Ok(reply),
    }
}

fn is_writable(mount: &Mount) -> bool {
    mounts::words(mount).is_ok_and(|words| words.iter().all(|it| it != "ro"))
}

/// The sentence for a daemon that is dead or stuck, or does not obey this user.
fn no_answer(mount: &Mount, error: &io::Error) -> Failure {
    use rustix::io::Errno;
    let dir = mount.dir.display();
    match Errno::from_io_error(error) {
        Some(Errno::ROFS) => Failure::plain(format!("{dir} is mounted read-only here")),
        Some(Errno::NOTTY | Errno::OPNOTSUPP) => Failure::plain(format!(
            "{dir} is served by a program without branches; unmount it and mount it again"
        )),
        _ if error.kind() == io::ErrorKind::TimedOut => Failure::plain(format!(
            "the daemon of {dir} does not answer; it may be waiting for its device, and may still do it"
        )),
        _ => mounts::no_answer(
            mount,
            error,
            "root and the user who has mounted may do this, where they may read its root directory, and users who may open the volume's file",
        ),
    }
}

fn nonsense(reply: &Reply) -> Failure {
    let said = format!("{reply:?}");
    Failure::plain(format!("the answer makes no sense: {}", printable(&said)))
}
