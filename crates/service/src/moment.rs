//! Moments as people read them.

/// The form of ISO 8601.
pub const ISO: &str = "%Y-%m-%dT%H:%M:%SZ";

/// A moment in UTC, from seconds since 1970, in a form of strftime(3).
pub fn utc(seconds: i64, form: &str) -> String {
    match jiff::Timestamp::from_second(seconds) {
        Ok(moment) => moment.strftime(form).to_string(),
        Err(_) => format!("{seconds} s after 1970"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_in_utc() {
        let of = |seconds| utc(seconds, "%Y-%m-%d %H:%M");
        assert_eq!(of(0), "1970-01-01 00:00");
        assert_eq!(of(951_782_400), "2000-02-29 00:00");
        assert_eq!(of(-60), "1969-12-31 23:59");
        assert_eq!(of(i64::MIN), "-9223372036854775808 s after 1970");
    }
}
