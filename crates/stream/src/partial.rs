//! What a receive that is not whole is called.
//!
//! Its branch, the directory in the root of that in which it keeps what has no place yet, and the snapshots with which it can go
//! on, are named after the stream. A name alone says little, as users may give any: a snapshot is one of these only if the state
//! in it has its number.

const BRANCH: &str = ".receiving-";
const DIRECTORY: &str = ".holdfast-receiving-";
const RESUME: &str = ".resume-";
/// Digits of the id of a stream.
const DIGITS: usize = 32;

fn hex(stream: &[u8; 16]) -> String {
    stream.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The branch of a receive.
pub(crate) fn branch(stream: &[u8; 16]) -> String {
    format!("{BRANCH}{}", hex(stream))
}

/// The parking directory in its root.
pub(crate) fn directory(stream: &[u8; 16]) -> String {
    format!("{DIRECTORY}{}", hex(stream))
}

/// The snapshot that keeps how far a receive has come, of which the snapshot that is sent is called `sent`: another name.
pub(crate) fn resume_point(stream: &[u8; 16], position: u64, sent: &str) -> String {
    let name = format!("{RESUME}{}-{position}", hex(stream));
    if name == sent { format!("{name}-") } else { name }
}

/// The digits of a stream behind the begin of a name.
fn digits<'a>(name: &'a str, begin: &str) -> Option<(&'a str, &'a str)> {
    let (digits, rest) = name.strip_prefix(begin)?.split_at_checked(DIGITS)?;
    let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    digits.bytes().all(is_hex).then_some((digits, rest))
}

/// The parking directory in the root of a branch with this name, or in that of a snapshot with this name.
pub(crate) fn directory_in(name: &str) -> Option<String> {
    let of_branch = digits(name, BRANCH).filter(|(_, rest)| rest.is_empty());
    let of_snapshot = || digits(name, RESUME).filter(|(_, rest)| rest.starts_with('-'));
    of_branch.or_else(of_snapshot).map(|(stream, _)| format!("{DIRECTORY}{stream}"))
}

/// Whether a branch of this name is a receive that is not whole.
pub(crate) fn is_receiving(branch: &str) -> bool {
    digits(branch, BRANCH).is_some_and(|(_, rest)| rest.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_users_are_not_those_of_a_receive() {
        let stream = [0xab; 16];
        assert!(is_receiving(&branch(&stream)));
        for name in ["main", ".receiving-", ".receiving-mine", ".receiving-é", "receiving"] {
            assert!(!is_receiving(name) && directory_in(name).is_none(), "{name}");
        }
        assert!(!is_receiving(&format!("{}x", branch(&stream))));
        let point = resume_point(&stream, 500, "tuesday");
        assert_eq!(directory_in(&point), Some(directory(&stream)));
        assert_eq!(directory_in(&branch(&stream)), Some(directory(&stream)));
        assert_ne!(resume_point(&stream, 500, &point), point);
        assert!(directory_in("resume-500").is_none() && directory_in(".resume-500").is_none());
    }
}
