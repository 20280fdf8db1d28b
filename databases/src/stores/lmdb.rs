//! LMDB: one writer at a time.

use anyhow::Result;
use heed::byteorder::BigEndian;
use heed::types::{Bytes, U64};
use heed::{CommitOrAbort, Database, Env, EnvOpenOptions};

use super::{Client, Commits, Place, ROOM, key};

pub(super) struct Lmdb {
    env: Env,
    entries: Database<'static, U64<BigEndian>, Bytes>,
}

impl Lmdb {
    pub(super) fn open(place: &Place<'_>) -> Result<Lmdb> {
        let mut options = EnvOpenOptions::new();
        options.map_size(usize::try_from(ROOM)?);
        // SAFETY: nothing else opens or changes the files of a directory that was made for this store.
        let env = unsafe { options.open(place.dir)? };
        let made = env.create_databases_and_commit(env.write_txn()?, |new, transaction| {
            new.create_database(transaction, None).map(CommitOrAbort::<_, ()>::Commit)
        })?;
        let entries = made.unwrap_commit();
        Ok(Lmdb { env, entries })
    }
}

impl Commits for Lmdb {
    fn client(&self, number: u64) -> Result<Client<'_>> {
        Ok(Box::new(move |at, value| {
            let mut transaction = self.env.write_txn()?;
            self.entries.put(&mut transaction, &key(number, at), value)?;
            Ok(transaction.commit()?)
        }))
    }
}
