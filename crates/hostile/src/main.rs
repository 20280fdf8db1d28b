//! `hostile`: the targets without a fuzzer.
//!
//! `hostile list`; `hostile run TARGET FILE...` repeats what a fuzzer saved;
//! `hostile random TARGET SECONDS [SEED]` mutates at random until something breaks;
//! `hostile corpus TARGET FOLDER` writes the inputs to begin with, for a fuzzer;
//! `hostile image FILE IMAGE` writes the volume that an input of `look` or `recover`
//! makes, and says how it was made; `hostile hex FILE` prints a line for `corpus/`.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use holdfast_base::clock::Stopwatch;
use holdfast_base::prng::{Prng, entropy};
use holdfast_hostile::{TARGETS, Target, corpus, random, target, volume};

const USAGE: &str = "usage: hostile list | run TARGET FILE... | random TARGET SECONDS [SEED] | \
    corpus TARGET FOLDER | image FILE IMAGE | hex FILE...";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match command(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("hostile: {why}");
            ExitCode::from(2)
        }
    }
}

fn named(name: &str) -> Result<&'static Target, String> {
    target(name).ok_or_else(|| format!("there is no target {name}; see `hostile list`"))
}

fn read(path: &str) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|error| format!("{path}: {error}"))
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), String> {
    std::fs::write(path, bytes).map_err(|error| format!("{}: {error}", path.display()))
}

fn command(args: &[&str]) -> Result<(), String> {
    match args {
        ["list"] => {
            TARGETS.iter().for_each(|target| println!("{:11} {}", target.name, target.says))
        }
        ["run", name, files @ ..] => {
            let target = named(name)?;
            for file in files {
                println!("{file}");
                (target.run)(&read(file)?);
            }
        }
        ["random", name, seconds, seed @ ..] => {
            let seconds: u64 = seconds.parse().map_err(|_| USAGE)?;
            let seed = match seed {
                [seed] => seed.parse().map_err(|_| USAGE)?,
                _ => entropy(),
            };
            by_chance(named(name)?, Duration::from_secs(seconds), seed)?;
        }
        ["corpus", name, folder] => {
            for (index, input) in corpus::all(named(name)?).iter().enumerate() {
                write(&Path::new(folder).join(format!("kept-{index:04}")), input)?;
            }
        }
        ["image", file, image] => {
            let (device, story) = volume::image(&read(file)?);
            write(Path::new(image), &device.to_image())?;
            println!("{}", story.join("\n"));
        }
        ["hex", files @ ..] => {
            for file in files {
                println!("{}", corpus::print(&read(file)?));
            }
        }
        _ => return Err(USAGE.into()),
    }
    Ok(())
}

fn by_chance(target: &Target, time: Duration, seed: u64) -> Result<(), String> {
    println!("hostile random {} {} {seed}", target.name, time.as_secs());
    let inputs = corpus::all(target);
    let (mut prng, started, mut runs) = (Prng::seeded(seed), Stopwatch::start(), 0u64);
    while started.elapsed() < time {
        let input = random::mutate(&inputs, &mut prng);
        let run = || (target.run)(&input);
        if std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).is_err() {
            let path = format!("{}-{seed}-{runs}.bin", target.name);
            write(Path::new(&path), &input)?;
            return Err(format!("run {runs} broke a promise; saved as {path}"));
        }
        runs += 1;
    }
    println!("{runs} runs, nothing found");
    Ok(())
}
