//! How operations change an open volume: each becomes visible and pending in one step.

use crate::disk::{Content, Device, Extent, Held, Location, Lsn, Take, Version, ZEROS};
use crate::memory::{InPlace, Memory};
use crate::mutant::Mutant;

impl Memory {
    /// `write_data`: delayed data goes to a free block. It is not visible before it is applied.
    pub(crate) fn write_data(&mut self, device: &mut Device, file: u8, version: Version) {
        let block = self.allocate().expect("there was room");
        device.write(Location::Pool(block), Held::Data(version));
        self.written = Some((file, Extent { block, version }));
    }

    /// `apply`: data that was written becomes visible.
    pub(crate) fn apply_written(&mut self) {
        let (file, extent) = self.written.take().expect("something was written");
        self.apply(file, Some(extent), Content::Summed);
    }

    /// `log_data` and `apply`: log-resident data becomes visible, as a change of what was there.
    pub(crate) fn log_data(&mut self, file: u8, version: Version) {
        let block = self.allocate().expect("there was room");
        let base = self.tree[file as usize].filter(|base| base.version != ZEROS);
        self.apply(file, Some(Extent { block, version }), Content::Inside(base));
    }

    /// `fallocate`: the file has a block, which reads as zeros.
    pub(crate) fn reserve(&mut self, file: u8) {
        let block = self.allocate().expect("there was room");
        self.apply(file, Some(Extent { block, version: ZEROS }), Content::Durable);
    }

    /// `fallocate` with ZERO_RANGE: the file keeps its block, which reads as zeros from now on.
    pub(crate) fn unwrite(&mut self, file: u8) {
        let extent = self.tree[file as usize].expect("it has a block");
        self.apply(file, Some(Extent { version: ZEROS, ..extent }), Content::Durable);
        self.unwrote = self.lsn;
    }

    /// Whether `unwritten` would allow a write to the file's block: a recovery never comes back to data in it (R2).
    pub(crate) fn may_fill(&self, file: u8) -> bool {
        let safe = match self.broken {
            Some(Mutant::UnwrittenEarly) => Lsn::MAX,
            Some(Mutant::UnwrittenAfterLog) => self.durable,
            _ => self.committed,
        };
        let is_reserved = |extent: Extent| extent.version == ZEROS;
        self.in_place.is_none()
            && self.unwrote <= safe
            && self.tree[file as usize].is_some_and(is_reserved)
    }

    /// Whether data is on its way to the block of this file: then its extents stay as they are.
    pub(crate) fn is_filling(&self, file: u8) -> bool {
        matches!(self.in_place, Some(InPlace::Sent(of, _) | InPlace::Written(of, _)) if of == file)
    }

    /// `write_in_place`: data goes to the block that the file has reserved. The tree says nothing of it yet.
    pub(crate) fn write_in_place(&mut self, device: &mut Device, file: u8, version: Version) {
        let extent = self.tree[file as usize].expect("it has a block");
        let extent = Extent { version, ..extent };
        device.write(Location::Pool(extent.block), Held::Data(version));
        self.in_place = Some(InPlace::Sent(file, extent));
    }

    /// `flush_in_place`.
    pub(crate) fn flush_in_place(&mut self, device: &mut Device) {
        if let Some(InPlace::Sent(file, extent)) = self.in_place {
            if !self.is(Mutant::InPlaceNotFlushed) {
                device.flush();
            }
            self.in_place = Some(InPlace::Written(file, extent));
        }
    }

    /// `apply`: what was written in place becomes visible. Nothing names it: it is durable.
    pub(crate) fn apply_in_place(&mut self) {
        if let Some(InPlace::Written(file, extent)) = self.in_place.take() {
            self.apply(file, Some(extent), Content::Durable);
        }
    }

    /// `apply`: one operation becomes visible and pending.
    pub(crate) fn apply(&mut self, file: u8, value: Option<Extent>, content: Content) {
        self.change_node();
        if let (Some(extent), Content::Inside(_)) = (value, content) {
            self.log_resident_fresh.push(extent);
        }
        let old = std::mem::replace(&mut self.tree[file as usize], value);
        let keeps = |one: Option<Extent>, other: Option<Extent>| {
            one.filter(|one| other.is_none_or(|other| other.block != one.block))
        };
        let (freed, taken) = (keeps(old, value), keeps(value, old));
        if let Some(old) = freed {
            self.free_data(old.block);
        } else if let Some(old) = old
            && value.is_some_and(|value| value.version == ZEROS)
        {
            self.log_resident_fresh.retain(|extent| extent.block != old.block);
            if !self.is(Mutant::UnwrittenNamed) {
                self.unflushed.retain(|extent| extent.block != old.block);
            }
        }
        // Also log-resident data: its write comes with the commit, before the same flush.
        let is_named = match content {
            Content::Summed => true,
            Content::Inside(_) => !self.is(Mutant::LogResidentNotNamed),
            Content::Durable => false,
        };
        self.unflushed.extend(value.filter(|_| is_named));
        self.lsn += 1;
        let lsn = self.lsn;
        let open = self.open_generation();
        open.last = lsn;
        open.puts.retain(|(other, _)| *other != file);
        open.puts.push((file, value));
        open.takes.extend(taken.map(|extent| Take { extent, content }));
        open.frees.extend(freed.map(|extent| extent.block));
    }
}
