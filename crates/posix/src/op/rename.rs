//! A name moves, as one step (P4).
//!
//! Two names in one or two directories, and what they lead to: up to four
//! inodes, locked together. What the names led to before they were locked is
//! looked up again if a directory changed in between.
//!
//! Only a move of a directory to another parent can make a circle. Such moves
//! hold `Core::renames`, under which no directory changes its parent, so the
//! way up from the new parent can be walked without other locks.

mod carry_out;

use std::sync::Arc;

use holdfast_base::mutants::{self, Mutant};
use holdfast_base::{InodeNo, Lsn};
use holdfast_format::item::FileType;
use holdfast_format::limits::LINK_MAX;
use holdfast_store::Need;

use crate::allow::Deed;
use crate::core::Core;
use crate::inode::{Inode, Locked};
use crate::names::Entry;
use crate::op::lookup::resolve;
use crate::orphan::{ITEMS_AT_ONCE, last_name_changes};
use crate::*;

/// How often the data of a file is written while others go on writing. After that they wait.
const WRITEBACKS_MAX: u32 = 4;

/// Changes of a rename: two entries, four inodes, a whiteout. A target that loses its last name comes on top.
const CHANGES: u32 = 8;

/// Marks met again on a way up before it counts as a circle.
const MARKS_MET_MAX: u32 = 16;

/// The call.
struct Move<'a> {
    caller: &'a Caller,
    from: &'a Arc<Inode>,
    from_name: &'a [u8],
    to: &'a Arc<Inode>,
    to_name: &'a [u8],
    flags: RenameFlags,
}

/// What the two names lead to, and when that was seen.
struct Resolved {
    source: (Entry, Arc<Inode>),
    target: Option<(Entry, Arc<Inode>)>,
    from_changed: Lsn,
    to_changed: Lsn,
}

impl FileSystem {
    /// Moves a name. Replaces, refuses or exchanges as POSIX and `flags` say.
    ///
    /// A regular file that replaces another has its data written first (P4). `.` and `..` are Busy, as on Linux.
    pub fn rename(
        &self,
        caller: &Caller,
        parent: InodeNo,
        name: &[u8],
        new_parent: InodeNo,
        new_name: &[u8],
        flags: RenameFlags,
    ) -> Result<()> {
        let _inside = self.core.gate.enter();
        let core = &*self.core;
        let exclusive = RenameFlags::NOREPLACE | RenameFlags::WHITEOUT;
        if flags.contains(RenameFlags::EXCHANGE) && flags.intersects(exclusive) {
            return Err(FsError::Invalid("an exchange replaces nothing and leaves nothing"));
        }
        names::check_name(name, FsError::Busy)?;
        // Linux looks for the old name before it minds the length of the new one.
        if let Err(FsError::Busy) = names::check_name(new_name, FsError::Busy) {
            return Err(FsError::Busy);
        }
        let from = core.inode(parent)?;
        from.expect_directory()?;
        let to = core.inode(new_parent)?;
        to.expect_directory()?;
        let step = Move { caller, from: &from, from_name: name, to: &to, to_name: new_name, flags };
        let mut written = 0;
        loop {
            let seen = step.look(core)?;
            if seen.target.is_some() && flags.contains(RenameFlags::NOREPLACE) {
                return Err(FsError::Exists);
            }
            if seen.target.as_ref().is_some_and(|(_, t)| t.no == seen.source.1.no) {
                return Ok(());
            }
            match step.attempt(core, &seen, written >= WRITEBACKS_MAX)? {
                Attempt::Done => return Ok(()),
                Attempt::Moved => {}
                Attempt::Written => written += 1,
            }
        }
    }
}

/// What came of what was seen.
enum Attempt {
    /// It held, and the names have moved.
    Done,
    /// The names lead elsewhere now.
    Moved,
    /// Files that replace others were written to meanwhile.
    Written,
}

fn is_dir(inode: &Inode) -> bool {
    inode.file_type == FileType::Directory
}

impl Move<'_> {
    fn exchanges(&self) -> bool {
        self.flags.contains(RenameFlags::EXCHANGE)
    }

    fn changes_parent(&self) -> bool {
        self.from.no != self.to.no
    }

    /// Follows both names, without locks that stay.
    fn look(&self, core: &Core) -> Result<Resolved> {
        let visit = |dir: &Inode| -> Result<Lsn> {
            let state = dir.state.read();
            state.expect_named()?;
            allow::expect(core, self.caller, dir.no, &state.attr, Access::EXECUTE)?;
            Ok(state.changed)
        };
        let from_changed = visit(self.from)?;
        let to_changed = visit(self.to)?;
        let source = resolve(core, self.from.no, self.from_name)?;
        names::check_name(self.to_name, FsError::Busy)?;
        let target = match resolve(core, self.to.no, self.to_name) {
            Ok(target) => Some(target),
            Err(FsError::NotFound) if !self.exchanges() => None,
            Err(error) => return Err(error),
        };
        Ok(Resolved { source, target, from_changed, to_changed })
    }

    fn moves_a_directory(&self, seen: &Resolved) -> bool {
        let target_moves = self.exchanges() && seen.target.as_ref().is_some_and(|(_, t)| is_dir(t));
        self.changes_parent() && (is_dir(&seen.source.1) || target_moves)
    }

    /// Moves the names, if they still lead where they were seen to lead when all inodes are locked. Writers wait
    /// meanwhile if they `must_wait`.
    fn attempt(&self, core: &Core, seen: &Resolved, must_wait: bool) -> Result<Attempt> {
        self.check_ancestor(core, seen)?;
        // Held until the transaction is applied.
        let _no_circles = if self.moves_a_directory(seen) {
            let guard = core.renames.lock();
            self.check_circles(core, seen)?;
            Some(guard)
        } else {
            None
        };
        let mut files = self.to_write_back(seen);
        if mutants::is(Mutant::ReplaceNotWrittenBack) {
            files = [None, None];
        }
        // Writers may outrun a few writebacks, but then they wait: the data comes with its name (P4).
        let mut held: Vec<&Arc<Inode>> = Vec::new();
        if must_wait {
            held.extend(files.iter().flatten());
            held.sort_unstable_by_key(|inode| inode.no);
        }
        let _writers: Vec<_> = held.iter().map(|inode| inode.data.lock_writer()).collect();
        self.write_back(core, files)?;
        let reserved = core.reserve(self.need(seen));
        let dirs = [self.from.no, self.to.no];
        let mut again = core.directory_log.prepare(&core.store, &dirs);
        let mut inodes: Vec<&Inode> = vec![self.from, self.to, &seen.source.1];
        inodes.extend(seen.target.iter().map(|(_, inode)| &**inode));
        let mut locked = Locked::of(&inodes);
        if !self.still_holds(core, &mut locked, seen)? {
            return Ok(Attempt::Moved);
        }
        if files.iter().flatten().any(|inode| !inode.data.is_clean()) {
            return Ok(Attempt::Written);
        }
        self.check(core, &mut locked, seen)?;
        let mut reservation = reserved?;
        again.log(&core.directory_log, &core.store, &core.counters, &dirs)?;
        let fate = self.carry_out(core, &mut locked, seen, &mut reservation)?;
        drop(locked);
        drop(reservation);
        if let (Some(fate), Some((_, target))) = (fate, &seen.target) {
            fate.finish(core, target);
        }
        Ok(Attempt::Done)
    }

    /// Writes the data of files that replace others, and fails if it is not all there.
    fn write_back(&self, core: &Core, files: [Option<&Arc<Inode>>; 2]) -> Result<()> {
        for inode in files.iter().flatten() {
            crate::data::writeback::write_back_for_log(core, inode)?;
        }
        let Some(moved) = files[0].filter(|_| !self.exchanges()) else {
            return Ok(());
        };
        // Data that was lost and not yet reported must not replace data that is there (P4).
        match moved.errors.unseen() {
            Some(error) => Err(error),
            None => crate::op::sync::expect_nothing_lost(core, moved),
        }
    }

    fn need(&self, seen: &Resolved) -> Need {
        let replaces = seen.target.is_some() && !self.exchanges();
        let changes = CHANGES + if replaces { last_name_changes(ITEMS_AT_ONCE) } else { 0 };
        Need::Change { changes, blocks: 0 }
    }

    /// Fails if a directory would come to lie inside itself.
    fn check_circles(&self, core: &Core, seen: &Resolved) -> Result<()> {
        if lies_in(core, self.to, seen.source.1.no)? {
            return Err(FsError::Invalid("a directory cannot move into itself"));
        }
        if let Some((_, target)) = &seen.target
            && self.exchanges()
            && lies_in(core, self.from, target.no)?
        {
            return Err(FsError::Invalid("a directory cannot move into itself"));
        }
        Ok(())
    }

    /// A directory that holds the source is not empty; Linux says so even where it could say that it is a
    /// directory. Others may move directories meanwhile; then either answer was true at some moment.
    fn check_ancestor(&self, core: &Core, seen: &Resolved) -> Result<()> {
        match &seen.target {
            Some((_, target))
                if !self.exchanges()
                    && is_dir(target)
                    && !is_dir(&seen.source.1)
                    && lies_in(core, self.from, target.no)? =>
            {
                Err(FsError::NotEmpty)
            }
            _ => Ok(()),
        }
    }

    /// The files whose data has to be in the tree before their names move: those that replace another.
    fn to_write_back<'s>(&self, seen: &'s Resolved) -> [Option<&'s Arc<Inode>>; 2] {
        let regular =
            |inode: &'s Arc<Inode>| Some(inode).filter(|i| i.file_type == FileType::Regular);
        match &seen.target {
            None => [None, None],
            Some((_, target)) if self.exchanges() => [regular(&seen.source.1), regular(target)],
            Some(_) => [regular(&seen.source.1), None],
        }
    }

    /// Whether the names still lead where they were seen to lead.
    fn still_holds(&self, core: &Core, locked: &mut Locked<'_>, seen: &Resolved) -> Result<bool> {
        let leads = |dir: &Inode, name, expected: Option<Entry>| -> Result<bool> {
            Ok(names::find(core, dir.no, name)?.entry == expected)
        };
        let target = seen.target.as_ref().map(|(entry, _)| *entry);
        Ok((locked.get(self.from.no).state.changed == seen.from_changed
            || leads(self.from, self.from_name, Some(seen.source.0))?)
            && (locked.get(self.to.no).state.changed == seen.to_changed
                || leads(self.to, self.to_name, target)?))
    }

    fn check(&self, core: &Core, locked: &mut Locked<'_>, seen: &Resolved) -> Result<()> {
        let (_, source) = &seen.source;
        let target = seen.target.as_ref().map(|(_, inode)| inode);
        let source_item = locked.get(source.no).state.attr;
        let target_item = target.map(|inode| locked.get(inode.no).state.attr);
        for (dir, child) in [(self.from, Some(&source_item)), (self.to, target_item.as_ref())] {
            let state = &locked.get(dir.no).state;
            state.expect_named()?;
            allow::expect(core, self.caller, dir.no, &state.attr, allow::CHANGE_ENTRIES)?;
            // A name goes from where there is one.
            allow::expect_changeable(&state.attr, Deed::adding(child.is_none()))?;
            if let Some(child) = child {
                perm::check_sticky(self.caller, &state.attr, child)?;
                allow::expect_changeable(child, Deed::Changes)?;
            }
        }
        // A directory that gets a new parent is written itself.
        let moved = [
            Some((source, &source_item)),
            target.zip(target_item.as_ref()).filter(|_| self.exchanges()),
        ];
        for (inode, item) in moved.into_iter().flatten() {
            if self.changes_parent() && is_dir(inode) {
                allow::expect(core, self.caller, inode.no, item, Access::WRITE)?;
            }
        }
        if let (Some(target), Some(item)) = (target, target_item) {
            if self.flags.contains(RenameFlags::NOREPLACE) {
                return Err(FsError::Exists);
            }
            if !self.exchanges() {
                match (is_dir(source), is_dir(target)) {
                    (true, false) => return Err(FsError::NotDirectory),
                    (false, true) => return Err(FsError::IsDirectory),
                    (true, true) if item.size > 0 => return Err(FsError::NotEmpty),
                    _ => {}
                }
            }
        }
        if self.changes_parent() && is_dir(source) && locked.draft(self.to.no).nlink >= LINK_MAX {
            return Err(FsError::TooManyLinks);
        }
        Ok(())
    }
}

/// Whether `dir` is `ancestor` or lies in it. The answer lasts while [`Core::renames`] is held. Called
/// without locks of inodes.
fn lies_in(core: &Core, dir: &Inode, ancestor: InodeNo) -> Result<bool> {
    let mut at = dir.no;
    // A way up that meets a mark again goes in circles: damage. The marks lie twice as far apart each time, so
    // the walk ends after a few rounds, whatever the volume claims to hold (P10). Without the lock others may
    // move what was passed, but not that often.
    let (mut mark, mut steps, mut steps_max, mut met) = (at, 0u64, 1u64, 0);
    while at != InodeNo::ROOT {
        if at == ancestor {
            return Ok(true);
        }
        at = core.inode(at)?.state.read().attr.parent;
        met += u32::from(at == mark);
        if met > MARKS_MET_MAX {
            return Err(FsError::Io(format!("directory {} lies inside itself; run fsck", dir.no)));
        }
        steps += 1;
        if steps == steps_max {
            (mark, steps, steps_max) = (at, 0, steps_max.saturating_mul(2));
        }
    }
    Ok(ancestor == InodeNo::ROOT)
}
