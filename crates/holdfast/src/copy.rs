//! Copies of files, with their holes.

use std::io;
use std::path::Path;

use crate::dir::Dir;
use crate::error::Errno;
use crate::file::File;
use crate::options::OpenOptions;

/// Most bytes that are copied at once.
const PIECE: usize = 1 << 20;

impl Dir {
    /// Copies content and permission bits of the file at `from` to the file at `to`, which is made or replaced. Holes stay holes. Neither atomic
    /// nor durable, as [`Dir::write`]. Returns the length.
    ///
    /// # Errors
    /// EINVAL if `from` is no regular file, or both are one file.
    pub fn copy(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<u64> {
        self.copy_to(from, self, to)
    }

    /// As [`Dir::copy`], to another directory, of this volume or another one: out of a snapshot, too.
    pub fn copy_to(
        &self,
        from: impl AsRef<Path>,
        to_dir: &Dir,
        to: impl AsRef<Path>,
    ) -> io::Result<u64> {
        let from = self.open_file(from)?;
        let found = from.metadata()?;
        if !found.is_file() {
            return Err(Errno(libc::EINVAL).into());
        }
        let permissions = found.permissions();
        // Emptied only when it is known that it is another file.
        let options = OpenOptions::new().write(true).create(true).mode(permissions.mode());
        let to = to_dir.open_with(to, &options)?;
        if from.handle.is_same_file(&to.handle)? {
            return Err(Errno(libc::EINVAL).into());
        }
        to.set_len(0)?;
        let len = content(&from, &to, found.len())?;
        to.set_permissions(permissions)?;
        Ok(len)
    }
}

/// Copies all data of `from`, whose length was `len`, and returns the length that `to` has then.
fn content(from: &File, to: &File, len: u64) -> io::Result<u64> {
    let mut buffer = vec![0; PIECE.min(usize::try_from(len).unwrap_or(PIECE))];
    let (mut at, mut end) = (0, len);
    while at < end
        && let Some(data) = from.seek_data(at)?
    {
        let hole = from.seek_hole(data)?.min(end);
        at = data;
        while at < hole {
            let most = usize::try_from(hole - at).unwrap_or(PIECE).min(buffer.len());
            match from.read_at(&mut buffer[..most], at)? {
                // It has become shorter meanwhile.
                0 => {
                    end = at;
                    break;
                }
                len => {
                    to.write_all_at(&buffer[..len], at)?;
                    at += len as u64;
                }
            }
        }
    }
    to.set_len(end)?;
    Ok(end)
}
