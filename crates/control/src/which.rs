//! Which of the branches or snapshots that there are is meant.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Name;

/// A branch or snapshot that exists: by its number, which nothing else of the volume ever has, or by the name that it has when the question is
/// answered. In JSON a number, or what [`Name`] is; a program that knows no numbers refuses the question.
#[derive(Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(untagged)]
pub enum Which {
    /// The one that has this number, whatever its name is.
    Number(u64),
    /// The one that has this name.
    Name(Name),
}

impl From<u64> for Which {
    fn from(number: u64) -> Which {
        Which::Number(number)
    }
}

impl From<Name> for Which {
    fn from(name: Name) -> Which {
        Which::Name(name)
    }
}

impl From<&Name> for Which {
    fn from(name: &Name) -> Which {
        Which::Name(name.clone())
    }
}

/// As a terminal may see it.
impl fmt::Display for Which {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Which::Number(number) => write!(f, "number {number}"),
            Which::Name(name) => name.fmt(f),
        }
    }
}

impl fmt::Debug for Which {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Which::Number(number) => number.fmt(f),
            Which::Name(name) => name.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_no_name_and_comes_back_as_it_was() {
        let cases = [
            (Which::Number(u64::MAX), "18446744073709551615"),
            (Which::Name(Name(b"7".into())), "\"7\""),
            (Which::Name(Name(vec![0xff, 7])), "[255,7]"),
        ];
        for (which, json) in cases {
            assert_eq!(serde_json::to_string(&which).unwrap(), json);
            assert_eq!(serde_json::from_str::<Which>(json).unwrap(), which);
            // As a program reads it that knows no numbers.
            let is_name = matches!(which, Which::Name(_));
            assert_eq!(serde_json::from_str::<Name>(json).is_ok(), is_name, "{json}");
        }
        for nonsense in ["-1", "1.5", "null", "{}", "[256]"] {
            assert!(serde_json::from_str::<Which>(nonsense).is_err(), "{nonsense}");
        }
    }
}
