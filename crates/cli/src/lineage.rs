//! Whom a command for branches and snapshots asks: the daemon of a mount, or a volume at rest that it opens.

use std::io;
use std::path::Path;
use std::time::Duration;

use holdfast::VolumeOptions;

use crate::branches::carry_out::{Open, carry_out};
use crate::branches::message::{Branch, Snapshot};
use crate::branches::{Ask, Name, Place, Reply};
use crate::daemon::ask::command;
use crate::mounts::{self, Mount};
use crate::outcome::{Context, Failure, plain_words, printable};
use crate::target;

/// How long a daemon gets to list what there is.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long it gets to change something: before a snapshot it writes what is in memory.
const PATIENCE_FOR_CHANGES: Duration = Duration::from_secs(600);

/// Has it carried out, where the volume is.
fn ask(place: &Place, ask: &Ask) -> Result<Reply, Failure> {
    let mount = mounts::find(&place.path).context("/proc/self/mountinfo")?;
    let reply = match mount {
        Some(mount) => live(&mount, ask)?,
        None if place.path.is_dir() => {
            let dir = place.path.display();
            return Err(Failure::plain(format!("{dir} is not a mounted Holdfast volume")));
        }
        None => at_rest(&place.path, ask)?,
    };
    match reply {
        Reply::Refused { why } => Err(Failure::plain(why)),
        reply => Ok(reply),
    }
}

fn live(mount: &Mount, ask: &Ask) -> Result<Reply, Failure> {
    let question = serde_json::to_vec(ask).expect("names and numbers");
    let patience = if ask.only_looks() { PATIENCE } else { PATIENCE_FOR_CHANGES };
    let answer = command(&mount.dir, &question, ask.wants_pages(), patience);
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
        Some(Errno::NOTTY | Errno::OPNOTSUPP) => {
            format!("{dir} is served by a program without branches; unmount it and mount it again")
        }
        _ if mounts::is_dead(error) => {
            format!("the daemon of {dir} has ended; run: holdfast umount {dir}")
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
    let reply = {
        let fs = volume.engine().context(path.display())?;
        let roll_back = |to: &[u8], keep: Option<&[u8]>| {
            fs.rollback(to, keep).map_err(|error| error.to_string())
        };
        carry_out(&Open { fs: &fs, is_mounted: false, roll_back: &roll_back }, ask)
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

/// All branches.
pub(crate) fn branches(place: &Place) -> Result<Vec<Branch>, Failure> {
    let mut all: Vec<Branch> = Vec::new();
    loop {
        let after = all.last().map_or(0, |last| last.number);
        match ask(place, &Ask::Branches { after })? {
            Reply::Branches { list, more } => {
                let is_end = !more || list.is_empty();
                all.extend(list);
                if is_end {
                    return Ok(all);
                }
            }
            other => return Err(nonsense(&other)),
        }
    }
}

/// The name of the branch, and all its snapshots.
pub(crate) fn snapshots(place: &Place) -> Result<(Name, Vec<Snapshot>), Failure> {
    let mut all: Vec<Snapshot> = Vec::new();
    loop {
        let after = all.last().map_or(0, |last| last.number);
        let question = Ask::Snapshots { branch: place.branch.clone(), after };
        match ask(place, &question)? {
            Reply::Snapshots { branch, list, more } => {
                let is_end = !more || list.is_empty();
                all.extend(list);
                if is_end {
                    return Ok((branch, all));
                }
            }
            other => return Err(nonsense(&other)),
        }
    }
}

/// The name of the branch, and one of its snapshots.
pub(crate) fn snapshot(place: &Place, name: &Name) -> Result<(Name, Snapshot), Failure> {
    let question = Ask::Snapshot { branch: place.branch.clone(), name: name.clone() };
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
