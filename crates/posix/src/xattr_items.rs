//! Extended attributes in the tree.
//!
//! An attribute is one item, found by the hash of its name as a directory
//! entry is. A value that does not fit the item lies in pieces under an id
//! that is never used twice for an inode, so a new value never mixes with an
//! old one. Attributes change only under the write lock of the inode's state.
//!
//! Knows nothing of which callers may see a name: that is in `op/xattr.rs`.

use std::ops::ControlFlow;

use holdfast_base::InodeNo;
use holdfast_format::item::xattr::{XattrHead, XattrValue, piece_offset};
use holdfast_format::item::{InodeItem, Xattr};
use holdfast_format::{ItemKind, Key, Malformed};
use holdfast_store::{StoreError, Transaction};

use crate::acl::Acl;
use crate::core::Core;
use crate::error::damaged_item;
use crate::slot::{self, Slot};
use crate::{FsError, Result, XattrFlags};

/// A value, or where it is.
#[derive(Debug)]
enum Value {
    Here(Vec<u8>),
    Pieces { id: u32, len: u32 },
}

fn damaged(core: &Core, no: InodeNo, source: Malformed) -> FsError {
    let what = format!("an attribute of {}", core.called(no));
    FsError::Store(damaged_item(&core.store, what, source))
}

/// How many pieces a value of `len` bytes has.
fn pieces(core: &Core, len: usize) -> u16 {
    // At most 65,536 bytes in pieces of at least 1,024.
    len.div_ceil(core.store.value_max()) as u16
}

fn find(core: &Core, no: InodeNo, name: &[u8]) -> Result<Slot<Value>> {
    slot::search(core, no, ItemKind::Xattr, name, |bytes| {
        let found = Xattr::decode(bytes)?;
        Ok((found.name == name).then(|| match found.value {
            XattrValue::Here(bytes) => Value::Here(bytes.to_vec()),
            XattrValue::Pieces { id, len } => Value::Pieces { id, len },
        }))
    })?
    .map_err(|source| damaged(core, no, source))
}

/// The value of an attribute. The caller holds the inode's state, for reading at least, so that the
/// pieces belong to what was found.
pub(crate) fn load(
    core: &Core,
    no: InodeNo,
    item: &InodeItem,
    name: &[u8],
) -> Result<Option<Vec<u8>>> {
    if item.flags & InodeItem::HAS_XATTRS == 0 {
        return Ok(None);
    }
    let (id, len) = match find(core, no, name)?.found {
        None => return Ok(None),
        Some((_, Value::Here(value))) => return Ok(Some(value)),
        Some((_, Value::Pieces { id, len })) => (id, len as usize),
    };
    let mut value = Vec::with_capacity(len);
    for index in 0..pieces(core, len) {
        let key = Key::new(no, ItemKind::XattrPiece, piece_offset(id, index));
        match core.store.get(&key)? {
            Some(piece) => value.extend_from_slice(&piece),
            None => break,
        }
    }
    if value.len() == len {
        Ok(Some(value))
    } else {
        let why = format!("its pieces have {} bytes and not {len}", value.len());
        Err(damaged(core, no, Malformed::new(XattrHead::TITLE, why)))
    }
}

/// An access control list that is kept as an attribute.
pub(crate) fn load_acl(
    core: &Core,
    no: InodeNo,
    item: &InodeItem,
    name: &[u8],
) -> Result<Option<Acl>> {
    match load(core, no, item, name)? {
        Some(value) => Acl::parse(&value),
        None => Ok(None),
    }
}

/// Appends the removal of the pieces of a value.
fn plan_pieces_removal(core: &Core, no: InodeNo, value: &Value, transaction: &mut Transaction) {
    if let Value::Pieces { id, len } = *value {
        for index in 0..pieces(core, len as usize) {
            transaction.delete(Key::new(no, ItemKind::XattrPiece, piece_offset(id, index)));
        }
    }
}

/// Appends a new value of an attribute, and changes the inode's draft as needed.
pub(crate) fn plan_set(
    core: &Core,
    no: InodeNo,
    draft: &mut InodeItem,
    name: &[u8],
    value: &[u8],
    flags: XattrFlags,
    transaction: &mut Transaction,
) -> Result<()> {
    let slot = find(core, no, name)?;
    let offset = match &slot.found {
        Some(_) if flags.contains(XattrFlags::CREATE) => return Err(FsError::Exists),
        None if flags.contains(XattrFlags::REPLACE) => return Err(FsError::NoAttribute),
        Some((offset, old)) => {
            plan_pieces_removal(core, no, old, transaction);
            *offset
        }
        None => slot.free.ok_or(FsError::Store(StoreError::NoSpace))?,
    };
    let place = if XattrHead::SIZE + name.len() + value.len() <= core.store.value_max() {
        XattrValue::Here(value)
    } else {
        let id = draft.xattr_value_next;
        draft.xattr_value_next = id.checked_add(1).ok_or(FsError::Store(StoreError::NoSpace))?;
        for (index, piece) in value.chunks(core.store.value_max()).enumerate() {
            let key = Key::new(no, ItemKind::XattrPiece, piece_offset(id, index as u16));
            transaction.put(key, piece);
        }
        XattrValue::Pieces { id, len: value.len() as u32 }
    };
    let item = Xattr { name, value: place };
    transaction.put(Key::new(no, ItemKind::Xattr, offset), item.encode());
    draft.flags |= InodeItem::HAS_XATTRS;
    Ok(())
}

/// Appends the removal of an attribute; false if there is none.
pub(crate) fn plan_remove(
    core: &Core,
    no: InodeNo,
    name: &[u8],
    transaction: &mut Transaction,
) -> Result<bool> {
    let Some((offset, value)) = find(core, no, name)?.found else {
        return Ok(false);
    };
    plan_pieces_removal(core, no, &value, transaction);
    transaction.delete(Key::new(no, ItemKind::Xattr, offset));
    Ok(true)
}

/// Appends the removal of up to `items_max` items of attributes; true when nothing is left.
pub(crate) fn plan_removal_of_all(
    core: &Core,
    no: InodeNo,
    transaction: &mut Transaction,
    items_max: usize,
) -> Result<bool> {
    let (from, _) = Key::span(no, ItemKind::Xattr);
    let (_, to) = Key::span(no, ItemKind::XattrPiece);
    let mut keys = Vec::new();
    let mut more = false;
    core.store.scan(&from, &to, |key, _| {
        if keys.len() == items_max {
            more = true;
            return ControlFlow::Break(());
        }
        keys.push(key);
        ControlFlow::Continue(())
    })?;
    for key in keys {
        transaction.delete(key);
    }
    Ok(!more)
}

/// The names of all attributes.
pub(crate) fn names(core: &Core, no: InodeNo, item: &InodeItem) -> Result<Vec<Vec<u8>>> {
    let mut names = Vec::new();
    if item.flags & InodeItem::HAS_XATTRS == 0 {
        return Ok(names);
    }
    let (from, to) = Key::span(no, ItemKind::Xattr);
    let mut damage = None;
    core.store.scan(&from, &to, |_, bytes| match Xattr::decode(bytes) {
        Ok(found) => {
            names.push(found.name.to_vec());
            ControlFlow::Continue(())
        }
        Err(source) => {
            damage = Some(source);
            ControlFlow::Break(())
        }
    })?;
    match damage {
        Some(source) => Err(damaged(core, no, source)),
        None => Ok(names),
    }
}
