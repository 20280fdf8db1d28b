//! The switches that exist to be measured: each mechanism, and the published "before" beside it; and ways that
//! not every machine has.
//!
//! A switch is read at the one place that carries its mechanism out; nothing
//! else in the program asks which position it is in. What was done before is
//! there with the feature `before` only, in `holdfast-dev` and in tests; without it such a
//! switch has one position, and asking costs nothing.

use std::fmt;
use std::str::FromStr;

macro_rules! switch {
    ($(#[doc = $doc:literal])* $name:ident ($option:literal) {
        $($(#[doc = $position_doc:literal])* $position:ident = $word:literal,)*
    } $(before {
        $($(#[doc = $before_doc:literal])* $before:ident = $before_word:literal,)*
    })?) => {
        $(#[doc = $doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name {
            $($(#[doc = $position_doc])* $position,)*
            $($($(#[doc = $before_doc])* #[cfg(feature = "before")] $before,)*)?
        }

        impl $name {
            /// The option's name.
            pub const OPTION: &'static str = $option;
            /// Every position that this program has, the usual one first.
            pub const ALL: &'static [$name] = &[
                $($name::$position,)*
                $($(#[cfg(feature = "before")] $name::$before,)*)?
            ];
            /// The words of what was done before, whether this program has it or not.
            const BEFORE: &'static [&'static str] = &[$($($before_word,)*)?];

            /// The position as users write it.
            pub fn word(self) -> &'static str {
                match self {
                    $($name::$position => $word,)*
                    $($(#[cfg(feature = "before")] $name::$before => $before_word,)*)?
                }
            }
        }

        impl Default for $name {
            fn default() -> $name {
                $name::ALL[0]
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.word())
            }
        }

        impl FromStr for $name {
            type Err = String;

            fn from_str(word: &str) -> Result<$name, String> {
                let found = $name::ALL.iter().copied().find(|position| position.word() == word);
                found.ok_or_else(|| {
                    let words: Vec<_> = $name::ALL.iter().map(|position| position.word()).collect();
                    not_here($option, word, $name::BEFORE, &words)
                })
            }
        }
    };
}

/// The sentence for a word that is no position, or none of this program.
fn not_here(option: &str, word: &str, before: &[&str], words: &[&str]) -> String {
    match before.contains(&word) {
        true => format!(
            "option {option}={word} is what was done before, which only the program holdfast-dev has, to measure it; \
             `make dev` in Holdfast's source builds it"
        ),
        false => format!("option {option}={word} is not one of {}", words.join(", ")),
    }
}

switch! {
    /// Which way the kernel's requests come.
    Transport("transport") {
        /// Through rings if the kernel offers them, otherwise through the device.
        Auto = "auto",
        /// Through /dev/fuse.
        Device = "device",
        /// Through rings, or not at all.
        Rings = "rings",
    }
}

switch! {
    /// Which side opens regular files of a mount.
    Opens("open") {
        /// The server is asked, and keeps a handle for each: every handle gets the error of a failed write (P7).
        Server = "server",
        /// The kernel, which checks permissions, too; the server is told neither of an open file nor of its end.
        Kernel = "kernel",
    }
}

switch! {
    /// Whether the root of a mount has a directory `.snapshots`, and whether listings show it.
    SnapDir("snapdir") {
        /// It can be named, and is not listed.
        Hidden = "hidden",
        /// It is listed, too.
        Visible = "visible",
        /// There is none.
        Off = "off",
    }
}

switch! {
    /// Which callers of a mount act as the owner of its root directory.
    Squash("squash") {
        /// None: each caller acts as itself.
        None = "none",
        /// Root does, so that what it makes belongs to that owner, and it may do no more.
        Root = "root",
        /// All do.
        All = "all",
    }
}

switch! {
    /// How a node remembers what changed since its last commit (M3).
    Dirty("dirty") {
        /// At most four byte ranges.
        Ranges = "ranges",
    } before {
        /// Before: a bit for each chunk of 128 bytes, scanned bit by bit when a commit is formatted.
        Bitmap = "bitmap",
        /// Before that: the whole node.
        Whole = "whole",
    }
}

switch! {
    /// Which records of block groups a commit writes (M1).
    Accounting("accounting") {
        /// Those that differ from what the tree holds.
        Changed = "changed",
    } before {
        /// Before: those of every group that was touched.
        Always = "always",
    }
}

switch! {
    /// How a batch of the fsync log finds the inode that a name refers to when it is formatted (M4).
    Batching("batch") {
        /// Through an index from inode number to the inode's record.
        Indexed = "indexed",
    } before {
        /// Before: by looking at one record after the other, for each name.
        Scan = "scan",
    }
}

switch! {
    /// What a rename adds to the fsync log for the directory that it takes a name from (M2).
    RenameLog("rename_log") {
        /// The name that is gone and the name that is new.
        Names = "names",
    } before {
        /// Before: all names of the directory that changed since the last commit, once more, if the
        /// directory was logged since then.
        Directory = "directory",
    }
}

switch! {
    /// What an fsync waits for after its data was written (M5).
    FsyncWait("fsync_wait") {
        /// Nothing: it takes extents and checksums from its own ordered extents, into tree and log in one step.
        Writeback = "writeback",
    } before {
        /// Before: the worker that completes the ordered extents of all files, one after the other.
        Completion = "completion",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_as_they_are_written() {
        for position in Dirty::ALL {
            assert_eq!(position.word().parse(), Ok(*position));
        }
        assert!("Ranges".parse::<Dirty>().is_err());
        assert_eq!("changed".parse(), Ok(Accounting::Changed));
        assert_eq!("rings".parse(), Ok(Transport::Rings));
    }

    #[test]
    #[cfg(feature = "before")]
    fn what_was_done_before_is_there_to_be_measured() {
        assert_eq!("always".parse(), Ok(Accounting::Always));
        let count = |all: usize, before: &[&str]| assert_eq!(all, 1 + before.len());
        count(Dirty::ALL.len(), Dirty::BEFORE);
        count(FsyncWait::ALL.len(), FsyncWait::BEFORE);
    }

    #[test]
    #[cfg(not(feature = "before"))]
    fn what_was_done_before_is_elsewhere_and_it_is_said_where() {
        assert_eq!((Dirty::ALL.len(), FsyncWait::ALL.len()), (1, 1));
        for why in ["always".parse::<Accounting>().err(), "scan".parse::<Batching>().err()] {
            assert!(why.is_some_and(|why| why.contains("holdfast-dev")));
        }
    }

    #[test]
    fn what_is_no_word_is_told_the_words() {
        let why = "sometimes".parse::<Accounting>().err().unwrap_or_default();
        assert!(why.starts_with("option accounting=sometimes is not one of changed"), "{why}");
    }
}
