//! What is asked becomes calls of the engine.
//!
//! Lists come in parts, each of which fits a message.

use holdfast::{FIRST_BRANCH, FileSystem, FsError, NewHead, Told};
use holdfast_base::show;
use rustix::io::Errno;

use super::{Ask, Name, Reply, Which};

mod lists;
#[cfg(test)]
mod tests;

/// Bytes of an answer that no message bounds.
pub const PART: usize = 1 << 20;

/// A volume with an open branch or snapshot.
pub struct Open<'a> {
    /// What is open.
    pub fs: &'a FileSystem,
    /// It is mounted.
    pub is_mounted: bool,
    /// Bytes of the longest answer.
    pub most: usize,
    /// Gives a branch another head, and tells all that remember the one that it had.
    pub give_head: GiveHead<'a>,
}

/// See [`NewHead::give`], of the branch of a number, and what the kernel knows of it.
type GiveHead<'a> = &'a dyn Fn(u64, NewHead<'_>) -> Result<Told, Refusal>;

/// Carries out what is asked.
pub fn answer(open: &Open<'_>, ask: &Ask) -> Reply {
    let done = match ask {
        Ask::RollBack { branch, to, keep } => {
            let keep = keep.as_ref().map(|keep| keep.0.as_slice());
            give_head(open, branch.as_ref(), NewHead::Snapshot { to: engines(to), keep })
        }
        Ask::Promote { branch, fork, keep, unchanged } => {
            let keep = keep.as_ref().map(|keep| keep.0.as_slice());
            let head = NewHead::Fork { fork: engines(fork), keep, unchanged: *unchanged };
            give_head(open, branch.as_ref(), head)
        }
        Ask::Branches { after } => lists::branches(open, *after),
        Ask::Branch { branch: which } => lists::branch(open, which),
        Ask::Snapshots { branch, after } => lists::snapshots(open, branch.as_ref(), *after),
        Ask::Snapshot { branch, name } => lists::snapshot(open, branch.as_ref(), name),
        other => change(open, other).map(|(branch, number)| Reply::Done { branch, number }),
    };
    done.unwrap_or_else(Refusal::reply)
}

type Done<T> = Result<T, Refusal>;

/// Why something is not done, and the number that a system call would answer, if there is one.
#[derive(Debug, PartialEq, Eq)]
pub struct Refusal {
    why: String,
    errno: Option<i32>,
    has_diverged: bool,
}

impl From<FsError> for Refusal {
    fn from(error: FsError) -> Refusal {
        let has_diverged = matches!(error, FsError::Diverged(_));
        let why = match &error {
            FsError::InUse(name) => format!("`{name}` is mounted or in use; unmount it first"),
            FsError::OpenReadOnly(name) => format!("`{name}` is mounted read-only"),
            error => error.to_string(),
        };
        Refusal { why, errno: Some(error.errno()), has_diverged }
    }
}

impl From<String> for Refusal {
    fn from(why: String) -> Refusal {
        Refusal { why, errno: None, has_diverged: false }
    }
}

impl Refusal {
    /// With the number that a system call would answer.
    pub fn new(errno: Errno, why: impl Into<String>) -> Refusal {
        Refusal { why: why.into(), errno: Some(errno.raw_os_error()), has_diverged: false }
    }

    /// Of a branch that is not there: what was named may be a snapshot.
    fn or_is_snapshot(self, branch: &Which) -> Refusal {
        match branch {
            Which::Name(name) if self.errno == Some(Errno::NOENT.raw_os_error()) => {
                let why = format!("there is no branch `{name}`; a snapshot is written @{name}");
                Refusal { why, ..self }
            }
            _ => self,
        }
    }

    /// Whether it is that a branch has changed since the fork was made that it was to become.
    pub fn has_diverged(&self) -> bool {
        self.has_diverged
    }

    /// As it is told.
    pub fn reply(self) -> Reply {
        Reply::Refused { why: self.why, errno: self.errno }
    }

    /// The sentence alone.
    pub fn why(self) -> String {
        self.why
    }
}

/// As the engine takes it.
fn engines(which: &Which) -> holdfast::Which<'_> {
    match which {
        Which::Number(number) => holdfast::Which::Numbered(*number),
        Which::Name(name) => holdfast::Which::Named(&name.0),
    }
}

/// Returns the branch, and the number of what was made.
fn change(open: &Open<'_>, ask: &Ask) -> Done<(Name, Option<u64>)> {
    let fs = open.fs;
    // One look-up: what follows means the same branch, whatever its name is by then.
    let meant = |branch: &Option<Which>| branch_of(open, branch.as_ref());
    match ask {
        Ask::Take { branch, name } => {
            let (branch, of) = meant(branch)?;
            Ok((branch, Some(fs.snapshot_of(of, &name.0)?)))
        }
        Ask::Fork { branch, snapshot, name } => {
            let from = snapshot.as_ref().map(engines);
            let number = match (branch, from) {
                // Also out of a snapshot that is open.
                (None, None) => fs.fork(&name.0, None),
                (None, from) => fs.fork_of(&name.0, fs.branch_number()?, from),
                (Some(branch), from) => {
                    let (_, number) = branch_of(open, Some(branch)).map_err(|no| match from {
                        None => no.or_is_snapshot(branch),
                        Some(_) => no,
                    })?;
                    fs.fork_of(&name.0, number, from)
                }
            };
            Ok((name.clone(), Some(number?)))
        }
        Ask::DeleteSnapshot { branch, name, number } => {
            let (branch, of) = meant(branch)?;
            let found = fs.find_snapshot(of, engines(name))?.number;
            if number.is_some_and(|wanted| wanted != found) {
                return Err(another("snapshot"));
            }
            fs.delete_snapshot(of, found)?;
            Ok((branch, None))
        }
        Ask::RenameSnapshot { branch, name, new_name } => {
            let (branch, of) = meant(branch)?;
            fs.rename_snapshot(of, engines(name), &new_name.0)?;
            Ok((branch, None))
        }
        Ask::Hold { branch, name, tag, held } => {
            let (branch, of) = meant(branch)?;
            match held {
                true => fs.hold(of, engines(name), &tag.0),
                false => fs.unhold(of, engines(name), &tag.0),
            }?;
            Ok((branch, None))
        }
        Ask::DeleteBranch { name, number } => {
            let (name, found) = branch_of(open, Some(name))?;
            if number.is_some_and(|wanted| wanted != found) {
                return Err(another("branch"));
            }
            expect_not_first(&name, found)?;
            let base = lists::base_of_transaction(fs, found, &name)?;
            fs.delete_branch(found)?;
            if let Some((of, snapshot)) = base {
                // One that is held or open stays.
                let _ = fs.delete_snapshot(of, snapshot);
            }
            Ok((name, None))
        }
        Ask::RenameBranch { name, new_name } => {
            fs.rename_branch(engines(name), &new_name.0)?;
            Ok((new_name.clone(), None))
        }
        Ask::LimitBranch { name, blocks } => {
            let (name, number) = branch_of(open, Some(name))?;
            fs.limit(number, *blocks)?;
            Ok((name, None))
        }
        // Nothing is mounted where this is asked.
        Ask::Release { name } => Ok((name.clone(), None)),
        Ask::RollBack { .. }
        | Ask::Promote { .. }
        | Ask::Branches { .. }
        | Ask::Branch { .. }
        | Ask::Snapshots { .. }
        | Ask::Snapshot { .. } => Err("this is answered elsewhere".to_owned().into()),
    }
}

fn expect_not_first(name: &Name, number: u64) -> Done<()> {
    let why = || format!("`{name}` is the volume's first branch, which is never deleted");
    match number {
        FIRST_BRANCH => Err(Refusal::new(Errno::BUSY, why())),
        _ => Ok(()),
    }
}

fn another(what: &str) -> Refusal {
    Refusal::new(Errno::NOENT, format!("another {what} has this name by now; it stays"))
}

fn give_head(open: &Open<'_>, branch: Option<&Which>, head: NewHead<'_>) -> Done<Reply> {
    // It may get another name meanwhile.
    let (branch, number) = branch_of(open, branch)?;
    if let NewHead::Fork { fork, .. } = head {
        let fork = open.fs.find_branch(fork)?;
        let why = match fork.number {
            same if same == number => Some("cannot be promoted to itself"),
            FIRST_BRANCH => Some("is the volume's first branch, which is never promoted"),
            _ => None,
        };
        if let Some(why) = why {
            return Err(Refusal::new(Errno::BUSY, format!("`{}` {why}", show::name(&fork.name))));
        }
    }
    match (open.give_head)(number, head) {
        Ok(told) => Ok(Reply::RolledBack { branch, forgotten: told == Told::All }),
        Err(no) if no.has_diverged => Ok(Reply::Diverged { why: no.why }),
        Err(no) => Err(no),
    }
}

/// The name of a branch, and its number; `None`: of the open one.
fn branch_of(open: &Open<'_>, branch: Option<&Which>) -> Done<(Name, u64)> {
    let found = match branch {
        Some(branch) => open.fs.find_branch(engines(branch))?,
        None => open.fs.find_branch(open.fs.branch_number()?)?,
    };
    Ok((Name(found.name), found.number))
}
