//! What was done before each mechanism, one module for each: only with the feature `before`, to be measured.
//!
//! The one place that carries a mechanism out asks its switch
//! (`holdfast_base::switch`) and calls what is here; without the feature
//! neither question nor answer is in the program.

pub(crate) mod accounting;
pub(crate) mod batching;
pub(crate) mod dirty;
