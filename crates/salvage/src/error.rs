//! Why nothing could be salvaged.

use holdfast_check::CheckError;

/// Why there is nothing to copy.
#[derive(Debug, thiserror::Error)]
pub enum SalvageError {
    /// Neither a superblock nor a node of any volume was found.
    #[error("nothing of a Holdfast volume was found")]
    Nothing,
    /// Nothing says where trees begin.
    #[error("no superblock is valid: `holdfast salvage` copies files all the same")]
    NoSuperblock,
    /// There is no volume with the tag that was asked for.
    #[error("no volume of this tag was found; --list shows those that were")]
    NoSuchVolume,
    /// There is no node of a files tree at the block that was asked for.
    #[error("no root was found at this block; --list shows those that were")]
    NoSuchRoot,
    /// There is no state as old as the one that was asked for.
    #[error("no file is known of epoch {0} or before: the oldest that is left is of epoch {1}")]
    NoSuchEpoch(u64, u64),
    /// There is no branch or snapshot of the name that was asked for.
    #[error("no branch or snapshot {0:?} was found; --list shows those that were")]
    NoSuchTree(String),
    /// The volume is of a program that this one is too old or too new for.
    #[error("{0}")]
    OtherProgram(String),
    /// The device cannot be read at all.
    #[error(transparent)]
    Check(#[from] CheckError),
    /// No other names with hashes in the same order were found.
    #[error(
        "no other names were found for those of inode {0}, which are short and many: nothing was copied"
    )]
    NamesStay(u64),
    /// What takes the files refuses all of them.
    #[error("writing the files: {0}")]
    Destination(#[from] std::io::Error),
}
