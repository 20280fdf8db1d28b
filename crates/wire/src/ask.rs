//! A program reads an attribute of a mount that knows no extended attributes: by ioctl(2), piece by piece.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::AsFd;

use rustix::ioctl::{Opcode, Updater, ioctl, opcode};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// Bytes of a piece. The number of an ioctl has 14 bits for the size of what goes with it.
pub const PIECE: usize = 16_000;
/// No value is longer.
pub const VALUE_MAX: u32 = 65_536;
/// The number of the ioctl.
pub const ASK: Opcode = opcode::read_write::<Piece>(b'h', 0xf5);

/// What a program asks by ioctl(2), as it asks for an attribute, is a command if it begins so.
pub const CONTROL: &[u8] = b"system.holdfast.control ";
/// Writing it announces a command that changes something: its value is a permit of the caller's choice, of [`PERMIT`] bytes, that
/// stands in front of the command with a space behind it. The kernel refuses it where the mount is read-only, be it
/// only in one place (a bind mount); of an ioctl it asks nothing.
pub const CHANGE_XATTR: &[u8] = b"system.holdfast.change";
/// Bytes of a permit: hexadecimal digits.
pub const PERMIT: usize = 32;

/// A question for an attribute, and the answer in its place.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Piece {
    /// From which byte of the value on; in the answer: how many bytes the value has.
    pub at: u32,
    /// Which value, as the answer to the first question (for byte 0) has said.
    pub value: u32,
    /// Of the bytes: how many are the name, in the answer a part of the value.
    pub len: u32,
    /// The name; in the answer a part of the value.
    pub bytes: [u8; PIECE],
}

impl Piece {
    /// These bytes, as far as there is room for them.
    pub fn new(at: u32, value: u32, bytes: &[u8]) -> Piece {
        let mut piece = Piece::new_zeroed();
        let len = bytes.len().min(PIECE);
        piece.bytes[..len].copy_from_slice(&bytes[..len]);
        (piece.at, piece.value, piece.len) = (at, value, len as u32);
        piece
    }

    /// The bytes that count; `None` if that is nonsense.
    pub fn content(&self) -> Option<&[u8]> {
        self.bytes.get(..self.len as usize)
    }
}

/// The value of the attribute `name` of an open file or directory.
///
/// # Errors
/// What the mount has answered, or another filesystem (`ENOTTY`); `InvalidData` if it makes no sense.
pub fn attribute(file: impl AsFd, name: &[u8]) -> io::Result<Vec<u8>> {
    let mut value = Vec::new();
    let mut number = 0;
    loop {
        let mut piece = Piece::new(value.len() as u32, number, name);
        // SAFETY: the number says that a `Piece` is read and written, and `piece` is one; any bytes are a valid one. A
        // filesystem that does not know the number touches nothing.
        unsafe { ioctl(&file, Updater::<ASK, Piece>::new(&mut piece))? };
        let nonsense = || io::Error::from(io::ErrorKind::InvalidData);
        let content = piece.content().ok_or_else(nonsense)?;
        value.extend_from_slice(content);
        if value.len() == piece.at as usize {
            return Ok(value);
        }
        if content.is_empty() || value.len() > piece.at.min(VALUE_MAX) as usize {
            return Err(nonsense());
        }
        number = piece.value;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_fits_the_number_and_holds_what_it_is_given() {
        assert_eq!(size_of::<Piece>(), 12 + PIECE);
        assert!(size_of::<Piece>() < 1 << 14);
        assert_eq!(Piece::new(1, 2, b"name").content(), Some(&b"name"[..]));
        let long = Piece { len: PIECE as u32 + 1, ..Piece::new(0, 0, b"") };
        assert_eq!(long.content(), None);
    }

    #[test]
    fn another_filesystem_does_not_know_the_question() {
        let file = std::fs::File::open(env!("CARGO_MANIFEST_DIR")).unwrap();
        let error = attribute(&file, b"x").unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOTTY));
    }
}
