//! Lists that come in parts, from a daemon that may be a stranger's and answer anything.

use std::{fmt, io};

use crate::{Branch, CopyOf, HeldBy, Name, Snapshot};

/// Entries of a list that are believed, and bytes that they may take here.
const MOST: usize = 1_000_000;
const MOST_BYTES: usize = 512 << 20;

/// What a list is made of.
pub trait Listed {
    /// Its number.
    fn number(&self) -> u64;
    /// About how many bytes it takes in memory.
    fn bytes(&self) -> usize;
}

impl Listed for Branch {
    fn number(&self) -> u64 {
        self.number
    }

    fn bytes(&self) -> usize {
        let origin = self.origin.as_ref();
        let names = origin.map_or(0, |of| held(&of.name) + of.branch.as_ref().map_or(0, held));
        size_of::<Branch>() + held(&self.name) + names
    }
}

impl Listed for Snapshot {
    fn number(&self) -> u64 {
        self.number
    }

    fn bytes(&self) -> usize {
        let forks = self.forks.iter().map(|name| size_of::<Name>() + held(name));
        let holds = self.holds.iter().map(|hold| size_of::<HeldBy>() + held(&hold.tag));
        let received = self.received.capacity() * size_of::<CopyOf>();
        size_of::<Snapshot>() + held(&self.name) + forks.chain(holds).sum::<usize>() + received
    }
}

fn held(name: &Name) -> usize {
    name.0.capacity()
}

/// A list that is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nonsense {
    /// Numbers do not rise, in a part or from part to part.
    NotRising,
    /// A part has nothing in it, and there are more.
    Empty,
    /// There is more than a volume can have.
    Endless,
}

impl fmt::Display for Nonsense {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = match self {
            Nonsense::NotRising => "its numbers do not rise",
            Nonsense::Empty => "a part of the list is empty, and not the last",
            Nonsense::Endless => "the list does not end",
        };
        write!(f, "the answer of the daemon makes no sense: {why}")
    }
}

impl std::error::Error for Nonsense {}

impl From<Nonsense> for io::Error {
    fn from(why: Nonsense) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidData, why)
    }
}

/// All of a list, of which `part` gives a part with numbers above the one that it gets, and says whether there are more.
///
/// # Errors
/// What `part` says, or [`Nonsense`]: numbers that do not rise would be asked for without an end.
pub fn in_parts<T: Listed, E: From<Nonsense>>(
    mut part: impl FnMut(u64) -> Result<(Vec<T>, bool), E>,
) -> Result<Vec<T>, E> {
    let (mut all, mut bytes, mut after) = (Vec::new(), 0, 0);
    loop {
        let (list, more) = part(after)?;
        for entry in &list {
            if entry.number() <= after {
                return Err(Nonsense::NotRising.into());
            }
            after = entry.number();
            bytes += entry.bytes();
        }
        if more && list.is_empty() {
            return Err(Nonsense::Empty.into());
        }
        if all.len() + list.len() > MOST || bytes > MOST_BYTES {
            return Err(Nonsense::Endless.into());
        }
        all.extend(list);
        if !more {
            return Ok(all);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A number, and bytes.
    #[derive(Debug, PartialEq)]
    struct Thing(u64, usize);

    impl Listed for Thing {
        fn number(&self) -> u64 {
            self.0
        }

        fn bytes(&self) -> usize {
            self.1
        }
    }

    fn listed(
        mut part: impl FnMut(u64) -> (Vec<u64>, bool),
        bytes: usize,
    ) -> Result<Vec<u64>, Nonsense> {
        let all = in_parts(|after| {
            let (list, more) = part(after);
            Ok((list.into_iter().map(|number| Thing(number, bytes)).collect(), more))
        });
        all.map(|all: Vec<Thing>| all.into_iter().map(|it| it.0).collect())
    }

    #[test]
    fn a_list_comes_in_parts_up_to_its_end() {
        let parts = |after| match after {
            0 => (vec![3, 4], true),
            4 => (vec![9], true),
            // What was there has gone meanwhile.
            _ => (vec![], false),
        };
        assert_eq!(listed(parts, 1), Ok(vec![3, 4, 9]));
    }

    #[test]
    fn a_daemon_that_says_the_same_for_ever_is_asked_no_more() {
        for lie in [vec![1, 2, 3], vec![7], vec![5, 4], vec![4, 4], vec![0]] {
            let mut asked = 0;
            let part = |_| {
                asked += 1;
                (lie.clone(), true)
            };
            assert_eq!(listed(part, 1), Err(Nonsense::NotRising), "{lie:?}");
            assert!(asked <= 2, "{lie:?}");
        }
        assert_eq!(listed(|_| (vec![u64::MAX], true), 1), Err(Nonsense::NotRising));
        assert_eq!(listed(|_| (vec![], true), 1), Err(Nonsense::Empty));
        let rising = |after: u64| ((after + 1..=after + 100_000).collect(), true);
        assert_eq!(listed(rising, 1), Err(Nonsense::Endless));
        let mut asked = 0;
        let long = |after: u64| {
            asked += 1;
            (vec![after + 1], true)
        };
        assert_eq!(listed(long, 1 << 20), Err(Nonsense::Endless));
        assert_eq!(asked, 513);
    }

    #[test]
    fn names_count_as_bytes() {
        let name = || Name(vec![b'x'; 10_000]);
        let branch = Branch {
            name: name(),
            number: 1,
            created_ns: None,
            origin: Some(crate::Origin { number: 2, branch: Some(name()), name: name() }),
            snapshots: 0,
            referenced_bytes: 0,
            limit_bytes: None,
            mounted: false,
        };
        assert!(branch.bytes() > 30_000);
        let snapshot = Snapshot {
            name: name(),
            number: 1,
            created_ns: 0,
            lsn: 1,
            parent: None,
            holds: Vec::new(),
            received: Vec::new(),
            inodes: 1,
            forks: vec![name(), name()],
            more_forks: false,
            mounted: false,
        };
        assert!(snapshot.bytes() > 30_000);
    }
}
