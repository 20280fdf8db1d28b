//! One file that is no directory: it is made, filled, and gets its attributes.

use std::io;

use holdfast_format::item::FileType;

use super::{Named, Walk, attributes};
use crate::copying::{Content, Copying};
use crate::known::Known;
use crate::report::{FileNote, Missing};

/// No small content is longer.
const INLINE_MAX: u64 = 4096;

impl Walk<'_, '_, '_> {
    /// Makes it. `AlreadyExists`: its name is taken.
    pub(super) fn make(
        &mut self,
        named: &Named<'_>,
        known: &Known,
        found: &mut FileNote,
    ) -> io::Result<()> {
        let attributes = attributes(known);
        match found.file_type {
            None | Some(FileType::Regular) => {}
            Some(FileType::Symlink) => match &known.inline {
                Some(target) => return self.out.symlink(named.name, target, &attributes),
                None => {
                    found.missing = vec![Missing::Everything];
                    return Ok(());
                }
            },
            Some(_) => {
                let rdev = known.inode.map_or(0, |inode| inode.rdev);
                return self.out.node(named.name, rdev, &attributes);
            }
        }
        self.out.begin(named.name)?;
        let content = self.content(named, known);
        let size = known.inode.map(|inode| inode.size);
        let content = match content {
            Ok(content) => content,
            Err(error) => {
                // Its length and attributes are right all the same.
                self.out.end(size.unwrap_or(0), &attributes)?;
                return Err(error);
            }
        };
        self.out.end(size.unwrap_or(content.end), &attributes)?;
        let mut provenance = self.provenance(named, known);
        provenance.join(content.provenance);
        found.version = self.version(provenance);
        found.holes = content.holes;
        found.unproved = content.unproved;
        Ok(())
    }

    /// Copies the content of a regular file.
    fn content(&mut self, named: &Named<'_>, known: &Known) -> io::Result<Content> {
        let inode = known.inode;
        let has_extents = known.has_extents && inode.is_none_or(|inode| inode.blocks > 0);
        if let Some(inline) = known.inline.as_ref().filter(|_| !has_extents) {
            let size = inode.map_or(inline.len() as u64, |inode| inode.size);
            let len = size.min(inline.len() as u64);
            self.out.write(0, &inline[..len as usize])?;
            self.counts.bytes += len;
            let mut content = Content { end: len, ..Content::default() };
            content.holes.push(len, size);
            return Ok(content);
        }
        let may_be_inline = |size: u64| (1..=INLINE_MAX).contains(&size);
        if let Some(inode) = inode.filter(|inode| inode.blocks == 0) {
            // Extents that there are all the same are of another version.
            let mut content = Content::default();
            if known.is_inline_unknown && may_be_inline(inode.size) {
                content.holes.push(0, inode.size);
            }
            return Ok(content);
        }
        let copying = Copying {
            reading: self.reading,
            punches: &self.punches,
            number: named.number,
            inode,
            is_doubted: known.provenance.version().is_some(),
            unproved: self.way.unproved,
        };
        let (out, counts) = (&mut *self.out, &mut self.counts);
        copying.copy(&mut self.items, &mut |at, bytes| {
            counts.bytes = counts.bytes.saturating_add(bytes.len() as u64);
            out.write(at, bytes)
        })
    }
}
