//! Bytes for people.

use std::fmt::Write;

/// Sixteen bytes a line, with the offset in front and the printable characters behind.
pub fn dump(bytes: &[u8]) -> String {
    let mut out = String::new();
    for (index, line) in bytes.chunks(16).enumerate() {
        let digits: String = line.iter().map(|byte| format!("{byte:02x} ")).collect();
        let text: String = line
            .iter()
            .map(|&byte| if (0x20..0x7f).contains(&byte) { byte as char } else { '.' })
            .collect();
        // Writing into a String cannot fail.
        let _ = writeln!(out, "{:06x}  {digits:<48} {text}", index * 16);
    }
    out
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_short_last_line_is_padded() {
        assert_eq!(
            super::dump(b"Holdfast"),
            format!("000000  {:<48} Holdfast\n", "48 6f 6c 64 66 61 73 74 ")
        );
    }
}
