//! Sizes as people write and read them: `4k`, `8G`, `1.5 GiB`.

pub use holdfast_base::show::bytes as show;

/// Bytes of a size like `512`, `4k`, `8G`, `1T`; units are powers of 1024, `KiB` and `KB` mean the same.
pub fn parse(text: &str) -> Result<u64, String> {
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
}
