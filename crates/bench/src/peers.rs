//! Holdfast beside other filesystems, of the kernel and of userspace: all workloads on one loop device, in turn.
//!
//! Each workload gets a filesystem that was just made; systems take turns in each round, the
//! other way round in every second one, so that a machine that slows down slows all of them. A row that
//! a system cannot do is left out with the reason; what is ours must work, and be in order afterwards.

use std::io;

use crate::files::{Candidate, Runs, Scale, Workload, floors};
use crate::systems::{Bed, Mounted, Ours, System};

/// What is compared.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The filesystems.
    pub systems: Vec<System>,
    /// What is done on each.
    pub workloads: Vec<Workload>,
    /// How often.
    pub rounds: u64,
    /// How much of it.
    pub scale: Scale,
    /// Whether what fsyncs is measured once more with fsyncs left out.
    pub ceiling: bool,
}

impl Plan {
    /// Measures everything on `bed`. `seen` receives what comes next. Besides what was
    /// measured it answers with a sentence for each failure of ours, which make a run worth little.
    pub fn run(
        &self,
        bed: &Bed,
        ours: &Ours,
        mut seen: impl FnMut(u64, &Workload, System),
    ) -> io::Result<(Runs, Vec<String>)> {
        let mut runs = Runs::new(self.systems.iter().map(|system| candidate(*system)).collect());
        let mut failures = Vec::new();
        for round in 0..self.rounds {
            for workload in &self.workloads {
                let mut order: Vec<System> = self.systems.clone();
                order.retain(|system| *system != System::Raw && runs.has(&system.word()));
                if round % 2 == 1 {
                    order.reverse();
                }
                let (mut phases, mut failed) = (Vec::new(), Vec::new());
                for system in order {
                    seen(round, workload, system);
                    match self.one(workload, system, bed, ours) {
                        Ok(found) => {
                            phases.clone_from(&found);
                            runs.add(&system.word(), found);
                        }
                        Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                            return Err(error);
                        }
                        Err(error) => failed.push((system, error.to_string())),
                    }
                }
                if self.systems.contains(&System::Raw) {
                    seen(round, workload, System::Raw);
                    runs.add(&System::Raw.word(), floors(bed, &self.scale, &phases)?);
                }
                for (system, why) in failed {
                    runs.fail(&system.word(), &phases, &why);
                    if system.is_ours() {
                        failures.push(format!("{}, {}: {why}", system.title(), workload.name));
                    }
                }
            }
        }
        Ok((runs, failures))
    }

    fn one(
        &self,
        workload: &Workload,
        system: System,
        bed: &Bed,
        ours: &Ours,
    ) -> io::Result<Vec<crate::files::Phase>> {
        let mounted = Mounted::new(system, bed, ours)?;
        let mut phases = workload.run(&mounted, &self.scale, true, false)?;
        if workload.has_fsyncs && self.ceiling {
            phases.extend(workload.run(&mounted, &self.scale, false, false)?);
        }
        mounted.leave()?;
        Ok(phases)
    }
}

fn candidate(system: System) -> Candidate {
    let missing = system.missing_package().map(|package| format!("package {package} is missing"));
    Candidate {
        name: system.word(),
        title: system.title().into(),
        is_peer: system.is_peer(),
        is_ours: system.is_ours(),
        missing,
    }
}
