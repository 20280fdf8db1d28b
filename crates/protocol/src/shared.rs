//! Values that many states have in common: cloned by a count, and hashed once.

use std::fmt::{Debug, Formatter, Result};
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

use rustc_hash::FxHasher;

/// A value with its hash, which is all that a state hashes of it.
pub(crate) struct Shared<T>(Arc<(u64, T)>);

impl<T: Hash> Shared<T> {
    pub(crate) fn new(value: T) -> Shared<T> {
        Shared(Arc::new((sum(&value), value)))
    }

    /// What distinguishes the value from others.
    pub(crate) fn sum(&self) -> u64 {
        self.0.0
    }
}

impl<T: Hash + Clone> Shared<T> {
    /// Changes the value for this state only.
    pub(crate) fn change<R>(&mut self, how: impl FnOnce(&mut T) -> R) -> R {
        let (sum_of, value) = Arc::make_mut(&mut self.0);
        let answer = how(value);
        *sum_of = sum(value);
        answer
    }
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Shared<T> {
        Shared(Arc::clone(&self.0))
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0.1
    }
}

impl<T: PartialEq> PartialEq for Shared<T> {
    fn eq(&self, other: &Shared<T>) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0 == other.0
    }
}

impl<T: Eq> Eq for Shared<T> {}

impl<T> Hash for Shared<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0.0);
    }
}

impl<T: Debug> Debug for Shared<T> {
    fn fmt(&self, out: &mut Formatter<'_>) -> Result {
        self.0.1.fmt(out)
    }
}

/// A sum that distinguishes contents.
pub(crate) fn sum(of: &impl Hash) -> u64 {
    let mut hasher = FxHasher::default();
    of.hash(&mut hasher);
    hasher.finish()
}
