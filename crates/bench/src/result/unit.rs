//! Units, and how a number in each is written for people.

use serde::{Deserialize, Serialize};

/// What the numbers of a column or an axis count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Nothing: words, or a number that needs no unit.
    None,
    /// Things: files, writes, flushes, threads.
    Count,
    /// One thing over another.
    Ratio,
    /// A part of the whole, 0 to 1.
    Share,
    /// Bytes.
    Bytes,
    /// Nanoseconds.
    Nanoseconds,
    /// Operations per second.
    PerSecond,
    /// MiB per second.
    MibPerSecond,
}

impl Unit {
    /// `value` with its unit: `12,345/s`, `4.6 KiB`, `1.50 ms`.
    pub fn show(self, value: f64) -> String {
        match self {
            Unit::None | Unit::Count => number(value),
            // No minus in front of nothing.
            Unit::Ratio if value.abs() < 0.005 => "0.00".into(),
            Unit::Ratio if value.abs() >= 100.0 => number(value.round()),
            Unit::Ratio if value.abs() >= 10.0 => format!("{value:.1}"),
            Unit::Ratio => format!("{value:.2}"),
            Unit::Share => format!("{} %", digits(100.0 * value)),
            Unit::Bytes => bytes(value),
            Unit::Nanoseconds => time(value),
            Unit::PerSecond => format!("{}/s", number(value)),
            Unit::MibPerSecond => format!("{} MiB/s", number(value)),
        }
    }
}

/// Three significant digits, all of a large whole number, and no zeros behind the point of a whole one.
fn number(value: f64) -> String {
    let small = value.abs() < 100.0 && (value - value.round()).abs() > 1e-9;
    if small { digits(value) } else { grouped(value) }
}

/// Two or three significant digits of a small number.
fn digits(value: f64) -> String {
    match value.abs() {
        size if size >= 99.95 => grouped(value),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 0.1 || size == 0.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// A whole number with commas between thousands.
fn grouped(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if value <= -0.5 { format!("-{text}") } else { text }
}

fn bytes(value: f64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = value;
    let mut unit = 0;
    while value.abs() >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 {
        return format!("{} B", grouped(value));
    }
    let text = if value.abs() < 100.0 { format!("{value:.1}") } else { grouped(value) };
    format!("{} {}", text.strip_suffix(".0").unwrap_or(&text), units[unit])
}

fn time(nanos: f64) -> String {
    match nanos.abs() {
        n if n < 999.5 => format!("{nanos:.0} ns"),
        n if n < 999_500.0 => format!("{} µs", significant(nanos / 1e3)),
        n if n < 999_500_000.0 => format!("{} ms", significant(nanos / 1e6)),
        _ => format!("{} s", significant(nanos / 1e9)),
    }
}

/// Three significant digits of a number of at least one.
fn significant(value: f64) -> String {
    match value.abs() {
        size if size < 9.995 => format!("{value:.2}"),
        size if size < 99.95 => format!("{value:.1}"),
        _ => grouped(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_people_write_them() {
        let shown = [
            (Unit::Count, 12_345.6, "12,346"),
            (Unit::Count, 0.25, "0.25"),
            (Unit::Count, 3.0, "3"),
            (Unit::Count, 123.4, "123"),
            (Unit::Count, 0.0, "0"),
            (Unit::Ratio, 1.006, "1.01"),
            (Unit::Ratio, 172.8, "173"),
            (Unit::Ratio, -0.001, "0.00"),
            (Unit::Share, 0.416, "41.6 %"),
            (Unit::Share, 1.0, "100 %"),
            (Unit::Bytes, 512.0, "512 B"),
            (Unit::Bytes, 4096.0, "4 KiB"),
            (Unit::Bytes, 4710.4, "4.6 KiB"),
            (Unit::Nanoseconds, 999.0, "999 ns"),
            (Unit::Nanoseconds, 1_500_000.0, "1.50 ms"),
            (Unit::Nanoseconds, 27_399e6, "27.4 s"),
            (Unit::PerSecond, 1_234_567.0, "1,234,567/s"),
            (Unit::MibPerSecond, 36.6, "36.6 MiB/s"),
            (Unit::None, -1234.0, "-1,234"),
        ];
        for (unit, value, text) in shown {
            assert_eq!(unit.show(value), text, "{unit:?} {value}");
        }
    }
}
