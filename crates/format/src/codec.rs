//! Little-endian reader and writer. The reader checks bounds, the writer trusts its caller's buffer.

use crate::Malformed;

/// Takes numbers from the front of a byte slice.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    what: &'static str,
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Reads `bytes`; errors name `what`.
    pub fn new(what: &'static str, bytes: &'a [u8]) -> Reader<'a> {
        Reader { what, rest: bytes }
    }

    /// The next `count` bytes.
    pub fn bytes(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        match self.rest.split_at_checked(count) {
            Some((head, rest)) => {
                self.rest = rest;
                Ok(head)
            }
            None => Err(Malformed::new(
                self.what,
                format!("{count} bytes wanted, {} left", self.rest.len()),
            )),
        }
    }

    /// The next `N` bytes.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        match self.rest.split_first_chunk::<N>() {
            Some((head, rest)) => {
                self.rest = rest;
                Ok(*head)
            }
            None => Err(Malformed::new(
                self.what,
                format!("{N} bytes wanted, {} left", self.rest.len()),
            )),
        }
    }

    /// Everything not yet read.
    pub fn rest(self) -> &'a [u8] {
        self.rest
    }

    /// Fails unless everything was read.
    pub fn finish(self) -> Result<(), Malformed> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(Malformed::new(self.what, format!("{} bytes too many", self.rest.len())))
        }
    }
}

/// A value of fixed size on disk.
pub trait Fixed: Sized {
    /// Bytes on disk.
    const SIZE: usize;
    /// Its name in the tables of FORMAT.
    const NAME: &'static str;
    /// Reads one value.
    fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed>;
    /// Writes the value to `place`, which has its size.
    fn put(&self, place: &mut [u8]);
    /// Appends the value to `out`.
    fn write(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.resize(start + Self::SIZE, 0);
        self.put(&mut out[start..]);
    }
}

macro_rules! fixed_number {
    ($($type:ty),*) => {$(
        impl Fixed for $type {
            const SIZE: usize = size_of::<$type>();
            const NAME: &'static str = stringify!($type);
            fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
                Ok(<$type>::from_le_bytes(reader.array()?))
            }
            fn put(&self, place: &mut [u8]) {
                place.copy_from_slice(&self.to_le_bytes());
            }
        }
    )*};
}

fixed_number!(u8, u16, u32, u64, i64);

impl<const N: usize> Fixed for [u8; N] {
    const SIZE: usize = N;
    const NAME: &'static str = "bytes";
    fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        reader.array()
    }
    fn put(&self, place: &mut [u8]) {
        place.copy_from_slice(self);
    }
}
