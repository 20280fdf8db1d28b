//! Names that the program makes where it is given none: the moment, such as `2026-11-24T141003.123Z`, and in front of it what the name
//! is for. A volume keeps names and not their givers, so what a user types in this very form is taken for one of these.

use super::Name;

/// A digit for each zero, all else as it stands.
const MOMENT: &[u8] = b"0000-00-00T000000.000Z";
/// Seconds since 1970, of any number of digits, and nanoseconds.
const NANOSECONDS: &[u8] = b".000000000";

/// What a name was made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A snapshot that was taken without a name.
    Snapshot,
    /// What a branch was before a rollback.
    BeforeRollback,
    /// What a branch was before a fork was promoted.
    BeforePromote,
    /// What a branch was before a stream came: named by the receiver, in seconds and nanoseconds.
    BeforeReceive,
    /// What a transaction began with that was refused, and the branch of the same name that it made.
    Transaction,
    /// A branch as it was when it was sent.
    Sent,
    /// The fork that an import fills.
    Import,
}

impl Purpose {
    const ALL: [Purpose; 7] = [
        Purpose::Snapshot,
        Purpose::BeforeRollback,
        Purpose::BeforePromote,
        Purpose::BeforeReceive,
        Purpose::Transaction,
        Purpose::Sent,
        Purpose::Import,
    ];

    /// What stands in front of the moment.
    pub fn prefix(self) -> &'static str {
        match self {
            Purpose::Snapshot => "",
            Purpose::BeforeRollback => "before-rollback-",
            Purpose::BeforePromote => "before-promote-",
            Purpose::BeforeReceive => "before-receive-",
            Purpose::Transaction => "txn-",
            Purpose::Sent => "sent-",
            Purpose::Import => "importing-",
        }
    }

    /// A name by the present moment. It has no colon, which no name may have.
    pub fn new_name(self) -> Name {
        let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H%M%S.%3fZ");
        Name(format!("{}{now}", self.prefix()).into_bytes())
    }
}

/// What a name was made for; `None` for all that the program does not make.
pub fn read(name: &Name) -> Option<Purpose> {
    Purpose::ALL.into_iter().find(|purpose| {
        let behind = name.0.strip_prefix(purpose.prefix().as_bytes());
        behind.is_some_and(|time| match purpose {
            Purpose::BeforeReceive => is_seconds(time),
            _ => is_like(time, MOMENT),
        })
    })
}

fn is_like(text: &[u8], form: &[u8]) -> bool {
    let is_so = |(c, form): (&u8, &u8)| if *form == b'0' { c.is_ascii_digit() } else { c == form };
    text.len() == form.len() && text.iter().zip(form).all(is_so)
}

fn is_seconds(text: &[u8]) -> bool {
    let at = text.len().checked_sub(NANOSECONDS.len());
    let parts = at.and_then(|at| text.split_at_checked(at));
    parts.is_some_and(|(seconds, rest)| {
        !seconds.is_empty() && seconds.iter().all(u8::is_ascii_digit) && is_like(rest, NANOSECONDS)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_back_and_no_other_is_taken_for_one() {
        for purpose in Purpose::ALL.into_iter().filter(|it| *it != Purpose::BeforeReceive) {
            let name = purpose.new_name();
            assert_eq!(read(&name), Some(purpose), "{name}");
            assert!(Name::can_be(&name.0), "{name}");
        }
        let of = |name: &str| read(&Name(name.into()));
        assert_eq!(of("before-receive-1795866869.590089899"), Some(Purpose::BeforeReceive));
        for other in [
            "",
            "before-upgrade",
            "before-rollback-",
            "before-rollback-monday",
            "before-receive-.590089899",
            "before-receive-2026-11-24T141003.123Z",
            "2026-11-24",
            "2026-11-24T141003.123",
            "2026-11-24T141003.12aZ",
            "2026-11-24T14:10:03.123Z",
            "2026-11-24T141003.123Z-mine",
            "my-2026-11-24T141003.123Z",
            "txn-monday",
        ] {
            assert_eq!(of(other), None, "{other}");
        }
    }
}
