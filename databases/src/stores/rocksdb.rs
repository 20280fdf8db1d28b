//! RocksDB: puts that wait at the same time are made durable together.

use anyhow::Result;
use rocksdb::{DB, Options, WriteOptions};

use super::{Client, Commits, Place, key};

pub(super) struct Rocksdb(DB);

impl Rocksdb {
    pub(super) fn open(place: &Place<'_>) -> Result<Rocksdb> {
        let mut options = Options::default();
        options.create_if_missing(true);
        Ok(Rocksdb(DB::open(&options, place.dir.join("database"))?))
    }
}

impl Commits for Rocksdb {
    fn client(&self, number: u64) -> Result<Client<'_>> {
        let mut options = WriteOptions::default();
        options.set_sync(true);
        Ok(Box::new(move |at, value| {
            Ok(self.0.put_opt(key(number, at).to_be_bytes(), value, &options)?)
        }))
    }
}
