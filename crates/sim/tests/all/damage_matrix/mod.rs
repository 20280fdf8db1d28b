//! The damage matrix (P6, P9, P10): every kind of block, damaged in every way, and what becomes of it.
//!
//! Real volumes, one left in order and one that crashed, each with its whole
//! history of writes, so that lost and stale writes are those that happened.
//! After each damage fsck speaks, the volume is opened for reading and for
//! writing, and everything that can be read is compared with what was acknowledged.
//!
//! A row is silent if other data than acknowledged is shown without an error, or if fsck finds nothing although a
//! block that counts has changed. No row may be.

mod volume;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use holdfast_check::Options;
use holdfast_device::sim::{Action, Call, Faults, When};
use holdfast_device::{Device, SimDevice};
use holdfast_script::{Answer, Errno, FileRef, Op, Outcome, Target, Tree};
use holdfast_sim::Engine;
use volume::{Block, Kind, Volume, setup};

/// What happens to a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Damage {
    BitRot,
    Misdirected,
    LostWrite,
    Stale,
    Zeros,
    Unreadable,
}

impl Damage {
    const ALL: [Damage; 6] = [
        Damage::BitRot,
        Damage::Misdirected,
        Damage::LostWrite,
        Damage::Stale,
        Damage::Zeros,
        Damage::Unreadable,
    ];

    fn name(self) -> &'static str {
        match self {
            Damage::BitRot => "bit rot",
            Damage::Misdirected => "misdirected write",
            Damage::LostWrite => "lost write",
            Damage::Stale => "stale earlier content",
            Damage::Zeros => "zeros",
            Damage::Unreadable => "unreadable sector",
        }
    }
}

/// The bytes that the block has then; `None` if it is as before, or never had such a past.
fn damaged(volume: &Volume, block: &Block, damage: Damage) -> Option<Vec<u8>> {
    let now = volume.bytes(block);
    let past = volume.past(block);
    let bytes = match damage {
        Damage::BitRot => {
            let mut bytes = now.clone();
            bytes[150] ^= 4;
            bytes
        }
        Damage::Misdirected => {
            let other = volume.stray(block)?;
            let mut bytes = now.clone();
            let len = other.len().min(bytes.len());
            bytes[..len].copy_from_slice(&other[..len]);
            bytes
        }
        Damage::LostWrite => past.last()?.clone(),
        Damage::Stale => past.iter().find(|bytes| bytes.iter().any(|&byte| byte != 0))?.clone(),
        Damage::Zeros => vec![0; now.len()],
        Damage::Unreadable => return Some(now),
    };
    (bytes != now).then_some(bytes)
}

/// What an opening of the volume saw.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Opened {
    Refused,
    /// All that was acknowledged.
    Same,
    /// Errors, and otherwise what was acknowledged.
    Errors,
    /// Something else, without an error: what.
    Other(String),
}

fn look(device: Arc<dyn Device>, told: &Tree, read_only: bool) -> (Opened, Option<Engine>) {
    let mut setup = setup(1);
    setup.mount.read_only = read_only;
    let Ok(mut engine) = Engine::open(device, setup) else {
        return (Opened::Refused, None);
    };
    if let Ok(found) = engine.walk() {
        let differences = told.differences(&found);
        let seen = match differences.is_empty() {
            true => Opened::Same,
            false => Opened::Other(differences.join("; ")),
        };
        return (seen, Some(engine));
    }
    for (path, node) in &told.0 {
        let place = FileRef::Path(path.clone());
        let op = match node.digest {
            Some(_) => Op::Sum { place },
            None => Op::Stat { place },
        };
        let wrong = match (engine.apply(&op), node.digest) {
            (Outcome::Err(Errno::EIO), _) => continue,
            (Outcome::Ok(Answer::Sum(size, digest)), Some(told)) => {
                (size, digest) != (node.stat.size, told)
            }
            (Outcome::Ok(Answer::Stat(stat)), None) => stat.kind != node.stat.kind,
            _ => true,
        };
        if wrong {
            return (Opened::Other(format!("{path} is not what it was")), Some(engine));
        }
    }
    (Opened::Errors, Some(engine))
}

/// What fsck says: the names of its findings, and whether one names a file.
fn fsck(device: &dyn Device) -> (BTreeSet<String>, bool) {
    match holdfast_check::check(device, &Options { data: true, ..Options::default() }) {
        Ok(report) => {
            let names = report.findings.iter().map(|finding| finding.slug.to_string()).collect();
            (names, report.findings.iter().any(|finding| finding.path.is_some()))
        }
        Err(_) => (BTreeSet::from(["no-answer".to_string()]), false),
    }
}

/// What became of one damage, in words, or why it is silent.
fn outcome(volume: &Volume, block: &Block, damage: Damage, bytes: &[u8]) -> Result<String, String> {
    let at = block.at;
    let both = block.copy.filter(|_| block.kind == Kind::Both);
    let device = || -> Arc<dyn Device> {
        let image = volume.image.snapshot();
        let mut faults = Faults::none();
        for at in [Some(at), both].into_iter().flatten() {
            image.write(at, bytes).unwrap();
            if damage == Damage::Unreadable {
                let inside = When::Inside { start: at, end: at + 512, skip: 0, times: u64::MAX };
                faults = faults.with(Call::Read, inside, Action::Fail);
            }
        }
        Arc::new(SimDevice::with_faults(&image, faults))
    };
    let (mut findings, names_file) = fsck(&*device());
    // The crashed volume has orphans and the like in its journal: none of it is a finding.
    findings.retain(|finding| !volume.findings.contains(finding));
    let (reads, _) = look(device(), &volume.told, true);
    let healed = device();
    let (writes, engine) = look(healed.clone(), &volume.told, false);
    let unmounted = engine.map(|mut engine| engine.unmount().is_ok());
    let after = unmounted.map(|_| fsck(&*healed).0);
    let words: Vec<&str> = findings.iter().map(String::as_str).collect();
    let mut says = match words.is_empty() {
        true => "fsck: nothing".to_string(),
        false => {
            format!("fsck: {}{}", words.join(", "), if names_file { " with the path" } else { "" })
        }
    };
    says += match (&reads, &writes) {
        (Opened::Other(_), Opened::Refused) => "; mount refused, read-only shows what is before it",
        (Opened::Same, Opened::Refused) => "; mount refused, read-only reads as told",
        (_, Opened::Refused) => "; mount refused",
        (_, Opened::Errors) => "; EIO",
        (_, Opened::Same) => "; reads as told",
        (_, Opened::Other(_)) => "; shows the moment before",
    };
    let is_silent = match (&writes, &reads) {
        // This looks like a power cut before the flush.
        (Opened::Other(_), _) => !block.kind.is_last(),
        (_, Opened::Other(_)) => findings.is_empty(),
        // Something that counts has changed, and everything is there: the other copy served, or what
        // the block held does not count any more.
        (Opened::Same, _) => {
            // Of what came last a crash may leave one place alone.
            let is_left_so = block.kind.is_last() && block.copy.is_some();
            findings.is_empty() && !block.kind.may_be_spare() && !is_left_so
        }
        (Opened::Errors | Opened::Refused, _) => findings.is_empty(),
    };
    if is_silent {
        return Err(format!("{says}; reading {reads:?}, writing {writes:?}"));
    }
    // One of two places is bad: the other serves, and fsck says which.
    if block.copy.is_some() && both.is_none() {
        let name = match block.kind {
            Kind::Commit | Kind::LastCommit => "frame-place-bad",
            Kind::Batch | Kind::LastBatch => "batch-place-bad",
            _ => "node-copy-bad",
        };
        let is_named = findings == BTreeSet::from([name.to_string()])
            || findings.is_empty() && block.kind.is_last();
        if (&reads, &writes, is_named) != (&Opened::Same, &Opened::Same, true) {
            return Err(format!("{says}: the other place does not serve"));
        }
    }
    if block.kind == Kind::Data && !names_file {
        return Err(format!("{says}: fsck does not name the file (P6)"));
    }
    if let (Some(after), Opened::Same) = (after, &writes)
        && damage != Damage::Unreadable
    {
        if after.is_empty() && !findings.is_empty() {
            says += ", healed by the next checkpoint";
        }
        if !after.is_subset(&findings) {
            return Err(format!("{says}: it spreads: {after:?}"));
        }
    }
    Ok(says)
}

#[test]
fn no_damage_is_silent() {
    let volumes = [
        Volume::left_in_order(1),
        Volume::crashed(1),
        Volume::left_in_order(2),
        Volume::crashed(2),
    ];
    let mut matrix: BTreeMap<(Kind, bool, Damage), BTreeMap<String, u64>> = BTreeMap::new();
    let mut silent = Vec::new();
    for volume in &volumes {
        for block in &volume.blocks {
            for damage in Damage::ALL {
                let Some(bytes) = damaged(volume, block, damage) else { continue };
                let what = format!("{:?} at byte {}, {}", block.kind, block.at, damage.name());
                let done =
                    catch_unwind(AssertUnwindSafe(|| outcome(volume, block, damage, &bytes)));
                let row = matrix.entry((block.kind, block.copy.is_some(), damage)).or_default();
                match done {
                    Ok(Ok(says)) => *row.entry(says).or_default() += 1,
                    Ok(Err(why)) => silent.push(format!("{what}: {why}")),
                    Err(_) => silent.push(format!("{what}: a panic (P10)")),
                }
            }
        }
    }
    println!("| block | damage | tried | outcome |\n| --- | --- | --- | --- |");
    for ((kind, is_twice, damage), outcomes) in &matrix {
        let says: Vec<_> = match outcomes.len() {
            1 => outcomes.keys().cloned().collect(),
            _ => outcomes.iter().map(|(says, count)| format!("{count}: {says}")).collect(),
        };
        let tried: u64 = outcomes.values().sum();
        let twice = if *is_twice { ", stored twice" } else { "" };
        let (kind, damage) = (kind.name(), damage.name());
        println!("| {kind}{twice} | {damage} | {tried} | {} |", says.join(" / "));
    }
    assert!(silent.is_empty(), "{} silent:\n{}", silent.len(), silent.join("\n"));
    for kind in Kind::ALL {
        let tried = matrix.keys().filter(|(tried, ..)| *tried == kind).count();
        assert!(tried >= 4, "{}: only {tried} kinds of damage", kind.name());
    }
}
