//! Many runs of many workloads as sections of a report.
//!
//! [`Runs`] collects what each round gave. Of each kind there is one table: rates, throughput, times,
//! latencies, processor time, requests of the device, and for Holdfast where its time went. Cells are medians with
//! their spread over the rounds. Ratios are so that more than 1 means that Holdfast is better.

use holdfast_device::DeviceStats;

use super::floor::floor_of;
use super::run::{Phase, Shares, Unit as Counted};
use crate::counts::median;
use crate::result::{Cell, Row, Section, Table, Unit};
use crate::systems::System;

/// Key and title of a share, and which it is.
type Part = (&'static str, &'static str, fn(&Shares) -> f64);

/// A filesystem that was measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// A word for keys.
    pub name: String,
    /// The head of a column.
    pub title: String,
    /// A filesystem of the kernel, which Holdfast is compared with.
    pub is_peer: bool,
    /// Holdfast.
    pub is_ours: bool,
    /// Why it was left out, if it was.
    pub missing: Option<String>,
}

/// What was measured so far.
#[derive(Clone, Debug, Default)]
pub struct Runs {
    candidates: Vec<Candidate>,
    /// Phases in the order in which they came first, with the runs of each of `candidates`.
    phases: Vec<(String, Vec<Vec<Phase>>)>,
}

impl Runs {
    /// Nothing yet of `candidates`.
    pub fn new(candidates: Vec<Candidate>) -> Runs {
        Runs { candidates, phases: Vec::new() }
    }

    /// Whether `name` can be measured.
    pub fn has(&self, name: &str) -> bool {
        self.candidates
            .iter()
            .any(|candidate| candidate.name == name && candidate.missing.is_none())
    }

    /// Adds what a run of `name` gave.
    pub fn add(&mut self, name: &str, phases: Vec<Phase>) {
        let Some(column) = self.candidates.iter().position(|candidate| candidate.name == name)
        else {
            return;
        };
        for phase in phases {
            let at = self.phases.iter().position(|(name, _)| *name == phase.name);
            let at = at.unwrap_or_else(|| {
                self.phases.push((phase.name.clone(), vec![Vec::new(); self.candidates.len()]));
                self.phases.len() - 1
            });
            self.phases[at].1[column].push(phase);
        }
    }

    /// Notes that `name` could not do what `phases` did, because of `why`.
    pub fn fail(&mut self, name: &str, phases: &[Phase], why: &str) {
        let skipped = phases.iter().map(|phase| Phase::skipped(phase.name.clone(), why.into()));
        self.add(name, skipped.collect());
    }

    /// All tables.
    pub fn sections(&self, about: &str) -> Vec<Section> {
        let latency = "As the caller of the operation sees it.";
        let mut sections = vec![
            self.rates(["rates", "Operations per second", about], Counted::Operations, Unit::PerSecond),
            self.rates(["throughput", "Throughput", about], Counted::Bytes, Unit::MibPerSecond),
            self.rates(["times", "Times of what is done once", about], Counted::Whole, Unit::Nanoseconds),
            self.numbers(
                ["latency-p50", "Latency: half of the operations take no longer than", latency],
                Unit::Nanoseconds,
                |phase| Some(phase.latency?.0 as f64),
            ),
            self.numbers(
                ["latency-p99", "Latency: 99 of 100 take no longer than", latency],
                Unit::Nanoseconds,
                |phase| Some(phase.latency?.1 as f64),
            ),
            self.numbers(
                [
                    "cpu",
                    "Processor time of an operation",
                    "Of this process, the programs that it runs and the daemon that serves the mount; what threads of the kernel do later is not in it. \
                     Of phases that move bytes: for each call, or each fsync.",
                ],
                Unit::Nanoseconds,
                |phase| each(phase, phase.processor_ns),
            ),
            self.device(),
            self.shares(),
            self.numbers(
                [
                    "memory",
                    "The most memory that the daemon has had",
                    "Since it was mounted for this workload; filesystems of the kernel do not tell theirs.",
                ],
                Unit::Bytes,
                |phase| phase.daemon_peak_bytes.map(|bytes| bytes as f64),
            ),
        ];
        sections.retain(|section| !section.table.rows.is_empty());
        sections
    }

    fn columns(&self, label: &str, unit: Unit) -> Table {
        self.candidates.iter().fold(Table::new(label), |table, candidate| {
            table.column(&candidate.name, &candidate.title, unit)
        })
    }

    /// A cell for each of those measured: the median of what `value` says of each round.
    fn cells(&self, runs: &[Vec<Phase>], value: impl Fn(&Phase) -> Option<f64>) -> Vec<Cell> {
        let cell = |(candidate, runs): (&Candidate, &Vec<Phase>)| {
            if let Some(why) =
                runs.iter().find_map(|phase| phase.skipped.as_ref()).or(candidate.missing.as_ref())
            {
                return Cell::missing(why);
            }
            Cell::of(&runs.iter().filter_map(&value).collect::<Vec<_>>())
        };
        self.candidates.iter().zip(runs).map(cell).collect()
    }

    fn numbers(
        &self,
        [name, title, about]: [&str; 3],
        unit: Unit,
        value: impl Fn(&Phase) -> Option<f64>,
    ) -> Section {
        let mut table = self.columns("workload", unit);
        for (phase, runs) in &self.phases {
            let cells = self.cells(runs, &value);
            if cells.iter().any(|cell| cell.median().is_some()) {
                table.push(Row { label: phase.clone(), cells });
            }
        }
        Section::new(name, title, about, table)
    }

    /// The phases that count `counted`, with ratios.
    fn rates(&self, [name, title, about]: [&str; 3], counted: Counted, unit: Unit) -> Section {
        let has_peers = self.candidates.iter().any(|candidate| candidate.is_peer);
        let mut table = self.columns("workload", unit);
        if has_peers {
            table = table.column("best-peer", "Holdfast to the best peer", Unit::Ratio);
            table = table.column("best-peer-name", "which is", Unit::None);
            table = table.column("floor", "Holdfast to the bare device", Unit::Ratio);
        }
        let is_time = counted == Counted::Whole;
        let shown = |phase: &Phase| Some(if is_time { phase.seconds * 1e9 } else { phase.rate() });
        for (phase, runs) in &self.phases {
            let mut measured = runs.iter().flatten().filter(|phase| phase.skipped.is_none());
            if measured.next().is_none_or(|phase| phase.unit != counted) {
                continue;
            }
            let mut cells = self.cells(runs, shown);
            if has_peers {
                cells.extend(self.ratios(phase, runs));
            }
            table.push(Row { label: phase.clone(), cells });
        }
        Section::new(name, title, about, table)
    }

    fn ratios(&self, phase: &str, runs: &[Vec<Phase>]) -> [Cell; 3] {
        let rate = |runs: &Vec<Phase>| {
            let rates: Vec<f64> = runs.iter().map(Phase::rate).collect();
            let failed = runs.iter().any(|run| run.skipped.is_some());
            (!rates.is_empty() && !failed).then(|| median(rates))
        };
        let all = || self.candidates.iter().zip(runs);
        let ours = all().find(|(candidate, _)| candidate.is_ours).and_then(|(_, runs)| rate(runs));
        let best = all()
            .filter(|(candidate, _)| candidate.is_peer)
            .filter_map(|(candidate, runs)| Some((candidate, rate(runs)?)))
            .max_by(|one, other| one.1.total_cmp(&other.1));
        let floor = all()
            .find(|(candidate, _)| candidate.name == System::Raw.word())
            .and_then(|(_, runs)| rate(runs));
        let floor = floor.filter(|_| floor_of(phase).is_some());
        [
            Cell::maybe(ours.zip(best).map(|(ours, (_, best))| ours / best)),
            best.map_or_else(|| Cell::missing(""), |(candidate, _)| Cell::text(&candidate.title)),
            Cell::maybe(ours.zip(floor).map(|(ours, floor)| ours / floor)),
        ]
    }

    fn device(&self) -> Section {
        let mut table = self.columns("workload", Unit::None);
        for (phase, runs) in &self.phases {
            let part = |value: fn(&DeviceStats) -> u64| {
                self.cells(runs, |phase| each(phase, value(phase.asked.as_ref()?)))
            };
            let [bytes, writes, flushes] =
                [part(|b| b.written_bytes), part(|b| b.writes), part(|b| b.flushes)];
            let cells: Vec<Cell> = (0..self.candidates.len())
                .map(|at| {
                    let numbers = [&bytes[at], &writes[at], &flushes[at]].map(Cell::median);
                    match numbers {
                        [Some(bytes), Some(writes), Some(flushes)] => Cell::text(format!(
                            "{:.1} / {writes:.2} / {flushes:.2}",
                            bytes / 1024.0
                        )),
                        _ => bytes[at].clone(),
                    }
                })
                .collect();
            if cells.iter().any(|cell| matches!(cell, Cell::Text { .. })) {
                table.push(Row { label: phase.clone(), cells });
            }
        }
        let about = "KiB written, write requests and flushes for each operation, while they ran.";
        Section::new("device", "What the device was asked for", about, table)
    }

    /// Where the time of Holdfast's callers went.
    fn shares(&self) -> Section {
        const PARTS: [Part; 4] = [
            ("device", "the device, in fsyncs", |shares| shares.device),
            ("daemon", "daemon's processor time", |shares| shares.daemon),
            ("callers", "callers' processor time", |shares| shares.callers),
            ("round-trips", "round trips and waiting", |shares| shares.round_trips),
        ];
        let mut table = Table::new("workload");
        for candidate in self.candidates.iter().filter(|candidate| candidate.is_ours) {
            for (key, title, _) in PARTS {
                let title = format!("{}: {title}", candidate.title);
                table = table.column(format!("{}-{key}", candidate.name), title, Unit::Share);
            }
        }
        for (phase, runs) in &self.phases {
            let mut row = Row::new(phase);
            for (_, runs) in
                self.candidates.iter().zip(runs).filter(|(candidate, _)| candidate.is_ours)
            {
                for (_, _, value) in PARTS {
                    let values: Vec<f64> =
                        runs.iter().filter_map(|run| run.shares.as_ref().map(value)).collect();
                    row = row.cell(Cell::of(&values));
                }
            }
            if row.cells.iter().any(|cell| cell.median().is_some()) {
                table.push(row);
            }
        }
        let about = "Shares of the time of all callers together. The device: the time that the log's writes and flushes took and that fsyncs \
                     waited for others' and for their data, as the mount counts it. Processor times: of the daemon, its background included, and of those \
                     who call, the kernel's work for them included; programs that were run in ticks of 10 ms. The rest are requests on their way between kernel and daemon, and \
                     waiting for a processor. Where the parts overlap and are more than the whole they are scaled down to it.";
        Section::new("where", "Where Holdfast's time goes", about, table)
    }
}

/// For each operation of a phase, if there were any.
fn each(phase: &Phase, value: u64) -> Option<f64> {
    (phase.operations > 0 && phase.skipped.is_none())
        .then(|| value as f64 / phase.operations as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(name: &str, is_peer: bool, is_ours: bool) -> Candidate {
        Candidate { name: name.into(), title: name.into(), is_peer, is_ours, missing: None }
    }

    fn phase(name: &str, unit: Counted, seconds: f64) -> Phase {
        let name = name.into();
        Phase { name, jobs: 1, unit, amount: 1000, operations: 1000, seconds, ..Phase::default() }
    }

    #[test]
    fn ratios_are_to_the_best_peer_and_to_the_floor_and_more_is_better() {
        let mut runs = Runs::new(vec![
            candidate("holdfast", false, true),
            candidate("ext4", true, false),
            Candidate {
                missing: Some("mkfs.xfs is missing".into()),
                ..candidate("xfs", true, false)
            },
            // It is shown, and neither a peer nor the floor.
            candidate("bindfs", false, false),
            candidate("raw", false, false),
        ]);
        let append = "append 4 KiB + fsync";
        for (name, seconds) in [("holdfast", 2.0), ("ext4", 4.0), ("bindfs", 0.1), ("raw", 1.0)] {
            runs.add(
                name,
                vec![
                    phase(append, Counted::Operations, seconds),
                    phase("rm", Counted::Whole, seconds),
                ],
            );
        }
        assert!(runs.has("ext4") && !runs.has("xfs"));
        let sections = runs.sections("A test.");
        let table =
            |name: &str| &sections.iter().find(|section| section.name == name).unwrap().table;
        let number = |name, row, key| table(name).cell(row, key).unwrap().median();
        assert_eq!(number("rates", append, "holdfast"), Some(500.0));
        assert_eq!(number("rates", append, "best-peer"), Some(2.0));
        assert_eq!(number("rates", append, "floor"), Some(0.5));
        assert_eq!(table("rates").cell(append, "xfs"), Some(&Cell::missing("mkfs.xfs is missing")));
        assert_eq!(number("times", "rm", "ext4"), Some(4e9));
        assert_eq!(number("times", "rm", "best-peer"), Some(2.0));
        assert!(sections.iter().all(|section| section.name != "throughput"), "it has no rows");
        runs.fail("holdfast", &[phase(append, Counted::Operations, 1.0)], "it broke");
        assert_eq!(
            runs.sections("")[0].table.cell(append, "holdfast"),
            Some(&Cell::missing("it broke"))
        );
    }
}
