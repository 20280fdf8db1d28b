//! An extended attribute. Short values lie inside the item; long ones in pieces of their own.

use crate::Malformed;
use crate::codec::{Fixed, Reader};
use crate::limits::{NAME_MAX, XATTR_VALUE_MAX};

record! {
    /// The head of an attribute; the name follows, then the value if it is inside.
    pub struct XattrHead("xattr", 10 bytes) {
        /// 1 to 255, prefix (`user.`) included.
        name_len: u8,
        /// 0: value behind the name. 1: in pieces.
        place: u8,
        /// At most 65,536.
        value_len: u32,
        /// Id of the pieces, else 0.
        value_id: u32,
    }
}

/// Where a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XattrValue<'a> {
    /// Inside the item.
    Here(&'a [u8]),
    /// In `XattrPiece` items with this id, `len` bytes in all. Every piece but the last is as long as a value may be.
    Pieces {
        /// The upper bits of the pieces' key offsets.
        id: u32,
        /// Bytes of all pieces.
        len: u32,
    },
}

/// An extended attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Xattr<'a> {
    /// Its full name.
    pub name: &'a [u8],
    /// Its value.
    pub value: XattrValue<'a>,
}

impl<'a> Xattr<'a> {
    /// The bytes on disk.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.push(self.name.len() as u8);
        let (place, len, id) = match self.value {
            XattrValue::Here(bytes) => (0u8, bytes.len() as u32, 0),
            XattrValue::Pieces { id, len } => (1, len, id),
        };
        out.push(place);
        len.write(&mut out);
        id.write(&mut out);
        out.extend_from_slice(self.name);
        if let XattrValue::Here(bytes) = self.value {
            out.extend_from_slice(bytes);
        }
        out
    }

    /// Reads and judges an attribute.
    pub fn decode(bytes: &'a [u8]) -> Result<Xattr<'a>, Malformed> {
        let mut reader = Reader::new(XattrHead::TITLE, bytes);
        let head = XattrHead::read(&mut reader)?;
        let name = reader.bytes(head.name_len.into())?;
        if name.is_empty() || name.len() > NAME_MAX || name.contains(&0) {
            return XattrHead::fail("its name is not allowed");
        }
        if head.value_len as usize > XATTR_VALUE_MAX {
            return XattrHead::fail(format!("a value of {} bytes is too long", head.value_len));
        }
        let value = match head.place {
            0 if head.value_id == 0 => XattrValue::Here(reader.bytes(head.value_len as usize)?),
            1 => XattrValue::Pieces { id: head.value_id, len: head.value_len },
            place => {
                return XattrHead::fail(format!(
                    "place {place} with id {} is unknown",
                    head.value_id
                ));
            }
        };
        reader.finish()?;
        Ok(Xattr { name, value })
    }
}

/// The key offset of piece `index` of the value `id`.
pub fn piece_offset(id: u32, index: u16) -> u64 {
    u64::from(id) << 16 | u64::from(index)
}
