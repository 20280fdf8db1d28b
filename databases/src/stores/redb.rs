//! redb: one writer at a time.

use anyhow::Result;
use redb::{Database, Durability, TableDefinition};

use super::{Client, Commits, Place, key};

const ENTRIES: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("entries");

pub(super) struct Redb(Database);

impl Redb {
    pub(super) fn open(place: &Place<'_>) -> Result<Redb> {
        Ok(Redb(Database::create(place.dir.join("database"))?))
    }
}

impl Commits for Redb {
    fn client(&self, number: u64) -> Result<Client<'_>> {
        Ok(Box::new(move |at, value| {
            let mut transaction = self.0.begin_write()?;
            transaction.set_durability(Durability::Immediate)?;
            transaction.open_table(ENTRIES)?.insert(key(number, at), value)?;
            Ok(transaction.commit()?)
        }))
    }
}
