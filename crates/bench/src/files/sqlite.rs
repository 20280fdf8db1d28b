//! SQLite: rows of 4 KiB, each in a transaction of its own, with the promise to survive a power cut.

use std::io;
use std::path::Path;

use rusqlite::Connection;

use super::run::{Run, Unit};
use crate::work::pattern;

/// Bytes of a row.
const ROW: usize = 4096;

/// Both journals.
pub(super) fn inserts(run: &mut Run<'_>) -> io::Result<()> {
    for journal in Journal::ALL {
        let path = run.place().join(journal.file());
        let is_durable = run.syncer().is_durable();
        run.repeat(journal.name(), Unit::Operations, 1, |_| {
            let mut database = Database::create(&path, journal, is_durable)?;
            Ok(move || database.insert().map(|()| Some(1)))
        })?;
    }
    Ok(())
}

/// How SQLite keeps what it may have to undo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Journal {
    /// A log that is written ahead.
    Wal,
    /// A file of old pages, removed at each commit.
    Rollback,
}

impl Journal {
    pub(crate) const ALL: [Journal; 2] = [Journal::Wal, Journal::Rollback];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Journal::Wal => "SQLite WAL, FULL, insert 4 KiB row",
            Journal::Rollback => "SQLite rollback, FULL, insert 4 KiB row",
        }
    }

    /// What a database with it is called.
    pub(crate) fn file(self) -> String {
        format!("{}.db", self.word())
    }

    fn word(self) -> &'static str {
        match self {
            Journal::Wal => "wal",
            Journal::Rollback => "delete",
        }
    }
}

/// An open database with one table.
pub(crate) struct Database {
    connection: Connection,
    row: Vec<u8>,
}

impl Database {
    /// A new one at `path`; if not `is_durable`, SQLite leaves its fsyncs out.
    pub(crate) fn create(path: &Path, journal: Journal, is_durable: bool) -> io::Result<Database> {
        let connection = Connection::open(path).map_err(io::Error::other)?;
        let found: String = connection
            .query_row(&format!("pragma journal_mode={}", journal.word()), [], |row| row.get(0))
            .map_err(io::Error::other)?;
        if found != journal.word() {
            let what =
                format!("{}: the journal is {found}, not {}", path.display(), journal.word());
            return Err(io::Error::other(what));
        }
        let synchronous = if is_durable { "full" } else { "off" };
        connection
            .execute_batch(&format!(
                "pragma synchronous={synchronous}; create table t(id integer primary key, bytes blob)"
            ))
            .map_err(io::Error::other)?;
        Ok(Database { connection, row: pattern(ROW) })
    }

    /// One row, committed.
    pub(crate) fn insert(&mut self) -> io::Result<()> {
        let mut statement = self
            .connection
            .prepare_cached("insert into t(bytes) values (?1)")
            .map_err(io::Error::other)?;
        statement.execute([&self.row]).map(drop).map_err(io::Error::other)
    }
}
