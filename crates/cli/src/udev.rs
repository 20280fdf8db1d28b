//! What a volume is, as udev keeps it of a device: the properties that it has from libblkid of other filesystems.
//!
//! A line is a property, and links in /dev get their names from the values. A label is whatever the maker of the device has
//! written, so nothing of it may end a line, leave a directory, or be obeyed by a terminal.

use std::fmt::Write as _;

use holdfast_base::show::is_unseen;

/// The lines for a volume with this id and label.
pub(crate) fn properties(uuid: &str, label: &str) -> String {
    let version = holdfast::FORMAT_VERSION;
    let mut out = format!(
        "ID_FS_TYPE=holdfast\nID_FS_USAGE=filesystem\nID_FS_VERSION={version}\nID_FS_UUID={uuid}\nID_FS_UUID_ENC={uuid}\n"
    );
    if !label.is_empty() {
        let (plain, encoded) = (plain(label), encoded(label));
        // Writing into a String cannot fail.
        let _ = write!(out, "ID_FS_LABEL={plain}\nID_FS_LABEL_ENC={encoded}\n");
    }
    out
}

/// Characters that stay in a label for people.
fn stays(c: char) -> bool {
    match c.is_ascii() {
        true => c.is_ascii_alphanumeric() || "#+-.:=@_".contains(c),
        false => !is_unseen(c) && !c.is_whitespace(),
    }
}

/// A label for people: a run of spaces, and each character that a name in /dev cannot have, is `_`.
fn plain(label: &str) -> String {
    let words: Vec<&str> = label.split_whitespace().collect();
    words.join("_").chars().map(|c| if stays(c) { c } else { '_' }).collect()
}

/// Characters that libblkid leaves as they are in the name of a link: beyond ASCII all that is no control character and that
/// Unicode does not keep for itself. Spaces and what is not seen stay too, or mount(8), which asks libblkid for the name, would
/// not find the link.
fn is_kept(c: char) -> bool {
    let is_reserved = matches!(c, '\u{fdd0}'..='\u{fdef}') || u32::from(c).trailing_ones() >= 16;
    match c.is_ascii() {
        true => stays(c),
        false => !c.is_control() && !is_reserved,
    }
}

/// A label as the name of a link, from which it can be had back: bytes of what cannot stay as `\xNN`. mount(8) looks for
/// `LABEL=` under this name.
fn encoded(label: &str) -> String {
    let is_directory = label == "." || label == "..";
    let mut out = String::new();
    for c in label.chars() {
        match is_kept(c) && !is_directory {
            true => out.push(c),
            false => {
                for byte in c.encode_utf8(&mut [0; 4]).bytes() {
                    // Writing into a String cannot fail.
                    let _ = write!(out, "\\x{byte:02x}");
                }
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_written_as_udev_does() {
        // What `blkid -o udev` prints for an ext4 volume of that label, but for the slash, which ID_FS_LABEL keeps there.
        let known = [
            ("data", "data", "data"),
            ("my data", "my_data", "my\\x20data"),
            (" a  b", "a_b", "\\x20a\\x20\\x20b"),
            ("größe", "größe", "größe"),
            ("a/b", "a_b", "a\\x2fb"),
            ("C#+-.:=@_", "C#+-.:=@_", "C#+-.:=@_"),
            // Of these `blkid` keeps more in ID_FS_LABEL: this holds for the names of links alone.
            ("a\u{a0}b\u{3000}c", "a_b_c", "a\u{a0}b\u{3000}c"),
            ("a\u{200d}\u{202e}b", "a__b", "a\u{200d}\u{202e}b"),
            ("a\u{2028}b\u{fffe}", "a_b\u{fffe}", "a\u{2028}b\u{fffe}"),
            ("\u{fdd0}\u{ffff}", "\u{fdd0}\u{ffff}", "\\xef\\xb7\\x90\\xef\\xbf\\xbf"),
        ];
        for (label, as_words, as_name) in known {
            assert_eq!((plain(label).as_str(), encoded(label).as_str()), (as_words, as_name));
        }
    }

    #[test]
    fn a_label_that_lies_is_one_line_and_no_path() {
        let labels = [
            "a\nID_FS_TYPE=ext4\nSYSTEMD_WANTS=x.service",
            "../../sda",
            "..",
            ".",
            "\"'$(reboot)`$env{X}`%k\\",
            "\u{1b}[2J\r\u{85}\u{2028}\u{202e}gpj",
            "\u{a0}\u{3000}",
        ];
        for label in labels {
            let said = properties("u", label);
            let lines: Vec<&str> = said.split('\n').collect();
            assert_eq!(lines.len(), 8, "{said:?}");
            let names = lines.iter().map(|line| line.split('=').next().unwrap());
            let wanted = ["TYPE", "USAGE", "VERSION", "UUID", "UUID_ENC", "LABEL", "LABEL_ENC"];
            let wanted = wanted.map(|name| format!("ID_FS_{name}"));
            assert!(names.eq(wanted.iter().map(String::as_str).chain([""])), "{said:?}");
            let value = lines[6].split_once('=').unwrap().1;
            assert!(!value.contains('/') && value != "." && value != "..", "{said:?}");
            let is_harmless = |c: char| !c.is_control() && !"\"'$`% ()".contains(c);
            assert!(lines.iter().all(|line| line.chars().all(is_harmless)), "{said:?}");
            let is_seen = |c: char| !is_unseen(c) && !c.is_whitespace();
            assert!(lines[5].chars().all(is_seen), "{said:?}");
        }
    }

    #[test]
    fn a_volume_without_a_label_has_no_property_for_it() {
        assert!(!properties("u", "").contains("LABEL"));
    }
}
