//! Sizes as people write and read them: `4k`, `8G`, `1.5 GiB`.

pub use holdfast_base::show::bytes as show;

/// Bytes of a size like `512`, `4k`, `8G`, `1.5T`; units are powers of 1024, `KiB` and `KB` mean the same. Parts of a byte are left out.
///
/// # Errors
/// It is no size, or has more bytes than 64 bits can say.
pub fn parse(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let (whole, part) =
        number.split_once('.').map_or((number, None), |(it, part)| (it, Some(part)));
    let no_size = || format!("{text:?} is not a size; write it like 512M, 8G or 1.5T");
    let whole: u64 = whole.parse().map_err(|_| no_size())?;
    let unit = unit.trim().to_ascii_lowercase();
    let shift = match unit.trim_end_matches('b').trim_end_matches('i') {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        "p" => 50,
        _ => return Err(format!("{text:?} has a unit that is not k, M, G, T or P")),
    };
    let part = match part {
        None => 0,
        // More digits say nothing of bytes that a volume can have.
        Some(part) if (1..=9).contains(&part.len()) && shift > 0 => {
            let value: u64 = part.parse().map_err(|_| no_size())?;
            ((u128::from(value) << shift) / 10_u128.pow(part.len() as u32)) as u64
        }
        Some(_) => return Err(no_size()),
    };
    let bytes = whole.checked_mul(1 << shift).and_then(|bytes| bytes.checked_add(part));
    bytes.ok_or_else(|| format!("{text} is too large"))
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
        assert_eq!((parse("1.5G"), parse("0.001k")), (Ok(3 << 29), Ok(1)));
        assert_eq!(parse("0.999999999P"), Ok((1 << 50) - 1_125_900));
        let wrong = [
            "",
            "k",
            "8X",
            "-1",
            "8 8",
            "99999999P",
            "1.5",
            ".5G",
            "1.G",
            "1.2.3G",
            "1.0000000001G",
        ];
        for wrong in wrong {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
