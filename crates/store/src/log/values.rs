//! The values of pending changes, in one piece of memory: it grows with few allocations, and goes as a whole.
//!
//! A value that is replaced by a longer one moves to the end, with room for twice as much: so one that grows step by
//! step takes no more than four times its greatest length. Nothing ever shrinks: memory is counted by
//! [`Values::bytes`].

use std::ops::Range;

/// Where a value lies.
#[derive(Clone, Copy, Debug)]
pub(super) struct Value {
    at: u32,
    len: u32,
    room: u32,
}

impl Value {
    /// No byte.
    pub(super) const EMPTY: Value = Value { at: 0, len: 0, room: 0 };

    fn range(self) -> Range<usize> {
        self.at as usize..(self.at + self.len) as usize
    }

    /// Bytes.
    pub(super) fn len(&self) -> usize {
        self.len as usize
    }
}

/// The values of one generation.
#[derive(Debug, Default)]
pub(super) struct Values {
    bytes: Vec<u8>,
}

impl Values {
    /// Takes a value in.
    pub(super) fn add(&mut self, bytes: &[u8]) -> Value {
        self.add_with_room(bytes, bytes.len())
    }

    /// Takes a value in instead of `old`.
    pub(super) fn replace(&mut self, old: Value, bytes: &[u8]) -> Value {
        if bytes.len() > old.room as usize {
            let room = if old.room > 0 { 2 * bytes.len() } else { bytes.len() };
            return self.add_with_room(bytes, room);
        }
        let value = Value { len: bytes.len() as u32, ..old };
        self.bytes[value.range()].copy_from_slice(bytes);
        value
    }

    /// The bytes of a value.
    pub(super) fn get(&self, value: Value) -> &[u8] {
        &self.bytes[value.range()]
    }

    /// Bytes of all values, and of those that were replaced.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Bytes for which there is memory.
    pub(super) fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Forgets all of them, but keeps the memory.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
    }

    fn add_with_room(&mut self, bytes: &[u8], room: usize) -> Value {
        let at = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        self.bytes.resize(at + room, 0);
        assert!(self.bytes.len() <= u32::MAX as usize, "a generation holds a few batches");
        Value { at: at as u32, len: bytes.len() as u32, room: room as u32 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_grows_takes_four_times_its_greatest_length_at_most() {
        let mut values = Values::default();
        let (first, last) = (values.add(b"first"), values.add(b""));
        let mut grows = values.add(b"a");
        for len in 1..2000 {
            let bytes = vec![len as u8; len];
            grows = values.replace(grows, &bytes);
            assert_eq!(values.get(grows), bytes);
        }
        assert!(values.bytes() < 4 * 2000 + 6, "{} bytes", values.bytes());
        let before = values.bytes();
        for len in [0, 7, 1999, 3] {
            grows = values.replace(grows, &vec![7; len]);
            assert_eq!((grows.len(), values.bytes()), (len, before));
        }
        assert_eq!((values.get(first), values.get(last)), (&b"first"[..], &b""[..]));
    }
}
