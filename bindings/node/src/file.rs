//! An open file.

use std::io::{self, Read, Write};
use std::sync::{Arc, PoisonError, RwLock};

use holdfast::{Dir, File, Permissions};
use napi::bindgen_prelude::{Buffer, ToNapiValue, TypeName};
use napi_derive::napi;

use crate::call::{Open, Promised, guarded, invalid, promised, promised_of};
use crate::volume::{Stat, Times, stat};

/// An open file, and the root of its volume.
#[napi(js_name = "File")]
pub struct NativeFile(Open<(File, Dir)>);

impl NativeFile {
    pub(crate) fn new(file: File, root: Dir) -> NativeFile {
        NativeFile(Arc::new(RwLock::new(Some((file, root)))))
    }

    fn call<T: ToNapiValue + TypeName + Send + 'static>(
        &self,
        body: impl FnOnce(&File) -> io::Result<T> + Send + 'static,
    ) -> Promised<T> {
        promised_of(&self.0, |(file, root)| guarded(Some(root), || body(file)))
    }
}

/// Memory for so many bytes, or ENOMEM: a length comes from the program.
fn room(len: usize) -> io::Result<Vec<u8>> {
    let mut room = Vec::new();
    room.try_reserve_exact(len).map_err(|_| io::Error::from_raw_os_error(ENOMEM))?;
    room.resize(len, 0);
    Ok(room)
}

const ENOMEM: i32 = 12;

fn at(position: Option<i64>) -> io::Result<Option<u64>> {
    position.map(|at| u64::try_from(at).map_err(|_| invalid())).transpose()
}

#[napi]
impl NativeFile {
    /// Closes the file; once more does nothing.
    #[napi]
    pub fn close(&self) -> Promised<()> {
        let file = self.0.clone();
        promised(move || {
            drop(file.write().unwrap_or_else(PoisonError::into_inner).take());
            Ok(())
        })
    }

    /// Up to `len` bytes from `position` on, or from where the file is. Not straight into the buffer of the program, which may use it
    /// meanwhile.
    #[napi]
    pub fn read(&self, len: u32, position: Option<i64>) -> Promised<Buffer> {
        self.call(move |mut file: &File| {
            let mut found = room(len as usize)?;
            let len = match at(position)? {
                Some(position) => file.read_at(&mut found, position)?,
                None => file.read(&mut found)?,
            };
            found.truncate(len);
            Ok(found.into())
        })
    }

    /// Everything from where the file is on.
    #[napi]
    pub fn read_all(&self) -> Promised<Buffer> {
        self.call(|mut file: &File| {
            let mut found = Vec::new();
            file.read_to_end(&mut found)?;
            Ok(found.into())
        })
    }

    /// Writes at `position`, or where the file is, or at the end if the file was opened to append; says how many bytes.
    #[napi]
    pub fn write(&self, data: &[u8], position: Option<i64>) -> Promised<u32> {
        // As they are now: the program may change them meanwhile.
        let data = data.to_vec();
        self.call(move |mut file: &File| {
            let len = match at(position)? {
                Some(position) => file.write_at(&data, position)?,
                None => file.write(&data)?,
            };
            u32::try_from(len).map_err(|_| invalid())
        })
    }

    /// Writes all of it where the file is, or at the end if it was opened to append.
    #[napi]
    pub fn write_all(&self, data: &[u8]) -> Promised<()> {
        let data = data.to_vec();
        self.call(move |mut file: &File| file.write_all(&data))
    }

    /// fsync, or fdatasync.
    #[napi]
    pub fn sync(&self, data_only: bool) -> Promised<()> {
        self.call(move |file| if data_only { file.sync_data() } else { file.sync_all() })
    }

    /// What the last fsync cost, in sentences, and why.
    #[napi]
    pub fn receipt(&self) -> Promised<Option<String>> {
        self.call(|file| Ok(file.last_receipt()?.map(|receipt| receipt.to_string())))
    }

    /// Its attributes.
    #[napi]
    pub fn stat(&self) -> Promised<Stat> {
        self.call(|file| Ok(stat(&file.metadata()?)))
    }

    /// Cuts or extends it.
    #[napi]
    pub fn truncate(&self, len: i64) -> Promised<()> {
        self.call(move |file| file.set_len(u64::try_from(len).map_err(|_| invalid())?))
    }

    /// Sets the permission bits.
    #[napi]
    pub fn chmod(&self, mode: u32) -> Promised<()> {
        self.call(move |file| file.set_permissions(Permissions::from_mode(mode)))
    }

    /// Sets the times.
    #[napi]
    pub fn utimes(&self, times: Times) -> Promised<()> {
        self.call(move |file| file.set_times(times.checked()?))
    }
}
