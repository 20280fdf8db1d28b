//! An open file. Its Python side, a real `io.RawIOBase`, is in `python/holdfast/_file.py`.

use std::fs::TryLockError;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use holdfast::{Dir, File, FileTimes, Permissions};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyBlockingIOError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::error::{EBADF, InCall, Own, call};
use crate::volume::{Stat, moment, stat};

/// Bytes that one call reads at most, so that memory is not taken for what is not there.
const READ_MAX: usize = 16 << 20;

/// How long a wait for a lock lasts before it is asked whether a signal has come.
const LOCK_SLICE: Duration = Duration::from_millis(50);

/// A file, and the root of its volume.
struct Opened {
    file: File,
    root: Dir,
}

/// An open file; `None` once it is closed. The lock is held for a moment only, never during a call; and whose process this is, is asked before it
/// is taken: in a child it may be held for ever.
#[pyclass(frozen, module = "holdfast._native")]
pub struct Handle(Own<Mutex<Option<Arc<Opened>>>>);

impl Handle {
    pub(crate) fn new(file: File, root: Dir) -> Handle {
        Handle(Own::new(Mutex::new(Some(Arc::new(Opened { file, root })))))
    }

    fn call<T: Send>(
        &self,
        py: Python<'_>,
        body: impl FnOnce(&File) -> io::Result<T> + Send,
    ) -> PyResult<T> {
        call(py, None, || {
            // A call that is under way keeps the file, also while another thread closes it.
            let opened = self.0.get()?.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let opened = opened.ok_or_else(|| io::Error::from_raw_os_error(EBADF))?;
            let _in_call = InCall(&opened.root);
            body(&opened.file)
        })
    }
}

/// The bytes of anything that has some, contiguous or not.
fn content(py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    PyBuffer::<u8>::get(data)?.to_vec(py)
}

#[pymethods]
impl Handle {
    /// Closes the file now, also where other code still has the object. A second call does nothing.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        call(py, None, || {
            let opened = self.0.get()?.lock().unwrap_or_else(PoisonError::into_inner).take();
            drop(opened);
            Ok(())
        })
    }

    /// Up to `len` bytes from the position on.
    fn read<'py>(&self, py: Python<'py>, len: usize) -> PyResult<Bound<'py, PyBytes>> {
        let found = self.call(py, |mut file: &File| {
            let mut found = vec![0; len.min(READ_MAX)];
            let len = file.read(&mut found)?;
            found.truncate(len);
            Ok(found)
        })?;
        Ok(PyBytes::new(py, &found))
    }

    /// Everything from the position on.
    fn readall<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let found = self.call(py, |mut file: &File| {
            let mut found = Vec::new();
            file.read_to_end(&mut found).map(|_| found)
        })?;
        Ok(PyBytes::new(py, &found))
    }

    /// Up to `len` bytes from `offset` on, without the position.
    fn pread<'py>(
        &self,
        py: Python<'py>,
        len: usize,
        offset: u64,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let found = self.call(py, |file| {
            let mut found = vec![0; len.min(READ_MAX)];
            let len = file.read_at(&mut found, offset)?;
            found.truncate(len);
            Ok(found)
        })?;
        Ok(PyBytes::new(py, &found))
    }

    /// Writes at the position, or at the end if the file was opened to append; returns how many bytes.
    fn write(&self, py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<usize> {
        match data.cast_exact::<PyBytes>() {
            Ok(bytes) => {
                // They never change, and this call keeps them.
                let bytes = bytes.as_bytes();
                self.call(py, |mut file: &File| file.write(bytes))
            }
            Err(_) => {
                let bytes = content(py, data)?;
                self.call(py, |mut file: &File| file.write(&bytes))
            }
        }
    }

    /// As `write`, at `offset`, without the position.
    fn pwrite(&self, py: Python<'_>, data: &Bound<'_, PyAny>, offset: u64) -> PyResult<usize> {
        let bytes = content(py, data)?;
        self.call(py, |file| file.write_at(&bytes, offset))
    }

    /// Moves the position: `whence` is 0 from the start, 1 from here, 2 from the end, 3 to data, 4 to a hole.
    fn seek(&self, py: Python<'_>, offset: i64, whence: u8) -> PyResult<u64> {
        self.call(py, |mut file: &File| {
            let from_start = || u64::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput);
            let to = match whence {
                0 => SeekFrom::Start(from_start()?),
                1 => SeekFrom::Current(offset),
                2 => SeekFrom::End(offset),
                3 => {
                    const ENXIO: i32 = 6;
                    let no_more = || io::Error::from_raw_os_error(ENXIO);
                    SeekFrom::Start(file.seek_data(from_start()?)?.ok_or_else(no_more)?)
                }
                4 => SeekFrom::Start(file.seek_hole(from_start()?)?),
                _ => return Err(io::ErrorKind::InvalidInput.into()),
            };
            file.seek(to)
        })
    }

    fn truncate(&self, py: Python<'_>, len: u64) -> PyResult<()> {
        self.call(py, |file| file.set_len(len))
    }

    fn sync_all(&self, py: Python<'_>) -> PyResult<()> {
        self.call(py, File::sync_all)
    }

    fn sync_data(&self, py: Python<'_>) -> PyResult<()> {
        self.call(py, File::sync_data)
    }

    /// What the last fsync cost, in sentences, and why.
    fn last_receipt(&self, py: Python<'_>) -> PyResult<Option<String>> {
        let receipt = self.call(py, File::last_receipt)?;
        Ok(receipt.map(|receipt| receipt.to_string()))
    }

    fn stat(&self, py: Python<'_>) -> PyResult<Stat> {
        self.call(py, |file| Ok(stat(&file.metadata()?)))
    }

    fn chmod(&self, py: Python<'_>, mode: u32) -> PyResult<()> {
        self.call(py, |file| file.set_permissions(Permissions::from_mode(mode)))
    }

    /// Sets the times, in nanoseconds since 1970.
    fn utime(&self, py: Python<'_>, accessed: i128, modified: i128) -> PyResult<()> {
        self.call(py, |file| {
            let times = FileTimes::new();
            let times = times.set_accessed(moment(accessed)?).set_modified(moment(modified)?);
            file.set_times(times)
        })
    }

    fn allocate(&self, py: Python<'_>, offset: u64, len: u64) -> PyResult<()> {
        self.call(py, |file| file.allocate(offset, len))
    }

    fn punch_hole(&self, py: Python<'_>, offset: u64, len: u64) -> PyResult<()> {
        self.call(py, |file| file.punch_hole(offset, len))
    }

    /// Waits for a lock of the whole file, or raises BlockingIOError. A signal ends the wait with what its handler raises; a lock that the file
    /// had before is gone then.
    fn lock(&self, py: Python<'_>, shared: bool, blocking: bool) -> PyResult<()> {
        loop {
            let has = self.call(py, |file| {
                let tried = match (shared, blocking) {
                    (false, true) => file.try_lock_for(LOCK_SLICE),
                    (true, true) => file.try_lock_shared_for(LOCK_SLICE),
                    (false, false) => file.try_lock(),
                    (true, false) => file.try_lock_shared(),
                };
                match tried {
                    Ok(()) => Ok(true),
                    Err(TryLockError::WouldBlock) => Ok(false),
                    Err(TryLockError::Error(error)) => Err(error),
                }
            })?;
            if has {
                return Ok(());
            }
            if !blocking {
                const EWOULDBLOCK: i32 = 11;
                return Err(PyBlockingIOError::new_err((EWOULDBLOCK, "another handle has a lock")));
            }
            py.check_signals()?;
        }
    }

    fn unlock(&self, py: Python<'_>) -> PyResult<()> {
        self.call(py, File::unlock)
    }
}
