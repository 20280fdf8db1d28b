//! What a command is about: a mounted directory or a volume, and a branch or snapshot in it.
//!
//! `IMG:BRANCH`, `IMG@SNAPSHOT`, `IMG:BRANCH@SNAPSHOT`, and the same behind a mounted directory, or alone in one. A file of the whole name wins.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use holdfast_daemon::dispatch::Located;
use holdfast_daemon::mounts;
use holdfast_service::work::Tree;

use super::{Ask, Name, Which};
use crate::outcome::{Failure, complain};

/// A mounted directory, or a file or block device, and what is meant in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeLocation {
    /// The directory, file or block device.
    pub path: PathBuf,
    /// The branch; `None`: the one that is mounted in the directory, or the first of the volume.
    pub branch: Option<Name>,
    /// A snapshot of that branch.
    pub snapshot: Option<Name>,
}

/// As it is written in an argument.
impl fmt::Display for TreeLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())?;
        if let Some(branch) = &self.branch {
            write!(f, ":{branch}")?;
        }
        if let Some(snapshot) = &self.snapshot {
            write!(f, "@{snapshot}")?;
        }
        Ok(())
    }
}

impl TreeLocation {
    /// Reads an argument. What is not there is taken for a path.
    pub(crate) fn parse(text: &OsStr) -> TreeLocation {
        let whole = TreeLocation { path: text.into(), branch: None, snapshot: None };
        if whole.path.symlink_metadata().is_ok() {
            return whole;
        }
        let bytes = text.as_bytes();
        let ends = (1..bytes.len()).filter(|at| matches!(bytes[*at], b':' | b'@'));
        let found = ends.filter_map(|at| {
            let path = Path::new(OsStr::from_bytes(&bytes[..at]));
            let (branch, snapshot) = names(&bytes[at..])?;
            let is_there = holds_bytes(path) || path.is_dir();
            is_there.then(|| TreeLocation { path: path.into(), branch, snapshot })
        });
        { found }.next().or_else(|| TreeLocation::here(bytes)).unwrap_or(whole)
    }

    /// `:BRANCH`, `@SNAPSHOT` or both, of the mount in which the working directory is.
    fn here(text: &[u8]) -> Option<TreeLocation> {
        let (branch, snapshot) = names(text).filter(|_| !text.is_empty())?;
        let mount = mounts::around(Path::new(".")).ok()??;
        Some(TreeLocation { path: mount.dir, branch, snapshot })
    }

    /// The place of a snapshot that is named beside this one.
    ///
    /// # Errors
    /// The two are of different branches.
    pub(crate) fn of(&self, snapshot: &SnapshotName) -> Result<TreeLocation, Failure> {
        match (&self.branch, &snapshot.branch) {
            (Some(own), Some(other)) if own != other => Err(Failure::new(
                2,
                format!("{self} is the branch {own}, and {snapshot} of {other}"),
            )),
            (own, other) => {
                let branch = own.as_ref().or(other.as_ref()).cloned();
                Ok(TreeLocation { branch, ..self.clone() })
            }
        }
    }

    /// The branch, as a question has it.
    pub(crate) fn which(&self) -> Option<Which> {
        self.branch.as_ref().map(Which::from)
    }

    /// What a fork of it begins with, which stands in it or is said by an option.
    ///
    /// # Errors
    /// It is said by both.
    pub(crate) fn forked(
        &self,
        from: Option<&Origin>,
        option: &str,
    ) -> Result<(Option<Which>, Option<Which>), Failure> {
        let (branch, snapshot) = match (from, &self.branch, &self.snapshot) {
            (None, branch, snapshot) => (branch, snapshot),
            (Some(from), None, None) => (&from.branch, &from.snapshot),
            (Some(_), _, _) => {
                let why = format!("say what the fork begins with once, with {option}");
                return Err(Failure::new(2, why));
            }
        };
        Ok((branch.as_ref().map(Which::from), snapshot.as_ref().map(Which::from)))
    }

    /// What it is in.
    pub(crate) fn located(&self) -> Result<Located, Failure> {
        if self.has_path_behind() {
            let why = format!("{self}: name the volume or a branch, not a path in it");
            return Err(Failure::plain(why));
        }
        Located::of(&self.path, self.branch.clone(), self.snapshot.clone(), complain)
    }

    /// Whether it is not there, and looks like a path in a volume that is.
    fn has_path_behind(&self) -> bool {
        let bytes = self.path.as_os_str().as_bytes();
        let Some(end) = bytes.windows(2).position(|two| two == b":/") else { return false };
        let head = TreeLocation::parse(OsStr::from_bytes(&bytes[..end])).path;
        let is_missing = |path: &Path| {
            path.symlink_metadata().is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound)
        };
        let is_mounted = || mounts::find(&head).is_ok_and(|mount| mount.is_some());
        is_missing(&self.path) && (holds_bytes(&head) || is_mounted())
    }

    /// Has it carried out, and returns the branch and the number of what was made.
    pub(crate) fn done(&self, question: &Ask) -> Result<(Name, Option<u64>), Failure> {
        self.located()?.done(question)
    }
}

/// Whether a volume could be there: a regular file or a block device.
pub(crate) fn holds_bytes(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|m| m.is_file() || m.file_type().is_block_device())
}

/// `:BRANCH`, `@SNAPSHOT` or `:BRANCH@SNAPSHOT`.
fn names(text: &[u8]) -> Option<(Option<Name>, Option<Name>)> {
    let (branch, snapshot) = match text.iter().position(|byte| *byte == b'@') {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    };
    let branch = match branch.split_first() {
        None => None,
        Some((b':', branch)) => Some(branch),
        Some(_) => return None,
    };
    let are_names = [branch, snapshot].into_iter().flatten().all(Name::can_be);
    are_names.then(|| (branch.map(|it| Name(it.into())), snapshot.map(|it| Name(it.into()))))
}

/// A snapshot that is there, as it is named beside a place: `NAME`, `@NAME` or `BRANCH@NAME`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SnapshotName {
    /// The branch; `None`: that of the place.
    branch: Option<Name>,
    /// The snapshot.
    pub(crate) name: Name,
}

impl SnapshotName {
    /// What is neither `@NAME` nor `BRANCH@NAME` is a name. Whether it can be one is judged by the engine.
    pub(crate) fn parse(text: &OsStr) -> SnapshotName {
        let bytes = text.as_bytes();
        let before = if bytes.starts_with(b"@") { &b""[..] } else { b":" };
        match names(&[before, bytes].concat()) {
            Some((branch, Some(name))) => SnapshotName { branch, name },
            _ => SnapshotName { branch: None, name: Name(bytes.into()) },
        }
    }
}

/// As it is written in an argument.
impl fmt::Display for SnapshotName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.branch {
            Some(branch) => write!(f, "{branch}@{}", self.name),
            None => write!(f, "{}", self.name),
        }
    }
}

/// A tree as it is named beside another one: what a fork begins with, say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    /// The branch; `None`: that of the other one.
    pub(crate) branch: Option<Name>,
    /// A snapshot of it; `None`: the branch as it is.
    pub(crate) snapshot: Option<Name>,
}

impl Origin {
    /// What it means beside a tree: without a branch it is of the branch of that one.
    pub(crate) fn beside(&self, tree: &Tree) -> Tree {
        let snapshot = self.snapshot.clone();
        match &self.branch {
            Some(branch) => Tree { at: None, branch: Some(branch.clone()), snapshot },
            None => Tree { snapshot, ..tree.clone() },
        }
    }
}

/// What a fork begins with: `BRANCH`, `BRANCH@SNAPSHOT` or `@SNAPSHOT`.
pub(crate) fn origin(text: &str) -> Result<Origin, String> {
    let with_colon = match text.starts_with('@') {
        true => text.to_owned(),
        false => format!(":{text}"),
    };
    names(with_colon.as_bytes())
        .map(|(branch, snapshot)| Origin { branch, snapshot })
        .ok_or_else(|| format!("{text:?} is not BRANCH, BRANCH@SNAPSHOT or @SNAPSHOT"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_behind_what_is_there_and_a_file_of_the_whole_name_wins() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for name in ["a.img", "b@c.img", "a.img:taken"] {
            std::fs::write(at(name), "").unwrap();
        }
        let parse = |name: &str| {
            let place = TreeLocation::parse(at(name).as_os_str());
            let text = |name: Option<Name>| name.map(|name| name.text().into_owned());
            let path = place.path.strip_prefix(dir.path()).unwrap().to_str().unwrap().to_owned();
            (path, text(place.branch), text(place.snapshot))
        };
        let is = |path: &str, branch: Option<&str>, snapshot: Option<&str>| {
            (path.to_owned(), branch.map(String::from), snapshot.map(String::from))
        };
        assert_eq!(parse("a.img"), is("a.img", None, None));
        assert_eq!(parse("a.img:work"), is("a.img", Some("work"), None));
        assert_eq!(parse("a.img@s"), is("a.img", None, Some("s")));
        assert_eq!(parse("a.img:work@s t"), is("a.img", Some("work"), Some("s t")));
        assert_eq!(parse("b@c.img@s"), is("b@c.img", None, Some("s")));
        assert_eq!(parse("a.img:taken"), is("a.img:taken", None, None));
        // A directory is one if it is mounted.
        assert_eq!(TreeLocation::parse(dir.path().as_os_str()).path, dir.path());
        // A path in the volume, no name, and nothing at all.
        for path in ["a.img:/x", "a.img:/x@y", "a.img:", "a.img@", "a.img:x@", "a.img:x:y", "no:x"]
        {
            assert_eq!(parse(path), is(path, None, None));
        }
    }

    #[test]
    fn a_snapshot_is_named_as_it_is_printed() {
        let name = |text: &str| Name(text.into());
        let parse = |text: &str| SnapshotName::parse(OsStr::new(text));
        let is = |branch: Option<&str>, of: &str| SnapshotName {
            branch: branch.map(name),
            name: name(of),
        };
        assert_eq!(parse("s"), is(None, "s"));
        assert_eq!(parse("@s"), is(None, "s"));
        assert_eq!(parse("work@s"), is(Some("work"), "s"));
        for odd in ["", "@", "a@", "a@b@c", ":a", "a/b@c"] {
            assert_eq!(parse(odd), is(None, odd));
        }
        let place = |branch: Option<&str>| TreeLocation {
            path: "v".into(),
            branch: branch.map(name),
            snapshot: None,
        };
        assert_eq!(place(None).of(&parse("work@s")).unwrap(), place(Some("work")));
        assert_eq!(place(Some("work")).of(&parse("work@s")).unwrap(), place(Some("work")));
        assert_eq!(place(Some("work")).of(&parse("@s")).unwrap(), place(Some("work")));
        let refused = place(Some("work")).of(&parse("main@s")).unwrap_err();
        assert_eq!(refused.sentence, "v:work is the branch work, and main@s of main");
    }

    #[test]
    fn an_origin_has_one_form_or_three() {
        let name = |text: &str| Some(Name(text.into()));
        let is = |branch, snapshot| Ok(Origin { branch, snapshot });
        assert_eq!(origin("work@s"), is(name("work"), name("s")));
        assert_eq!(origin("@s"), is(None, name("s")));
        assert_eq!(origin("work"), is(name("work"), None));
        for wrong in ["", "@", "a@", "a@b@c", "a/b", ":a"] {
            assert!(origin(wrong).is_err(), "{wrong}");
        }
    }
}
