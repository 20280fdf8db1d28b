//! Hunts that are always the same: short scripts under adverse conditions.

use holdfast_base::mutants::{self, Mutant};
use holdfast_base::switch::Dirty;
use holdfast_script::Script;
use holdfast_sim::{Checkpoints, Policy, Setup, power_cut_after};

use crate::crash_generations::{Conditions, run};
use crate::{Hunt, branches, damage, errors, full, held_back, last_lock, promoted, random};

/// The smallest volume there is: its journal has 64 blocks, its log 256 KiB.
const SMALLEST: u64 = 8 << 20;

pub(crate) const HUNTS: &[Hunt] = &[
    Hunt { name: "appends", run: |_| cut("", APPENDS, policy(Checkpoints::Never)) },
    Hunt { name: "names", run: |_| cut("", NAMES, policy(Checkpoints::Never)) },
    Hunt {
        name: "appends and commits",
        run: |_| cut("", APPENDS, policy(Checkpoints::CommitsAfter(3))),
    },
    Hunt {
        name: "unsynced and commits",
        run: |_| cut("", UNSYNCED, policy(Checkpoints::CommitsAfter(1))),
    },
    Hunt {
        name: "unsynced and checkpoints",
        run: |_| cut("", UNSYNCED, policy(Checkpoints::After(2))),
    },
    Hunt { name: "reuse and checkpoints", run: |_| cut("", REUSE, policy(Checkpoints::After(3))) },
    Hunt {
        name: "discards",
        // A thread discards beside the script, so each run is another one: only what is looked for needs many.
        run: |_| {
            let runs = if mutants::is(Mutant::DiscardedEarly) { 5 } else { 1 };
            (0..runs).try_for_each(|_| {
                cut("", REUSE, discards(Checkpoints::After(3)))?;
                cut("", APPENDS, discards(Checkpoints::CommitsAfter(2)))
            })
        },
    },
    Hunt { name: "a place of the rings", run: |_| damage::a_place_of_the_rings() },
    Hunt { name: "copies", run: |_| cut("", REUSE, with_copies(Checkpoints::After(3))) },
    Hunt { name: "handles", run: |_| errors::handles(0) },
    Hunt { name: "half written", run: errors::half_written },
    Hunt { name: "rot", run: |_| damage::rot(0) },
    Hunt {
        name: "superblocks that never arrive",
        run: |_| {
            let commits = Conditions::default();
            lead(24, &Conditions { openings: 10, steps: 6, checkpoints: 1, ..commits })
        },
    },
    Hunt {
        name: "a log without room",
        run: |_| {
            let fsyncs = Conditions::fsyncs();
            let often = Conditions { commits: 0, checkpoints: 0, neither: 1, ..fsyncs };
            lead(8, &Conditions { steps: 160, log_data: 1, ..often })
        },
    },
    Hunt {
        name: "flushes of two batches",
        run: |_| {
            let fsyncs = Conditions::fsyncs();
            let beside = Conditions { commits_beside: true, commits: 0, log_data: 1, ..fsyncs };
            lead(20, &Conditions { generations: 10, steps: 6, ..beside })
        },
    },
    Hunt { name: "lost batches", run: |_| damage::lost_batches(0) },
    Hunt { name: "a lost rollback", run: |_| damage::a_lost_rollback() },
    Hunt { name: "lost commits", run: |_| damage::lost_commits(0) },
    Hunt { name: "sectors of 4096", run: |_| cut("", APPENDS, sectors()) },
    Hunt { name: "rests", run: |_| cut("", APPENDS, policy(Checkpoints::RestsAfter(2))) },
    Hunt {
        name: "physical sectors of 4096",
        run: |_| cut("", APPENDS, Policy { physical_sector: 4096, ..policy(Checkpoints::Never) }),
    },
    Hunt {
        name: "recoveries cut again",
        run: |_| cut("", AGAIN, Policy { recovery: 1, ..policy(Checkpoints::Never) }),
    },
    Hunt { name: "a full journal", run: |_| cut("", NAMES, large_commits()) },
    Hunt {
        name: "a larger volume",
        run: |_| {
            let mut grows = Policy { volume: 24 << 20, ..policy(Checkpoints::Never) };
            grows.setup.mkfs.bytes = Some(SMALLEST);
            cut(
                "mkfile /a",
                "grow 24M; write /a 0 10M 1; fsync /a; append /a 100 2; fsync /a",
                grows,
            )
        },
    },
    Hunt {
        name: "ranges that move",
        run: |_| cut("mkfile /a; write /a 0 60k 1", MOVES, policy(Checkpoints::Never)),
    },
    Hunt { name: "a full log", run: |_| cut(&wrap(), WRAP, policy(Checkpoints::Never)) },
    Hunt {
        name: "large data",
        run: |_| {
            cut(
                "",
                "mkfile /a; fsync /a; write /a 0 5M 1; fsync /a; chmod /a 600; fsync /a",
                whole_images(),
            )
        },
    },
    Hunt {
        name: "a stranger's data",
        run: |_| {
            cut(
                "",
                "mkfile /a; mkfile /b; fsync /b; write /a 0 6M 1; append /b 100 2; fsync /b; fsync /a",
                whole_images(),
            )
        },
    },
    Hunt {
        name: "a superblock that was not flushed",
        run: |_| last_lock::a_superblock_that_was_not_flushed(),
    },
    Hunt { name: "a batch of another history", run: |_| last_lock::a_batch_of_another_history() },
    Hunt { name: "a commit that was given up", run: |_| last_lock::a_commit_that_was_given_up() },
    Hunt {
        name: "branches",
        run: |_| {
            (0..2).for_each(|seed| branches::history(seed, 1500, 4096));
            Ok(())
        },
    },
    Hunt {
        name: "branches and power cuts",
        run: |_| {
            let images: usize = (0..24).map(|seed| branches::cut(seed, 60)).sum();
            assert!(images > 0, "power was cut");
            Ok(())
        },
    },
    Hunt {
        name: "an fsync beside a rollback",
        run: |_| held_back::an_fsync_waits_for_the_rollback_before_it(),
    },
    Hunt { name: "a branch that has changed", run: |_| promoted::a_branch_that_has_changed() },
    Hunt {
        name: "a branch out of nothing",
        run: |_| cut("", OUT_OF_NOTHING, policy(Checkpoints::Never)),
    },
    Hunt { name: "no space", run: |_| random::no_space() },
    Hunt {
        name: "reserved blocks",
        run: |_| {
            full::SCRIPTS
                .iter()
                .try_for_each(|text| cut(full::BEFORE, text, policy(Checkpoints::Never)))
        },
    },
    Hunt {
        name: "a block for a node",
        run: |_| {
            (1..=6).try_for_each(|after| {
                cut("", &exchange(), policy(Checkpoints::CommitsAfter(after)))
            })
        },
    },
    Hunt {
        name: "a torn file and commits",
        run: |_| {
            cut(
                "",
                &torn(),
                Policy { images: fewest(), recovery: 0, ..policy(Checkpoints::CommitsBeside) },
            )
        },
    },
    Hunt {
        name: "a torn file and checkpoints",
        run: |_| {
            cut(
                "",
                &torn(),
                Policy { images: fewest(), recovery: 0, ..policy(Checkpoints::Beside) },
            )
        },
    },
];

/// Fast hunts and what they find: a usual run tries these.
pub(crate) const KNOWN: &[(&str, &[Mutant])] = &[
    (
        "appends",
        &[
            Mutant::LogFlush,
            Mutant::CheckpointFlush,
            Mutant::SuperblockFlush,
            Mutant::SuperblockSlot,
            Mutant::NodeInPlace,
            Mutant::NotPinned,
            Mutant::FreedInRecovery,
            Mutant::FreedStaysUsed,
            Mutant::RecordStale,
            Mutant::LateWrite,
            Mutant::TruncateKeepsPages,
            Mutant::LogResidentNotRead,
            Mutant::LogResidentNotRecovered,
            Mutant::ReplaceNotWrittenBack,
            Mutant::RangeShort,
            Mutant::NodeForgotten,
            Mutant::FirstValue,
            Mutant::WeakerInode,
            Mutant::RenameHalf,
            Mutant::LogUnverified,
            Mutant::ChainUnchecked,
            Mutant::BaseForgotten,
            Mutant::InodeNextForgotten,
            Mutant::LogPlaceForgotten,
            Mutant::DataForgotten,
        ],
    ),
    ("physical sectors of 4096", &[Mutant::SharedSector]),
    ("rests", &[Mutant::AppendedIsDurable]),
    ("names", &[Mutant::XattrsForgotten, Mutant::OrphanForgotten, Mutant::AncestorsForgotten]),
    (
        "appends and commits",
        &[
            Mutant::CommitFlush,
            Mutant::RecoveryFlush,
            Mutant::JournalUnverified,
            Mutant::BatchOverFreeze,
        ],
    ),
    ("unsynced and commits", &[Mutant::CommitDataFlush]),
    ("copies", &[Mutant::CopyNotWritten]),
    ("a place of the rings", &[Mutant::RingCopyNotWritten]),
    ("handles", &[Mutant::ErrorSwallowed, Mutant::ErrorToldOnce]),
    ("half written", &[Mutant::SizeAhead]),
    ("rot", &[Mutant::SumUnchecked]),
    ("lost batches", &[Mutant::LogHole]),
    ("a lost rollback", &[Mutant::SealKeepsNumber]),
    ("lost commits", &[Mutant::JournalHole]),
    ("a superblock that was not flushed", &[Mutant::SuperblockNotMadeDurable]),
    ("a commit that was given up", &[Mutant::GivenUpEpochKept]),
    (
        "branches",
        &[
            Mutant::WalkTakesFromParent,
            Mutant::WalkTakesFromChild,
            Mutant::BirthOrEqual,
            Mutant::WalkForgetsData,
            Mutant::ChildKeepsParent,
            Mutant::RollbackKeepsParent,
            Mutant::EpochNotEnded,
            Mutant::RootNotCarried,
            Mutant::BranchNotLogged,
            Mutant::DropNotLogged,
        ],
    ),
    ("an fsync beside a rollback", &[Mutant::SealNotAwaited]),
    ("a branch that has changed", &[Mutant::PromotedAsItWas]),
    ("a branch out of nothing", &[Mutant::NewRootBeforeLeaf, Mutant::NewBranchNotCounted]),
    ("no space", &[Mutant::NoSpaceHalf]),
    (
        "reserved blocks",
        &[Mutant::ReservedNotFlushed, Mutant::UnwrittenEarly, Mutant::UnwrittenNamed],
    ),
    ("a block for a node", &[Mutant::RecordOneField]),
    ("discards", &[Mutant::DiscardedEarly]),
    ("a larger volume", &[Mutant::GrownEarly]),
    ("ranges that move", &[Mutant::MoveLogged]),
];

/// Small data in the log, over data in the log and data at its location; freed, truncated, replaced.
const APPENDS: &str = "mkfile /a; append /a 3000 1; fsync /a; write /a 100 50 2; fsync /a; append /a 9000 3; fsync /a; \
    write /a 4090 20 4; fsync /a; write /a 4095 30 5; fsync /a; mkfile /t; write /t 0 5000 6; rename /t /a; fsyncdir /; \
    append /a 20000 7; truncate /a 100; fsync /a; truncate /a 30k; fdatasync /a; unlink /a; mkfile /a; write /a 0 9000 8; fsync /a";

/// Names that move with what is above them, attributes, files without a name.
const NAMES: &str = "mkdir /d; mkfile /d/f; write /d/f 0 100 1; fsync /d/f; rename /d /e; fsync /e/f; setxattr /e/f user.a 900 2; \
    chmod /e/f 600; fsync /e/f; mkfile /g; fsync /g; open h /g read,write; unlink /g; fsyncdir /; write @h 0 5000 3; fsync @h; \
    mkdir /x; rename /e/f /x/f; fsyncdir /x; link /x/f /x/k; unlink /x/f; fsyncdir /x; close h; rmdir /e; mkfile /e; fsync /e";

/// Data that is never fsynced: commits make it durable.
const UNSYNCED: &str = "mkfile /a; write /a 0 9000 1; mkfile /b; write /b 0 60k 2; append /a 5000 3; write /b 3000 5000 4; \
    mkfile /c; rename /c /a; truncate /b 5000; append /b 9000 5; unlink /a; mkfile /a; write /a 0 30k 6; fsync /a; sync";

/// Blocks that are freed and taken again, of data and of nodes.
const REUSE: &str = "mkfile /a; write /a 0 2M 1; fsync /a; write /a 0 2M 2; fsync /a; unlink /a; mkfile /b; write /b 0 3M 3; fsync /b; \
    mkfile /c; setxattr /c user.a 3000 4; setxattr /c user.b 3000 5; fsync /c; truncate /b 4096; append /b 3M 6; fsync /b; unlink /b; \
    removexattr /c user.a; mkfile /d; write /d 0 4M 7; fsync /d; sync";

/// A branch without a parent beside another one, which becomes it in the end.
const OUT_OF_NOTHING: &str = "mkfile /a; write /a 0 5000 1; fsync /a; newbranch b; switch b; mkfile /b; write /b 0 3000 2; fsync /b; \
    snapshot s; unlink /b; switch main; append /a 100 3; fsync /a; promote b was; rmsnapshot was";

/// What a recovery finds, and the recovery of that.
const AGAIN: &str = "mkfile /a; write /a 0 5000 1; fsync /a; write /a 10 10 2; fsync /a; write /a 0 9000 3; fsync /a; unlink /a; \
    mkfile /a; write /a 0 9000 4; fsync /a; rename /a /b; fsyncdir /";

/// A range goes, what has moved is given up, and others get it.
const MOVES: &str = "sync; collapse /a 4096 8192; fsync /a; truncate /a 9000; fsync /a; mkfile /b; write /b 0 40k 2; fsync /b";

/// More than the ring of the log holds.
const WRAP: &str = "mkfile /a; setxattr /a user.a 60000 1; fsync /a; setxattr /a user.b 60000 2; fsync /a; mkfile /b; \
    setxattr /b user.a 60000 3; fsync /b; setxattr /b user.b 60000 4; fsync /b; mkfile /c; setxattr /c user.a 60000 5; fsync /c; \
    append /c 100 6; fsync /c; rename /c /w; fsyncdir /";

/// Crash generations of so many seeds.
fn lead(seeds: u64, how: &Conditions) -> Result<(), String> {
    for seed in 7000..7000 + seeds {
        run(seed, how, 50);
    }
    Ok(())
}

fn parse(text: &str) -> Script {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

pub(crate) fn cut(before: &str, text: &str, policy: Policy) -> Result<(), String> {
    let done = power_cut_after(&parse(before), &parse(text), &policy);
    done.map(drop).map_err(|failure| format!("{}: {}", failure.lost, failure.what))
}

fn policy(checkpoints: Checkpoints) -> Policy {
    let mut setup = Setup { checkpoints, ..Setup::new(4096, 4) };
    setup.mount.cache_bytes = 256 << 10;
    Policy { volume: SMALLEST, setup, recovery: 40, ..Policy::default() }
}

/// Each node is stored twice.
fn with_copies(checkpoints: Checkpoints) -> Policy {
    let mut policy = policy(checkpoints);
    policy.setup.mkfs.metadata_copies = 2;
    Policy { volume: 2 * SMALLEST, ..policy }
}

/// What became free goes back to the device.
fn discards(checkpoints: Checkpoints) -> Policy {
    let policy = policy(checkpoints);
    Policy { setup: policy.setup.clone().discarding(), ..policy }
}

fn sectors() -> Policy {
    Policy { sector: 4096, ..policy(Checkpoints::Never) }
}

/// Two commits fill the ring.
fn large_commits() -> Policy {
    let mut setup = Setup { checkpoints: Checkpoints::CommitsAfter(1), ..Setup::new(65536, 4) };
    setup.mount.dirty = Dirty::Whole;
    Policy { volume: SMALLEST, setup, ..Policy::default() }
}

fn few() -> holdfast_device::sim::Policy {
    holdfast_device::sim::Policy {
        exhaustive: 2,
        each: 3,
        samples: 2,
        torn: 1,
        ..Policy::default().images
    }
}

/// Few images of much data.
pub(crate) fn whole_images() -> Policy {
    Policy { volume: 32 << 20, images: few(), recovery: 0, ..Policy::default() }
}

/// Fsyncs that fill the log's ring but for a little.
fn wrap() -> String {
    let again = "write /w 0 4096 2; fsync /w; write /w 0 4096 3; fsync /w; ".repeat(26);
    format!("mkfile /w; write /w 0 4096 1; fsync /w; {again}chmod /w 600")
}

/// A file whose write back takes many batches, so that others fall between them.
fn torn() -> String {
    let writes: Vec<_> = (0..140).map(|at| format!("write /a {}k 4k {at}", at * 8)).collect();
    format!(
        "mkfile /a; mkfile /b; fsync /b; {}; fsync /a; chmod /b 600; fsync /b",
        writes.join("; ")
    )
}

/// Blocks of data that go while nodes come: a group has as many blocks in use as before.
fn exchange() -> String {
    let steps = (1..16).map(|at| {
        format!("truncate /a {}k; mkfile /x{at}; setxattr /x{at} user.a 700 {at}", 80 - at * 4)
    });
    format!("mkfile /a; write /a 0 80k 1; fsync /a; {}; sync", steps.collect::<Vec<_>>().join("; "))
}

/// One image or two of each cut: there are many cuts.
fn fewest() -> holdfast_device::sim::Policy {
    holdfast_device::sim::Policy { exhaustive: 1, each: 1, samples: 1, torn: 0, ..few() }
}
