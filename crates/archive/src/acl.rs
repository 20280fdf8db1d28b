//! Access control lists as text, which GNU tar, star and bsdtar write, into the value of the extended attribute.

/// The attribute for `SCHILY.acl.access`.
pub(crate) const ACCESS: &[u8] = b"system.posix_acl_access";
/// The attribute for `SCHILY.acl.default`.
pub(crate) const DEFAULT: &[u8] = b"system.posix_acl_default";

const VERSION: u32 = 2;
const NO_ID: u32 = u32::MAX;

/// `user::rwx,user:1000:r-x,group::r-x,mask::rwx,other::r--`, by commas or lines. A user is a number, or a name with the
/// number behind as star and bsdtar have it (`user:alice:r-x:1000`). `None` if it is no list, or has a name alone: names
/// are known to systems, not to volumes.
pub(crate) fn value(text: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(text).ok()?;
    let mut entries = Vec::new();
    for entry in text.split([',', '\n']) {
        let entry = entry.split('#').next().unwrap_or_default().trim();
        if !entry.is_empty() {
            entries.push(one(entry)?);
        }
    }
    entries.sort_unstable();
    let mut value = VERSION.to_le_bytes().to_vec();
    for (tag, id, perm) in entries {
        value.extend_from_slice(&tag.to_le_bytes());
        value.extend_from_slice(&perm.to_le_bytes());
        value.extend_from_slice(&id.to_le_bytes());
    }
    Some(value)
}

fn one(entry: &str) -> Option<(u16, u32, u16)> {
    let mut parts = entry.split(':').map(str::trim);
    let kind = parts.next()?;
    let mut who = parts.next()?;
    let mut perm = parts.next();
    if matches!(kind, "mask" | "m" | "other" | "o") && perm.is_none() {
        (perm, who) = (Some(who), "");
    }
    let id = match (parts.next(), who) {
        (_, "") => NO_ID,
        (Some(number), _) => number.parse().ok()?,
        (None, who) => who.parse().ok()?,
    };
    let tag = match (kind, who.is_empty()) {
        ("user" | "u", true) => 0x01,
        ("user" | "u", false) => 0x02,
        ("group" | "g", true) => 0x04,
        ("group" | "g", false) => 0x08,
        ("mask" | "m", true) => 0x10,
        ("other" | "o", true) => 0x20,
        _ => return None,
    };
    let bits = perm?.chars().try_fold(0, |bits, letter| {
        Some(
            bits | match letter {
                'r' => 4,
                'w' => 2,
                'x' => 1,
                '-' => 0,
                _ => return None,
            },
        )
    })?;
    Some((tag, id, bits))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_becomes_the_value() {
        let wanted: Vec<u8> = [
            &2u32.to_le_bytes()[..],
            &[1, 0, 7, 0, 255, 255, 255, 255],
            &[2, 0, 5, 0, 232, 3, 0, 0],
            &[4, 0, 5, 0, 255, 255, 255, 255],
            &[16, 0, 7, 0, 255, 255, 255, 255],
            &[32, 0, 4, 0, 255, 255, 255, 255],
        ]
        .concat();
        for text in [
            "user::rwx,user:1000:r-x,group::r-x,mask::rwx,other::r--",
            "user::rwx\nuser:alice:r-x:1000\ngroup::r-x\nmask::rwx\nother::r--\n",
            "u::rwx, g::rx, u:1000:rx, m:rwx, o:r # odd",
        ] {
            assert_eq!(value(text.as_bytes()).as_ref(), Some(&wanted), "{text}");
        }
        for wrong in ["user:alice:r-x", "user::rwz", "x::r", "user", "mask:5:r", "\u{fffd}"] {
            assert_eq!(value(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
