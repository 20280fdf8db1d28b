//! What the Python package `holdfast` is made of: volumes and files, with the interpreter's lock released in every call that may
//! wait or reach the device. Paths, file objects and everything that is Python's own is in `python/holdfast`.

mod error;
mod file;
mod volume;

use pyo3::prelude::*;

/// The module that `holdfast` imports.
#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<volume::Volume>()?;
    module.add_class::<file::Handle>()?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))
}
