//! Attributes of objects, as extended attributes of their files.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;

use holdfast::File;
use object_store::{Attribute, Attributes};

const PREFIX: &str = "user.object.";
/// Names that the user chose, behind [`PREFIX`].
const METADATA: &str = "metadata.";

/// The name of an extended attribute. `None`: this version of the crate has no name for it.
fn name(attribute: &Attribute) -> Option<String> {
    let name = match attribute {
        Attribute::ContentDisposition => "content-disposition",
        Attribute::ContentEncoding => "content-encoding",
        Attribute::ContentLanguage => "content-language",
        Attribute::ContentType => "content-type",
        Attribute::CacheControl => "cache-control",
        Attribute::StorageClass => "storage-class",
        Attribute::Metadata(name) => return Some(format!("{PREFIX}{METADATA}{name}")),
        _ => return None,
    };
    Some(format!("{PREFIX}{name}"))
}

fn attribute(name: &OsStr) -> Option<Attribute> {
    let name = std::str::from_utf8(name.as_bytes()).ok()?.strip_prefix(PREFIX)?;
    Some(match name {
        "content-disposition" => Attribute::ContentDisposition,
        "content-encoding" => Attribute::ContentEncoding,
        "content-language" => Attribute::ContentLanguage,
        "content-type" => Attribute::ContentType,
        "cache-control" => Attribute::CacheControl,
        "storage-class" => Attribute::StorageClass,
        _ => Attribute::Metadata(name.strip_prefix(METADATA)?.to_owned().into()),
    })
}

/// Gives a file the attributes of an object.
///
/// # Errors
/// `Unsupported` for an attribute that cannot be kept; those of the volume, as for names and values that are too long.
pub(crate) fn set(file: &File, attributes: &Attributes) -> io::Result<()> {
    for (attribute, value) in attributes {
        let name = name(attribute).ok_or(io::ErrorKind::Unsupported)?;
        file.set_xattr(name, value.as_bytes())?;
    }
    Ok(())
}

/// The attributes of an object. What is not UTF-8 was not set by a store, and is left out.
pub(crate) fn get(file: &File) -> io::Result<Attributes> {
    let mut attributes = Attributes::new();
    for name in file.xattrs()? {
        let Some(attribute) = attribute(&name) else { continue };
        if let Ok(value) = String::from_utf8(file.xattr(&name)?) {
            attributes.insert(attribute, value.into());
        }
    }
    Ok(attributes)
}
