//! What a kernel that remembers a mount must forget.

/// Something of a branch that is otherwise now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Changed {
    /// What a name in a directory leads to.
    Name {
        /// The inode number of the directory.
        dir: u64,
        /// The name.
        name: Box<[u8]>,
    },
    /// Attributes and content of an inode; of a directory its names.
    Inode(u64),
}
