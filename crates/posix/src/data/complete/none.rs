//! An fsync completes its own ordered extents (M5): there is no worker.

use std::sync::Arc;

use crate::Result;
use crate::core::Core;

/// There is no worker.
#[derive(Debug)]
pub(crate) enum Completer {}

impl Completer {
    pub(crate) fn start(_: &Arc<Core>) -> Result<Option<Completer>> {
        Ok(None)
    }

    pub(crate) fn end(_: Option<Completer>) {}
}
