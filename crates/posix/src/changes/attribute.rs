//! An extended attribute of the root of a branch or snapshot that is not opened for it.

use std::ops::ControlFlow;

use holdfast_base::InodeNo;
use holdfast_format::item::{InodeItem, Xattr};
use holdfast_format::{ItemKind, Key};
use holdfast_store::Store;

use super::side::{Side, damage};
use super::walk::value;
use crate::*;

impl FileSystem {
    /// The value of an extended attribute of the root directory in the branch or snapshot of this number, without a look at permissions; `None`: it
    /// has none of this name. Of a branch that is open, what is in its tree. It costs some look-ups, however many there are.
    ///
    /// # Errors
    /// There is none of this number; it is damaged.
    pub fn root_attribute(&self, number: u64, name: &[u8]) -> Result<Option<Vec<u8>>> {
        let store = self.core.store.store();
        let side = Side::new(store.pin_number(number)?);
        let found = find(store, &side, name);
        drop(side);
        self.volume.volume.go_on_with_deletions();
        found
    }
}

fn find(store: &Store, side: &Side, name: &[u8]) -> Result<Option<Vec<u8>>> {
    let root = InodeNo::ROOT;
    match side.inode(store, root)? {
        Some(item) if item.flags & InodeItem::HAS_XATTRS != 0 => {}
        _ => return Ok(None),
    }
    let (from, to) = Key::span(root, ItemKind::Xattr);
    let mut found = Ok(None);
    side.scan(store, &from, &to, |bytes| match Xattr::decode(bytes) {
        Ok(of) if of.name != name => ControlFlow::Continue(()),
        Ok(_) => {
            found = Ok(Some(bytes.to_vec()));
            ControlFlow::Break(())
        }
        Err(source) => {
            found = Err(damage(root, source));
            ControlFlow::Break(())
        }
    })?;
    let Some(bytes) = found? else { return Ok(None) };
    let of = Xattr::decode(&bytes).map_err(|source| damage(root, source))?;
    value(store, root, side, &of).map(Some)
}
