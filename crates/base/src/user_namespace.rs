//! Numbers of users and groups, inside a user namespace and outside.
//!
//! `unshare -Ur`, bubblewrap and the like give a user a namespace in which one number is known: the user's own, mostly under the name
//! of root. What such a user makes belongs to that user, so it gets the number that is known outside. A namespace
//! with many users (containers with ranges of subordinate ids) is a world of its own, whose numbers are kept.

use rustix::process::{getegid, geteuid};

/// Numbers from `inside` on are those from `outside` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    inside: u32,
    outside: u32,
    count: u32,
}

/// The numbers that are known in the namespace of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Map(Vec<Range>);

impl Map {
    /// `None` where the kernel does not say: all are taken for known.
    fn read(path: &str) -> Option<Map> {
        Map::parse(&std::fs::read_to_string(path).ok()?)
    }

    fn parse(text: &str) -> Option<Map> {
        let ranges = text.lines().map(|line| {
            let mut numbers = line.split_ascii_whitespace().map(|word| word.parse().ok());
            let mut next = || numbers.next().flatten();
            Some(Range { inside: next()?, outside: next()?, count: next()? })
        });
        ranges.collect::<Option<Vec<Range>>>().map(Map)
    }

    fn knows(&self, number: u32) -> bool {
        let is_in =
            |range: &Range| number.checked_sub(range.inside).is_some_and(|at| at < range.count);
        self.0.iter().any(is_in)
    }

    /// The number outside of a namespace that maps one user alone.
    fn outside(&self, number: u32) -> u32 {
        match self.0[..] {
            [only] if only.count == 1 && only.inside == number => only.outside,
            _ => number,
        }
    }
}

/// Whether this process's user namespace has such a user.
pub fn knows_user(number: u32) -> bool {
    Map::read("/proc/self/uid_map").is_none_or(|map| map.knows(number))
}

/// Whether it has such a group.
pub fn knows_group(number: u32) -> bool {
    Map::read("/proc/self/gid_map").is_none_or(|map| map.knows(number))
}

/// User and group of what this process makes: its own, by the numbers that they have outside of a user namespace in which there is
/// one user alone.
pub fn maker() -> (u32, u32) {
    let of = |path: &str, own: u32| Map::read(path).map_or(own, |map| map.outside(own));
    (of("/proc/self/uid_map", geteuid().as_raw()), of("/proc/self/gid_map", getegid().as_raw()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_alone_has_the_number_from_outside() {
        let of = |text: &str| Map::parse(text).unwrap();
        let alone = of("         0       1000          1\n");
        assert_eq!((alone.outside(0), alone.outside(7)), (1000, 7));
        assert_eq!((alone.knows(0), alone.knows(1), alone.knows(1000)), (true, false, false));
        let many = of("0 1000 1\n1 100000 65536\n");
        assert_eq!((many.outside(0), many.outside(5)), (0, 5));
        assert_eq!((many.knows(65536), many.knows(65537)), (true, false));
        let everybody = of("0 0 4294967295");
        assert_eq!(everybody.outside(1000), 1000);
        assert!(everybody.knows(u32::MAX - 1) && !everybody.knows(u32::MAX));
        // A namespace without a map yet maps no user.
        assert_eq!((of("").outside(65534), of("").knows(65534)), (65534, false));
        for nonsense in ["0 1", "a b c", "0 1000 -1", "0 1 4294967296"] {
            assert_eq!(Map::parse(nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn this_process_is_known_where_it_is() {
        assert!(knows_user(geteuid().as_raw()) && knows_group(getegid().as_raw()));
    }
}
