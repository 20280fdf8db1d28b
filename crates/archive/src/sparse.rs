//! Files with holes, in the four forms that GNU tar has written: in its own header, and in pax records of versions 0.0,
//! 0.1 and 1.0. The last is what is written here.

use std::io::Read;

use tar::{GnuExtSparseHeader, GnuSparseHeader, Header};

use crate::Error;
use crate::header::BLOCK;
use crate::number::{decimal, unsigned};
use crate::stream::Stream;

/// Where bytes of a file belong, and how many.
pub(crate) type Segment = (u64, u64);
/// The size of a file, and its segments.
pub(crate) type Map = (u64, Vec<Segment>);

/// Segments of one file that are kept: 64 MiB of memory.
pub(crate) const SEGMENTS_MAX: usize = 4 << 20;

pub(crate) const TOO_MANY: &str = "it has more than four million holes";
const NO_MAP: &str = "the map of its holes makes no sense";

/// What pax records say of holes.
#[derive(Clone, Default)]
pub(crate) struct SparseRecords {
    pub(crate) name: Option<Vec<u8>>,
    major: Option<u64>,
    size: Option<u64>,
    real_size: Option<u64>,
    /// Version 0.0: offsets and lengths, one record each; version 0.1: one list of both.
    numbers: Option<Vec<u64>>,
}

impl SparseRecords {
    /// A record, without what its key begins with.
    pub(crate) fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), &'static str> {
        let number = || decimal(value).ok_or(NO_MAP);
        match key {
            b"name" => self.name = Some(value.to_vec()),
            b"major" => self.major = Some(number()?),
            b"size" => self.size = Some(number()?),
            b"realsize" => self.real_size = Some(number()?),
            b"numblocks" => self.numbers = Some(Vec::new()),
            b"offset" | b"numbytes" => {
                let numbers = self.numbers.get_or_insert_default();
                numbers.push(number()?);
                if numbers.len() > 2 * SEGMENTS_MAX {
                    return Err(TOO_MANY);
                }
            }
            b"map" => {
                // The records are no more than some MiB, and so are the numbers.
                let numbers =
                    value.split(|byte| *byte == b',').map(|text| decimal(text).ok_or(NO_MAP));
                self.numbers = Some(numbers.collect::<Result<_, _>>()?);
            }
            _ => {}
        }
        Ok(())
    }

    /// About how many bytes of memory it has.
    pub(crate) fn bytes(&self) -> usize {
        let name = self.name.as_ref().map_or(0, Vec::len);
        name + self.numbers.as_ref().map_or(0, |numbers| 8 * numbers.len())
    }

    /// The map that the records tell, or that version 1.0 has put in front of the bytes.
    pub(crate) fn read<R: Read>(self, from: &mut Stream<R>) -> Result<Option<Map>, Error> {
        let size = self.real_size.or(self.size);
        match (self.major, self.numbers, size) {
            (Some(1), _, Some(size)) => Ok(Some((size, in_front(from)?))),
            (Some(0) | None, Some(numbers), Some(size)) => {
                let (pairs, odd) = numbers.as_chunks::<2>();
                if !odd.is_empty() {
                    return Err(from.malformed(NO_MAP));
                }
                Ok(Some((size, pairs.iter().map(|[offset, len]| (*offset, *len)).collect())))
            }
            (None, None, None) => Ok(None),
            _ => Err(from.malformed(NO_MAP)),
        }
    }
}

/// The map of version 1.0: decimal numbers, one a line, filled up to a block.
fn in_front<R: Read>(from: &mut Stream<R>) -> Result<Vec<Segment>, Error> {
    let mut lines = Lines { from, taken: 0 };
    let count = lines.number()?;
    if count > SEGMENTS_MAX as u64 {
        return Err(lines.from.malformed(TOO_MANY));
    }
    let mut segments = Vec::new();
    for _ in 0..count {
        segments.push((lines.number()?, lines.number()?));
    }
    let mut padding = lines.taken.wrapping_neg() % BLOCK;
    while padding > 0 {
        let there = lines.bytes(padding)?;
        padding -= there;
    }
    Ok(segments)
}

struct Lines<'a, R> {
    from: &'a mut Stream<R>,
    taken: u64,
}

impl<R: Read> Lines<'_, R> {
    /// Takes up to `most` bytes and says how many.
    fn bytes(&mut self, most: u64) -> Result<u64, Error> {
        let len = self.from.bytes(most)?.len();
        if len == 0 {
            return Err(self.from.malformed(NO_MAP));
        }
        self.from.take(len);
        self.taken += len as u64;
        Ok(len as u64)
    }

    fn number(&mut self) -> Result<u64, Error> {
        // Twenty digits are the most that a number has.
        let line = self.from.bytes(21)?;
        let end = line.iter().position(|byte| *byte == b'\n');
        let number = end.and_then(|end| Some((end, decimal(&line[..end])?)));
        let (end, number) = number.ok_or_else(|| self.from.malformed(NO_MAP))?;
        self.bytes(end as u64 + 1)?;
        Ok(number)
    }
}

/// The map of GNU tar's own header, which goes on in blocks behind it.
pub(crate) fn of_header<R: Read>(from: &mut Stream<R>, header: &Header) -> Result<Map, Error> {
    let Some(gnu) = header.as_gnu() else {
        return Err(from.malformed(NO_MAP));
    };
    let size = unsigned(&gnu.realsize).ok_or_else(|| from.malformed(NO_MAP))?;
    let mut segments = Vec::new();
    add(&gnu.sparse, &mut segments).map_err(|why| from.malformed(why))?;
    let mut more = gnu.is_extended();
    while more {
        let mut next = GnuExtSparseHeader::new();
        let block = from.source.want(BLOCK as usize)?;
        if block.len() < BLOCK as usize {
            return Err(from.malformed("the archive ends in the map of its holes"));
        }
        next.as_mut_bytes().copy_from_slice(block);
        from.source.take(BLOCK as usize);
        add(next.sparse(), &mut segments).map_err(|why| from.malformed(why))?;
        more = next.is_extended();
    }
    Ok((size, segments))
}

fn add(from: &[GnuSparseHeader], to: &mut Vec<Segment>) -> Result<(), &'static str> {
    for one in from {
        if one.offset[0] == 0 || one.numbytes[0] == 0 {
            break;
        }
        to.push((unsigned(&one.offset).ok_or(NO_MAP)?, unsigned(&one.numbytes).ok_or(NO_MAP)?));
    }
    match to.len() > SEGMENTS_MAX {
        true => Err(TOO_MANY),
        false => Ok(()),
    }
}

/// Whether segments rise, lie inside the file, and are as many bytes as the archive has.
pub(crate) fn check(segments: &[Segment], size: u64, stored: u64) -> Result<(), &'static str> {
    let mut at = 0;
    let mut sum: u64 = 0;
    for (offset, len) in segments {
        let end = offset.checked_add(*len).ok_or(NO_MAP)?;
        if *offset < at || end > size {
            return Err(NO_MAP);
        }
        at = end;
        // No more than the end of the last, which fits.
        sum += len;
    }
    match sum == stored && size <= i64::MAX as u64 {
        true => Ok(()),
        false => Err(NO_MAP),
    }
}

/// The text of a map of version 1.0, one number.
pub(crate) fn line(number: u64) -> String {
    format!("{number}\n")
}
