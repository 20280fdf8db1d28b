//! The thread that makes history durable every few seconds (P11), and writes what waits when the volume rests.
//!
//! What fsyncs have made durable already may stay in the log for a while: data that is written
//! again or deleted meanwhile never has to be brought to its place.
//!
//! When nothing has changed for [`REST`], delayed data goes to its place and what waits for the log is appended to
//! it, without a flush: a daemon that is killed then loses nothing. When nothing has changed for [`CONFIRM`] of
//! those, the last batch and the last commit are confirmed, so that they are missed should they rot. Then the
//! thread sleeps until something changes or its time has come: a volume at rest is not written to.
//!
//! When nothing has changed for some ticks it gives back the memory that is kept for more to come.
//!
//! Owned by the mounted volume; ends when dropped, without a last commit.

use holdfast_sync::thread::JoinHandle;
use std::sync::Arc;
use std::time::Duration;

use holdfast_base::Lsn;
use holdfast_base::clock::Deadline;
use holdfast_store::{Idle, Store, page};

use crate::atime;
use crate::core::Core;
use crate::last_message::LastMessage;
use crate::volume::Volume;
use crate::{FsError, Result, threads};

/// What the thread is for.
const WORK: &str = "commits every few seconds";

/// So often the commit is left out while only the log needs it: it comes with the sixth tick.
const LEFT_OUT_MAX: u32 = 5;
/// A volume that has not changed for so long rests.
const REST: Duration = Duration::from_millis(200);
/// After so many of these what is durable is confirmed.
const CONFIRM: u32 = 5;
/// A volume needs no memory for more to come when so many ticks have found nothing that changed.
const REST_TICKS: u32 = 2;

/// When a commit that only the log needs may wait.
#[derive(Debug, Default)]
struct Patience {
    left_out: u32,
}

impl Patience {
    /// Whether this tick goes by without a commit.
    fn waits(&mut self, is_logged: bool) -> bool {
        let waits = is_logged && self.left_out < LEFT_OUT_MAX;
        self.left_out = if waits { self.left_out + 1 } else { 0 };
        waits
    }
}

/// What changes when anything does: history, what of it is durable and committed, bytes of delayed data, and changes
/// of them that left as many.
type Stamp = (Lsn, Lsn, Lsn, (usize, u64));

fn stamp(volume: &Volume) -> Stamp {
    let store = &volume.store;
    let add = |(bytes, rewrites): (usize, u64), core: &Arc<Core>| {
        let (more, others) = core.data.totals.stamp();
        (bytes + more, rewrites.wrapping_add(others))
    };
    let delayed = volume.visit(|cores| cores.iter().fold((0, 0), add));
    (store.latest(), store.durable(), store.committed(), delayed)
}

/// Does something for each open branch, but for those that stand still: what they had to write is written by that call, and
/// no thread waits for it with all branches in hand. What fails keeps no other from it; the first error is returned.
fn each(volume: &Volume, mut act: impl FnMut(&Core) -> Result<()>) -> Result<()> {
    volume.visit(|cores| {
        let mut first = Ok(());
        for core in cores {
            let Some(_inside) = core.gate.try_enter() else { continue };
            let done = act(core);
            first = first.and(done);
        }
        first
    })
}

/// How long the volume has been quiet.
#[derive(Debug, Default)]
struct Quiet {
    seen: Option<Stamp>,
    looks: u32,
}

/// What is due at a look at the volume.
#[derive(Debug, PartialEq, Eq)]
enum Due {
    Nothing,
    Append,
    Confirm,
}

impl Quiet {
    /// Nothing more is due until something changes.
    fn is_over(&self) -> bool {
        self.looks >= CONFIRM
    }

    fn is_still(&self, now: Stamp) -> bool {
        self.seen == Some(now)
    }

    /// What was due is written: history up to `upto`, and the delayed data there was; or could not be (`None`), and
    /// waits for the tick. What this changed itself is no change. What others changed meanwhile has rested for no time
    /// yet.
    fn wrote(&mut self, now: Stamp, upto: Option<Lsn>) {
        let (latest, _, _, (bytes, _)) = now;
        let is_changed = upto.is_some_and(|upto| latest > upto || bytes > 0);
        *self = Quiet { seen: Some(now), looks: if is_changed { 0 } else { self.looks } };
    }

    fn look(&mut self, now: Stamp) -> Due {
        if !self.is_still(now) {
            *self = Quiet { seen: Some(now), looks: 0 };
            return Due::Nothing;
        }
        self.looks += 1;
        match self.looks {
            1 => Due::Append,
            CONFIRM => Due::Confirm,
            _ => Due::Nothing,
        }
    }
}

/// When a volume has come to rest.
#[derive(Debug, Default)]
struct Rest {
    seen: Lsn,
    ticks: u32,
}

impl Rest {
    /// Whether this tick is the second at which history ends with `latest`, and nothing waits.
    fn has_come(&mut self, latest: Lsn, is_clean: bool) -> bool {
        let is_same = is_clean && latest == self.seen;
        self.seen = latest;
        self.ticks = if is_same { self.ticks.saturating_add(1) } else { 0 };
        self.ticks == REST_TICKS
    }
}

/// Searches of the trees so far. A call that is answered without one does not wait for a step of a deletion.
fn searches(volume: &Volume) -> u64 {
    volume.counters.node_hits.get().wrapping_add(volume.counters.node_misses.get())
}

/// Whether others work beside a deletion: what they change, and what they search in the trees. A step keeps both from that, and
/// a reader in memory alone would get in once between any two of them.
///
/// A step searches as well: what counts is from the end of one to the begin of the next.
#[derive(Debug, Default)]
struct Others {
    changed: Option<Stamp>,
    searched: Option<u64>,
}

impl Others {
    /// Before a step.
    fn have_searched(&self, searches: u64) -> bool {
        self.searched != Some(searches)
    }

    /// Behind a step: whether something has changed since the one before.
    fn have_changed(&mut self, now: Stamp, searches: u64) -> bool {
        self.searched = Some(searches);
        self.changed.replace(now) != Some(now)
    }
}

/// The thread of the background commit.
#[derive(Debug)]
pub(crate) struct Committer {
    idle: Arc<Idle>,
    thread: Option<JoinHandle<()>>,
}

impl Committer {
    /// Starts the thread.
    pub(crate) fn start(volume: &Arc<Volume>, every: Duration) -> Result<Committer> {
        let idle = volume.store.idle().clone();
        let body = {
            let volume = volume.clone();
            move || run(&volume, every)
        };
        let thread = threads::start(&volume.store, "holdfast-commit", WORK, body)?;
        Ok(Committer { idle, thread: Some(thread) })
    }
}

fn run(volume: &Volume, every: Duration) {
    let idle = volume.store.idle();
    let (mut patience, mut rest, mut quiet) =
        (Patience::default(), Rest::default(), Quiet::default());
    let (mut failure, mut failure_at_rest) = (LastMessage::default(), LastMessage::default());
    let mut failure_of_deletion = LastMessage::default();
    let (mut until, mut deletes) = (Deadline::after(every), None);
    let mut others = Others::default();
    // Since the last tick: it is tried again with the next.
    let mut deletion_fails = false;
    loop {
        let is_still =
            || quiet.is_still(stamp(volume)) && (deletion_fails || !volume.deletions.are_left());
        let ended = match (deletes, quiet.is_over()) {
            (Some(rest), _) => idle.pause(until.left().min(rest)),
            (None, true) => idle.sleep(until.left(), is_still),
            (None, false) => idle.pause(REST.min(until.left())),
        };
        if ended {
            return;
        }
        let is_tick = until.is_over();
        if is_tick {
            until = Deadline::after(every);
            deletion_fails = false;
            volume.showing.tidy();
            page::give_back_half();
            let (latest, _, _, (bytes, _)) = stamp(volume);
            if rest.has_come(latest, bytes == 0) {
                page::give_back();
                volume.store.give_back_memory();
                volume.options.at_rest.into_iter().for_each(|at_rest| at_rest());
            }
        }
        // Once stopped a volume stays stopped (P7): nothing to try, and said already.
        if volume.store.stop_reason().is_some() {
            (quiet, deletes) = (Quiet { seen: Some(stamp(volume)), looks: CONFIRM }, None);
            deletion_fails = true;
            continue;
        }
        if is_tick {
            failure.once("the background commit failed", tick(volume, &mut patience));
        } else if deletes.is_none() {
            let what = "the volume rests, and what waits could not be written";
            failure_at_rest.once(what, look(volume, &mut quiet));
        }
        if deletion_fails {
            continue;
        }
        let searched = others.have_searched(searches(volume));
        let worked = volume.deletions.work_off_one();
        let others_work = others.have_changed(stamp(volume), searches(volume)) || searched;
        deletes = worked.as_ref().ok().copied().flatten();
        deletes = deletes.map(|rest| if others_work { rest } else { Duration::ZERO });
        deletion_fails = worked.is_err();
        failure_of_deletion.once("a deletion does not go on, and is tried again", worked.map(drop));
    }
}

fn tick(volume: &Volume, patience: &mut Patience) -> Result<()> {
    // Whatever fails, what can be made durable is.
    let written = each(volume, |core| atime::write_all(core).and(core.write_back()));
    if written.is_ok() && patience.waits(is_logged(&volume.store)) {
        return Ok(());
    }
    written.and(volume.store.commit().map_err(FsError::from))
}

/// A tick for a test.
#[cfg(test)]
pub(crate) fn tick_of_test(volume: &Volume) -> Result<()> {
    tick(volume, &mut Patience::default())
}

/// Whether something is not committed, but fsyncs have made all of it durable.
pub(crate) fn is_logged(store: &Store) -> bool {
    let durable = store.durable();
    store.committed() < store.latest() && store.latest() <= durable
}

fn look(volume: &Volume, quiet: &mut Quiet) -> Result<()> {
    let done = match quiet.look(stamp(volume)) {
        Due::Nothing => return Ok(()),
        Due::Append => append(volume),
        Due::Confirm => {
            let upto = volume.store.latest();
            volume.store.confirm().map(|_| upto).map_err(FsError::from)
        }
    };
    quiet.wrote(stamp(volume), done.as_ref().ok().copied());
    done.map(drop)
}

/// Delayed data goes to its location, and what is pending to the log, without a flush; returns up to where. What cannot be written keeps
/// nothing else back.
pub(crate) fn append(volume: &Volume) -> Result<Lsn> {
    let written = each(volume, Core::write_back);
    let upto = volume.store.latest();
    let appended = volume.store.append().map_err(FsError::from);
    written.and(appended).map(|()| upto)
}

impl Drop for Committer {
    fn drop(&mut self) {
        self.idle.end();
        threads::join(self.thread.take(), WORK);
    }
}

#[cfg(test)]
mod tests {
    use holdfast_base::InodeNo;

    use super::*;
    use crate::*;

    #[test]
    fn the_sixth_tick_commits_what_only_the_log_holds() {
        let mut patience = Patience::default();
        let waits: Vec<bool> = (0..7).map(|_| patience.waits(true)).collect();
        assert_eq!(waits, [true, true, true, true, true, false, true]);
        assert!(!patience.waits(false), "something is not durable (P11)");
        assert!((0..5).all(|_| patience.waits(true)), "it is counted anew");
    }

    #[test]
    fn a_volume_whose_only_page_is_written_again_and_again_does_not_rest() {
        let device = Arc::new(holdfast_device::MemoryDevice::new(16 << 20));
        let shared: Arc<dyn holdfast_store::Device> = device.clone();
        let mkfs = MkfsOptions {
            node_size: 4096,
            label: String::new(),
            uuid: None,
            owner: (0, 0),
            ..MkfsOptions::default()
        };
        FileSystem::mkfs(&shared, &mkfs).unwrap();
        // Without the thread: the test looks at the volume when the thread would.
        let options = MountOptions { commit_secs: 0, ..MountOptions::default() };
        let fs = FileSystem::mount(device, options).unwrap();
        let (root, flags) = (Caller::root(), OpenFlags::WRITE);
        let file = fs.create(&root, InodeNo::ROOT, b"f", 0o644, flags, true).unwrap().1;
        let mut quiet = Quiet::default();
        let mut look_after = |bytes: Option<&[u8]>| {
            if let Some(bytes) = bytes {
                fs.write(&root, &file, 0, bytes, WriteHow::default()).unwrap();
            }
            look(&fs.volume.volume, &mut quiet).unwrap();
            fs.counters().data_bytes_written.get()
        };
        for byte in 0..20 {
            // All of the page, then a part of it.
            assert_eq!(look_after(Some(&[byte; 4096])), 0);
            assert_eq!(look_after(Some(&[byte; 10])), 0);
        }
        assert_eq!(look_after(None), 4096, "now nobody writes");
        assert_eq!(look_after(None), 4096);
    }

    #[test]
    fn each_is_due_once_for_each_rest() {
        let at = |bytes| (Lsn(3), Lsn(2), Lsn(1), (bytes, 0));
        let mut quiet = Quiet::default();
        let mut due = |bytes| {
            let due = quiet.look(at(bytes));
            (due, quiet.is_over())
        };
        assert_eq!(due(0), (Due::Nothing, false));
        assert_eq!(due(1), (Due::Nothing, false), "it changes");
        assert_eq!(due(1), (Due::Append, false));
        for _ in 0..3 {
            assert_eq!(due(1), (Due::Nothing, false));
        }
        assert_eq!(due(1), (Due::Confirm, true));
        assert_eq!(due(1), (Due::Nothing, true));
        assert_eq!(due(2), (Due::Nothing, false));
        assert_eq!(due(2), (Due::Append, false));
    }

    #[test]
    fn what_others_change_beside_an_append_rests_and_is_appended_as_well() {
        let at = |latest, bytes| (Lsn(latest), Lsn(2), Lsn(1), (bytes, 0));
        for (latest, bytes, upto, again) in [
            (9, 0, Some(9), Due::Nothing),
            (10, 0, Some(9), Due::Append),
            (9, 4096, Some(9), Due::Append),
            (10, 4096, None, Due::Nothing),
        ] {
            let mut quiet = Quiet::default();
            assert_eq!(quiet.look(at(8, 4096)), Due::Nothing);
            assert_eq!(quiet.look(at(8, 4096)), Due::Append);
            quiet.wrote(at(latest, bytes), upto.map(Lsn));
            assert_eq!(quiet.look(at(latest, bytes)), again, "{latest} {bytes} {upto:?}");
        }
    }

    #[test]
    fn others_work_if_they_change_something_or_search_between_two_steps() {
        let at = |latest| (Lsn(latest), Lsn(2), Lsn(1), (0, 0));
        let mut others = Others::default();
        assert!(others.have_searched(0), "nothing is known before the first step");
        assert!(others.have_changed(at(5), 10));
        // No caller but the steps, which search as well.
        assert!(!others.have_searched(10) && !others.have_changed(at(5), 13));
        assert!(!others.have_searched(13) && !others.have_changed(at(5), 16));
        assert!(others.have_searched(17) && !others.have_changed(at(5), 20));
        assert!(!others.have_searched(20) && others.have_changed(at(6), 23));
        assert!(!others.have_searched(23) && !others.have_changed(at(6), 26));
    }

    /// A reader is met by the counters that [`Others`] looks at, and a deletion alone is no other.
    #[test]
    fn who_only_reads_is_others_and_a_deletion_is_not() {
        let device = Arc::new(holdfast_device::MemoryDevice::new(16 << 20));
        let shared: Arc<dyn holdfast_store::Device> = device.clone();
        FileSystem::mkfs(&shared, &MkfsOptions { node_size: 4096, ..MkfsOptions::default() })
            .unwrap();
        // Without the thread: the test makes the steps.
        let options = MountOptions { commit_secs: 0, ..MountOptions::default() };
        let fs = FileSystem::mount(device, options).unwrap();
        let root = Caller::root();
        let mode = SetAttr { perm: Some(0o700), ..SetAttr::default() };
        for n in 0..100 {
            fs.mkdir(&root, InodeNo::ROOT, format!("d{n}").as_bytes(), 0o755).unwrap();
        }
        fs.snapshot(b"s").unwrap();
        for n in 0..100 {
            let found = fs.lookup(&root, InodeNo::ROOT, format!("d{n}").as_bytes()).unwrap();
            fs.setattr(&root, found.inode, None, mode).unwrap();
        }
        fs.delete_snapshot(b"main", b"s").unwrap();
        let volume = &fs.volume.volume;
        let (mut others, mut steps) = (Others::default(), 0);
        loop {
            let reads = steps % 3 == 2;
            if reads {
                fs.lookup(&root, InodeNo::ROOT, b"missing").unwrap_err();
            }
            let searched = others.have_searched(searches(volume));
            let more = volume.deletions.work_off_one().unwrap().is_some();
            let changed = others.have_changed(stamp(volume), searches(volume));
            // Behind the last step comes a commit, of what others have done as well.
            if !more {
                break;
            }
            assert_eq!(searched || changed, reads || steps == 0, "step {steps}");
            steps += 1;
        }
        assert!(steps > 4, "{steps}");
    }

    #[test]
    fn rest_comes_once_when_nothing_changes_and_nothing_waits() {
        let mut rest = Rest::default();
        let ticks = [
            (5, true),
            (5, true),
            (6, true),
            (6, false),
            (6, true),
            (6, true),
            (6, true),
            (7, true),
        ];
        let came: Vec<bool> = ticks.map(|(lsn, clean)| rest.has_come(Lsn(lsn), clean)).to_vec();
        assert_eq!(came, [false, false, false, false, false, true, false, false]);
        assert!(!rest.has_come(Lsn(7), true) && rest.has_come(Lsn(7), true), "it comes again");
    }
}
