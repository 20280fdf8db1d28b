//! Which files the receiver knows by their numbers, and how it comes to know them.

use std::collections::HashSet;

use super::Sender;
use crate::frame::Sink;
use crate::record::{Known, ROOT, Record, TABLE_MAX, Where};
use crate::{Result, StreamError};

/// The files that the receiver knows now, by the rules of the stream.
pub(super) struct Table {
    known: HashSet<u64>,
    /// New files of several names, which are parked until the end.
    pub(super) parked: HashSet<u64>,
}

impl Table {
    pub(super) fn new() -> Table {
        Table { known: HashSet::from([ROOT]), parked: HashSet::new() }
    }

    pub(super) fn add(&mut self, id: u64) {
        self.known.insert(id);
    }

    /// The attributes of something other than a directory were sent.
    pub(super) fn drop(&mut self, id: u64) {
        self.known.remove(&id);
    }
}

impl<O: Sink> Sender<'_, O> {
    /// Makes room for all files that one record speaks of.
    pub(super) fn make_room(&mut self) -> Result<()> {
        if self.table.known.len() <= TABLE_MAX / 2 {
            return Ok(());
        }
        self.table.known = HashSet::from([ROOT]);
        self.put(&Record::Reset)
    }

    /// The receiver knows this file, and the directories above it by which it finds it.
    pub(super) fn know(&mut self, id: u64) -> Result<()> {
        let mut way = Vec::new();
        let mut at = id;
        while !self.table.known.contains(&at) {
            if way.len() >= TABLE_MAX / 8 {
                return StreamError::refused(format!("inode {id} lies too deep to be sent"));
            }
            if self.table.parked.contains(&at) {
                way.push((at, Where::Parked, (0, Vec::new())));
                break;
            }
            let found = match &mut self.base {
                Some(base) if base.has(at)? => (Where::Base, base.place(at)?),
                _ => (Where::Now, self.new.place(at)?),
            };
            let dir = found.1.0;
            way.push((at, found.0, found.1));
            at = dir;
        }
        for (id, at, (dir, name)) in way.into_iter().rev() {
            self.put(&Record::Known(Known { id, at, dir, name: &name }))?;
            self.table.add(id);
        }
        Ok(())
    }
}
