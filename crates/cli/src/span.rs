//! Durations as people read them: `350 ns`, `1.7 ms`, `2.0 s`, `3 min 5 s`.

use std::time::Duration;

/// Three figures or fewer below a minute, whole seconds above.
pub(crate) fn show(time: Duration) -> String {
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

/// Seconds as a limit is written: `1`, `0.5`.
pub(crate) fn seconds(time: Duration) -> String {
    format!("{} s", time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shown_in_the_unit_that_fits() {
        let of = |nanos: u64| show(Duration::from_nanos(nanos));
        assert_eq!(of(0), "0 s");
        assert_eq!(of(350), "350 ns");
        assert_eq!(of(1_700_000), "1.7 ms");
        assert_eq!(of(999_949), "999.9 us");
        assert_eq!(of(999_951), "1.0 ms");
        assert_eq!(of(2_000_000_000), "2.0 s");
        assert_eq!(of(59_960_000_000), "1 min 0 s");
        assert_eq!(of(185_000_000_000), "3 min 5 s");
        assert_eq!(of(7_500_000_000_000), "2 h 5 min");
    }

    #[test]
    fn limits_have_no_needless_digits() {
        assert_eq!(seconds(Duration::from_secs(1)), "1 s");
        assert_eq!(seconds(Duration::from_millis(250)), "0.25 s");
    }
}
