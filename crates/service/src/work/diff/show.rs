//! One change as a line, as JSON, or counted.

use std::borrow::Cow;
use std::io::{self, Write};

use holdfast::{Change, ChangeKind, FileType, Parts};
use serde_json::{Map, json};

use crate::json::{put, text};
use crate::outcome::printable;
use crate::work::list::type_name;

/// The word for what became of a file.
pub(super) fn word(kind: ChangeKind) -> &'static str {
    match kind {
        ChangeKind::Created => "created",
        ChangeKind::Removed => "removed",
        ChangeKind::Renamed => "renamed",
        ChangeKind::Changed => "changed",
        ChangeKind::Attributes => "attributes",
    }
}

/// Where it is, or was. The root has a name of its own.
pub(super) fn path(change: &Change) -> &[u8] {
    let path = change.new_path.as_deref().or(change.old_path.as_deref()).unwrap_or_default();
    if path.is_empty() { b"." } else { path }
}

/// The words for what is different of it.
fn words(parts: &Parts) -> impl Iterator<Item = &'static str> {
    let words = [
        (parts.content, "content"),
        (parts.mode, "mode"),
        (parts.owner, "owner"),
        (parts.times, "times"),
        (parts.xattrs, "xattrs"),
        (parts.flags, "flags"),
    ];
    words.into_iter().filter(|(is, _)| *is).map(|(_, word)| word)
}

/// How lines look.
#[derive(Clone, Copy, Debug)]
pub(super) struct Format {
    pub(super) ranges: bool,
    pub(super) name_only: bool,
    pub(super) null: bool,
    pub(super) is_terminal: bool,
}

impl Format {
    pub(super) fn show(self, change: &Change, out: &mut impl Write) -> io::Result<()> {
        let kind = word(change.kind);
        let old = change.old_path.as_deref().filter(|_| change.kind == ChangeKind::Renamed);
        if self.null {
            let words = (!self.name_only).then_some(kind.as_bytes());
            let old = old.filter(|_| !self.name_only);
            return words.into_iter().chain(old).chain([path(change)]).try_for_each(|word| {
                out.write_all(word)?;
                out.write_all(b"\0")
            });
        }
        let slash = if change.file_type == FileType::Directory { "/" } else { "" };
        if self.name_only {
            out.write_all(&self.path(path(change)))?;
            return writeln!(out);
        }
        write!(out, "{kind:<11} ")?;
        if let Some(old) = old {
            out.write_all(&self.path(old))?;
            write!(out, "{slash} -> ")?;
        }
        out.write_all(&self.path(path(change)))?;
        write!(out, "{slash}")?;
        // That bytes are others says the word already, and that the time is.
        let is_plain =
            |word: &str| change.kind == ChangeKind::Changed && matches!(word, "content" | "times");
        let words: Vec<_> = words(&change.parts).filter(|word| !is_plain(word)).collect();
        if !words.is_empty() {
            write!(out, " ({})", words.join(", "))?;
        }
        writeln!(out)?;
        change.ranges.iter().filter(|_| self.ranges).try_for_each(|range| {
            let bytes = range.end - range.start;
            writeln!(out, "            bytes {} to {} ({bytes})", range.start, range.end - 1)
        })
    }

    /// Programs that read paths get them as they are.
    fn path(self, path: &[u8]) -> Cow<'_, [u8]> {
        match self.is_terminal {
            true => printable(&String::from_utf8_lossy(path)).into_owned().into_bytes().into(),
            false => path.to_vec().into(),
        }
    }
}

/// Prints one object.
pub(super) fn json(change: &Change, ranges: bool, out: &mut impl Write) -> io::Result<()> {
    let mut object = Map::new();
    object.insert("change".into(), word(change.kind).into());
    object.insert("type".into(), type_name(change.file_type).into());
    object.insert("inode".into(), change.inode.0.into());
    put(&mut object, "path", path(change));
    if let Some(old) = change.old_path.as_deref().filter(|_| change.kind == ChangeKind::Renamed) {
        put(&mut object, "old_path", old);
    }
    object.insert("link".into(), change.is_link.into());
    object.insert("parts".into(), words(&change.parts).collect::<Vec<_>>().into());
    object.insert("old_size".into(), change.old_size.into());
    object.insert("new_size".into(), change.new_size.into());
    if ranges {
        let ranges = change.ranges.iter().map(|range| json!([range.start, range.end]));
        object.insert("ranges".into(), ranges.collect::<Vec<_>>().into());
    }
    writeln!(out, "{}", text(&object))
}

/// How many there are.
#[derive(Debug, Default)]
pub(super) struct Counts {
    created: u64,
    removed: u64,
    renamed: u64,
    changed: u64,
    attributes: u64,
    bytes: u64,
}

impl Counts {
    pub(super) fn add(&mut self, change: &Change) {
        *match change.kind {
            ChangeKind::Created => &mut self.created,
            ChangeKind::Removed => &mut self.removed,
            ChangeKind::Renamed => &mut self.renamed,
            ChangeKind::Changed => &mut self.changed,
            ChangeKind::Attributes => &mut self.attributes,
        } += 1;
        let bytes = change.ranges.iter().map(|range| range.end - range.start).sum();
        // Of a sparse file of the largest size all may differ.
        self.bytes = self.bytes.saturating_add(bytes);
    }

    pub(super) fn any(&self) -> bool {
        [self.created, self.removed, self.renamed, self.changed, self.attributes] != [0; 5]
    }

    pub(super) fn show(&self, as_json: bool, out: &mut impl Write) -> io::Result<()> {
        let Counts { created, removed, renamed, changed, attributes, bytes } = self;
        if as_json {
            let object = json!({
                "created": created, "removed": removed, "renamed": renamed, "changed": changed,
                "attributes": attributes, "bytes": bytes,
            });
            return writeln!(out, "{}", text(&object));
        }
        writeln!(
            out,
            "{created} created, {removed} removed, {renamed} renamed, {changed} changed, \
             {attributes} attributes only; {bytes} bytes differ"
        )
    }
}
