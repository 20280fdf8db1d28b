//! The stores: each makes a commit durable as its documentation says, and is as its defaults have it otherwise.

mod fjall;
mod library;
mod lmdb;
mod mount;
mod redb;
mod rocksdb;
mod sqlite;

use std::path::Path;

use anyhow::Result;
use clap::ValueEnum;

/// A store that several clients use at a time, each on a thread of its own.
pub(crate) trait Commits: Sync {
    /// What the client `number` commits with.
    fn client(&self, number: u64) -> Result<Client<'_>>;

    /// Closes it, and with it what it has put off.
    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

/// Puts a value under a key, and returns when both are durable. Keys are those of one client.
pub(crate) type Client<'a> = Box<dyn FnMut(u64, &[u8]) -> Result<()> + 'a>;

/// Where a store stands, which is empty, and what mounts Holdfast.
pub(crate) struct Place<'a> {
    pub(crate) dir: &'a Path,
    pub(crate) program: &'a Path,
}

/// Bytes of a volume, and of LMDB's map: more than any run writes.
const ROOM: u64 = 1 << 30;

/// Which store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    Library,
    Allocated,
    Mount,
    Sqlite,
    Lmdb,
    Redb,
    Fjall,
    Rocksdb,
}

impl Kind {
    /// A word for options.
    pub(crate) fn word(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().into())
    }

    /// The head of a row.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Kind::Library => "Holdfast, library",
            Kind::Allocated => "Holdfast, library, allocated image",
            Kind::Mount => "Holdfast, mount",
            Kind::Sqlite => "SQLite",
            Kind::Lmdb => "LMDB",
            Kind::Redb => "redb",
            Kind::Fjall => "fjall",
            Kind::Rocksdb => "RocksDB",
        }
    }

    /// A new one.
    pub(crate) fn open(self, place: &Place<'_>) -> Result<Box<dyn Commits>> {
        Ok(match self {
            Kind::Library => Box::new(library::Library::open(place, false)?),
            Kind::Allocated => Box::new(library::Library::open(place, true)?),
            Kind::Mount => Box::new(mount::Mount::open(place)?),
            Kind::Sqlite => Box::new(sqlite::Sqlite::open(place)?),
            Kind::Lmdb => Box::new(lmdb::Lmdb::open(place)?),
            Kind::Redb => Box::new(redb::Redb::open(place)?),
            Kind::Fjall => Box::new(fjall::Fjall::open(place)?),
            Kind::Rocksdb => Box::new(rocksdb::Rocksdb::open(place)?),
        })
    }
}

/// Different clients have different keys, in an order of which each has a part.
fn key(client: u64, number: u64) -> u64 {
    client << 40 | number
}
