//! Branches and snapshots of a volume, by their names. Without a name of a branch it is the one that is open.

use std::io;

use holdfast::{Branch, Volume};
use napi::bindgen_prelude::{BigInt, ToNapiValue, TypeName};
use napi_derive::napi;

use crate::call::Promised;
use crate::volume::{NativeVolume, nanoseconds};

/// A snapshot.
#[napi(object)]
pub struct Taken {
    /// Its name.
    pub name: String,
    /// When, in nanoseconds since 1970.
    pub created_ns: BigInt,
}

fn named(volume: &Volume, name: Option<String>) -> io::Result<Branch> {
    name.map_or_else(|| volume.branch_here(), |name| volume.branch(&name))
}

impl NativeVolume {
    fn branch<T: ToNapiValue + TypeName + Send + 'static>(
        &self,
        name: Option<String>,
        body: impl FnOnce(Branch) -> io::Result<T> + Send + 'static,
    ) -> Promised<T> {
        self.whole(|volume| body(named(volume, name)?))
    }
}

#[napi]
impl NativeVolume {
    /// The name of a branch, if it is there.
    #[napi]
    pub fn branch_name(&self, branch: Option<String>) -> Promised<String> {
        self.branch(branch, |branch| Ok(branch.name().to_string()))
    }

    /// The names of all branches.
    #[napi]
    pub fn branches(&self) -> Promised<Vec<String>> {
        self.whole(|volume| {
            Ok(volume.branches()?.iter().map(|branch| branch.name().to_string()).collect())
        })
    }

    /// The snapshots of a branch.
    #[napi]
    pub fn snapshots(&self, branch: Option<String>) -> Promised<Vec<Taken>> {
        self.branch(branch, |branch| {
            let taken = |it: &holdfast::Snapshot| Taken {
                name: it.name().to_string(),
                created_ns: nanoseconds(it.created()),
            };
            Ok(branch.snapshots()?.iter().map(taken).collect())
        })
    }

    /// Opens a branch, or a snapshot of it, beside what is open.
    #[napi]
    pub fn open_branch(
        &self,
        branch: Option<String>,
        snapshot: Option<String>,
    ) -> Promised<NativeVolume> {
        self.branch(branch, |branch| {
            let opened = match snapshot {
                None => branch.open()?,
                Some(snapshot) => branch.snapshot_named(&snapshot)?.open()?,
            };
            Ok(NativeVolume::new(opened))
        })
    }

    /// Takes a snapshot.
    #[napi]
    pub fn snapshot(&self, branch: Option<String>, name: String) -> Promised<Taken> {
        self.branch(branch, move |branch| {
            let taken = branch.snapshot(&name)?;
            Ok(Taken { created_ns: nanoseconds(taken.created()), name })
        })
    }

    /// Makes a branch out of a branch or a snapshot.
    #[napi]
    pub fn fork(
        &self,
        branch: Option<String>,
        snapshot: Option<String>,
        name: String,
    ) -> Promised<()> {
        self.branch(branch, move |branch| match snapshot {
            None => branch.fork(&name).map(drop),
            Some(snapshot) => branch.snapshot_named(&snapshot)?.fork(&name).map(drop),
        })
    }

    /// Goes back to a snapshot.
    #[napi]
    pub fn rollback(
        &self,
        branch: Option<String>,
        snapshot: String,
        keep: Option<String>,
    ) -> Promised<()> {
        self.branch(branch, move |branch| {
            branch.rollback_to(&branch.snapshot_named(&snapshot)?, keep.as_deref())
        })
    }

    /// Becomes what a fork is.
    #[napi]
    pub fn promote(
        &self,
        branch: Option<String>,
        fork: String,
        keep: Option<String>,
        replace: bool,
    ) -> Promised<()> {
        self.whole(move |volume| {
            let (branch, fork) = (named(volume, branch)?, volume.branch(&fork)?);
            let keep = keep.as_deref();
            if replace { branch.replace_by(fork, keep) } else { branch.promote(fork, keep) }
        })
    }

    /// Deletes a branch or a snapshot.
    #[napi]
    pub fn delete(&self, branch: Option<String>, snapshot: Option<String>) -> Promised<()> {
        self.branch(branch, |branch| match snapshot {
            None => branch.delete(),
            Some(snapshot) => branch.snapshot_named(&snapshot)?.delete(),
        })
    }

    /// Gives a branch or a snapshot another name.
    #[napi]
    pub fn rename_branch(
        &self,
        branch: Option<String>,
        snapshot: Option<String>,
        name: String,
    ) -> Promised<()> {
        self.branch(branch, move |mut branch| match snapshot {
            None => branch.rename(&name),
            Some(snapshot) => branch.snapshot_named(&snapshot)?.rename(&name),
        })
    }
}
