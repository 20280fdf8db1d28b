//! Numbers and bytes as words of a script: what is printed with these, `text` parses back to the same value.

use std::fmt::{self, Display, Formatter, Write};

/// A number of bytes with the largest unit that divides it.
#[derive(Clone, Copy, Debug)]
pub struct Size(pub u64);

impl Display for Size {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (unit, shift) in [('T', 40), ('G', 30), ('M', 20), ('k', 10)] {
            if self.0 != 0 && self.0.trailing_zeros() >= shift {
                return write!(f, "{}{unit}", self.0 >> shift);
            }
        }
        write!(f, "{}", self.0)
    }
}

/// Bytes as one word: plain characters as they are, runs as `{x*200}`, everything else as `%41`.
#[derive(Clone, Copy, Debug)]
pub struct Word<'a>(pub &'a [u8]);

/// Whether `byte` stands for itself in a word.
pub(crate) fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"._/+=:,-".contains(&byte)
}

impl Display for Word<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for run in self.0.chunk_by(|a, b| a == b) {
            match run[0] {
                byte if is_plain(byte) && run.len() > 8 => {
                    write!(f, "{{{}*{}}}", byte as char, run.len())?;
                }
                byte if is_plain(byte) => {
                    run.iter().try_for_each(|_| f.write_char(byte as char))?
                }
                byte => run.iter().try_for_each(|_| write!(f, "%{byte:02x}"))?,
            }
        }
        Ok(())
    }
}

/// Bytes in double quotes, as a script writes them.
#[derive(Clone, Copy, Debug)]
pub struct Quoted<'a>(pub &'a [u8]);

impl Display for Quoted<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("\"")?;
        for &byte in self.0 {
            match byte {
                b'"' | b'\\' => write!(f, "\\{}", byte as char)?,
                b'\n' => f.write_str("\\n")?,
                // These would end an expected answer.
                b';' | b'#' => write!(f, "\\x{byte:02x}")?,
                b' '..=b'~' => write!(f, "{}", byte as char)?,
                _ => write!(f, "\\x{byte:02x}")?,
            }
        }
        f.write_str("\"")
    }
}
