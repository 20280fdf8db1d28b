//! Holds: what keeps a snapshot from being deleted, and whose they are.
//!
//! A hold has a tag, its holder. A snapshot has no two of one tag: ending one ends none of others.

use holdfast_base::{InodeNo, Timestamp};

use super::lineage::{LINEAGE, judge_name, name_key};
use crate::codec::Reader;
use crate::{ItemKind, Key, Malformed};

record! {
    /// A hold of a snapshot; its tag follows.
    pub struct HoldHead("hold", 16 bytes) {
        /// When made.
        created: Timestamp,
        /// 1 to 255.
        tag_len: u8,
        /// Zero.
        reserved: [u8; 3],
    }
}

/// A hold of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HoldItem {
    /// The holder, by the rules of names.
    pub tag: Vec<u8>,
    /// Since when.
    pub created: Timestamp,
}

impl HoldItem {
    /// The bytes on disk.
    pub fn encode(&self) -> Vec<u8> {
        let (created, tag_len) = (self.created, self.tag.len() as u8);
        let mut out = HoldHead { created, tag_len, reserved: [0; 3] }.bytes().to_vec();
        out.extend_from_slice(&self.tag);
        out
    }

    /// Reads and judges a hold.
    pub fn decode(bytes: &[u8]) -> Result<HoldItem, Malformed> {
        let mut reader = Reader::new(HoldHead::TITLE, bytes);
        let head = HoldHead::read(&mut reader)?;
        let tag = reader.bytes(head.tag_len.into())?.to_vec();
        reader.finish()?;
        judge_name(&tag).or_else(HoldHead::fail)?;
        if head.reserved != [0; 3] || head.created.nanos >= 1_000_000_000 {
            return HoldHead::fail("its time or reserved bytes cannot be");
        }
        Ok(HoldItem { tag, created: head.created })
    }

    /// The key of the hold of snapshot `id` with this tag.
    pub fn key(id: u64, tag: &[u8]) -> Key {
        let offset = name_key(id, tag).offset;
        Key::new(InodeNo(LINEAGE.saturating_add(id)), ItemKind::Hold, offset)
    }

    /// The first and the last key of all holds of snapshot `id`.
    pub const fn span(id: u64) -> (Key, Key) {
        Key::span(InodeNo(LINEAGE.saturating_add(id)), ItemKind::Hold)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hold_has_a_tag_and_a_time() {
        let hold = HoldItem { tag: b"backup".to_vec(), created: Timestamp { secs: 5, nanos: 6 } };
        assert_eq!(HoldItem::decode(&hold.encode()), Ok(hold.clone()));
        let late = Timestamp { secs: 5, nanos: 1_000_000_000 };
        assert!(HoldItem::decode(&HoldItem { created: late, ..hold.clone() }.encode()).is_err());
        for tag in [&b""[..], b"a/b", b".."] {
            assert!(
                HoldItem::decode(&HoldItem { tag: tag.into(), ..hold.clone() }.encode()).is_err()
            );
        }
    }
}
