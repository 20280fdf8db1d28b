//! The quick share of `holdfast-dev crashtest`: all sequences of length 1, some of length 2, a few scripts of each
//! family and of chance, each on every kind of volume (P1 to P5, P9).
//!
//! A failure prints the small script, where power was cut, and which generator with which seed found it.

use holdfast_device::sim::{Action, Call, Faults, When};
use holdfast_script::{Family, Op};
use holdfast_sim::exhaustive::{Exhaustive, before};
use holdfast_sim::{Campaign, Case, Ground, Policy, Progress, Source};

use crate::seeds::seeds;

fn campaign(seed: u64, sources: Vec<Source>) -> Campaign {
    let (workers, sector, failures) = (2, 512, 1);
    let physical_sector = sector;
    let copies = None;
    let (time, states, cases) = (None, None, None);
    Campaign {
        seed,
        workers,
        sector,
        physical_sector,
        copies,
        sources,
        time,
        states,
        failures,
        cases,
    }
}

/// No promise is broken.
fn survives(campaign: &Campaign) -> Vec<Progress> {
    let (rows, violations) =
        campaign.run(&mut |_| ()).unwrap_or_else(|failure| panic!("{failure}"));
    if let Some(violation) = violations.first() {
        let found_by = &violation.case.facts.found_by;
        panic!("campaign seed {}, {found_by}: {}", campaign.seed, violation.small);
    }
    println!("seed {}: {rows:?}", campaign.seed);
    rows
}

#[test]
fn all_sequences_of_length_1() {
    let rows = survives(&campaign(1, vec![Source::Exhaustive(1)]));
    let sequences = Exhaustive::new(1).count() as u64;
    assert_eq!(rows[0].workloads, 6 * sequences, "each on every kind of volume");
    assert!(rows[0].stats.images > 20_000, "{rows:?}");
}

#[test]
fn some_sequences_of_length_2_and_3() {
    for seed in seeds(1..2) {
        let sources = vec![Source::Sampled(2, Some(60)), Source::Sampled(3, Some(20))];
        survives(&campaign(seed, sources));
    }
}

#[test]
fn families_and_chance() {
    for seed in seeds(1..2) {
        let families = Source::Families(Family::ALL.to_vec(), Some(3 * 9));
        survives(&campaign(seed, vec![families, Source::Random(Some(6)), Source::Beside(Some(2))]));
    }
}

/// Ranges are collapsed and inserted (P3).
#[test]
fn ranges_that_move() {
    for seed in seeds(1..2) {
        survives(&campaign(seed, vec![Source::Families(vec![Family::Shifts], Some(12))]));
    }
}

/// There is no room but what was reserved, which is written in place (P1, P5, P8).
#[test]
fn families_on_full_volumes() {
    for seed in seeds(1..2) {
        let rows = survives(&campaign(seed, vec![Source::Full(Some(4 * 3))]));
        assert!(rows[0].stats.in_place > 128 << 10, "{rows:?}");
    }
}

/// A torn write takes what lies in its physical sector, flushed or not.
#[test]
fn families_on_disks_of_512e() {
    for seed in seeds(2..3) {
        let families = Source::Families(Family::ALL.to_vec(), Some(9));
        let usual = campaign(seed, vec![families, Source::Random(Some(6))]);
        survives(&Campaign { physical_sector: 4096, ..usual });
    }
}

#[test]
fn the_same_seed_judges_the_same_states() {
    let sources = || {
        let families = Source::Families(vec![Family::Weaken, Family::Forget], Some(12));
        vec![Source::Sampled(2, Some(10)), families, Source::Random(Some(6))]
    };
    // How often two threads opened the same image at once does not count.
    let states = |workers| {
        let rows = survives(&Campaign { workers, ..campaign(7, sources()) });
        let stats = rows.iter().map(|row| (row.workloads, row.stats.events, row.stats.images));
        stats.collect::<Vec<_>>()
    };
    assert_eq!(states(1), states(2));
}

/// Some scripts of a campaign run with second places of nodes and rings, others without (R10, R11).
#[test]
fn how_often_metadata_is_stored_is_drawn() {
    let events = |copies| {
        let sources = vec![Source::Random(Some(12))];
        let rows = survives(&Campaign { copies, ..campaign(3, sources) });
        rows[0].stats.events
    };
    let (once, drawn, twice) = (events(Some(1)), events(None), events(Some(2)));
    assert!(once < drawn && drawn < twice, "each place is a write: {once} {drawn} {twice}");
}

/// A device whose second flush of a script does nothing breaks a promise; what is saved of that is small,
/// and fails again.
#[test]
fn what_is_found_is_cited_and_made_small() {
    let script: holdfast_script::Script = "mkdir /C; mkfile /C/a; write /A/a 0 100 3; fsync /A/a; \
        chmod /A/a 600; fsyncdir /A; mkfile /A/b; append /A/b 300 4; fsync /A/b; unlink /B/a; sync"
        .parse()
        .expect("it is well formed");
    // The mount makes two.
    let faults = Faults::none().with(Call::Flush, When::Nth(4), Action::Ignore);
    let policy = Policy { faults, volume: 8 << 20, ..Policy::default() };
    let ground = Ground::new(&before(), &policy).unwrap_or_else(|failure| panic!("{failure}"));
    let first = ground.power_cut(&script).expect_err("a flush does nothing");
    let fails = |script: &holdfast_script::Script| ground.power_cut(script).is_err();
    let small = holdfast_script::shrink(&script, fails);
    let failure = ground.plainest_failure(&small).expect("it fails");
    println!("{first}\n{failure}");
    assert!(["P1", "P2", "P3"].contains(&failure.promise()), "{failure}");
    let syncs = |op: &&Op| {
        matches!(op, Op::Fsync { .. } | Op::Fsyncdir { .. } | Op::Fdatasync { .. } | Op::Sync)
    };
    let changes = small.ops().filter(|op| !syncs(op)).count();
    assert!(changes <= 2 && small.ops().any(|op| syncs(&op)), "{small}");
    let case = Case::of(&failure, &small, &ground, "this test");
    // An honest device keeps the promise: the case holds for ever after.
    assert!(case.run().is_ok());
}
