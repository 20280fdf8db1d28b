//! Mail: deliveries as maildir(5) asks for, beside a reader who opens the oldest and deletes some.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Write};

use holdfast_base::prng::Prng;

use super::flat::threads;
use super::run::{Run, Unit};
use crate::work::pattern;

/// Smallest and largest message, in bytes.
const MESSAGE: (u64, u64) = (1 << 10, 16 << 10);
/// Threads, each with a mailbox of its own.
const JOBS: [u64; 2] = [1, 4];

/// Each operation delivers one message: `tmp`, fsync, rename to `new`, fsync of that. After every second one the oldest is read and
/// filed in `cur`, after every fourth one the oldest there is removed.
pub(super) fn deliver(run: &mut Run<'_>) -> io::Result<()> {
    JOBS.into_iter().try_for_each(|jobs| deliver_by(run, jobs))
}

fn deliver_by(run: &mut Run<'_>, jobs: u64) -> io::Result<()> {
    let (place, syncer, seed) = (run.place().to_path_buf(), run.syncer(), run.scale().seed);
    let name = format!("maildir delivery, {}", threads(jobs));
    run.repeat(&name, Unit::Operations, jobs, |job| {
        let mailbox = place.join(format!("mailbox-{jobs}-{job}"));
        let [tmp, new, cur] = ["tmp", "new", "cur"].map(|name| mailbox.join(name));
        [&tmp, &new, &cur].into_iter().try_for_each(fs::create_dir_all)?;
        let new_dir = File::open(&new)?;
        let content = pattern(MESSAGE.1 as usize);
        let mut prng = Prng::seeded(seed + job);
        let (mut fresh, mut read) = (VecDeque::new(), VecDeque::new());
        let mut number = 0u64;
        Ok(move || {
            let message = format!("{number}.P{job}.host");
            let len = MESSAGE.0 + prng.below(MESSAGE.1 - MESSAGE.0);
            let mut file = File::create_new(tmp.join(&message))?;
            file.write_all(&content[..len as usize])?;
            syncer.file(&file)?;
            drop(file);
            fs::rename(tmp.join(&message), new.join(&message))?;
            syncer.file(&new_dir)?;
            fresh.push_back((message, len));
            number += 1;
            if number.is_multiple_of(2)
                && let Some((message, len)) = fresh.pop_front()
            {
                let path = new.join(&message);
                super::flat::expect(fs::read(&path)?.len() as u64, len, &path)?;
                let seen = format!("{message}:2,S");
                fs::rename(&path, cur.join(&seen))?;
                read.push_back(seen);
            }
            if number.is_multiple_of(4)
                && let Some(seen) = read.pop_front()
            {
                fs::remove_file(cur.join(seen))?;
            }
            Ok(Some(1))
        })
    })
}
