//! fjall: a put, and all puts so far made durable.

use anyhow::Result;
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};

use super::{Client, Commits, Place, key};

pub(super) struct Fjall {
    database: Database,
    entries: Keyspace,
}

impl Fjall {
    pub(super) fn open(place: &Place<'_>) -> Result<Fjall> {
        let database = Database::builder(place.dir.join("database")).open()?;
        let entries = database.keyspace("entries", KeyspaceCreateOptions::default)?;
        Ok(Fjall { database, entries })
    }
}

impl Commits for Fjall {
    fn client(&self, number: u64) -> Result<Client<'_>> {
        Ok(Box::new(move |at, value| {
            self.entries.insert(key(number, at).to_be_bytes(), value)?;
            Ok(self.database.persist(PersistMode::SyncAll)?)
        }))
    }
}
