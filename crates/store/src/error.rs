//! What can go wrong in the store: the disk says nonsense, the device refuses, or space is gone.

use holdfast_base::{BlockNo, InodeNo, TreeId};
use holdfast_device::DeviceError;
use holdfast_format::Malformed;

/// Why a call of the store failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The device refused.
    #[error(transparent)]
    Device(DeviceError),
    /// The device reads nothing any more, wherever it is asked.
    #[error("the device does not answer, and what it did not read is not judged: {source}")]
    NoAnswer {
        /// What it said last.
        source: DeviceError,
    },
    /// The device refuses the place of data that an fsync made durable in the log. The log keeps it.
    #[error("block {block} cannot be written, and only the log holds its data: {source}")]
    NoPlace {
        /// Where the data belongs.
        block: BlockNo,
        /// What the device said.
        source: DeviceError,
    },
    /// A volume cannot become smaller: a block that would have to move does not read.
    #[error("block {block} does not read, and would have to move: {source}")]
    CannotMove {
        /// Where it is.
        block: BlockNo,
        /// The trees that have it, by their numbers, and the files in each.
        owners: Vec<(u64, InodeNo)>,
        /// What the device said.
        source: Box<DeviceError>,
    },
    /// A node is not what the format allows.
    #[error("node at block {block} of the {tree:?} tree is damaged: {source}; run fsck")]
    Node {
        /// Its first block.
        block: BlockNo,
        /// Its tree.
        tree: TreeId,
        /// What is wrong with it.
        source: Malformed,
    },
    /// An item is not what the format allows.
    #[error("{what} is damaged: {source}; run fsck")]
    Item {
        /// Which item.
        what: String,
        /// What is wrong with it.
        source: Malformed,
    },
    /// No superblock is valid.
    #[error(
        "not a Holdfast volume, or both superblocks are damaged: {}; `holdfast salvage --list` finds what is left of one",
        .first.and(.second)
    )]
    NoSuperblock {
        /// What is wrong with slot 0.
        first: Malformed,
        /// What is wrong with slot 1.
        second: Malformed,
    },
    /// The volume does not fit the device, or is otherwise not to be opened.
    #[error("{0}")]
    Refused(String),
    /// It cannot be done with branches and snapshots as they are.
    #[error(transparent)]
    Lineage(#[from] LineageError),
    /// A snapshot has blocks that were to be changed where they are: others must be taken.
    #[error("a snapshot has these blocks as well")]
    Shared,
    /// Not enough space for the operation.
    #[error("no space left on the volume, or on the host of its image")]
    NoSpace,
    /// It would change more of the trees at once than memory is set aside for.
    #[error("it would change too much at once: do it in parts")]
    TooLarge,
    /// The branch would refer to more blocks than its limit allows.
    #[error("the branch has reached its limit")]
    Limit,
    /// The volume was opened for reading only.
    #[error("the volume is read-only")]
    ReadOnly,
    /// An earlier write or flush failed; nothing is written any more.
    #[error("the volume stopped after an error: {0}")]
    Stopped(String),
}

impl StoreError {
    /// What it says of a place that was read, without the number that Rust appends to errors of the system, which people cannot use.
    pub fn in_words(&self) -> String {
        let mut words = match self {
            StoreError::Device(DeviceError::Io { source, .. }) => {
                format!("it does not read: {source}")
            }
            other => other.to_string(),
        };
        if let Some(at) = words.find(" (os error ") {
            words.truncate(at);
        }
        words
    }

    /// The same within a sentence that says itself what is to be run.
    pub(crate) fn as_reason(&self) -> String {
        let words = self.in_words();
        words.strip_suffix("; run fsck").unwrap_or(&words).to_owned()
    }
}

impl From<DeviceError> for StoreError {
    fn from(error: DeviceError) -> StoreError {
        match error {
            // It was not asked.
            DeviceError::Stopped(reason) => StoreError::Stopped(reason),
            error => StoreError::Device(error),
        }
    }
}

/// Why something cannot be done with branches and snapshots.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LineageError {
    /// There is one of this name.
    #[error("`{0}` exists already")]
    Exists(String),
    /// There is no branch of this name.
    #[error("there is no branch `{0}`; `holdfast branch list` shows them")]
    NoBranch(String),
    /// The branch has no snapshot of this name.
    #[error("there is no snapshot `{0}`; `holdfast snapshot list` shows them")]
    NoSnapshot(String),
    /// What had this name or number is gone.
    #[error("there is no `{0}`")]
    Gone(String),
    /// A name has rules.
    #[error("{0}")]
    Name(&'static str),
    /// It is held.
    #[error("`{snapshot}` is held by `{tags}`: `unhold` it first")]
    Held {
        /// The snapshot.
        snapshot: String,
        /// The tags that hold it.
        tags: String,
    },
    /// There is a hold of this tag.
    #[error("`{snapshot}` is held by `{tag}` already")]
    HeldAlready {
        /// The snapshot.
        snapshot: String,
        /// The tag that holds it.
        tag: String,
    },
    /// There is no hold of this tag.
    #[error("`{snapshot}` is not held by `{tag}`")]
    NotHeld {
        /// The snapshot.
        snapshot: String,
        /// The tag that does not hold it.
        tag: String,
    },
    /// Other branches have grown out of it.
    #[error("`{snapshot}` has forks, which need it: {forks}")]
    HasForks {
        /// The snapshot.
        snapshot: String,
        /// Their names.
        forks: String,
    },
    /// The first branch stays.
    #[error("the branch that the volume was made with cannot be deleted; it can be rolled back")]
    First,
    /// A snapshot does not change.
    #[error("a snapshot does not change; fork it")]
    Snapshot,
}
