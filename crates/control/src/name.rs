//! A name of a branch or snapshot: bytes, nearly always text.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::str::FromStr;

use holdfast_base::show::printable;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A name, or a path. In JSON it is a string, or a list of bytes if it is not UTF-8.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Name(pub Vec<u8>);

/// A name that is no UTF-8, where it has to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotText(Name);

impl fmt::Display for NotText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the name {} is not UTF-8", self.0)
    }
}

impl std::error::Error for NotText {}

impl Name {
    /// Of an argument.
    pub fn of(text: OsString) -> Name {
        Name(text.into_vec())
    }

    /// As it is.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Of a path.
    pub fn path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.0))
    }

    /// As text; odd bytes are replaced.
    pub fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.0)
    }

    /// For the library, whose names are text.
    ///
    /// # Errors
    /// It is no UTF-8.
    pub fn utf8(&self) -> Result<&str, NotText> {
        std::str::from_utf8(&self.0).map_err(|_| NotText(self.clone()))
    }

    /// Whether it can stand behind an image on a command line.
    pub fn can_be(bytes: &[u8]) -> bool {
        !bytes.is_empty() && !bytes.iter().any(|byte| b"/@:".contains(byte))
    }
}

impl FromStr for Name {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Name, Self::Err> {
        Ok(Name(text.into()))
    }
}

/// As a terminal may see it.
impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&printable(&self.text()))
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text().fmt(f)
    }
}

impl Serialize for Name {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(&self.0) {
            Ok(text) => to.serialize_str(text),
            Err(_) => self.0.serialize(to),
        }
    }
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Name, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Form {
            Text(String),
            Bytes(Vec<u8>),
        }
        Ok(match Form::deserialize(from)? {
            Form::Text(text) => Name(text.into_bytes()),
            Form::Bytes(bytes) => Name(bytes),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_come_back_from_json() {
        for bytes in [&b"before-upgrade"[..], b"gr\xc3\xb6\xc3\x9fe", b"\xff\x00x"] {
            let name = Name(bytes.into());
            let json = serde_json::to_string(&name).unwrap();
            assert_eq!(serde_json::from_str::<Name>(&json).unwrap(), name, "{json}");
        }
    }
}
