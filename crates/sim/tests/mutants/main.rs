//! The mutants: each mutant of `holdfast_base::mutants` is made, and the simulator must find it out.
//!
//! Every mutant has a process of its own, because it may hang or abort. There
//! the fixed hunts are tried first, then seeds: one round of all random hunts for each. A mutant
//! that nothing finds is a bug of the simulator. Without a mutant the same
//! hunts find nothing.
//!
//! Usually the fast hunts are tried on the mutants that they are known to find.
//! `HOLDFAST_MUTANTS=all` tries all hunts on all mutants, and then seeds alone, up to
//! [`SEEDS_MAX`]; `HOLDFAST_MUTANTS=LogFlush,NotPinned` does that for these. `HOLDFAST_HUNTS="crash generations"`
//! tries only the hunts with these names, and `HOLDFAST_SEEDS=500` so many seeds.
//!
//! A program of its own: it starts itself for each mutant.

#![allow(missing_docs, clippy::unwrap_used)]

#[path = "../../../store/tests/branches/mod.rs"]
mod branches;
mod damage;
mod errors;
mod fixed;
#[path = "../full/mod.rs"]
mod full;
#[path = "../../../store/tests/held_back/mod.rs"]
mod held_back;
#[path = "../../../store/tests/last_lock/mod.rs"]
mod last_lock;
#[path = "../../../store/tests/crash_generations/mod.rs"]
mod crash_generations;
mod promoted;
mod random;
#[path = "../../../store/tests/small/mod.rs"]
mod small;
mod threads;

use std::io::{BufRead, BufReader};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use holdfast_base::mutants::{self, Mutant};

/// A mutant must be found within so many seeds.
const SEEDS_MAX: u64 = 40;
/// A broken program may wait for ever: when no hunt has ended for so long, that is how it is found out.
const PATIENCE: Duration = Duration::from_secs(300);

/// One way to look for a mutant, with a seed. The error says what was found.
struct Hunt {
    name: &'static str,
    run: fn(u64) -> Result<(), String>,
}

/// A panic is a find like others.
fn hunt(hunt: &Hunt, seed: u64) -> Result<(), String> {
    println!("trying\t{} {seed}", hunt.name);
    catch_unwind(AssertUnwindSafe(|| (hunt.run)(seed))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        Err(format!("panic: {}", text.unwrap_or("without words")))
    })
}

/// Whether this hunt was asked for, or none was.
fn is_asked_for(hunt: &Hunt) -> bool {
    let asked = std::env::var("HOLDFAST_HUNTS");
    asked.is_err() || asked.is_ok_and(|names| names.split(',').any(|name| name == hunt.name))
}

/// So many seeds are tried.
fn seeds_max() -> u64 {
    std::env::var("HOLDFAST_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(SEEDS_MAX)
}

/// Does `job` for all of these, on as many threads as there are processors. What it returned, in no order.
fn on_all_processors<T: Sync, R: Send>(of: &[T], job: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                while let Some(one) = of.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let returned = job(one);
                    done.lock().unwrap().push(returned);
                }
            });
        }
    });
    done.into_inner().unwrap()
}

/// The first of these fixed hunts that finds something.
fn by_fixed(names: impl Fn(&str) -> bool) -> Option<(&'static str, String)> {
    let hunts = fixed::HUNTS.iter().filter(|fixed| names(fixed.name) && is_asked_for(fixed));
    hunts.into_iter().find_map(|fixed| Some((fixed.name, hunt(fixed, 0).err()?)))
}

/// Whether everything is to be tried, and not only what is fast.
fn is_whole() -> bool {
    std::env::var_os("HOLDFAST_MUTANTS").is_some()
}

/// The first seed of `seeds` with which something is found.
fn by_seeds(seeds: std::ops::Range<u64>) -> Option<(u64, &'static str, String)> {
    seeds.into_iter().find_map(|seed| {
        let mut hunts = random::HUNTS.iter().filter(|random| is_asked_for(random));
        hunts.find_map(|random| Some((seed, random.name, hunt(random, seed).err()?)))
    })
}

/// What is done to one mutant, in a process that has no other work.
#[test]
fn one_mutant() {
    let Ok(name) = std::env::var("HOLDFAST_MUTANT") else {
        println!("nothing to do: the table starts this for each mutant");
        return;
    };
    let mutant = Mutant::ALL.iter().copied().find(|mutant| mutant.name() == name);
    mutants::choose(Some(mutant.unwrap_or_else(|| panic!("there is no mutant {name}"))));
    let mutant = mutant.expect("it was found");
    let knows = |name: &str| {
        fixed::KNOWN.iter().any(|(known, mutants)| *known == name && mutants.contains(&mutant))
    };
    if let Some((by, found)) = by_fixed(|name| is_whole() || knows(name)) {
        println!("\nfixed\t{by}\t{}", found.replace('\n', " | "));
    }
    if is_whole()
        && let Some((seed, by, found)) = by_seeds(0..seeds_max())
    {
        println!("\nseeds\t{} ({by})\t{}", seed + 1, found.replace('\n', " | "));
    }
}

/// What was found of one mutant.
struct Row {
    mutant: Mutant,
    fixed: Option<String>,
    seeds: Option<String>,
    found: String,
}

fn row(mutant: Mutant) -> Row {
    let mut child = Command::new(std::env::current_exe().expect("a test knows its program"))
        .args(["--exact", "one_mutant", "--nocapture", "--test-threads=1"])
        .env("HOLDFAST_MUTANT", mutant.name())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("a test can start itself");
    let stdout = child.stdout.take().expect("it was asked for");
    let lines = Arc::new(AtomicUsize::new(0));
    let reader = std::thread::spawn({
        let lines = lines.clone();
        move || {
            let mut out = String::new();
            // Ends with the child, which may be killed.
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                out += &line;
                out.push('\n');
                lines.fetch_add(1, Ordering::Relaxed);
            }
            out
        }
    });
    let step = Duration::from_millis(20);
    let (mut waited, mut seen) = (Duration::ZERO, 0);
    let ended = loop {
        if child.try_wait().expect("it is ours").is_some() {
            break true;
        }
        let said = lines.load(Ordering::Relaxed);
        if said != seen {
            (waited, seen) = (Duration::ZERO, said);
        }
        if waited > PATIENCE {
            child.kill().expect("it is ours");
            child.wait().expect("it is ours");
            break false;
        }
        std::thread::sleep(step);
        waited += step;
    };
    let out = reader.join().expect("reading does not panic");
    let mut row = Row { mutant, fixed: None, seeds: None, found: String::new() };
    let mut last = "";
    let mut is_over = false;
    for line in out.lines() {
        let mut words = line.splitn(3, '\t');
        match (words.next(), words.next(), words.next()) {
            (Some("trying"), Some(name), _) => last = name,
            (Some("fixed"), Some(by), Some(found)) => {
                row.fixed = Some(by.into());
                row.found = found.into();
            }
            (Some("seeds"), Some(by), Some(found)) => {
                row.seeds = Some(by.into());
                if row.found.is_empty() {
                    row.found = found.into();
                }
            }
            _ => is_over |= line.starts_with("test result: ok"),
        }
    }
    // It hung, or it was aborted: what it tried last found it out.
    if !is_over && row.found.is_empty() {
        row.found = (if ended { "aborted" } else { "no end" }).into();
        row.seeds = Some(format!("{last}: {}", row.found));
    }
    row
}

/// The mutants that are wanted.
fn wanted() -> Vec<Mutant> {
    let words = std::env::var("HOLDFAST_MUTANTS").unwrap_or_default();
    let is_wanted = |mutant: &Mutant| match &words[..] {
        "" => fixed::KNOWN.iter().any(|(_, mutants)| mutants.contains(mutant)),
        "all" => true,
        words => words.split(',').any(|word| word == mutant.name()),
    };
    Mutant::ALL.iter().copied().filter(is_wanted).collect()
}

#[test]
fn every_mutant_is_found_out() {
    if std::env::var_os("HOLDFAST_MUTANT").is_some() {
        return;
    }
    let mutants = wanted();
    let mut rows = on_all_processors(&mutants, |&mutant| {
        let row = row(mutant);
        let (fixed, seeds) = (row.fixed.as_deref(), row.seeds.as_deref());
        eprintln!("{}: {fixed:?} {seeds:?}", mutant.name());
        row
    });
    rows.sort_by_key(|row| row.mutant as usize);
    println!(
        "| mutant | breaks | fixed hunt | seeds | what is wrong |\n| --- | --- | --- | --- | --- |"
    );
    for Row { mutant, fixed, seeds, .. } in &rows {
        let or_none = |by: &Option<String>| by.clone().unwrap_or_else(|| "-".into());
        let (name, breaks, what) = (mutant.name(), mutant.breaks(), mutant.what());
        println!("| {name} | {breaks} | {} | {} | {what} |", or_none(fixed), or_none(seeds));
    }
    println!();
    for row in &rows {
        println!("{}: {}", row.mutant.name(), row.found.chars().take(400).collect::<String>());
    }
    let missed: Vec<_> = rows
        .iter()
        .filter(|row| row.fixed.is_none() && row.seeds.is_none())
        .map(|row| row.mutant.name())
        .collect();
    assert!(missed.is_empty(), "nothing finds {missed:?}: the simulator has a hole there");
    assert!(rows.len() >= 25 || is_whole(), "{}", rows.len());
}

/// What finds mutants must find nothing where none is.
#[test]
fn without_a_mutant_nothing_is_found() {
    if std::env::var_os("HOLDFAST_MUTANT").is_some() {
        return;
    }
    let knows = |name: &str| fixed::KNOWN.iter().any(|(known, _)| *known == name);
    let seeds = 0..if is_whole() { seeds_max() } else { 1 };
    let fixed = fixed::HUNTS.iter().filter(|fixed| is_whole() || knows(fixed.name));
    let random =
        random::HUNTS.iter().flat_map(|random| seeds.clone().map(move |seed| (random, seed)));
    let hunts: Vec<_> = fixed.map(|fixed| (fixed, 0)).chain(random).collect();
    let hunts: Vec<_> = hunts.into_iter().filter(|(hunt, _)| is_asked_for(hunt)).collect();
    let outcomes = on_all_processors(&hunts, |(of, seed)| (of.name, *seed, hunt(of, *seed).err()));
    let found: Vec<_> = outcomes.into_iter().filter(|(.., found)| found.is_some()).collect();
    assert!(found.is_empty(), "{found:?}");
}
