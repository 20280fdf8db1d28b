//! What a command for branches and snapshots asks: the daemon of a mount, or a volume at rest that it opens.

use std::io;
use std::time::Duration;

use holdfast::FIRST_BRANCH;
use holdfast_control::{Branch, Failed, Snapshot, in_parts};
use holdfast_daemon::ask;
use holdfast_daemon::mounts::{self, Mount};

use crate::branches::{Ask, Name, Place, Reply};
use crate::dispatch::Located;
use crate::outcome::{Context, Failure, plain_words, printable};

/// How long a daemon gets to list what there is.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long it gets to change something: before a snapshot it writes what is in memory.
const PATIENCE_FOR_CHANGES: Duration = Duration::from_secs(600);

/// Has it carried out, where the volume is. A mount is asked where the control socket does not lead to its daemon, and where the mount
/// may only be read: nothing is changed by that.
fn ask(place: &Place, ask: &Ask) -> Result<Reply, Failure> {
    let located = Located::of(place)?;
    let mount = mount_for(place, ask)?;
    let is_barred = place.path.is_dir() && !ask.only_looks() && !mount.iter().any(is_writable);
    let patience = if ask.only_looks() { PATIENCE } else { PATIENCE_FOR_CHANGES };
    let reply = match is_barred {
        true => None,
        false => located.ask(place, ask, mount.is_some(), patience)?,
    };
    let reply = match (reply, mount) {
        (Some(reply), _) => reply,
        (None, Some(mount)) => by_mount(&mount, place, ask, patience)?,
        (None, None) => return Err(Failure::plain("there was no answer")),
    };
    match reply {
        Reply::Refused { why, .. } => Err(Failure::plain(why)),
        reply => Ok(reply),
    }
}

/// Has the branch that is mounted become what a fork is; whether the kernel has forgotten all that was before. `None`: the branch has
/// changed since the fork was made, and nothing is done.
pub(crate) fn promoted(place: &Place, fork: &Name) -> Result<Option<bool>, Failure> {
    let question = Ask::Promote { branch: None, fork: fork.into(), keep: None, unchanged: true };
    match ask(place, &question)? {
        Reply::RolledBack { forgotten, .. } => Ok(Some(forgotten)),
        Reply::Diverged { .. } => Ok(None),
        other => Err(nonsense(&other)),
    }
}

/// The mount that is asked. Of several of one volume any will do that may be written if something is to be changed.
fn mount_for(place: &Place, ask: &Ask) -> Result<Option<Mount>, Failure> {
    let mounts = mounts::or_none(mounts::find_all(&place.path)).context("/proc/self/mountinfo")?;
    let best = mounts.iter().find(|mount| ask.only_looks() || is_writable(mount));
    Ok(best.or(mounts.first()).cloned())
}

fn is_writable(mount: &Mount) -> bool {
    mounts::words(mount).is_ok_and(|words| words.iter().all(|it| it != "ro"))
}

fn by_mount(mount: &Mount, place: &Place, ask: &Ask, patience: Duration) -> Result<Reply, Failure> {
    let mut ask = ask.clone();
    if !place.path.is_dir() {
        // Whichever branches are mounted: what a script does must not depend on the mounts of others.
        ask.or_of(FIRST_BRANCH, None);
    }
    ask::lineage(&mount.dir, &ask, patience).map_err(|error| no_answer(mount, &error))
}

/// The sentence for a daemon that is dead or stuck, or does not obey this user.
fn no_answer(mount: &Mount, error: &io::Error) -> Failure {
    use rustix::io::Errno;
    let dir = mount.dir.display();
    let words = plain_words(error);
    Failure::plain(match Errno::from_io_error(error) {
        Some(Errno::ACCESS | Errno::PERM) => format!(
            "{dir}: {words}; only root and the user who has mounted may do this, where they may read its root directory, and users who may open the volume's file"
        ),
        Some(Errno::ROFS) => format!("{dir} is mounted read-only here"),
        Some(Errno::NOTTY | Errno::OPNOTSUPP) => {
            format!("{dir} is served by a program without branches; unmount it and mount it again")
        }
        _ if mounts::is_dead(error) => {
            let ended = Failure::plain(format!("the daemon of {dir} has ended"));
            return ended.with_hint_about("holdfast umount", &mount.dir);
        }
        _ if error.kind() == io::ErrorKind::TimedOut => format!(
            "the daemon of {dir} does not answer; it may be waiting for its device, and may still do it"
        ),
        _ => format!("the daemon of {dir}: {words}"),
    })
}

/// Has it carried out, and returns the branch and the number of what was made.
pub(crate) fn done(place: &Place, question: &Ask) -> Result<(Name, Option<u64>), Failure> {
    match ask(place, question)? {
        Reply::Done { branch, number } => Ok((branch, number)),
        other => Err(nonsense(&other)),
    }
}

/// Has a branch rolled back or become what a fork is; its name, and whether the kernel has forgotten all that was.
pub(crate) fn rolled_back(place: &Place, question: &Ask) -> Result<(Name, bool), Failure> {
    match ask(place, question)? {
        Reply::RolledBack { branch, forgotten } => Ok((branch, forgotten)),
        Reply::Diverged { why } => Err(Failure::plain(why)),
        other => Err(nonsense(&other)),
    }
}

/// All branches, and deletions that have failed.
pub(crate) fn branches(place: &Place) -> Result<(Vec<Branch>, Vec<Failed>), Failure> {
    let mut all_failed = Vec::new();
    let part = |after| match ask(place, &Ask::Branches { after })? {
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
pub(crate) fn snapshots(place: &Place) -> Result<(Name, Vec<Snapshot>, Vec<Failed>), Failure> {
    let (mut name, mut all_failed) = (None, Vec::new());
    let part = |after| {
        let question = Ask::Snapshots { branch: place.which(), after };
        match ask(place, &question)? {
            Reply::Snapshots { branch, list, more, mut failed } => {
                name = Some(branch);
                all_failed.append(&mut failed);
                Ok((list, more))
            }
            other => Err(nonsense(&other)),
        }
    };
    let all = in_parts(part)?;
    // There was a part, or an error.
    name.map(|name| (name, all, all_failed)).ok_or_else(|| Failure::plain("there was no answer"))
}

/// The name of the branch, and one of its snapshots.
pub(crate) fn snapshot(place: &Place, name: &Name) -> Result<(Name, Snapshot), Failure> {
    let question = Ask::Snapshot { branch: place.which(), name: name.into() };
    match ask(place, &question)? {
        Reply::Snapshots { branch, mut list, .. } if list.len() == 1 => {
            Ok((branch, list.swap_remove(0)))
        }
        other => Err(nonsense(&other)),
    }
}

fn nonsense(reply: &Reply) -> Failure {
    let said = format!("{reply:?}");
    Failure::plain(format!("the answer makes no sense: {}", printable(&said)))
}
