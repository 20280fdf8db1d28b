//! M2: a rename logs the two names and not the directory (`rename_log=names`).
//!
//! As published: empty files in one directory, everything committed, one more file, an fsync of the directory, and then
//! every file gets another name.

use std::io;

use holdfast::{RenameLog, VolumeOptions};
use holdfast_base::clock::Stopwatch;

use super::compare::{Better, Both, Comparison, Line, NODE, Pair, Wanted, in_rounds};
use super::{Bench, Measured};
use crate::counts::{Counts, median};
use crate::result::{Cell, Unit, exponent};
use crate::work::names;

/// Of btrfs, "avoid logging all directory changes during renames": files, and milliseconds to rename all of them.
const RENAMES: [(u64, Both); 4] = [
    (1_000, (1_088.0, 905.0)),
    (2_000, (2_550.0, 1_788.0)),
    (5_000, (9_241.0, 4_642.0)),
    (10_000, (27_399.0, 9_093.0)),
];

pub(super) fn run(bench: &mut Bench<'_>) -> io::Result<Measured> {
    let scale = bench.scale;
    let sizes: &[u64] = match bench.is_library() {
        true => scale.pick(
            &[100, 1_000],
            &[1_000, 2_000, 5_000, 10_000, 50_000],
            &[1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000],
        ),
        false => {
            scale.pick(&[50, 200], &[1_000, 5_000, 10_000], &[1_000, 2_000, 5_000, 10_000, 50_000])
        }
    };
    let longest = scale.pick(60.0, 90.0, 400.0);
    // Small directories get more runs in the library, or chance would decide.
    let renames_min: u64 = if bench.is_library() { scale.pick(0, 20_000, 20_000) } else { 0 };
    let mut lines: Vec<Line> = Vec::new();
    // Files, and seconds of their renames as it was done before: those grow with the square of the files.
    let mut last: Option<(u64, f64)> = None;
    for &files in sizes {
        let expected = last.map(|(fewer, seconds)| seconds * (files as f64 / fewer as f64).powi(2));
        let too_long = expected.is_some_and(|seconds| seconds > longest);
        let rounds = scale.rounds().max(renames_min.div_ceil(files));
        let mut one = |switch| {
            let (all_ns, _) = rename_all(bench, switch, files)?;
            bench.say(format_args!("M2, {files} files, {switch}: {:.3} s", all_ns / 1e9));
            Ok(all_ns)
        };
        let found = match too_long {
            true => vec![Vec::new(), in_rounds(&[RenameLog::Names], rounds, &mut one)?.concat()],
            false => in_rounds(&[RenameLog::Directory, RenameLog::Names], rounds, &mut one)?,
        };
        let pair = Pair::of(&found, |ns| *ns);
        match too_long {
            true => last = expected.map(|seconds| (files, seconds)),
            false => last = Some((files, median(pair.before.clone()) / 1e9)),
        }
        let each: Vec<f64> = pair.after.iter().map(|ns| ns / files as f64).collect();
        let published = RENAMES.iter().find(|(of, _)| *of == files);
        lines.push(Line {
            label: Unit::Count.show(files as f64),
            x: files as f64,
            pair,
            published: published.map(|(_, (before, after))| (before * 1e6, after * 1e6)),
            why: expected.map_or_else(String::new, |seconds| format!("about {seconds:.0} s")),
            more: vec![Cell::of(&each)],
        });
    }
    // The published size, or the largest that was measured in both positions.
    let largest = lines.iter().rfind(|line| line.x <= 10_000.0 && !line.pair.before.is_empty());
    let gains = largest.map(|line| {
        let what = format!("{} renames, time before over after", line.label);
        let published = line.published.map_or(1.0, |both| Better::Less.published(both));
        bench.gain("M2", what, line.pair.shorter(), published, 3.0)
    });
    let after = lines.iter().map(|line| (line.x, median(line.pair.after.clone()) / line.x));
    let flat = exponent(&after.collect::<Vec<_>>());
    let about = format!(
        "Empty files in one directory, at their home; one more, an fsync of the directory, and all are renamed. The time \
         is that of all renames, {}. Sizes that would take longer than {longest} s are left out.",
        bench.rounds_text()
    );
    let comparison = Comparison {
        key: format!("m2-{}", bench.place()),
        title: format!("M2, {}: a rename logs its names, not its directory", bench.place()),
        about,
        label: "files",
        axes: Some(("files in the directory", "time of all renames")),
        words: ("directory", "names"),
        unit: Unit::Nanoseconds,
        better: Better::Less,
        lines,
    };
    let mut section = comparison.section(&[("each", "one rename, after", Unit::Nanoseconds)]);
    if let Some(flat) = flat {
        section = section.note(format!(
            "After the change the time of one rename grows with the power {flat:.2} of the files."
        ));
    }
    Ok(Measured { sections: vec![section], gains: gains.into_iter().collect() })
}

/// Nanoseconds of all renames, and everything that was counted from the first of them to the end of an fsync behind
/// the last.
fn rename_all(bench: &mut Bench<'_>, switch: RenameLog, files: u64) -> io::Result<(f64, Counts)> {
    let volume = bench.volume(Wanted {
        bytes: (1 << 30) + files * 4096,
        node_size: NODE,
        // A commit begins anew what a rename has to log. All of the directory is kept, as a kernel does.
        library: VolumeOptions::new()
            .rename_log(switch)
            .commit_secs(0)
            .inode_cache(files as usize + 1000),
        mount: format!("commit=0,rename_log={switch}"),
    })?;
    let dir = volume.root().folder("d")?;
    let (old, new) = (names("file-", files), names("renamed-", files));
    old.iter().try_for_each(|name| dir.create(name).map(drop))?;
    volume.quiesce()?;
    drop(dir.create("one more")?);
    dir.sync()?;
    let before = volume.counts()?;
    let time = Stopwatch::start();
    old.iter().zip(&new).try_for_each(|(old, new)| dir.rename(old, new))?;
    let all_ns = time.nanos() as f64;
    dir.sync()?;
    let counts = volume.counts()?.since(&before);
    drop(dir);
    volume.end()?;
    Ok((all_ns, counts))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mechanisms::compare::tests::in_memory;

    #[test]
    fn only_before_a_rename_logs_its_directory() {
        for &switch in RenameLog::ALL {
            let (all_ns, counts) = in_memory(|bench| rename_all(bench, switch, 80));
            assert!(all_ns > 0.0 && counts.get("log_records") > 0);
            // Nothing else of the engine commits meanwhile, and a log that is not full escapes nothing.
            assert_eq!(counts.get("log_full") + counts.get("log_too_large"), 0);
            let logged = counts.get("log_directories") > 0;
            assert_eq!(logged, switch == RenameLog::Directory);
        }
    }
}
