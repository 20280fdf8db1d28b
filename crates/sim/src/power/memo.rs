//! What was found in images that have been opened, by fingerprint.
//!
//! Scripts that begin alike leave equal images; none is opened twice. Trees that
//! are equal are kept once. Several threads use it; two that meet the same
//! image at once both open it. Forgets everything when it has grown large,
//! which costs time and changes no answer.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use holdfast_script::Trees;

/// What is in an image, or what is wrong with it.
pub(crate) type ImageContent = Result<Arc<Trees>, String>;

/// Images in one part before it forgets.
const LARGE: usize = 1 << 17;

/// The memory.
#[derive(Debug, Default)]
pub(crate) struct Memo {
    parts: [Mutex<HashMap<u64, ImageContent>>; 16],
    trees: Mutex<HashMap<String, Arc<Trees>>>,
}

impl Memo {
    /// What was found in the image with this fingerprint.
    pub(crate) fn get(&self, fingerprint: u64) -> Option<ImageContent> {
        let part = self.parts[(fingerprint % 16) as usize].lock();
        part.unwrap_or_else(PoisonError::into_inner).get(&fingerprint).cloned()
    }

    /// Keeps what was found, and gives it back.
    pub(crate) fn insert(&self, fingerprint: u64, found: ImageContent) -> ImageContent {
        let found = found.map(|tree| {
            let mut trees = self.trees.lock().unwrap_or_else(PoisonError::into_inner);
            if trees.len() > LARGE {
                trees.clear();
            }
            Arc::clone(trees.entry(tree.to_string()).or_insert(tree))
        });
        let part = self.parts[(fingerprint % 16) as usize].lock();
        let mut part = part.unwrap_or_else(PoisonError::into_inner);
        if part.len() > LARGE {
            part.clear();
        }
        part.insert(fingerprint, found.clone());
        found
    }
}
