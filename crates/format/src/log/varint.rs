//! Numbers of one to ten bytes: seven bits in each, the lowest first, the upper bit says that more follow.

use crate::Malformed;
use crate::codec::Reader;

/// Appends `number`.
pub(super) fn write(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Takes a number from the front of `reader`. There is one way to write each number.
pub(super) fn read(reader: &mut Reader<'_>, what: &'static str) -> Result<u64, Malformed> {
    let mut number = 0u64;
    for shift in (0..64).step_by(7) {
        let [byte] = reader.array()?;
        let bits = u64::from(byte & 0x7f);
        let lost = shift == 63 && bits > 1;
        if lost || byte == 0 && shift > 0 {
            break;
        }
        number |= bits << shift;
        if byte < 0x80 {
            return Ok(number);
        }
    }
    Err(Malformed::new(what, "a number has no end, or is written longer than it is"))
}

/// A difference, small when it is near 0 on either side.
pub(super) fn zigzag(difference: i64) -> u64 {
    ((difference << 1) ^ (difference >> 63)) as u64
}

/// The difference that [`zigzag`] was given.
pub(super) fn unzigzag(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_survive_the_round_trip_and_have_one_form() {
        for number in [0, 1, 127, 128, 300, 1 << 40, u64::MAX - 1, u64::MAX] {
            let mut out = Vec::new();
            write(number, &mut out);
            let mut reader = Reader::new("test", &out);
            assert_eq!(read(&mut reader, "test"), Ok(number));
            assert!(reader.finish().is_ok());
        }
        for bad in [&[0x80, 0x00][..], &[0x80], &[0xff; 10], &[0xff, 0xff]] {
            assert!(read(&mut Reader::new("test", bad), "test").is_err(), "{bad:?}");
        }
        for difference in [0, 1, -1, i64::MAX, i64::MIN] {
            assert_eq!(unzigzag(zigzag(difference)), difference);
        }
    }
}
