//! What a receive that is not whole is called.
//!
//! Its branch and, in the root of that, the directory in which it keeps what has no place yet, are named after the stream.

const BRANCH: &str = ".receiving-";
const DIRECTORY: &str = ".holdfast-receiving-";

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

/// The parking directory in the root of a branch with this name.
pub(crate) fn directory_in(branch: &str) -> Option<String> {
    branch.strip_prefix(BRANCH).map(|stream| format!("{DIRECTORY}{stream}"))
}

/// Whether a branch of this name is a receive that is not whole.
pub(crate) fn is_receiving(branch: &str) -> bool {
    branch.starts_with(BRANCH)
}
