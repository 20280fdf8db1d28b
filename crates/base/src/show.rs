//! Numbers as people read them: `3 flushes`, `1.5 KiB`, `20.0 us`.
//!
//! For sentences that every floor may have to say. Units of bytes are powers
//! of 1024, and names that a program reads get numbers as they are instead.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::time::Duration;

/// `Debug` of types whose content says nothing in a log: their names.
#[macro_export]
macro_rules! opaque {
    ($($name:ident),+) => {
        $(impl ::std::fmt::Debug for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.write_str(stringify!($name))
            }
        })+
    };
}

/// A number of things: `1 batch`, `2 batches`.
pub fn count(number: u64, thing: &str) -> String {
    if number == 1 {
        return format!("1 {thing}");
    }
    match thing.strip_suffix("ry") {
        Some(stem) => format!("{number} {stem}ries"),
        None if thing.ends_with("ch") || thing.ends_with("sh") => format!("{number} {thing}es"),
        None => format!("{number} {thing}s"),
    }
}

/// A size with one decimal and a unit.
pub fn bytes(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    match unit {
        0 => format!("{bytes} B"),
        _ => format!("{value:.1} {}", units[unit]),
    }
}

/// A time: one decimal below a minute, whole seconds above.
pub fn time(time: Duration) -> String {
    let nanos = time.as_nanos();
    let with_fraction = |unit: f64, name: &str| format!("{:.1} {name}", nanos as f64 / unit);
    match nanos {
        0 => "0 s".into(),
        1..1_000 => format!("{nanos} ns"),
        // Rounded to one decimal, the last of a unit would be the first of the next.
        1_000..999_950 => with_fraction(1e3, "us"),
        999_950..999_950_000 => with_fraction(1e6, "ms"),
        999_950_000..59_950_000_000 => with_fraction(1e9, "s"),
        _ => {
            let seconds = (nanos + 500_000_000) / 1_000_000_000;
            match seconds / 3600 {
                0 => format!("{} min {} s", seconds / 60, seconds % 60),
                hours => format!("{hours} h {} min", seconds % 3600 / 60),
            }
        }
    }
}

/// Whether a character is not seen itself, but obeyed by a terminal, or changes how others look: controls, marks of direction,
/// line separators, and what Unicode calls format characters.
pub fn is_unseen(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}')
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}')
        || matches!(c, '\u{e0000}'..='\u{e0fff}')
}

/// Text from outside, as a terminal may see it: characters that it would obey, or that only change how others look
/// (controls, marks of direction, line separators), are written as in Rust and JSON. Quotes and backslashes stay.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(is_unseen) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match is_unseen(c) {
            true => out.extend(c.escape_default()),
            false => out.push(c),
        }
    }
    Cow::Owned(out)
}

/// A name for people: characters that are not seen, backslashes and bytes that are not UTF-8 escaped.
pub fn name(name: &[u8]) -> String {
    let mut out = String::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\\' => out.push_str("\\\\"),
                c if is_unseen(c) => out.extend(c.escape_default()),
                c => out.push(c),
            }
        }
        for byte in chunk.invalid() {
            // Writing into a String cannot fail.
            let _ = write!(out, "\\x{byte:02x}");
        }
    }
    out
}

/// As [`time`], of so many nanoseconds.
pub fn nanos(nanos: u64) -> String {
    time(Duration::from_nanos(nanos))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_has_no_plural() {
        let of = |number| [count(number, "batch"), count(number, "flush"), count(number, "write")];
        assert_eq!(of(1), ["1 batch", "1 flush", "1 write"]);
        assert_eq!(of(2), ["2 batches", "2 flushes", "2 writes"]);
        assert_eq!(count(0, "record"), "0 records");
    }

    #[test]
    fn a_name_shows_what_would_only_change_how_others_look() {
        assert_eq!(name("größe 日本 e\u{301}".as_bytes()), "größe 日本 e\u{301}");
        assert_eq!(
            name("gpj\u{202e}exe\u{2066}\u{200f}".as_bytes()),
            "gpj\\u{202e}exe\\u{2066}\\u{200f}"
        );
        assert_eq!(name(b"a\n\x1b\\\xff"), "a\\n\\u{1b}\\\\\\xff");
    }

    #[test]
    fn sizes_have_one_decimal() {
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(8 << 30), "8.0 GiB");
    }

    #[test]
    fn times_are_shown_in_the_unit_that_fits() {
        assert_eq!(nanos(0), "0 s");
        assert_eq!(nanos(350), "350 ns");
        assert_eq!(nanos(1_700_000), "1.7 ms");
        assert_eq!(nanos(999_949), "999.9 us");
        assert_eq!(nanos(999_951), "1.0 ms");
        assert_eq!(nanos(2_000_000_000), "2.0 s");
        assert_eq!(nanos(59_960_000_000), "1 min 0 s");
        assert_eq!(nanos(185_000_000_000), "3 min 5 s");
        assert_eq!(nanos(7_500_000_000_000), "2 h 5 min");
    }

    #[test]
    fn what_a_terminal_would_obey_is_written_out() {
        assert_eq!(printable("/srv/größe \\ 'a\" é 日本"), "/srv/größe \\ 'a\" é 日本");
        assert!(matches!(printable("plain"), Cow::Borrowed(_)));
        assert_eq!(printable("a\x1b[2J\n\u{9b}b\x7f"), "a\\u{1b}[2J\\n\\u{9b}b\\u{7f}");
        assert_eq!(printable("gpj\u{202e}exe"), "gpj\\u{202e}exe");
        assert_eq!(printable("e\u{301}"), "e\u{301}");
    }
}
