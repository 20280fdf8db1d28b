//! SQLite with a log that is written ahead, and a connection for each client.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use anyhow::Result;
use rusqlite::Connection;

use super::{Client, Commits, Place, key};

/// How long a connection waits for another one.
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) struct Sqlite {
    path: PathBuf,
    /// Clients queue here: those that find the database locked sleep and ask again, which takes several times as long.
    turn: Mutex<()>,
    /// While one connection is open, none of the others empties the log when it closes.
    _first: Mutex<Connection>,
}

impl Sqlite {
    pub(super) fn open(place: &Place<'_>) -> Result<Sqlite> {
        let path = place.dir.join("database");
        let first = connect(&path)?;
        first.execute_batch("create table entry(key integer primary key, value blob)")?;
        Ok(Sqlite { path, turn: Mutex::new(()), _first: Mutex::new(first) })
    }
}

fn connect(path: &Path) -> Result<Connection> {
    let connection = Connection::open(path)?;
    connection.busy_timeout(PATIENCE)?;
    connection.execute_batch("pragma journal_mode=wal; pragma synchronous=full")?;
    Ok(connection)
}

impl Commits for Sqlite {
    fn client(&self, number: u64) -> Result<Client<'_>> {
        let connection = connect(&self.path)?;
        Ok(Box::new(move |at, value| {
            let _turn = self.turn.lock();
            connection.prepare_cached("begin immediate")?.execute([])?;
            let mut put =
                connection.prepare_cached("insert or replace into entry values (?1, ?2)")?;
            put.execute((key(number, at) as i64, value))?;
            connection.prepare_cached("commit")?.execute([])?;
            Ok(())
        }))
    }
}
