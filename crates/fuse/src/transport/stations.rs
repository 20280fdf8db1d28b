//! A processor of its own for each of two readers, while two clients ask.
//!
//! The kernel spreads clients over the processors. Each has a reader that polls for requests whenever no other thread
//! wants to run there. So the reader on a client's own processor mostly finds its request, as soon as the client waits,
//! and needs no wake on another processor. Of more than two clients some run while others wait, and a reader that
//! serves what has gathered meanwhile does better. The same goes for two readers where each request comes from a new
//! client.
//!
//! Only where there are two processors ([`super::together`]).

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// Turns that two clients take before there are two, and requests of one of them behind which there is one.
const ROW: u32 = 32;

/// The processors, which of them have a reader, and which clients ask.
pub(super) struct Stations {
    processors: Option<[u16; 2]>,
    manned: [AtomicBool; 2],
    /// The client that asked last, and in the upper half the one before it: in one word, as both readers
    /// write it.
    clients: AtomicU64,
    /// How often in a row the last one asked. May wrap, as the next two.
    row: AtomicU32,
    /// How often the two took turns.
    turns: AtomicU32,
    /// Requests of unknown clients since.
    unknown: AtomicU32,
}

/// One of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Station(usize);

impl Stations {
    pub(super) fn new(processors: Option<[u16; 2]>) -> Stations {
        Stations {
            processors,
            manned: Default::default(),
            clients: AtomicU64::new(0),
            row: AtomicU32::new(0),
            turns: AtomicU32::new(0),
            unknown: AtomicU32::new(0),
        }
    }

    /// A request of `client` (a thread; 0 if unknown) has come.
    pub(super) fn asks(&self, client: u32) {
        if client == 0 {
            // The kernel by itself, after something that a client did; or a client in another PID namespace.
            if self.unknown.fetch_add(1, Ordering::Relaxed) >= ROW {
                self.turns.store(0, Ordering::Relaxed);
            }
            return;
        }
        self.unknown.store(0, Ordering::Relaxed);
        let clients = self.clients.load(Ordering::Relaxed);
        let (last, other) = (clients as u32, (clients >> 32) as u32);
        if client == last {
            if self.row.fetch_add(1, Ordering::Relaxed) >= ROW {
                self.turns.store(0, Ordering::Relaxed);
            }
            return;
        }
        self.clients.store(u64::from(last) << 32 | u64::from(client), Ordering::Relaxed);
        self.row.store(0, Ordering::Relaxed);
        if client == other {
            self.turns.fetch_add(1, Ordering::Relaxed);
        } else {
            self.turns.store(0, Ordering::Relaxed);
        }
    }

    /// How many readers look for requests at the same time.
    pub(super) fn wanted(&self) -> usize {
        let are_two = self.processors.is_some() && self.turns.load(Ordering::Relaxed) >= ROW;
        if are_two { 2 } else { 1 }
    }

    /// A free station and its processor; the one at `preferred` if that is free.
    pub(super) fn take(&self, preferred: Option<u16>) -> Option<(Station, u16)> {
        let processors = self.processors?;
        let first = usize::from(preferred == Some(processors[1]));
        [first, 1 - first].into_iter().find_map(|number| {
            let was_manned = self.manned[number].swap(true, Ordering::Relaxed);
            (!was_manned).then_some((Station(number), processors[number]))
        })
    }

    /// Others may have it.
    pub(super) fn give_back(&self, Station(number): Station) {
        self.manned[number].store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_readers_look_while_the_same_two_ask() {
        let stations = Stations::new(Some([0, 3]));
        let ask = |clients: &[u32], times| {
            for _ in 0..times {
                clients.iter().for_each(|&client| stations.asks(client));
            }
            stations.wanted()
        };
        assert_eq!(ask(&[7, 0, 8], ROW / 2), 1);
        assert_eq!(ask(&[7, 7, 8], 2), 2);
        assert_eq!(ask(&[9], 1), 1);
        assert_eq!(ask(&[7, 8, 9], ROW), 1);
        assert_eq!(ask(&[8, 9], ROW), 2);
        assert_eq!(ask(&[9], ROW), 2);
        assert_eq!(ask(&[9], 2), 1);
        assert_eq!(ask(&[8, 0, 9, 0, 0], ROW), 2);
        assert_eq!(ask(&[0], ROW + 1), 1);
        let alone = Stations::new(None);
        (0..4 * ROW).for_each(|number| alone.asks(7 + number % 2));
        assert_eq!(alone.wanted(), 1);
    }

    #[test]
    fn each_has_one_reader_and_who_comes_back_finds_its_own() {
        let stations = Stations::new(Some([0, 3]));
        let (first, processor) = stations.take(Some(3)).unwrap();
        assert_eq!(processor, 3);
        let (second, processor) = stations.take(Some(3)).unwrap();
        assert_eq!(processor, 0);
        assert_eq!(stations.take(None), None);
        stations.give_back(first);
        assert_eq!(stations.take(Some(0)), Some((first, 3)));
        stations.give_back(second);
        assert_eq!(stations.take(None), Some((second, 0)));
        assert_eq!(Stations::new(None).take(None), None);
    }
}
