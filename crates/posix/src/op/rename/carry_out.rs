//! What a rename changes, once everything was judged.

use holdfast_base::{InodeNo, Timestamp};
use holdfast_format::Key;
use holdfast_format::item::{FileType, InodeItem};
use holdfast_store::{Reservation, Transaction};

use super::{Move, Resolved, is_dir};
use crate::core::Core;
use crate::inode::{Inode, Locked};
use crate::orphan::{Fate, ITEMS_AT_ONCE, plan_last_name};
use crate::*;

impl Move<'_> {
    /// Builds the transaction, applies it, and takes it over. Answers what becomes of a replaced inode without a name.
    pub(super) fn carry_out(
        &self,
        core: &Core,
        locked: &mut Locked<'_>,
        seen: &Resolved,
        reservation: &mut Reservation,
    ) -> Result<Option<Fate>> {
        let now = Timestamp::now();
        let (from_entry, source) = &seen.source;
        let (fate, mut transaction) = match &seen.target {
            Some((entry, target)) if !self.exchanges() => {
                locked.get(target.no).forget_name(self.to.no, entry.offset);
                self.lose_name(core, locked, target, now)?
            }
            _ => (None, Transaction::new()),
        };
        for dir in [self.from, self.to] {
            let draft = locked.draft(dir.no);
            draft.mtime = now;
            draft.ctime = now;
        }
        locked.draft(source.no).ctime = now;

        let to_offset = match &seen.target {
            None => {
                // The offset of a new name may depend on the other name, if both hash alike: that one is still there.
                names::find_vacant(core, self.to.no, self.to_name)?
            }
            Some((entry, _)) => entry.offset,
        };
        self.move_name(locked, source, self.from, (self.to, to_offset));
        let (to, file_type) = (self.to.no, source.file_type);
        names::put(&mut transaction, to, to_offset, self.to_name, source.no, file_type);
        self.leave(core, locked, seen, now, &mut transaction);
        locked.put_all(&mut transaction);
        let lsn = core.apply_asked_for(transaction, reservation)?;
        locked.took_all(lsn);
        core.directory_log.changed(&core.store, self.from.no, from_entry.offset, lsn);
        core.directory_log.changed(&core.store, self.to.no, to_offset, lsn);
        if is_dir(&seen.source.1) || seen.target.as_ref().is_some_and(|(_, target)| is_dir(target))
        {
            core.last_move.fetch_max(lsn.0, std::sync::atomic::Ordering::AcqRel);
        }
        if let (Some(fate), Some((_, target))) = (fate, &seen.target) {
            fate.mark(core, target, &mut locked.get(target.no).state);
        }
        Ok(fate)
    }

    /// What the old name leads to from now on: the target of an exchange, a whiteout, or nothing.
    fn leave(
        &self,
        core: &Core,
        locked: &mut Locked<'_>,
        seen: &Resolved,
        now: Timestamp,
        transaction: &mut Transaction,
    ) {
        let (dir, offset) = (self.from.no, seen.source.0.offset);
        match &seen.target {
            Some((_, target)) if self.exchanges() => {
                locked.draft(target.no).ctime = now;
                self.move_name(locked, target, self.to, (self.from, offset));
                let file_type = target.file_type;
                names::put(transaction, dir, offset, self.from_name, target.no, file_type);
            }
            replaced => {
                locked.draft(self.to.no).size += u64::from(replaced.is_none());
                if self.flags.contains(RenameFlags::WHITEOUT) {
                    let no = self.leave_whiteout(core, locked, now, offset, transaction);
                    let file_type = FileType::CharDevice;
                    names::put(transaction, dir, offset, self.from_name, no, file_type);
                } else {
                    names::delete(transaction, dir, offset);
                    let draft = locked.draft(dir);
                    draft.size = draft.size.saturating_sub(1);
                }
            }
        }
    }

    /// The inode's newest name is the one at this place of `new`. A directory's `..` leads there, which gains the link that
    /// the old parent loses.
    fn move_name(
        &self,
        locked: &mut Locked<'_>,
        inode: &Inode,
        old: &Inode,
        (new, slot): (&Inode, u64),
    ) {
        let draft = locked.draft(inode.no);
        (draft.parent, draft.parent_slot) = (new.no, slot);
        if is_dir(inode) && old.no != new.no {
            let old = locked.draft(old.no);
            old.nlink = old.nlink.saturating_sub(1);
            let new = locked.draft(new.no);
            new.nlink = new.nlink.saturating_add(1);
        }
    }

    /// The replaced inode loses a name. If it was the last, the answer says what becomes of it, and the transaction does it.
    fn lose_name(
        &self,
        core: &Core,
        locked: &mut Locked<'_>,
        target: &Inode,
        now: Timestamp,
    ) -> Result<(Option<Fate>, Transaction)> {
        if is_dir(target) {
            let parent = locked.draft(self.to.no);
            parent.nlink = parent.nlink.saturating_sub(1);
        }
        let held = locked.get(target.no);
        held.draft.ctime = now;
        held.draft.nlink = if is_dir(target) { 0 } else { held.draft.nlink.saturating_sub(1) };
        if held.draft.nlink > 0 {
            return Ok((None, Transaction::new()));
        }
        let (fate, transaction) =
            plan_last_name(core, target, &held.state, &held.draft, ITEMS_AT_ONCE)?;
        held.removed = fate == Fate::Removed;
        Ok((Some(fate), transaction))
    }

    /// Makes a whiteout: a character device 0:0.
    fn leave_whiteout(
        &self,
        core: &Core,
        locked: &mut Locked<'_>,
        now: Timestamp,
        slot: u64,
        transaction: &mut Transaction,
    ) -> InodeNo {
        let no = core.store.next_inode();
        let (gid, _) =
            perm::inherit(self.caller, locked.draft(self.from.no), FileType::CharDevice, 0);
        let item = InodeItem {
            uid: self.caller.uid,
            gid,
            nlink: 1,
            parent: self.from.no,
            parent_slot: slot,
            ..InodeItem::blank(FileType::CharDevice, now)
        };
        transaction.put(Key::inode(no), item.bytes());
        transaction.count_inodes(1);
        no
    }
}
