//! Numbers as archives write them.

use holdfast_base::Timestamp;

/// A number of a header: octal digits between spaces and zero bytes, or, where GNU tar needs more room, binary. A field
/// without digits is zero. `None` for anything else.
pub(crate) fn of_field(field: &[u8]) -> Option<i128> {
    match field.first()? {
        0x80 | 0xff => {
            let negative = field[0] == 0xff;
            let digits = field.get(1..)?;
            if digits.len() > 15 {
                return None;
            }
            let start = if negative { -1 } else { 0 };
            Some(digits.iter().fold(start, |sum: i128, byte| (sum << 8) | i128::from(*byte)))
        }
        _ => {
            let text = field.split(|byte| *byte == 0).next()?;
            let text = std::str::from_utf8(text).ok()?.trim_matches(' ');
            match text.is_empty() {
                true => Some(0),
                false if text.starts_with(['+', '-']) => None,
                false => i128::from_str_radix(text, 8).ok(),
            }
        }
    }
}

/// A number without a sign.
pub(crate) fn unsigned(field: &[u8]) -> Option<u64> {
    u64::try_from(of_field(field)?).ok()
}

/// A decimal number without a sign, of a pax record.
pub(crate) fn decimal(text: &[u8]) -> Option<u64> {
    let digits = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    digits.then(|| std::str::from_utf8(text).ok()?.parse().ok()).flatten()
}

/// `-1.5` and the like: seconds since 1970. Digits beyond nanoseconds are cut off, towards the past.
pub(crate) fn time(text: &[u8]) -> Option<Timestamp> {
    let (negative, text) = match text.split_first()? {
        (b'-', rest) => (true, rest),
        _ => (false, text),
    };
    let (whole, part) = match text.iter().position(|byte| *byte == b'.') {
        Some(at) => (&text[..at], &text[at + 1..]),
        None => (text, &b""[..]),
    };
    if !part.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let whole = i64::try_from(decimal(whole)?).ok()?;
    let nanos = (0..9)
        .fold(0, |sum: u32, at| sum * 10 + u32::from(part.get(at).copied().unwrap_or(b'0') - b'0'));
    let is_cut = part.iter().skip(9).any(|digit| *digit != b'0');
    match negative {
        false => Some(Timestamp { secs: whole, nanos }),
        true => {
            let nanos = nanos + u32::from(is_cut);
            Some(match nanos {
                0 => Timestamp { secs: -whole, nanos: 0 },
                1_000_000_000 => Timestamp { secs: (-whole).checked_sub(1)?, nanos: 0 },
                nanos => Timestamp { secs: (-whole).checked_sub(1)?, nanos: 1_000_000_000 - nanos },
            })
        }
    }
}

/// The shortest text that [`time`] reads back.
pub(crate) fn time_text(time: Timestamp) -> String {
    let (sign, secs, nanos) = match (time.secs < 0, time.nanos) {
        (false, nanos) => ("", time.secs.unsigned_abs(), nanos),
        (true, 0) => ("-", time.secs.unsigned_abs(), 0),
        (true, nanos) => ("-", time.secs.unsigned_abs() - 1, 1_000_000_000 - nanos),
    };
    match nanos {
        0 => format!("{sign}{secs}"),
        _ => format!("{sign}{secs}.{nanos:09}").trim_end_matches('0').to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_come_back() {
        for (secs, nanos, text) in [
            (0, 0, "0"),
            (1_700_000_000, 5, "1700000000.000000005"),
            (1, 500_000_000, "1.5"),
            (-1, 0, "-1"),
            (-1, 500_000_000, "-0.5"),
            (-2, 250_000_000, "-1.75"),
            (i64::MAX, 999_999_999, "9223372036854775807.999999999"),
        ] {
            let moment = Timestamp { secs, nanos };
            assert_eq!(time_text(moment), text);
            assert_eq!(time(text.as_bytes()), Some(moment), "{text}");
        }
        assert_eq!(time(b"1.2345678919"), Some(Timestamp { secs: 1, nanos: 234_567_891 }));
        assert_eq!(time(b"-0.0000000001"), Some(Timestamp { secs: -1, nanos: 999_999_999 }));
        for wrong in [&b""[..], b"-", b".5", b"1.x", b"--1", b"1e5", b"99999999999999999999"] {
            assert_eq!(time(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn fields_are_octal_or_binary() {
        assert_eq!(of_field(b"0000644\0"), Some(0o644));
        assert_eq!(of_field(b"   644 \0"), Some(0o644));
        assert_eq!(of_field(b"\0\0\0\0\0\0\0\0"), Some(0));
        assert_eq!(of_field(&[0x80, 0, 0, 0, 1, 0, 0, 0]), Some(1 << 24));
        assert_eq!(of_field(&[0xff; 12]), Some(-1));
        assert_eq!(of_field(b"-1\0"), None);
        assert_eq!(of_field(b"9\0"), None);
        assert_eq!(of_field(&[0x81, 0]), None);
        assert_eq!(unsigned(&[0xff; 12]), None);
    }
}
