//! What a repair overwrites, kept in a file, so that the volume can become again what it was, bit for bit.
//!
//! The file has a header, an entry for each block, and then the old bytes of each. It must be durable before the first block of the repair
//! is written. Blocks belong to the steps of the repair, between which it flushes: an undo takes the steps back in the opposite order, so that
//! after a power cut the volume is as it was repaired or as it was before, and a second undo ends the first.
//!
//! An undo writes nothing unless each block has what the repair wrote or what it overwrote, and the rings hold what they held: a program
//! that has written to the volume since leaves its traces there.

use std::io::{self, Read, Seek, SeekFrom, Write};

use holdfast_base::BLOCK_SIZE;
use holdfast_base::units::BLOCK_BYTES;
use holdfast_device::{Device, DeviceError};
use holdfast_format::Geometry;
use holdfast_format::checksum::crc64;
use holdfast_format::journal::SEARCH_BLOCKS_MAX;

use crate::write::{Planned, STEPS};

/// How such a file begins.
const MAGIC: &[u8; 16] = b"holdfast undo 1\n";
/// Bytes of the header: magic, id of the volume, number of blocks, length of the device, the zone of the rings, their sum, the sum of all that.
const HEADER: usize = 2 * 16 + 8 * 6;
/// Sectors of a block: a power cut may leave some of them written.
pub(crate) const SECTORS: usize = BLOCK_SIZE / SECTOR;
pub(crate) const SECTOR: usize = 512;
/// Bytes of an entry: block, step, the sum of the old bytes, the sum of each sector of the new ones.
const ENTRY: usize = 8 * (3 + SECTORS);
/// The step of a block of which not all reads: zeros stand for the rest.
const UNREAD: u64 = 1 << 8;
/// The step of a block of a bad place of a node: the device may not take it, and the node has its other place.
const MEND: u64 = 1 << 9;
/// Most blocks: 64 GiB of old bytes, far more than a repair keeps in memory.
const BLOCKS_MAX: u64 = 1 << 24;
/// Bytes of the rings that are read at once.
const PART: u64 = 1 << 20;

/// Why what a repair overwrote was not kept or not put back.
#[derive(Debug, thiserror::Error)]
pub enum UndoError {
    /// The file does not write or read.
    #[error("the undo file: {0}")]
    File(#[from] io::Error),
    /// The volume's device refuses.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// It is no whole undo file.
    #[error("this is no whole undo file: {0}")]
    Malformed(&'static str),
    /// The volume is another one, or not as the repair left it.
    #[error(
        "nothing is written: block {0} has neither what the repair wrote nor what was there before: it is another volume, or was changed since"
    )]
    Changed(u64),
    /// The device has another length than when it was repaired.
    #[error(
        "nothing is written: it had {then} bytes when it was repaired and has {now}: it is another volume, or can be undone when it has its length again"
    )]
    Length {
        /// Bytes that the undo file knows.
        then: u64,
        /// Bytes now.
        now: u64,
    },
    /// Journal or log are others than the repair left.
    #[error(
        "nothing is written: journal or log have changed since the repair: the volume has been opened for writing"
    )]
    Opened,
}

/// What was put back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Undone {
    /// Bytes that were written.
    pub bytes: u64,
    /// Blocks that did not read before the repair, and so were not kept: they are zeros.
    pub unread: u64,
    /// Blocks of bad places of nodes that the device neither reads nor writes: they are what they were.
    pub unwritten: u64,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    block: u64,
    step: u64,
    old: u64,
    new: [u64; SECTORS],
}

impl Entry {
    fn encode(&self) -> Vec<u8> {
        let words = [self.block, self.step, self.old].into_iter().chain(self.new);
        words.flat_map(u64::to_le_bytes).collect()
    }
}

fn sector_sums(block: &[u8; BLOCK_SIZE]) -> [u64; SECTORS] {
    let (sectors, _) = block.as_chunks::<SECTOR>();
    std::array::from_fn(|at| crc64(&sectors[at]))
}

fn read_block(device: &dyn Device, block: u64) -> Result<[u8; BLOCK_SIZE], DeviceError> {
    let mut bytes = [0; BLOCK_SIZE];
    device.read(block.saturating_mul(BLOCK_BYTES), &mut bytes)?;
    Ok(bytes)
}

/// The block, sector by sector; zeros for those that do not read, and whether all do.
pub(crate) fn read_sectors(device: &dyn Device, block: u64) -> ([u8; BLOCK_SIZE], bool) {
    if let Ok(bytes) = read_block(device, block) {
        return (bytes, true);
    }
    let mut bytes = [0; BLOCK_SIZE];
    for (at, sector) in (0..).step_by(SECTOR).zip(bytes.as_chunks_mut::<SECTOR>().0) {
        if device.read(block.saturating_mul(BLOCK_BYTES).saturating_add(at), sector).is_err() {
            sector.fill(0);
        }
    }
    (bytes, false)
}

/// The sum of blocks from the first up to the second, but for those that the repair writes itself; what does not read is left out.
fn rings_sum(device: &dyn Device, zone: (u64, u64), own: &[u64]) -> u64 {
    let mut sum = 0u64;
    let mut buffer = vec![0; PART as usize];
    let mut at = zone.0;
    while at < zone.1 {
        let count = (PART / BLOCK_BYTES).min(zone.1 - at);
        let part = &mut buffer[..(count * BLOCK_BYTES) as usize];
        let is_whole = device.read(at.saturating_mul(BLOCK_BYTES), part).is_ok();
        for (block, bytes) in (at..).zip(part.chunks_mut(BLOCK_SIZE)) {
            let reads = is_whole || device.read(block.saturating_mul(BLOCK_BYTES), bytes).is_ok();
            if reads && own.binary_search(&block).is_err() {
                sum = crc64(&[sum.to_le_bytes(), crc64(bytes).to_le_bytes()].concat());
            }
        }
        at += count;
    }
    sum
}

/// The blocks of journal and log in all their places, as first and end; of rings that are larger than any search of one, the first part.
fn rings(geometry: &Geometry) -> (u64, u64) {
    let zone = geometry.ring_zone();
    let end = zone.start.0.saturating_add(zone.count);
    (zone.start.0, end.min(zone.start.0.saturating_add(4 * SEARCH_BLOCKS_MAX)))
}

fn own_blocks(entries: &[Entry]) -> Vec<u64> {
    let mut own: Vec<u64> = entries.iter().map(|entry| entry.block).collect();
    own.sort_unstable();
    own
}

impl Planned {
    /// Writes what the repair will overwrite on `device` to `file`, which the caller makes durable before [`Planned::write`].
    pub fn keep(&self, device: &dyn Device, file: &mut dyn Write) -> Result<(), UndoError> {
        let mut entries = Vec::new();
        for (step, blocks) in (0..).zip(self.steps()) {
            for (block, bytes) in blocks {
                let old = read_block(device, block);
                let step = if old.is_ok() { step } else { step | UNREAD };
                let old = old.map_or(0, |old| crc64(&old));
                entries.push(Entry { block, step, old, new: sector_sums(bytes) });
            }
            for (block, sound) in self.mends(step as usize) {
                let new = sector_sums(&read_block(device, sound)?);
                let old = read_block(device, block);
                let step = MEND | if old.is_ok() { step } else { step | UNREAD };
                entries.push(Entry { block, step, old: old.map_or(0, |old| crc64(&old)), new });
            }
        }
        let zone = rings(self.geometry());
        let sum = rings_sum(device, zone, &own_blocks(&entries));
        let table: Vec<u8> = entries.iter().flat_map(Entry::encode).collect();
        let mut header = [&MAGIC[..], &self.uuid()].concat();
        let words = [entries.len() as u64, device.len(), zone.0, zone.1, sum];
        header.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        header.extend(crc64(&[&header[..], &table[..]].concat()).to_le_bytes());
        file.write_all(&header)?;
        file.write_all(&table)?;
        for entry in &entries {
            let old = match entry.step & UNREAD {
                0 => read_block(device, entry.block)?,
                // Beside what does not read may lie what the volume needs.
                _ => read_sectors(device, entry.block).0,
            };
            file.write_all(&old)?;
        }
        Ok(())
    }
}

/// A file that keeps what a repair has overwritten.
#[derive(Debug)]
pub struct Undo<F> {
    file: F,
    uuid: [u8; 16],
    entries: Vec<Entry>,
    /// Bytes of the device.
    len: u64,
    zone: (u64, u64),
    sum: u64,
}

impl<F: Read + Seek> Undo<F> {
    /// Reads and judges such a file.
    pub fn open(mut file: F) -> Result<Undo<F>, UndoError> {
        let cut = |error: io::Error| match error.kind() {
            io::ErrorKind::UnexpectedEof => UndoError::Malformed("it is cut short"),
            _ => UndoError::File(error),
        };
        let mut header = [0; HEADER];
        file.read_exact(&mut header).map_err(cut)?;
        if !header.starts_with(MAGIC) {
            return Err(UndoError::Malformed("it does not begin as one"));
        }
        let word = |at: usize| {
            let bytes = header[2 * MAGIC.len() + 8 * at..].first_chunk();
            bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
        };
        let [count, len, start, end, sum, own] = std::array::from_fn(word);
        // Its length is believed only as far as there are bytes.
        let bytes = file.seek(SeekFrom::End(0))?;
        let each = (ENTRY + BLOCK_SIZE) as u64;
        if count > BLOCKS_MAX || bytes != HEADER as u64 + count.saturating_mul(each) {
            return Err(UndoError::Malformed("it has not the length that it says"));
        }
        file.seek(SeekFrom::Start(HEADER as u64))?;
        let mut table = vec![0; count as usize * ENTRY];
        file.read_exact(&mut table).map_err(cut)?;
        if crc64(&[&header[..HEADER - 8], &table[..]].concat()) != own {
            return Err(UndoError::Malformed("its table does not match its checksum"));
        }
        let entry = |bytes: &[u8; ENTRY]| {
            let (words, _) = bytes.as_chunks::<8>();
            let word = |at: usize| u64::from_le_bytes(words[at]);
            let new = std::array::from_fn(|at| word(3 + at));
            Entry { block: word(0), step: word(1), old: word(2), new }
        };
        if end > len / BLOCK_BYTES {
            return Err(UndoError::Malformed("its rings lie outside the device"));
        }
        let entries: Vec<Entry> = table.as_chunks().0.iter().map(entry).collect();
        let uuid = *header[MAGIC.len()..].first_chunk().expect("the header is longer");
        let mut undo = Undo { file, uuid, entries, len, zone: (start, end), sum };
        for at in 0..undo.entries.len() {
            let Entry { step, old, .. } = undo.entries[at];
            let kept = undo.kept(at)?;
            if step & !(UNREAD | MEND) >= STEPS as u64
                || (step & UNREAD == 0 && crc64(&kept) != old)
            {
                return Err(UndoError::Malformed("a block does not match its checksum"));
            }
        }
        Ok(undo)
    }

    /// The id of the volume that was repaired.
    pub fn uuid(&self) -> [u8; 16] {
        self.uuid
    }

    /// The old bytes of an entry.
    fn kept(&mut self, at: usize) -> Result<[u8; BLOCK_SIZE], UndoError> {
        let start = HEADER as u64 + (self.entries.len() * ENTRY) as u64;
        let mut bytes = [0; BLOCK_SIZE];
        self.file.seek(SeekFrom::Start(start + (at * BLOCK_SIZE) as u64))?;
        self.file.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    /// Fails if the volume is not as the repair left it, or as a repair or an undo that was cut has. Writes nothing.
    pub fn expect_of(&mut self, device: &dyn Device) -> Result<(), UndoError> {
        if device.len() != self.len {
            return Err(UndoError::Length { then: self.len, now: device.len() });
        }
        for at in 0..self.entries.len() {
            let Entry { block, step, new, .. } = self.entries[at];
            let old = sector_sums(&self.kept(at)?);
            let now = match read_block(device, block) {
                // Of a bad place: the device has not taken it.
                Err(_) if step & UNREAD != 0 && step & MEND != 0 => continue,
                now => sector_sums(&now?),
            };
            let known = now.iter().zip(old.iter().zip(&new));
            if known.into_iter().any(|(now, (old, new))| now != old && now != new) {
                return Err(UndoError::Changed(block));
            }
        }
        let sum = rings_sum(device, self.zone, &own_blocks(&self.entries));
        if sum == self.sum { Ok(()) } else { Err(UndoError::Opened) }
    }

    /// Puts all back. After a power cut or an error at any moment the volume is as it was repaired or as it was before, and this may be
    /// called again.
    pub fn write(mut self, device: &dyn Device) -> Result<Undone, UndoError> {
        self.expect_of(device)?;
        let mut undone = Undone { bytes: 0, unread: 0, unwritten: 0 };
        for step in (0..STEPS as u64).rev() {
            for at in 0..self.entries.len() {
                let entry = self.entries[at];
                if entry.step & !(UNREAD | MEND) != step {
                    continue;
                }
                let old = self.kept(at)?;
                let now = read_block(device, entry.block);
                // A device that does not write it has left it as it was.
                if now.as_ref().is_ok_and(|now| *now == old) {
                    undone.unread += u64::from(entry.step & UNREAD != 0);
                    continue;
                }
                match device.write(entry.block.saturating_mul(BLOCK_BYTES), &old) {
                    Err(_) if now.is_err() && entry.step & MEND != 0 => undone.unwritten += 1,
                    done => {
                        done?;
                        // What did not read becomes zeros: a superblock of the repair would lead to trees that are gone.
                        undone.unread += u64::from(entry.step & UNREAD != 0);
                        undone.bytes += BLOCK_BYTES;
                    }
                }
            }
            let _ = device.flush()?;
        }
        Ok(undone)
    }
}
