//! What a decoder says of bytes that break a rule of the format.

/// Bytes that are not what the format allows.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {why}")]
pub struct Malformed {
    /// The structure that was being decoded.
    pub what: &'static str,
    /// The rule that is broken.
    pub why: String,
}

impl Malformed {
    /// `what` breaks the rule `why`.
    pub fn new(what: &'static str, why: impl Into<String>) -> Malformed {
        Malformed { what, why: why.into() }
    }

    /// What is wrong with two, said once where it is the same.
    pub fn and(&self, other: &Malformed) -> String {
        if self == other { self.to_string() } else { format!("{self}; {other}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_both_is_said_once() {
        let [one, other] = ["the magic is missing", "no"].map(|why| Malformed::new("it", why));
        assert_eq!(one.and(&one), "it: the magic is missing");
        assert_eq!(one.and(&other), "it: the magic is missing; it: no");
    }
}
