//! Names of forks that live as long as a command: `.txn-` or `.run-`, and a number of fifteen hexadecimal digits.
//!
//! What is called so and is not in use was left by a command that was killed, and may be removed. No other name is
//! touched: `.txn-notes` is a branch as any other.

use holdfast_base::prng;

use super::Name;

/// What a fork was made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A transaction: a snapshot of the same name lies in the branch that it began with.
    Transaction,
    /// `holdfast run`.
    Run,
}

const DIGITS: usize = 15;

impl Purpose {
    fn prefix(self) -> &'static [u8] {
        match self {
            Purpose::Transaction => b".txn-",
            Purpose::Run => b".run-",
        }
    }

    /// A free name, and its number.
    pub fn new_name(self) -> (Name, u64) {
        let number = prng::entropy() >> (u64::BITS as usize - 4 * DIGITS);
        (self.name(number), number)
    }

    fn name(self, number: u64) -> Name {
        let digits = format!("{number:0DIGITS$x}");
        Name([self.prefix(), digits.as_bytes()].concat())
    }
}

/// What a fork of this name was made for, and its number; `None` for all other names.
pub fn read(name: &Name) -> Option<(Purpose, u64)> {
    [Purpose::Transaction, Purpose::Run].into_iter().find_map(|purpose| {
        let digits = name.0.strip_prefix(purpose.prefix())?;
        let number = u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
        // Not with capitals, a sign or fewer digits.
        (purpose.name(number) == *name).then_some((purpose, number))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_back_and_no_other_is_taken_for_one() {
        for purpose in [Purpose::Transaction, Purpose::Run] {
            let (name, number) = purpose.new_name();
            assert_eq!(read(&name), Some((purpose, number)));
            assert!(Name::can_be(&name.0) && i64::try_from(number).is_ok(), "{name}");
        }
        assert_eq!(read(&Purpose::Run.name(0)), Some((Purpose::Run, 0)));
        for other in [
            ".txn-",
            ".txn-notes",
            ".txn-00000000000000",
            ".txn-0000000000000000",
            ".txn-00000000000000G",
            ".txn-00000000000000F",
            ".txn-+00000000000001",
            "txn-000000000000001",
            "main",
        ] {
            assert_eq!(read(&Name(other.into())), None, "{other}");
        }
    }
}
