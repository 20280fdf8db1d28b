//! One file of a patch: its header, and the lines that changed.

use std::io::{self, Write};
use std::time::Duration;

use similar::{DiffOp, DiffTag, TextDiff};

use crate::outcome::printable;

/// Text has no zero byte up to here, as git(1) judges it.
const LOOK_BYTES: usize = 8000;
/// After this the lines that changed are found more roughly: some texts are made to take for ever.
const PATIENCE: Duration = Duration::from_secs(10);
/// Lines around a change.
const CONTEXT: usize = 3;

/// A file at one moment.
pub(super) struct Version {
    pub(super) mode: u32,
    /// `None`: it is too large.
    pub(super) bytes: Option<Vec<u8>>,
}

impl Version {
    pub(super) fn is_link(&self) -> bool {
        self.mode & 0o170_000 == 0o120_000
    }

    /// The bytes, if they are text as git(1) judges it.
    fn text(&self) -> Option<&[u8]> {
        let bytes = self.bytes.as_deref()?;
        (!bytes.iter().take(LOOK_BYTES).any(|byte| *byte == 0)).then_some(bytes)
    }

    /// The mode that git(1) knows: a file, one that can be run, or a symbolic link.
    fn git_mode(&self) -> &'static str {
        match self.mode {
            _ if self.is_link() => "120000",
            mode if mode & 0o100 != 0 => "100755",
            _ => "100644",
        }
    }
}

/// Writes what became of one file; nothing, if a patch cannot say it: owners, times and other attributes are not in one.
pub(super) fn write_patch(
    (old_path, old): (&[u8], Option<&Version>),
    (new_path, new): (&[u8], Option<&Version>),
    out: &mut Vec<u8>,
) -> io::Result<()> {
    let (a, b) = (quoted(b"a/", old_path), quoted(b"b/", new_path));
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
    let nothing = Version { mode: 0, bytes: Some(Vec::new()) };
    let name = |version: Option<&Version>, path: &[u8]| match version {
        Some(_) => path.to_vec(),
        None => b"/dev/null".to_vec(),
    };
    let names = [name(old, &a), name(new, &b)];
    let (old, new) = (old.unwrap_or(&nothing), new.unwrap_or(&nothing));
    if old.bytes.is_none() || old.bytes != new.bytes {
        match (old.text(), new.text()) {
            (Some(old), Some(new)) => write_lines(&names, old, new, &mut changes)?,
            _ => {
                let [old, new] = &names;
                changes.extend(
                    [b"Binary files ", &old[..], b" and ", &new[..], b" differ\n"].concat(),
                );
            }
        }
    }
    if !changes.is_empty() {
        out.extend([b"diff --git ", &a[..], b" ", &b[..], b"\n"].concat());
        out.extend(changes);
    }
    Ok(())
}

/// Writes the lines that changed. A line ends with a line feed and nothing else; its bytes stay as they are.
fn write_lines(
    [old_name, new_name]: &[Vec<u8>; 2],
    old: &[u8],
    new: &[u8],
    out: &mut Vec<u8>,
) -> io::Result<()> {
    let lines = |text| <[u8]>::split_inclusive(text, |byte| *byte == b'\n').collect::<Vec<_>>();
    let (old, new) = (lines(old), lines(new));
    let diff = TextDiff::configure().timeout(PATIENCE).diff_slices(&old, &new);
    for (mark, name) in [("---", old_name), ("+++", new_name)] {
        write!(out, "{mark} ")?;
        out.extend(name);
        // Without it patch(1) takes what stands behind a space for a date.
        out.extend(name.contains(&b' ').then_some(b'\t'));
        out.push(b'\n');
    }
    for hunk in diff.grouped_ops(CONTEXT) {
        let (Some(first), Some(last)) = (hunk.first(), hunk.last()) else { continue };
        let (from, to) = (
            first.old_range().start..last.old_range().end,
            first.new_range().start..last.new_range().end,
        );
        writeln!(out, "@@ -{} +{} @@", span(&from), span(&to))?;
        for op in &hunk {
            write_op(op, &old, &new, out);
        }
    }
    Ok(())
}

fn write_op(op: &DiffOp, old: &[&[u8]], new: &[&[u8]], out: &mut Vec<u8>) {
    let mut write = |mark: u8, lines: &[&[u8]]| {
        for line in lines {
            out.push(mark);
            out.extend(*line);
            if !line.ends_with(b"\n") {
                out.extend(b"\n\\ No newline at end of file\n");
            }
        }
    };
    if op.tag() == DiffTag::Equal {
        return write(b' ', &old[op.old_range()]);
    }
    write(b'-', &old[op.old_range()]);
    write(b'+', &new[op.new_range()]);
}

/// Lines as the head of a hunk names them: the first, counted from one, and how many; of none the one in front.
fn span(lines: &std::ops::Range<usize>) -> String {
    match lines.len() {
        0 => format!("{},0", lines.start),
        1 => format!("{}", lines.start + 1),
        count => format!("{},{count}", lines.start + 1),
    }
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
pub(super) fn visible(text: &[u8]) -> Vec<u8> {
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

    /// Bytes that are no UTF-8, and carriage returns within lines, stay as they are.
    #[test]
    fn lines_are_bytes_up_to_a_line_feed() {
        let mut out = Vec::new();
        let (old, new) =
            (version(0o100_644, b"a\rb\nc\xe9\n"), version(0o100_644, b"a\rB\nc\xe9\r"));
        write_patch((b"x y", Some(&old)), (b"x y", Some(&new)), &mut out).unwrap();
        let wanted = b"diff --git a/x y b/x y\n--- a/x y\t\n+++ b/x y\t\n@@ -1,2 +1,2 @@\n\
            -a\rb\n-c\xe9\n+a\rB\n+c\xe9\r\n\\ No newline at end of file\n";
        assert_eq!(String::from_utf8_lossy(&out), String::from_utf8_lossy(wanted));
        assert_eq!(out, wanted);
    }
}
