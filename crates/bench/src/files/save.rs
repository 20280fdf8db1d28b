//! How programs save: appends with an fsync, and a new file that replaces the old one.

use std::fs::{self, File};
use std::io::{self, Write};

use super::run::{Run, Unit};
use crate::work::pattern;

/// Bytes that are saved.
const SMALL: usize = 4096;
/// Documents that are saved in turn.
const DOCUMENTS: u64 = 100;

/// 4 KiB at the end of a file, and an fsync.
pub(super) fn append(run: &mut Run<'_>) -> io::Result<()> {
    let (path, syncer) = (run.place().join("log"), run.syncer());
    let content = pattern(SMALL);
    run.repeat("append 4 KiB + fsync", Unit::Operations, 1, |_| {
        let mut file = File::options().append(true).create_new(true).open(&path)?;
        let content = content.clone();
        Ok(move || {
            file.write_all(&content)?;
            syncer.file(&file)?;
            Ok(Some(1))
        })
    })
}

/// A temporary file, its fsync, a rename over the old document, and an fsync of the directory.
pub(super) fn safe_save(run: &mut Run<'_>) -> io::Result<()> {
    let (dir, syncer) = (run.place().to_path_buf(), run.syncer());
    let content = pattern(SMALL);
    for number in 0..DOCUMENTS {
        fs::write(dir.join(format!("document{number}")), &content)?;
    }
    run.repeat("safe-save (tmp, fsync, rename, fsync dir)", Unit::Operations, 1, |_| {
        let (dir, content, mut saved) = (dir.clone(), content.clone(), 0u64);
        let handle = File::open(&dir)?;
        Ok(move || {
            let temporary = dir.join("temporary");
            let mut file = File::create_new(&temporary)?;
            file.write_all(&content)?;
            syncer.file(&file)?;
            fs::rename(&temporary, dir.join(format!("document{}", saved % DOCUMENTS)))?;
            syncer.file(&handle)?;
            saved += 1;
            Ok(Some(1))
        })
    })
}
