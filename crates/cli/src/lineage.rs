//! What a command for branches and snapshots asks: the daemon of a mount, or a volume at rest that it opens.

use std::io;
use std::path::Path;
use std::time::Duration;

use holdfast::{FIRST_BRANCH, NewHead, Told, VolumeOptions};
use holdfast_control::{Branch, Failed, Snapshot, in_parts};
use holdfast_service::branches::answer::{Open, answer};
use holdfast_service::outcome::not_whole;

use crate::branches::{Ask, Name, Place, Reply};
use crate::daemon::ask::{NotOpened, command};
use crate::mounts::{self, Mount};
use crate::outcome::{Context, Failure, complain, plain_words, printable};
use crate::target;

/// How long a daemon gets to list what there is.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long it gets to change something: before a snapshot it writes what is in memory.
const PATIENCE_FOR_CHANGES: Duration = Duration::from_secs(600);

/// Has it carried out, where the volume is.
fn ask(place: &Place, ask: &Ask) -> Result<Reply, Failure> {
    let ask = &about(place, ask);
    let mount = mount_for(place, ask)?;
    let reply = match mount {
        Some(mount) => live(&mount, ask)?,
        None if place.path.is_dir() => {
            let dir = place.path.display();
            return Err(Failure::plain(format!("{dir} is not a mounted Holdfast volume")));
        }
        None => at_rest(&place.path, ask)?,
    };
    match reply {
        Reply::Refused { why, .. } => Err(Failure::plain(why)),
        reply => Ok(reply),
    }
}

/// What became of a fork that was to be promoted.
#[derive(Debug)]
pub(crate) enum Promoted {
    /// The branch is what the fork was; whether the kernel has forgotten all that was before.
    Done { forgotten: bool },
    /// The branch has changed meanwhile, and nothing is done.
    Diverged,
}

/// Has the branch that is mounted become what a fork is, if it has not changed since the fork was made.
pub(crate) fn promoted(place: &Place, fork: &Name) -> Result<Promoted, Failure> {
    let question = Ask::Promote { branch: None, fork: fork.into(), keep: None, unchanged: true };
    match ask(place, &question)? {
        Reply::RolledBack { forgotten, .. } => Ok(Promoted::Done { forgotten }),
        Reply::Diverged { .. } => Ok(Promoted::Diverged),
        other => Err(nonsense(&other)),
    }
}

/// A directory means the branch that is mounted there. A volume means its first branch, whichever branches are mounted: what a script
/// does must not depend on the mounts of others.
fn about(place: &Place, ask: &Ask) -> Ask {
    match place.path.is_dir() {
        true => ask.clone(),
        false => ask.clone().or_of(FIRST_BRANCH),
    }
}

/// The mount that is asked. Of several of one volume any will do that may be written if something is to be changed.
fn mount_for(place: &Place, ask: &Ask) -> Result<Option<Mount>, Failure> {
    let mounts = mounts::or_none(mounts::find_all(&place.path));
    let mut mounts = mounts.context("/proc/self/mountinfo")?;
    if mounts.len() > 1 && !ask.only_looks() {
        let is_writable = |mount: &Mount| {
            mounts::words(mount).is_ok_and(|words| words.iter().all(|it| it != "ro"))
        };
        if let Some(at) = mounts.iter().position(is_writable) {
            return Ok(Some(mounts.swap_remove(at)));
        }
    }
    Ok(mounts.into_iter().next())
}

fn live(mount: &Mount, ask: &Ask) -> Result<Reply, Failure> {
    let question = serde_json::to_vec(ask).expect("names and numbers");
    let patience = if ask.only_looks() { PATIENCE } else { PATIENCE_FOR_CHANGES };
    let answer = command(&mount.dir, &question, ask.wants_pages(), !ask.only_looks(), patience);
    let answer = answer.map_err(|error| no_answer(mount, &error))?;
    serde_json::from_slice(&answer).map_err(|error| no_answer(mount, &error.into()))
}

/// The sentence for a daemon that is dead or stuck, or does not obey this user.
fn no_answer(mount: &Mount, error: &io::Error) -> Failure {
    use rustix::io::Errno;
    let dir = mount.dir.display();
    let words = plain_words(error);
    Failure::plain(match Errno::from_io_error(error) {
        Some(Errno::ACCESS | Errno::PERM) => {
            format!("{dir}: {words}; only root and the user who has mounted may do this")
        }
        Some(Errno::ROFS) => format!("{dir} is mounted read-only here"),
        _ if error.get_ref().is_some_and(|why| why.is::<NotOpened>()) => format!("{dir}: {words}"),
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

fn at_rest(path: &Path, ask: &Ask) -> Result<Reply, Failure> {
    let options = VolumeOptions::new().commit_secs(0);
    let volume = target::open_volume(path, &options, ask.only_looks())?;
    if let Some(why) = volume.missing() {
        complain(&format!("{}: {}", path.display(), not_whole(&why)));
    }
    let reply = {
        let fs = volume.engine().context(path.display())?;
        let give_head =
            |branch: u64, head: NewHead<'_>| Ok(head.give(&fs, branch).map(|()| Told::All)?);
        answer(&Open { fs: &fs, is_mounted: false, give_head: &give_head }, ask)
    };
    volume.close().context(path.display())?;
    Ok(reply)
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
