//! What became of each file, for people and programs.

use std::fmt;

use holdfast_format::item::FileType;
use serde::Serialize;

use crate::items::Origin;

/// Ranges that are listed for a file; of more only the bytes are counted.
const RANGES_MAX: usize = 256;

/// Ranges of bytes of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Holes {
    /// Starts and ends, upwards and disjoint; at most 256 of them.
    pub ranges: Vec<(u64, u64)>,
    /// Bytes of all of them, those included that are not listed.
    pub bytes: u64,
}

impl Holes {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    pub(crate) fn push(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        self.bytes = self.bytes.saturating_add(end - start);
        let listed = self.ranges.len();
        match self.ranges.last_mut() {
            Some(last) if last.1 == start => last.1 = end,
            _ if listed < RANGES_MAX => self.ranges.push((start, end)),
            _ => {}
        }
    }

    /// Adds what `other` has before `end`; none of that is among these.
    pub(crate) fn merge(&mut self, other: &Holes, end: u64) {
        if other.is_empty() {
            return;
        }
        let listed: u64 = other.ranges.iter().map(|(start, end)| end - start).sum();
        let mut all = std::mem::take(&mut self.ranges);
        let own: u64 = all.iter().map(|(start, end)| end - start).sum();
        let unlisted = (self.bytes - own).saturating_add(other.bytes - listed);
        all.extend(other.ranges.iter().map(|range| (range.0, range.1.min(end))));
        all.sort_unstable();
        self.bytes = 0;
        for (start, end) in all {
            self.push(start, end);
        }
        self.bytes = self.bytes.saturating_add(unlisted);
    }
}

impl fmt::Display for Holes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 8;
        for (index, (start, end)) in self.ranges.iter().take(SHOWN).enumerate() {
            let comma = if index > 0 { ", " } else { "" };
            write!(f, "{comma}{start}-{end}")?;
        }
        if self.ranges.len() > SHOWN {
            write!(f, ", ...")?;
        }
        Ok(())
    }
}

/// How far the parts of a file are known to be of the state that is salvaged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Provenance {
    is_doubted: bool,
    oldest: Option<u64>,
    newest: u64,
}

impl Provenance {
    pub(crate) fn add(&mut self, origin: Origin) {
        if !origin.is_proven {
            self.is_doubted = true;
            self.oldest = Some(self.oldest.unwrap_or(u64::MAX).min(origin.epoch));
            self.newest = self.newest.max(origin.epoch);
        }
    }

    /// Something that is not known may make another thing of it.
    pub(crate) fn doubt(&mut self) {
        self.is_doubted = true;
    }

    pub(crate) fn join(&mut self, other: Provenance) {
        self.is_doubted |= other.is_doubted;
        if let Some(oldest) = other.oldest {
            self.oldest = Some(self.oldest.unwrap_or(u64::MAX).min(oldest));
            self.newest = self.newest.max(other.newest);
        }
    }

    pub(crate) fn version(&self) -> Option<Version> {
        let epochs = self.oldest.map(|oldest| (oldest, self.newest));
        self.is_doubted.then_some(Version { epochs, has_branches: false })
    }
}

/// Of a file: it may not be as it was last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Version {
    /// Oldest and newest epoch of the nodes that its parts come from and to which nothing leads. None: the parts are those of the
    /// state, but something that would change them may be lost.
    pub epochs: Option<(u64, u64)>,
    /// The volume has other branches: such parts may be of one of these.
    pub has_branches: bool,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.epochs {
            Some((one, two)) if one == two => write!(f, "of epoch {one}, ")?,
            Some((one, two)) => write!(f, "of epochs {one} to {two}, ")?,
            None => {}
        }
        f.write_str("perhaps not the last version")?;
        match self.has_branches && self.epochs.is_some() {
            true => f.write_str(", or of another branch"),
            false => Ok(()),
        }
    }
}

/// Something of a file that is not there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Missing {
    /// Its inode: owner, mode, times and size are not known.
    Inode,
    /// All of it but the name.
    Everything,
    /// Extended attributes, or some of them.
    Attributes,
    /// Names in the directory, or some of them.
    Names,
    /// It was seen before, in another place, and stays there.
    Twice,
    /// What the host refused to take.
    Refused(String),
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Missing::Inode => f.write_str("owner, mode, times and size lost"),
            Missing::Everything => f.write_str("lost"),
            Missing::Attributes => f.write_str("attributes missing"),
            Missing::Names => f.write_str("names missing"),
            Missing::Twice => f.write_str("in another place already"),
            Missing::Refused(why) => write!(f, "not written: {why}"),
        }
    }
}

/// What was found of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileNote {
    /// Where it is, from the root of its tree on: names with `/` between them. In very deep directories from one on that is called by
    /// its number.
    pub path: Vec<u8>,
    /// Its number.
    pub inode: u64,
    /// What it is, if that is known.
    pub file_type: Option<FileType>,
    /// Bytes of it, if that is known.
    pub size: Option<u64>,
    /// Bytes that are missing: they read as zeros.
    pub holes: Holes,
    /// Bytes that were written although they do not match their checksums.
    pub unproved: Holes,
    /// It may be another version than the last one.
    pub version: Option<Version>,
    /// Its name is lost: it is called by its number.
    pub is_name_lost: bool,
    /// What else is missing.
    pub missing: Vec<Missing>,
    /// Attributes that are known, and that the host did not take: `owner`, `mode`, `times`, names of extended attributes. A file may be
    /// whole without them.
    pub not_set: Vec<String>,
}

impl FileNote {
    /// Whether it is as it was in the state that is salvaged.
    pub fn is_whole(&self) -> bool {
        self.holes.is_empty()
            && self.unproved.is_empty()
            && self.version.is_none()
            && !self.is_name_lost
            && self.missing.is_empty()
    }

    /// What is not as it was, in a few words each; of a whole one only which attributes were not set.
    pub fn words(&self) -> Vec<String> {
        let mut words: Vec<String> = self.missing.iter().map(ToString::to_string).collect();
        if !self.holes.is_empty() {
            words.push(format!("{} bytes missing at {}", self.holes.bytes, self.holes));
        }
        if !self.unproved.is_empty() {
            words.push(format!("{} bytes not proved at {}", self.unproved.bytes, self.unproved));
        }
        words.extend(self.version.map(|version| version.to_string()));
        if self.is_name_lost {
            words.push("name lost".into());
        }
        if !self.not_set.is_empty() {
            words.push(format!("not set: {}", self.not_set.join(", ")));
        }
        words
    }
}

/// How many files a salvage found, and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Files, directories and all else that was found.
    pub found: u64,
    /// Of those: as they were.
    pub whole: u64,
    /// With bytes missing.
    pub with_holes: u64,
    /// Perhaps not the last version.
    pub older: u64,
    /// Without a name.
    pub nameless: u64,
    /// Of which nothing but the name is left; not among those found.
    pub lost: u64,
    /// That do not have all their attributes, as the host did not take them. They may be whole.
    pub without_attributes: u64,
    /// Bytes of files that were written.
    pub bytes: u64,
    /// Bytes of files that are missing.
    pub missing_bytes: u64,
}

impl Counts {
    pub(crate) fn add(&mut self, found: &FileNote) {
        if found.missing.contains(&Missing::Everything) {
            self.lost += 1;
            return;
        }
        self.found += 1;
        self.whole += u64::from(found.is_whole());
        self.with_holes += u64::from(!found.holes.is_empty());
        self.older += u64::from(found.version.is_some());
        self.nameless += u64::from(found.is_name_lost);
        self.without_attributes += u64::from(!found.not_set.is_empty());
        self.missing_bytes = self.missing_bytes.saturating_add(found.holes.bytes);
    }

    /// Those of two trees.
    pub fn join(&mut self, other: &Counts) {
        self.found += other.found;
        self.whole += other.whole;
        self.with_holes += other.with_holes;
        self.older += other.older;
        self.nameless += other.nameless;
        self.lost += other.lost;
        self.without_attributes += other.without_attributes;
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.missing_bytes = self.missing_bytes.saturating_add(other.missing_bytes);
    }

    /// Whether all that was found is as it was, and nothing is lost.
    pub fn is_whole(&self) -> bool {
        self.found == self.whole && self.lost == 0
    }
}
