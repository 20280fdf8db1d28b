//! Durations as people read them: `350 ns`, `1.7 ms`, `3 min 5 s`; and as they write limits: `0.5 s`.

use std::time::Duration;

pub(crate) use holdfast_base::show::time as show;

/// Seconds as a limit is written: `1`, `0.5`.
pub(crate) fn seconds(time: Duration) -> String {
    format!("{} s", time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_have_no_needless_digits() {
        assert_eq!(seconds(Duration::from_secs(1)), "1 s");
        assert_eq!(seconds(Duration::from_millis(250)), "0.25 s");
    }
}
