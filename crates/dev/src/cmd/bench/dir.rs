//! `holdfast-dev bench dir`: what people do with files, on any directory of any filesystem.

use std::path::{Path, PathBuf};

use clap::builder::{PossibleValuesParser, TypedValueParser};
use holdfast_bench::files::{Candidate, Directory, Material, Runs, Scale, Workload};

use crate::cmd::bench::output::progress;
use crate::cmd::bench::results::Results;
use crate::outcome::{Context, Failure, Outcome};

/// What people do with files, on any directory of any filesystem.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Everything is done in a directory of its own below PATH, which is gone at the end, also after a
failure and at SIGINT and SIGTERM. In a mount of Holdfast the daemon's processor time and memory
are told too, and where the time goes.")]
pub(crate) struct Args {
    /// A directory.
    path: PathBuf,
    #[command(flatten)]
    work: Work,
    /// Forget what is cached before some phases, for the whole machine; needs root.
    #[arg(long)]
    cold: bool,
    #[command(flatten)]
    results: Results,
}

/// The kernel's source as Debian packs it.
const LINUX: &str = "/usr/src/linux-source-6.1.tar.xz";

/// What is done, how often and how much.
#[derive(Debug, clap::Args)]
pub(crate) struct Work {
    /// Only these, in this order.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', value_parser = workload())]
    pub(crate) workloads: Vec<Workload>,
    /// Rounds of all of them.
    #[arg(long, default_value_t = 3)]
    pub(crate) rounds: u64,
    /// Seconds of a phase that is not over by itself.
    #[arg(long, default_value_t = 3.0)]
    pub(crate) seconds: f64,
    /// How much the others do: quick, some megabytes, to see that it works; or usual, a gigabyte, ten thousand files.
    #[arg(long, default_value = "usual", value_parser = ["quick", "usual"])]
    scale: String,
    /// The tree that is unpacked [default: the kernel's source if Debian's package is there].
    #[arg(long, value_name = "FILE.tar[.xz]")]
    pub(crate) tree: Option<PathBuf>,
    /// The repository that is cloned [default: one that is made].
    #[arg(long, value_name = "REPO")]
    pub(crate) git: Option<PathBuf>,
    /// Do not measure once more with fsyncs left out.
    #[arg(long)]
    pub(crate) no_ceiling: bool,
}

fn workload() -> impl TypedValueParser<Value = Workload> {
    let names = Workload::ALL.iter().map(|workload| workload.name);
    PossibleValuesParser::new(names).try_map(|name| {
        Workload::named(&name).ok_or_else(|| format!("no workload is called {name}"))
    })
}

impl Work {
    /// All of them if none is named.
    pub(crate) fn workloads(&self) -> Vec<Workload> {
        if self.workloads.is_empty() { Workload::ALL.to_vec() } else { self.workloads.clone() }
    }

    /// How much is done, and what with; made in `dir`.
    pub(crate) fn prepare(&self, dir: &Path) -> Result<(Scale, Material), Failure> {
        let time = std::time::Duration::try_from_secs_f64(self.seconds)
            .map_err(|_| Failure::plain(format!("{} is no time", self.seconds)))?;
        // A quick look needs no tree of a gigabyte.
        let (scale, files, linux) = match self.scale == "quick" {
            true => (Scale { time, ..Scale::tiny() }, 120, None),
            false => (Scale::usual(time), 10_000, Some(Path::new(LINUX))),
        };
        let tree = self.tree.as_deref().or(linux.filter(|linux| linux.is_file()));
        let (workloads, git) = (self.workloads(), self.git.as_deref());
        let material = Material::gather(&workloads, tree, git, dir, files, scale.seed)
            .context("the tree and the repository")?;
        Ok((material.on(scale), material))
    }

    /// The scale in words.
    pub(crate) fn about(&self, material: &Material) -> String {
        let about = format!(
            "Medians of {} rounds, {} s for what is not over by itself. {}",
            self.rounds,
            self.seconds,
            material.about()
        );
        about.trim_end().to_string()
    }
}

pub(crate) fn run(args: &Args) -> Outcome {
    let mut report = args.results.begin()?;
    let program = std::env::current_exe().context("this program")?;
    let (scale, material) = args.work.prepare(&std::env::temp_dir())?;
    let name = "directory";
    let mut runs = Runs::new(Vec::new());
    let mut about = String::new();
    for round in 0..args.work.rounds.max(1) {
        let host =
            Directory::below(&args.path, &program, args.cold).context(args.path.display())?;
        if round == 0 {
            about = host.about();
            runs = Runs::new(vec![Candidate {
                name: name.into(),
                title: args.path.display().to_string(),
                is_peer: false,
                is_ours: host.is_ours(),
                missing: None,
            }]);
        }
        for workload in args.work.workloads() {
            progress(format_args!("round {}, {}", round + 1, workload.name));
            for durable in [true, false] {
                if durable || (workload.has_fsyncs && !args.work.no_ceiling) {
                    let phases =
                        workload.run(&host, &scale, durable, true).context(workload.name)?;
                    runs.add(name, phases);
                }
            }
        }
    }
    report.sections = runs.sections(&format!("On {about}. {}", args.work.about(&material)));
    args.results.end(&report, &[])
}
