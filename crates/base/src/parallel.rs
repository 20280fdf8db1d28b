//! How much goes on side by side, by the number of processors.
//!
//! Each limit is a function of that number, so that a test can ask for 1 and for 64. A device takes several calls in
//! little more time than one, so a thread that mostly waits for it has company also on one processor; and no
//! device gains from more calls at once than its queue holds, however many processors there are.

use std::sync::OnceLock;

/// Processors that this program may use, as found at the first call; 2 if the system does not say.
pub fn processors() -> usize {
    // Asked once: the answer comes from files about control groups.
    static FOUND: OnceLock<usize> = OnceLock::new();
    *FOUND.get_or_init(|| std::thread::available_parallelism().map_or(2, usize::from))
}

/// Threads that write nodes of a checkpoint or read those of a recovery. Each works out a checksum and then waits for
/// the device, so there are two for each processor; and each has up to 1 MiB in its hands.
pub fn node_threads(processors: usize) -> usize {
    processors.saturating_mul(2).clamp(2, 16)
}

/// Large writes of data that are on their way at once, of all files together. What is on its way is what the next
/// fsync waits for, and four of 256 KiB keep a device as busy as four of 2 MiB: so no more, on any machine.
pub fn large_writes(processors: usize) -> usize {
    processors.clamp(2, 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_processor_keeps_a_device_busy_and_sixty_four_do_not_flood_it() {
        for limit in [node_threads, large_writes] {
            assert_eq!(limit(1), 2, "while one waits the other one works");
            let all: Vec<usize> = (1..=64).chain([1024, usize::MAX]).map(limit).collect();
            assert!(all.is_sorted() && all.iter().all(|count| (2..=16).contains(count)), "{all:?}");
        }
        assert_eq!([2, 4, 64].map(node_threads), [4, 8, 16]);
        assert_eq!([2, 4, 64].map(large_writes), [2, 4, 4]);
        assert!(processors() > 0);
    }
}
