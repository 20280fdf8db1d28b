//! Names of a tree, and files of it, written out.

use std::borrow::Cow;
use std::io::{BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use holdfast::{Descent, Dir, FileType, Metadata, Order, Volume};
use serde::{Deserialize, Serialize};

use super::remove::same_directory;
use super::{Ends, Out, Tree};
use crate::branches::Name;
use crate::json;
use crate::moment::utc;
use crate::outcome::{Context, Failure, Outcome, printable, printed};

/// Bytes of a file that are read at once.
const PIECE: usize = 1 << 20;

/// How names are shown.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[expect(missing_docs, reason = "names say what they are")]
pub struct ListFormat {
    pub long: bool,
    pub recursive: bool,
    pub json: bool,
    pub is_terminal: bool,
    /// A zero byte ends each line; names are as they are, also on a terminal. A command of an older version does not say so.
    #[serde(default)]
    pub null: bool,
}

/// What `--json` prints for each name. Of paths and targets that are not UTF-8 it has the bytes in hexadecimal too.
#[derive(Serialize)]
struct Line<'a> {
    path: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
    r#type: &'static str,
    mode: u32,
    nlink: u32,
    uid: u32,
    gid: u32,
    size: u64,
    modified: f64,
    inode: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target_hex: Option<String>,
}

/// Lists a directory, or shows what else is there.
pub(super) fn run(
    door: &Volume,
    volume: &str,
    (tree, path): (&Tree, &Name),
    how: &ListFormat,
    ends: &dyn Ends,
) -> Outcome {
    let opened = tree.view(door, volume)?;
    let path = path.path();
    let mut out = BufWriter::new(Out(ends));
    let shown = format!("{volume}:{}", path.display());
    let done = opened.symlink_metadata(path).context(&shown).and_then(|found| {
        match found.is_dir() {
            true => list(how, &opened, path, ends, &mut out),
            false => show(how, &opened, path, path, &found, &mut out),
        }?;
        printed(out.flush())
    });
    opened.close().context(volume)?;
    done.map(|()| 0)
}

/// Writes a file out.
pub(super) fn print(
    door: &Volume,
    volume: &str,
    (tree, path): (&Tree, &Name),
    ends: &dyn Ends,
) -> Outcome {
    let opened = tree.view(door, volume)?;
    let done = print_file(&opened, &format!("{volume}:{}", path.path().display()), path, ends);
    opened.close().context(volume)?;
    done.map(|()| 0)
}

fn print_file(opened: &Volume, shown: &str, path: &Name, ends: &dyn Ends) -> Result<(), Failure> {
    let file = opened.open_file(path.path()).context(shown)?;
    let mut buffer = vec![0; PIECE];
    let mut at = 0;
    loop {
        let len = file.read_at(&mut buffer, at).context(shown)?;
        if len == 0 {
            return printed(Out(ends).flush());
        }
        printed(Out(ends).write_all(&buffer[..len]))?;
        at += len as u64;
    }
}

/// Prints the directory at `top`, and what is below with `--recursive`; sorted, without recursion in here.
fn list(
    how: &ListFormat,
    volume: &Volume,
    top: &Path,
    ends: &dyn Ends,
    out: &mut impl Write,
) -> Result<(), Failure> {
    let dir = volume.open_dir(top).context(top.display())?;
    names(how, &dir, (top, Path::new("")), ends, out)?;
    let mut way = Descent::new(Order::ByName);
    if how.recursive {
        way.enter(dir, "").context(top.display())?;
    }
    while let Some(dir) = way.dir().cloned() {
        let Some(entry) = way.next_name() else {
            way.leave();
            continue;
        };
        let entry = entry.context(top.join(way.path()).display())?;
        let name = entry.file_name();
        if !entry.file_type().is_dir() {
            continue;
        }
        let at = way.path().join(name);
        let below = same_directory(&dir, name, entry.ino());
        let below = below.context(top.join(&at).display())?;
        // What is in a directory comes before what is further below.
        names(how, &below, (top, &at), ends, out)?;
        way.enter(below, name).context(top.join(&at).display())?;
    }
    Ok(())
}

/// Prints one directory, which is at `at` below `top`.
fn names(
    how: &ListFormat,
    dir: &Dir,
    (top, at): (&Path, &Path),
    ends: &dyn Ends,
    out: &mut impl Write,
) -> Result<(), Failure> {
    let mut names = Descent::new(Order::ByName);
    names.enter(dir.clone(), "").context(top.join(at).display())?;
    while let Some(entry) = names.next_name() {
        ends.check().context("the command")?;
        let entry = entry.context(top.join(at).display())?;
        let shown = at.join(entry.file_name());
        let found = dir.symlink_metadata(entry.file_name());
        let found = found.context(top.join(&shown).display())?;
        show(how, dir, Path::new(entry.file_name()), &shown, &found, out)?;
    }
    Ok(())
}

fn show(
    how: &ListFormat,
    dir: &Dir,
    path: &Path,
    shown: &Path,
    found: &Metadata,
    out: &mut impl Write,
) -> Result<(), Failure> {
    let target = match found.is_symlink() && (how.json || how.long) {
        true => Some(dir.read_link(path).context(shown.display())?),
        false => None,
    };
    let hex = |path: &Path| json::hex_unless_text(path.as_os_str().as_bytes());
    let target_hex = target.as_deref().and_then(hex);
    let since_1970 = match found.modified().duration_since(std::time::UNIX_EPOCH) {
        Ok(after) => after.as_secs_f64(),
        Err(before) => -before.duration().as_secs_f64(),
    };
    if how.json {
        let line = Line {
            path: &shown.to_string_lossy(),
            path_hex: hex(shown),
            r#type: type_name(found.file_type()),
            mode: found.permissions().mode(),
            nlink: found.nlink(),
            uid: found.uid(),
            gid: found.gid(),
            size: found.len(),
            modified: since_1970,
            inode: found.ino(),
            target: target.map(|t| t.to_string_lossy().into_owned()),
            target_hex,
        };
        return printed(writeln!(out, "{}", json::text(&line)));
    }
    if how.long {
        printed(write!(
            out,
            "{} {:>3} {:>5} {:>5} {:>12} {} ",
            mode_text(found),
            found.nlink(),
            found.uid(),
            found.gid(),
            found.len(),
            utc(since_1970.floor() as i64, "%Y-%m-%d %H:%M"),
        ))?;
    }
    let target = target.as_deref().map(|target| how.name(target));
    let arrow = if target.is_some() { &b" -> "[..] } else { b"" };
    let end = if how.null { b"\0" } else { b"\n" };
    let parts = [&how.name(shown), arrow, target.as_deref().unwrap_or_default(), end];
    printed(parts.into_iter().try_for_each(|part| out.write_all(part)))
}

impl ListFormat {
    /// Programs that read names get them as they are.
    fn name(self, path: &Path) -> Cow<'_, [u8]> {
        match self.is_terminal && !self.null {
            true => printable(&path.to_string_lossy()).into_owned().into_bytes().into(),
            false => path.as_os_str().as_bytes().into(),
        }
    }
}

pub(super) fn type_name(file_type: FileType) -> &'static str {
    match file_type {
        FileType::Regular => "file",
        FileType::Directory => "directory",
        FileType::Symlink => "symlink",
        FileType::Fifo => "fifo",
        FileType::Socket => "socket",
        FileType::CharDevice => "char-device",
        FileType::BlockDevice => "block-device",
    }
}

/// `drwxr-xr-t`, as ls(1) writes it.
fn mode_text(found: &Metadata) -> String {
    let mode = found.permissions().mode();
    let mut text = String::from(match found.file_type() {
        FileType::Regular => '-',
        FileType::Directory => 'd',
        FileType::Symlink => 'l',
        FileType::Fifo => 'p',
        FileType::Socket => 's',
        FileType::CharDevice => 'c',
        FileType::BlockDevice => 'b',
    });
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (mode & special != 0, bits & 1 != 0) {
            (false, false) => '-',
            (false, true) => 'x',
            (true, true) => letter,
            (true, false) => letter.to_ascii_uppercase(),
        });
    }
    text
}
