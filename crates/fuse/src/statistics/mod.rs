//! What a mount counts: requests of the kernel, by kind, and the operations of programs, with their times.
//!
//! One operation of a program may be several requests, or none.

/// Kinds of what is counted, with the names that statistics show.
macro_rules! kinds {
    ($(#[doc = $of:literal])* $name:ident {
        $($(#[doc = $doc:literal])* $kind:ident = $word:literal,)*
    }) => {
        $(#[doc = $of])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name {
            $($(#[doc = $doc])* $kind,)*
        }

        impl $name {
            /// Every kind, in the order in which statistics show them.
            pub const ALL: &'static [$name] = &[$($name::$kind,)*];

            /// Its name in statistics.
            pub fn name(self) -> &'static str {
                match self {
                    $($name::$kind => $word,)*
                }
            }

            /// A sentence for people.
            pub fn meaning(self) -> &'static str {
                match self {
                    $($name::$kind => concat!($($doc),*).trim_start(),)*
                }
            }
        }
    };
}

mod operations;
mod requests;

pub(crate) use operations::Timed;
pub use operations::{BUCKETS, BucketScale, Latency, Operation, Operations};
pub use requests::{RequestKind, Requests};
