//! Floor 5: a volume as an [`ObjectStore`], for programs that keep tables, logs and models as objects.
//!
//! ```
//! use std::sync::Arc;
//!
//! use holdfast::Volume;
//! use holdfast_object_store::HoldfastStore;
//! use object_store::{ObjectStoreExt, path::Path};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // A real program says Volume::create_new("objects.holdfast", 8 << 30) once, and Volume::open(...) later.
//! let volume = Arc::new(Volume::in_memory(64 << 20)?);
//! let store = HoldfastStore::new(volume);
//! # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
//! let log = Path::from("tables/orders/_log/000.json");
//! store.put(&log, "{}".into()).await?; // durable: no crash loses it (P1)
//! assert_eq!(store.get(&log).await?.bytes().await?, "{}");
//! # Ok(())
//! # })
//! # }
//! ```
//!
//! # What it promises
//!
//! - A put, copy, rename or upload is there as a whole or not at all, whenever power fails (P3, P4), and durable when it returns: one
//!   flush of the device for each, none where [`HoldfastStore::durable`] says `false`. A delete is durable, too.
//! - [`PutMode::Create`](object_store::PutMode::Create) never replaces an object, also where other programs use the volume at the same time.
//!   [`PutMode::Update`](object_store::PutMode::Update) compares and replaces in one step for all clones of one store; others that write
//!   to the volume meanwhile are not seen.
//! - What a reader has begun to read stays what it was when it is replaced or deleted.
//! - Attributes of objects are kept, as extended attributes `user.object.*`. Tags are refused, as no call could ask for them.
//!
//! # Objects and files
//!
//! An object is a regular file, and the parts of its path are its directories, which come and go with the objects in them. So there is
//! no object `a` beside an object `a/b`, and a part has at most 255 bytes. A mount or [`holdfast::Volume`] of the same volume sees the
//! same files. What is there beside regular files and directories is no object.
//!
//! Directories `.holdfast-object-store` hold the names of replacements for the moment before they have their own, and `.snapshots` in the
//! root is what a mount shows its snapshots by; no object can be in them. Of two stores in one volume none may lie in the other: the
//! outer one removes directories that are empty. A volume that is reached through its mount takes Linux 6.1.
//!
//! # Threads
//!
//! Calls of the volume block, and are made by the threads of the `blocking` crate: any executor will do, and none is needed.

mod attributes;
mod error;
mod inner;
mod list;
mod object;
mod publish;
mod read;
mod store;
mod upload;

pub use store::HoldfastStore;

#[cfg(doc)]
use object_store::ObjectStore;
