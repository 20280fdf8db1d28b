//! Bytes taken as a program: choices and numbers, one after the other.
//!
//! Always true: any bytes are a program; behind their end there are zeros. A
//! byte means the same wherever a fuzzer moves it to, and small changes of
//! the bytes are small changes of the program.

/// Reads a program.
#[derive(Clone, Debug)]
pub struct Program<'a>(&'a [u8]);

impl<'a> Program<'a> {
    /// The program that these bytes are.
    pub fn new(bytes: &'a [u8]) -> Program<'a> {
        Program(bytes)
    }

    /// Whether all was read.
    pub fn is_over(&self) -> bool {
        self.0.is_empty()
    }

    /// The next byte, 0 behind the end.
    pub fn byte(&mut self) -> u8 {
        match self.0.split_first() {
            Some((first, rest)) => {
                self.0 = rest;
                *first
            }
            None => 0,
        }
    }

    /// A choice below `limit`, which must not be 0. Takes one byte, or two if one is not enough.
    pub fn below(&mut self, limit: usize) -> usize {
        match limit {
            0..=256 => usize::from(self.byte()) % limit,
            _ => self.u16() % limit,
        }
    }

    /// Two bytes.
    pub fn u16(&mut self) -> usize {
        usize::from(u16::from_le_bytes([self.byte(), self.byte()]))
    }

    /// As many bytes as the next byte says, at most `most` and not more than there are.
    pub fn bytes(&mut self, most: usize) -> &'a [u8] {
        let count = usize::from(self.byte()).min(most).min(self.0.len());
        let (head, rest) = self.0.split_at(count);
        self.0 = rest;
        head
    }

    fn literal(&mut self, bytes: usize) -> u64 {
        (0..bytes).fold(0, |number, at| number | u64::from(self.byte()) << (8 * at))
    }

    /// A number: literal, near `old`, near the ends of what fits, or near one of `known`.
    pub fn number(&mut self, old: u64, known: &[u64]) -> u64 {
        match self.byte() % 16 {
            0 => self.literal(1),
            1 => self.literal(2),
            2 => self.literal(4),
            3 => self.literal(8),
            4 => old.wrapping_add(1 + u64::from(self.byte())),
            5 => old.wrapping_sub(1 + u64::from(self.byte())),
            6 => old ^ 1 << (self.byte() % 64),
            7 => 1 << (self.byte() % 64),
            8 => (1 << (self.byte() % 64)) - 1,
            9 => u64::MAX - u64::from(self.byte()),
            10 => 0,
            _ if known.is_empty() => old,
            11 | 12 => known[self.below(known.len())],
            13 => known[self.below(known.len())].wrapping_add(self.byte().into()),
            14 => known[self.below(known.len())].wrapping_sub(self.byte().into()),
            _ => old,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_never_ends_in_an_error() {
        let mut program = Program::new(&[3, 1, 2]);
        assert_eq!(program.bytes(9), [1, 2]);
        assert!(program.is_over());
        assert_eq!((program.byte(), program.u16(), program.below(1000)), (0, 0, 0));
        assert_eq!(program.number(7, &[]), 0);
        let mut program = Program::new(&[1, 0x34, 0x12, 4, 0, 11, 1]);
        assert_eq!(program.number(0, &[]), 0x1234);
        assert_eq!(program.number(u64::MAX, &[]), 0);
        assert_eq!(program.number(0, &[5, 6]), 6);
    }
}
