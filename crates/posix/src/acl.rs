//! POSIX access control lists, as far as they touch permission bits.
//!
//! The value of `system.posix_acl_access` and `_default` is a version word and
//! entries of tag, permission and id, in the order of their tags. The
//! permission bits of a file are three of the entries of its access list:
//! owner, mask (or group, if there is no mask) and other. So chmod changes the
//! list, and setting the list changes the bits.
//!
//! Knows nothing of where lists are kept.

use crate::{Caller, FsError, Result};

/// Name of the list that controls access.
pub(crate) const ACCESS: &[u8] = b"system.posix_acl_access";
/// Name of the list that new files in a directory inherit.
pub(crate) const DEFAULT: &[u8] = b"system.posix_acl_default";

const VERSION: u32 = 2;
const USER_OBJ: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;
const NO_ID: u32 = u32::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    tag: u16,
    perm: u16,
    id: u32,
}

/// A valid access control list: owner, group and other once each, and a mask if it names users or groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Acl {
    entries: Vec<Entry>,
}

impl Acl {
    /// Reads a value; `None` for one without entries, which means no list.
    pub(crate) fn parse(value: &[u8]) -> Result<Option<Acl>> {
        let wrong = || FsError::Invalid("the access control list is malformed");
        let (version, rest) = value.split_first_chunk::<4>().ok_or_else(wrong)?;
        if u32::from_le_bytes(*version) != VERSION {
            return Err(FsError::NotSupported);
        }
        let (chunks, odd) = rest.as_chunks::<8>();
        if !odd.is_empty() {
            return Err(wrong());
        }
        if chunks.is_empty() {
            return Ok(None);
        }
        let entries = chunks
            .iter()
            .map(|c| Entry {
                tag: u16::from_le_bytes([c[0], c[1]]),
                perm: u16::from_le_bytes([c[2], c[3]]),
                id: u32::from_le_bytes([c[4], c[5], c[6], c[7]]),
            })
            .collect();
        let acl = Acl { entries };
        if acl.keeps_the_rules() { Ok(Some(acl)) } else { Err(wrong()) }
    }

    fn keeps_the_rules(&self) -> bool {
        let count = |tag| self.entries.iter().filter(|e| e.tag == tag).count();
        let in_order = self.entries.windows(2).all(|pair| pair[0].tag <= pair[1].tag);
        let known = self.entries.iter().all(|e| {
            e.perm <= 7
                && match e.tag {
                    USER | GROUP => e.id != NO_ID,
                    USER_OBJ | GROUP_OBJ | MASK | OTHER => true,
                    _ => false,
                }
        });
        let names_anybody = count(USER) + count(GROUP) > 0;
        in_order
            && known
            && [USER_OBJ, GROUP_OBJ, OTHER].iter().all(|&tag| count(tag) == 1)
            && (count(MASK) == 1 || count(MASK) == 0 && !names_anybody)
    }

    /// The value on disk.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = VERSION.to_le_bytes().to_vec();
        for entry in &self.entries {
            out.extend_from_slice(&entry.tag.to_le_bytes());
            out.extend_from_slice(&entry.perm.to_le_bytes());
            out.extend_from_slice(&entry.id.to_le_bytes());
        }
        out
    }

    fn find(&self, tag: u16) -> Option<&Entry> {
        self.entries.iter().find(|e| e.tag == tag)
    }

    fn perm(&self, tag: u16) -> u32 {
        self.find(tag).map_or(0, |e| e.perm.into())
    }

    /// The entry that the group bits of a mode stand for.
    fn group_class(&self) -> u16 {
        if self.find(MASK).is_some() { MASK } else { GROUP_OBJ }
    }

    /// The nine permission bits that say the same.
    pub(crate) fn mode_bits(&self) -> u32 {
        self.perm(USER_OBJ) << 6 | self.perm(self.group_class()) << 3 | self.perm(OTHER)
    }

    /// Whether the nine bits say everything.
    pub(crate) fn is_only_mode(&self) -> bool {
        self.entries.len() == 3
    }

    /// Changes the list as chmod to `mode` does.
    pub(crate) fn set_mode_bits(&mut self, mode: u32) {
        let class = self.group_class();
        for entry in &mut self.entries {
            if entry.tag == USER_OBJ {
                entry.perm = (mode >> 6 & 7) as u16;
            } else if entry.tag == class {
                entry.perm = (mode >> 3 & 7) as u16;
            } else if entry.tag == OTHER {
                entry.perm = (mode & 7) as u16;
            }
        }
    }

    /// The access list of a new file with permission bits `perm` that inherits this list: no entry
    /// allows more than `perm` asks for.
    pub(crate) fn inherited(&self, perm: u32) -> Acl {
        let mut acl = self.clone();
        acl.set_mode_bits(acl.mode_bits() & perm);
        acl
    }

    /// Whether a caller that is not the owner may do all of `wanted` (r 4, w 2, x 1).
    pub(crate) fn allows(&self, caller: &Caller, file_gid: u32, wanted: u32) -> bool {
        let mask = self.find(MASK).map_or(7, |e| u32::from(e.perm));
        let gives = |perm: u16| wanted & !(u32::from(perm) & mask) == 0;
        if let Some(user) = self.entries.iter().find(|e| e.tag == USER && e.id == caller.uid) {
            return gives(user.perm);
        }
        let mut in_a_group = false;
        for entry in &self.entries {
            let group = match entry.tag {
                GROUP_OBJ => file_gid,
                GROUP => entry.id,
                _ => continue,
            };
            if caller.is_in_group(group) {
                in_a_group = true;
                if gives(entry.perm) {
                    return true;
                }
            }
        }
        !in_a_group && wanted & !self.perm(OTHER) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acl(entries: &[(u16, u16, u32)]) -> Acl {
        let entries = entries.iter().map(|&(tag, perm, id)| Entry { tag, perm, id }).collect();
        Acl { entries }
    }

    fn caller(uid: u32, gid: u32) -> Caller {
        Caller { uid, gid, groups: vec![], trusted: false }
    }

    #[test]
    fn the_mask_limits_whom_the_list_names() {
        let acl = acl(&[
            (USER_OBJ, 7, NO_ID),
            (USER, 7, 5),
            (GROUP_OBJ, 4, NO_ID),
            (MASK, 5, NO_ID),
            (OTHER, 1, NO_ID),
        ]);
        assert_eq!(Acl::parse(&acl.encode()).unwrap(), Some(acl.clone()));
        assert_eq!(acl.mode_bits(), 0o751);
        assert!(acl.allows(&caller(5, 1), 9, 5));
        assert!(!acl.allows(&caller(5, 1), 9, 2), "the mask takes writing away");
        assert!(acl.allows(&caller(6, 9), 9, 4));
        assert!(!acl.allows(&caller(6, 9), 9, 1), "who is in a group is not an other");
        assert!(acl.allows(&caller(6, 1), 9, 1));
        assert_eq!(acl.inherited(0o640).mode_bits(), 0o640);
    }

    #[test]
    fn a_list_that_breaks_a_rule_is_refused() {
        let no_mask =
            acl(&[(USER_OBJ, 7, NO_ID), (USER, 7, 5), (GROUP_OBJ, 4, NO_ID), (OTHER, 1, NO_ID)]);
        assert!(Acl::parse(&no_mask.encode()).is_err());
        assert!(Acl::parse(&[2, 0, 0]).is_err());
        assert!(Acl::parse(&[2, 0, 0, 0, 1]).is_err());
        assert_eq!(Acl::parse(&[2, 0, 0, 0]).unwrap(), None);
    }
}
