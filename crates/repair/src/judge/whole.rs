//! The first reading, continued: an inode of which all items were read.

use holdfast_base::InodeNo;
use holdfast_base::units::BLOCK_BYTES;
use holdfast_check::Issue;
use holdfast_format::item::{FileType, InodeItem};
use holdfast_format::limits::{COUNTER_MAX, FILE_SIZE_MAX, SYMLINK_MAX};
use holdfast_format::{ItemKind, Key};

use super::inodes::{Broken, Current, Draft};
use super::{Entry, Judge, made};
use crate::walk::items;

impl Judge<'_, '_> {
    /// An inode of which all items were read.
    pub(super) fn finish(&self, found: &mut Draft, current: Current) {
        if current.is_refused {
            return;
        }
        let number = current.number;
        let mut is_unnamed = false;
        let item = match current.item {
            Some(item) => item,
            None => match self.without_item(found, &current) {
                Some(item) => {
                    is_unnamed = item.file_type() != FileType::Directory;
                    item
                }
                None => return,
            },
        };
        let mut fix = super::Fix::default();
        if !self.content_is_known(found, &current, &item, &mut fix) {
            return;
        }
        let (first, last) =
            (Key::span(number, ItemKind::Xattr).0, Key::span(number, ItemKind::XattrPiece).1);
        if item.nlink > 0
            && item.flags & InodeItem::HAS_XATTRS != 0
            && let Some(lost) = self.state.lost_in(&first, Some(&last)).first()
        {
            let what = "attributes of it (access lists are among these) may be lost".into();
            found.say(lost.issue, Some(number), what, true);
        }
        if item.nlink > 0 {
            current.xattrs.finish(
                &self.view(),
                number,
                &item,
                &mut fix,
                &mut |key, value| {
                    found.edits.insert(key, value);
                },
                &mut found.said,
            );
        }
        self.fields(found, number, &item, &mut fix);
        found.fixes.push((number, fix));
        found.entries.push(Entry { is_unnamed, ..Entry::of(number, &item) });
    }

    /// An item for an inode that has none. What it was is seen by what it has.
    fn without_item(&self, found: &mut Draft, current: &Current) -> Option<InodeItem> {
        let number = current.number;
        let is_given = number == InodeNo::ROOT || number >= InodeNo::FIRST_FREE;
        let is_known = is_given && number.0 < COUNTER_MAX / 4;
        let has_data = current.blocks > 0 || current.inline.is_some();
        let issue = match self.state.lost_with(&Key::inode(number)) {
            Some(lost) => lost.issue,
            None => Issue::ItemWithoutInode,
        };
        let now = self.shared.now;
        let item = match (current.names > 0, has_data) {
            _ if !is_known => None,
            (true, _) => Some(made(FileType::Directory, 0o700, now)),
            (false, true) => {
                let size = current.inline.unwrap_or(current.end).min(FILE_SIZE_MAX);
                let blocks = current.blocks;
                Some(InodeItem { size, blocks, ..made(FileType::Regular, 0o600, now) })
            }
            (false, false) => None,
        };
        let Some(item) = item else {
            for key in &current.keys {
                found.edits.insert(*key, None);
            }
            if !current.keys.is_empty() {
                let count = current.keys.len();
                let what =
                    format!("{count} items of inode {number} are removed, which does not exist");
                found.say(issue, None, what, true);
            }
            return None;
        };
        let is_directory = item.file_type() == FileType::Directory;
        for key in current.keys.iter().filter(|_| is_directory) {
            if matches!(key.kind, ItemKind::Inline | ItemKind::Extent) {
                found.edits.insert(*key, None);
            }
        }
        let what = match is_directory {
            true => format!(
                "owner, mode and times of directory {number} are lost; it is root's alone now"
            ),
            false => format!(
                "owner, mode, times and length of inode {number} are lost; it loses its names and is root's alone now"
            ),
        };
        found.edits.insert(Key::inode(number), Some(item.encode()));
        found.inode_next = found.inode_next.max(number.0 + 1);
        found.say(issue, Some(number), what, true);
        Some(item)
    }

    /// Compares content with attributes. `false`: the inode goes.
    fn content_is_known(
        &self,
        found: &mut Draft,
        current: &Current,
        item: &InodeItem,
        fix: &mut super::Fix,
    ) -> bool {
        let number = current.number;
        let file_type = item.file_type();
        if item.nlink == 0 || !matches!(file_type, FileType::Regular | FileType::Symlink) {
            return true;
        }
        let inline = Key::new(number, ItemKind::Inline, 0);
        let (first, last) = Key::span(number, ItemKind::Extent);
        let lacks_inline = current.inline.is_none()
            && current.blocks == 0
            && item.blocks == 0
            && self.state.may_be_lost(&inline);
        let lacks_extents = item.blocks > current.blocks && self.state.may_lack(&first, &last);
        if file_type == FileType::Symlink {
            let target = current.inline.unwrap_or_else(|| {
                let ends = item.size.div_ceil(BLOCK_BYTES).saturating_mul(BLOCK_BYTES);
                if current.unbroken && current.end == ends { item.size } else { 0 }
            });
            if !(1..=SYMLINK_MAX as u64).contains(&target) {
                self.remove(found, current);
                let issue = match self.lost_at(&inline).or(self.lost_at(&first)) {
                    Some(issue) => issue,
                    None => Issue::ContentWrong,
                };
                let what =
                    format!("the symbolic link {number} is removed: its target is not there");
                found.say(issue, None, what, true);
                return false;
            }
            if target != item.size {
                fix.size = Some(target);
                let what = format!("its target has {target} bytes");
                found.say(Issue::ContentWrong, Some(number), what, false);
            }
        } else if lacks_inline || lacks_extents {
            found.broken.push(Broken {
                inode: number,
                size: item.size,
                said: item.blocks,
                inline: lacks_inline,
            });
        }
        match current.inline {
            Some(_) if current.blocks > 0 => {
                found.edits.insert(inline, None);
                let what = "its content inside the tree is removed; its extents stay";
                found.say(Issue::ContentTwice, Some(number), what.into(), true);
            }
            Some(len) if len != item.size && file_type == FileType::Regular => {
                fix.size = Some(len);
                let what = format!("its size is {len} bytes");
                found.say(Issue::ContentWrong, Some(number), what, false);
            }
            _ => {}
        }
        if current.blocks != item.blocks {
            fix.blocks = Some(current.blocks);
            let what = format!("it counts {} blocks", current.blocks);
            found.say(Issue::BlocksWrong, Some(number), what, false);
        }
        true
    }

    /// The finding of the node that may have had a key.
    pub(super) fn lost_at(&self, key: &Key) -> Option<Issue> {
        self.state.lost_with(key).map(|lost| lost.issue)
    }

    /// Removes all items of an inode that was read.
    fn remove(&self, found: &mut Draft, current: &Current) {
        let range = (Key::inode(current.number), Some(Key::inode(InodeNo(current.number.0 + 1))));
        items(self.reading, self.state, range, &mut |_, key, _| {
            found.edits.insert(key, None);
        });
    }

    fn fields(&self, found: &mut Draft, number: InodeNo, item: &InodeItem, fix: &mut super::Fix) {
        let file_type = item.file_type();
        let is_device = matches!(file_type, FileType::BlockDevice | FileType::CharDevice);
        let is_special = is_device || matches!(file_type, FileType::Fifo | FileType::Socket);
        let mut wrong = Vec::new();
        if item.rdev != 0 && !is_device {
            fix.no_rdev = true;
            wrong.push("device number");
        }
        if is_special && item.size != 0 {
            fix.size = Some(0);
            wrong.push("size");
        }
        if item.blocks != 0 && (is_special || file_type == FileType::Directory) {
            fix.blocks = Some(0);
            wrong.push("blocks");
        }
        if !wrong.is_empty() {
            let what =
                format!("it has no {} any more, as it is a {file_type:?}", wrong.join(" and "));
            found.say(Issue::InodeFields, Some(number), what, false);
        }
    }
}
