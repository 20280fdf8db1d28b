//! The values that items hold, one file each.

pub mod base;
pub mod dentry;
pub mod extent;
pub mod group;
pub mod hold;
pub mod inode;
pub mod lineage;
pub mod origin;
pub mod orphan;
pub mod punch;
pub mod run;
pub mod xattr;

pub use base::BaseBlock;
pub use dentry::Dentry;
pub use extent::Extent;
pub use group::{GroupItem, SharedItem};
pub use hold::HoldItem;
pub use inode::{FileType, InodeItem};
pub use lineage::{LineageItem, RootItem, TreeItem, TreeKind, WalkItem, WalkPlace};
pub use origin::OriginItem;
pub use punch::PunchItem;
pub use run::RunPart;
pub use xattr::Xattr;
