//! Everything in use is read and judged, at a rate that others do not feel.

mod pace;
mod state;

use std::collections::BTreeSet;
use std::io::Write;
use std::time::Duration;

use holdfast::{Scrub, ScrubFinding, ScrubKind, ScrubListener, Volume};
use holdfast_base::clock::{Deadline, Stopwatch};
use holdfast_base::show;
use holdfast_stream::Progress;
use serde::{Deserialize, Serialize};

use self::pace::Pace;
use self::state::{StateFile, StoppedScrub};
use super::{Ends, Out};
use crate::json;
use crate::outcome::{Context, Failure, Outcome, printable, printed};

/// fsck(8): what was found is mended.
const MENDED: u8 = 1;
/// fsck(8): some of it is left.
const LEFT: u8 = 4;
/// fsck(8): it could not be made.
const OPERATIONAL: u8 = 8;
/// fsck(8): it was stopped by the user.
const CANCELED: u8 = 32;
/// How often the state is written, so that a process that is killed loses no more of its work.
const KEEP: Duration = Duration::from_secs(60);

/// How it is done.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[expect(missing_docs, reason = "names say what they are")]
pub struct ScrubOptions {
    /// Bytes in a second; otherwise it rests as long as it reads.
    pub rate: Option<u64>,
    /// Not where the last one was stopped.
    pub anew: bool,
    /// Writes nothing: not even what is found.
    pub changes_nothing: bool,
    pub json: bool,
    /// Which file or device of the host it is: a copy of the volume has the same id.
    pub of: String,
}

/// What `--json` prints for each thing that is damaged.
#[derive(Serialize)]
struct Line<'a> {
    kind: &'static str,
    tree: Option<&'a str>,
    path: Option<&'a str>,
    inode: Option<u64>,
    /// The first byte of the file, and the one behind the last; of journal and log: of the device.
    bytes: Option<[u64; 2]>,
    block: Option<u64>,
    why: &'a str,
    mended: bool,
}

/// What `--json` prints last.
#[derive(Serialize)]
struct End<'a> {
    kind: &'static str,
    complete: bool,
    /// Why it was cut short, unless by the user.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    resumed: bool,
    read_bytes: u64,
    seconds: f64,
    damages: u64,
    mended: u64,
}

pub(super) fn run(door: &Volume, volume: &str, what: &ScrubOptions, ends: &dyn Ends) -> Outcome {
    let operational = |failure: Failure| failure.with_code(OPERATIONAL);
    let info = door.info().context(volume).map_err(operational)?;
    let place = StateFile::of(&info.uuid);
    let load = |place: &StateFile| place.load(&what.of);
    let before = place.as_ref().and_then(load).filter(|_| !what.anew);
    let used = door.statfs().context(volume).map_err(operational)?;
    let used =
        used.blocks.saturating_sub(used.blocks_free).saturating_mul(u64::from(used.block_size));
    let mut hears = Hears {
        volume,
        what,
        ends,
        door,
        pace: Pace::new(what.rate),
        used,
        before: None,
        read: 0,
        met: BTreeSet::new(),
        damages: 0,
        mended: 0,
        began: before.as_ref().map_or_else(state::now, |before| before.began),
        place: place.as_ref(),
        keep: Deadline::after(KEEP),
        kept: None,
        not_printed: None,
        time: Stopwatch::start(),
    };
    let from = before.as_ref().map(|before| &before.scrub[..]);
    let done = door.scrub(from, &mut hears).context(volume).map_err(operational);
    let resumed = from.is_some() && hears.before.is_some_and(|bytes| bytes > 0);
    let is_whole = match done {
        Ok(is_whole) => is_whole,
        Err(failure) => return Err(hears.fail(failure, resumed)),
    };
    if is_whole && let Some(place) = &place {
        place.forget();
    }
    hears.end(is_whole, resumed)
}

/// The listener of the scrub.
struct Hears<'a> {
    volume: &'a str,
    what: &'a ScrubOptions,
    ends: &'a dyn Ends,
    door: &'a Volume,
    pace: Pace,
    /// Bytes of the volume that are in use.
    used: u64,
    /// Bytes that were verified before this one began.
    before: Option<u64>,
    read: u64,
    /// Places that were found damaged: each is told of once for each tree and each name.
    met: BTreeSet<(&'static str, Option<u64>, Option<u64>)>,
    damages: u64,
    mended: u64,
    /// Seconds since 1970.
    began: u64,
    place: Option<&'a StateFile>,
    keep: Deadline,
    /// Whether the state was kept when there was one last.
    kept: Option<bool>,
    not_printed: Option<Failure>,
    time: Stopwatch,
}

impl Hears<'_> {
    /// Whether it is something else that is damaged. A file in a damaged node is a part of what the node is.
    fn is_new(&mut self, finding: &ScrubFinding) -> bool {
        let block = finding.block.map(|block| block.0);
        let inode = finding.inode.map(|inode| inode.0).filter(|_| block.is_none());
        finding.kind != ScrubKind::File && self.met.insert((word(finding.kind), block, inode))
    }

    fn print(&mut self, line: &str) {
        if self.not_printed.is_none() {
            self.not_printed = printed(writeln!(Out(self.ends), "{line}")).err();
        }
    }

    fn keep(&mut self, scrub: &Scrub) {
        self.keep = Deadline::after(KEEP);
        // One that is still in the rings begins anew: they are judged as they are then.
        if scrub.verified_bytes() == 0 {
            return;
        }
        let state = StoppedScrub { began: self.began, scrub: scrub.to_bytes() };
        self.kept = Some(self.place.is_some_and(|place| place.keep(&self.what.of, &state)));
    }

    /// What it says last, for programs.
    fn print_end(&mut self, complete: bool, resumed: bool, error: Option<&str>) {
        let end = End {
            kind: "end",
            complete,
            error,
            resumed,
            read_bytes: self.read,
            seconds: self.time.elapsed().as_secs_f64(),
            damages: self.damages,
            mended: self.mended,
        };
        self.print(&json::text(&end));
    }

    /// What it could not go on for, with the exit code. What was found until then is printed.
    fn fail(mut self, mut failure: Failure, resumed: bool) -> Failure {
        if self.kept == Some(true) {
            failure.sentence += "; the same command goes on from here";
        }
        if self.what.json {
            self.print_end(false, resumed, Some(&failure.sentence));
        }
        let code = failure.code | if self.damages > self.mended { LEFT } else { 0 };
        failure.with_code(code)
    }

    /// The last words, and the exit code.
    fn end(mut self, is_whole: bool, resumed: bool) -> Outcome {
        let seconds = self.time.elapsed().as_secs_f64();
        let (damages, mended) = (self.damages, self.mended);
        if self.what.json {
            self.print_end(is_whole, resumed, None);
        } else {
            let rate = self.read as f64 / seconds.max(1e-3);
            let mut line = format!(
                "{}: {} read in {seconds:.1} s ({}/s); ",
                self.volume,
                show::bytes(self.read),
                show::bytes(rate as u64)
            );
            line += &match damages {
                0 => "nothing is damaged".to_owned(),
                found => format!("{} found, {mended} mended", show::count(found, "damage")),
            };
            if !is_whole {
                line += match self.kept {
                    Some(true) => "; it was stopped: the same command goes on from here",
                    None => "; it was stopped, with nothing verified: the same command begins anew",
                    Some(false) => {
                        "; it was stopped, and could not note how far it has come: the same command begins anew"
                    }
                };
            }
            self.print(&line);
        }
        if let Some(failure) = self.not_printed {
            // Also where only the reader has gone: 0 would say that nothing is damaged.
            return Err(failure.with_code(OPERATIONAL));
        }
        Ok(match damages {
            _ if !is_whole => CANCELED | if damages > mended { LEFT } else { 0 },
            0 => 0,
            found if found == mended => MENDED,
            _ => LEFT,
        })
    }
}

impl ScrubListener for Hears<'_> {
    fn has_read(&mut self, scrub: &Scrub, bytes: u64, took: Duration) -> bool {
        self.read = self.read.saturating_add(bytes);
        let before = *self.before.get_or_insert_with(|| scrub.verified_bytes());
        let done = before.saturating_add(self.read);
        let (files, files_in_all) = (done >> 20, self.used.max(done) >> 20);
        self.ends.progress(Progress { bytes: done, files, files_in_all });
        let syncs = self.door.engine().map_or(0, |engine| engine.counters().fsyncs.get());
        let rest = self.pace.rest(bytes, took, syncs);
        if self.not_printed.is_some() || self.ends.wait(rest).is_err() {
            self.keep(scrub);
            return false;
        }
        if self.keep.is_over() {
            self.keep(scrub);
        }
        true
    }

    fn is_cut_short(&mut self, scrub: &Scrub) {
        self.keep(scrub);
    }

    fn found(&mut self, finding: ScrubFinding) {
        if self.is_new(&finding) {
            self.damages += 1;
            self.mended += u64::from(finding.is_mended);
        }
        let line = match self.what.json {
            true => json::text(&Line {
                kind: word(finding.kind),
                tree: finding.tree.as_deref(),
                path: finding.path.as_deref(),
                inode: finding.inode.map(|inode| inode.0),
                bytes: finding.bytes.as_ref().map(|bytes| [bytes.start, bytes.end]),
                block: finding.block.map(|block| block.0),
                why: &finding.why,
                mended: finding.is_mended,
            }),
            false => {
                let mut line = format!("{}: {}: {}", self.volume, finding.what(), finding.why);
                if let (ScrubKind::Data, Some(block)) = (finding.kind, finding.block) {
                    line += &format!(" (block {block})");
                }
                if finding.is_mended {
                    line += "; mended";
                }
                printable(&line).into_owned()
            }
        };
        self.print(&line);
    }
}

fn word(kind: ScrubKind) -> &'static str {
    match kind {
        ScrubKind::Data => "data",
        ScrubKind::Node => "node",
        ScrubKind::Item => "item",
        ScrubKind::File => "file",
        ScrubKind::Superblock => "superblock",
        ScrubKind::Journal => "journal",
        ScrubKind::Log => "log",
    }
}
