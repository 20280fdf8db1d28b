//! Sizes as people write and read them: `4k`, `8G`, `1.5 GiB`.

/// Bytes of a size like `512`, `4k`, `8G`, `1T`; units are powers of 1024, `KiB` and `KB` mean the same.
pub(crate) fn parse(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..digits]
        .parse()
        .map_err(|_| format!("{text:?} is not a size; write it like 512M, 8G or 1T"))?;
    let unit = text[digits..].trim().to_ascii_lowercase();
    let shift = match unit.trim_end_matches('b').trim_end_matches('i') {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        "p" => 50,
        _ => return Err(format!("{text:?} has a unit that is not k, M, G, T or P")),
    };
    number.checked_mul(1 << shift).ok_or_else(|| format!("{text} is too large"))
}

/// A size with one decimal and a unit.
pub(crate) fn show(bytes: u64) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_with_and_without_units() {
        assert_eq!(parse("512"), Ok(512));
        assert_eq!(parse("4k"), Ok(4096));
        assert_eq!(parse("16KiB"), Ok(16384));
        assert_eq!(parse("8G"), Ok(8 << 30));
        assert_eq!(parse("1tb"), Ok(1 << 40));
        for wrong in ["", "k", "8X", "-1", "8 8", "99999999P"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn shown_with_one_decimal() {
        assert_eq!(show(1023), "1023 B");
        assert_eq!(show(1536), "1.5 KiB");
        assert_eq!(show(8 << 30), "8.0 GiB");
    }
}
