//! How text changed, in the form that git(1) and patch(1) read.

use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::time::Duration;

use holdfast::{Change, ChangeKind, FileType, Volume};
use similar::TextDiff;

use super::{Which, show};
use crate::outcome::{Context, Failure, printable, printed};

/// Larger files are only said to differ.
const BYTES_MAX: u64 = 4 << 20;
/// Text has no zero byte up to here, as git(1) judges it.
const LOOK_BYTES: usize = 8000;
/// After this the lines that changed are found more roughly: some texts are made to take for ever.
const PATIENCE: Duration = Duration::from_secs(10);

/// The two trees, opened.
pub(super) struct Patches<'a> {
    volume: &'a Volume,
    /// `None`: what the volume was opened at.
    old: Option<Volume>,
    new: Option<Volume>,
    is_terminal: bool,
}

impl<'a> Patches<'a> {
    pub(super) fn open(
        volume: &'a Volume,
        old: &Which,
        new: &Which,
        is_terminal: bool,
    ) -> Result<Patches<'a>, Failure> {
        let (old, new) = (opened(volume, old)?, opened(volume, new)?);
        Ok(Patches { volume, old, new, is_terminal })
    }

    pub(super) fn close(self) -> Result<(), Failure> {
        let mut opened = [self.old, self.new].into_iter().flatten();
        opened.try_for_each(Volume::close).context("closing the volume")
    }

    /// Prints how one file changed. What is neither a file nor a symbolic link has no text.
    pub(super) fn show(&self, change: &Change, out: &mut impl Write) -> Result<(), Failure> {
        if !matches!(change.file_type, FileType::Regular | FileType::Symlink) {
            return Ok(());
        }
        let path = show::path(change);
        let before = change.old_path.as_deref().unwrap_or(path);
        let (old, new) = (self.old.as_ref(), self.new.as_ref());
        let old = match change.kind {
            ChangeKind::Created => None,
            _ => Some(Version::read(old.unwrap_or(self.volume), before)?),
        };
        let new = match change.kind {
            ChangeKind::Removed => None,
            _ => Some(Version::read(new.unwrap_or(self.volume), path)?),
        };
        let mut text = Vec::new();
        printed(write_patch((before, old.as_ref()), (path, new.as_ref()), &mut text))?;
        printed(match self.is_terminal {
            false => out.write_all(&text),
            true => out.write_all(&visible(&text)),
        })
    }
}

/// A file at one moment.
struct Version {
    mode: u32,
    /// `None`: it is too large.
    bytes: Option<Vec<u8>>,
}

impl Version {
    fn read(volume: &Volume, path: &[u8]) -> Result<Version, Failure> {
        let path = Path::new("/").join(OsStr::from_bytes(path));
        let read = || -> io::Result<Version> {
            let found = volume.symlink_metadata(&path)?;
            let bytes = match found.file_type() {
                FileType::Symlink => Some(volume.read_link(&path)?.into_os_string().into_vec()),
                _ if found.len() > BYTES_MAX => None,
                _ => Some(volume.read(&path)?),
            };
            Ok(Version { mode: found.mode(), bytes })
        };
        read().context(path.display())
    }

    /// The bytes, if they are text as git(1) judges it.
    fn text(&self) -> Option<&[u8]> {
        let bytes = self.bytes.as_deref()?;
        (!bytes.iter().take(LOOK_BYTES).any(|byte| *byte == 0)).then_some(bytes)
    }

    /// The mode that git(1) knows: a file, one that can be run, or a symbolic link.
    fn git_mode(&self) -> &'static str {
        match self.mode & 0o170_000 {
            0o120_000 => "120000",
            _ if self.mode & 0o100 != 0 => "100755",
            _ => "100644",
        }
    }
}

/// One file of a patch.
fn write_patch(
    (old_path, old): (&[u8], Option<&Version>),
    (new_path, new): (&[u8], Option<&Version>),
    out: &mut Vec<u8>,
) -> io::Result<()> {
    let (a, b) = (quoted(b"a/", old_path), quoted(b"b/", new_path));
    let header = [b"diff --git ", &a[..], b" ", &b[..], b"\n"].concat();
    let mut changes = Vec::new();
    match (old, new) {
        (Some(old), Some(new)) => {
            if old.git_mode() != new.git_mode() {
                writeln!(changes, "old mode {}\nnew mode {}", old.git_mode(), new.git_mode())?;
            }
            if old_path != new_path {
                let (from, to) = (quoted(b"", old_path), quoted(b"", new_path));
                changes
                    .extend([b"rename from ", &from[..], b"\nrename to ", &to[..], b"\n"].concat());
            }
        }
        (Some(old), None) => writeln!(changes, "deleted file mode {}", old.git_mode())?,
        (None, Some(new)) => writeln!(changes, "new file mode {}", new.git_mode())?,
        (None, None) => return Ok(()),
    }
    let name = |version: Option<&Version>, path: Vec<u8>| match version {
        Some(_) => path,
        None => b"/dev/null".to_vec(),
    };
    let (a, b) = (name(old, a), name(new, b));
    let nothing = Version { mode: 0, bytes: Some(Vec::new()) };
    let (old, new) = (old.unwrap_or(&nothing), new.unwrap_or(&nothing));
    if old.bytes.is_none() || new.bytes.is_none() || old.bytes != new.bytes {
        match (old.text(), new.text()) {
            (Some(old), Some(new)) => {
                changes.extend([b"--- ", &a[..], b"\n+++ ", &b[..], b"\n"].concat());
                let lines = TextDiff::configure().timeout(PATIENCE).diff_lines(old, new);
                lines.unified_diff().to_writer(&mut changes)?;
            }
            _ => {
                changes.extend([b"Binary files ", &a[..], b" and ", &b[..], b" differ\n"].concat());
            }
        }
    }
    // Owners, times and other attributes are not in a patch.
    if !changes.is_empty() {
        out.extend(header);
        out.extend(changes);
    }
    Ok(())
}

/// A path as git(1) writes it: in quotes, if anything in it could be taken for something else.
fn quoted(prefix: &[u8], path: &[u8]) -> Vec<u8> {
    let is_plain = |byte: &u8| (0x20..0x7f).contains(byte) && !matches!(byte, b'"' | b'\\');
    if path.iter().all(is_plain) {
        return [prefix, path].concat();
    }
    let mut out = [b"\"", prefix].concat();
    for byte in path {
        match byte {
            b'"' | b'\\' => out.extend([b'\\', *byte]),
            b'\n' => out.extend(b"\\n"),
            b'\t' => out.extend(b"\\t"),
            byte if is_plain(byte) => out.push(*byte),
            byte => out.extend(format!("\\{byte:03o}").into_bytes()),
        }
    }
    out.push(b'"');
    out
}

/// Text as a terminal may see it, line by line.
fn visible(text: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(text);
    let mut out = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let (line, end) = line.strip_suffix('\n').map_or((line, ""), |line| (line, "\n"));
        // A tab is text.
        let mut parts = line.split('\t');
        out.push_str(&printable(parts.next().unwrap_or_default()));
        for part in parts {
            out.push('\t');
            out.push_str(&printable(part));
        }
        out.push_str(end);
    }
    out.into_bytes()
}

fn opened(volume: &Volume, which: &Which) -> Result<Option<Volume>, Failure> {
    let open = || -> io::Result<Option<Volume>> {
        let branch = volume.branch(&which.branch.text())?;
        match &which.snapshot {
            Some(name) => branch.snapshot_named(&name.text())?.open().map(Some),
            None => match branch.open() {
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => Ok(None),
                opened => opened.map(Some),
            },
        }
    };
    open().context(&which.branch)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(mode: u32, bytes: &[u8]) -> Version {
        Version { mode, bytes: Some(bytes.to_vec()) }
    }

    fn patch(old: Option<&Version>, new: Option<&Version>) -> String {
        let mut out = Vec::new();
        write_patch((b"x", old), (b"d/y", new), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_patch_says_what_git_reads() {
        let old = version(0o100_644, b"one\ntwo\n");
        let new = version(0o100_755, b"one\nthree\n");
        assert_eq!(
            patch(Some(&old), Some(&new)),
            "diff --git a/x b/d/y\nold mode 100644\nnew mode 100755\nrename from x\nrename to d/y\n\
             --- a/x\n+++ b/d/y\n@@ -1,2 +1,2 @@\n one\n-two\n+three\n"
        );
        assert_eq!(
            patch(None, Some(&version(0o120_777, b"target"))),
            "diff --git a/x b/d/y\nnew file mode 120000\n--- /dev/null\n+++ b/d/y\n@@ -0,0 +1 @@\n+target\n\
             \\ No newline at end of file\n"
        );
        let binary = version(0o100_644, b"a\0b");
        assert_eq!(
            patch(Some(&binary), None),
            "diff --git a/x b/d/y\ndeleted file mode 100644\nBinary files a/x and /dev/null differ\n"
        );
    }

    #[test]
    fn odd_names_are_quoted_and_terminals_are_spared() {
        assert_eq!(quoted(b"a/", b"plain name"), b"a/plain name");
        assert_eq!(quoted(b"a/", b"tab\t\"q\" \xff"), b"\"a/tab\\t\\\"q\\\" \\377\"");
        assert_eq!(visible(b"a\tb\x1b[1m\nc\n"), b"a\tb\\u{1b}[1m\nc\n");
    }
}
