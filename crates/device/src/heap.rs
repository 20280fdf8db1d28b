//! The allocator of the C library, for a program that is nothing but Holdfast: its bounds, and what it keeps.
//!
//! glibc gives each of many threads an *arena* of its own, eight for each processor. What was freed in one is not used
//! by another, and comes back to the system only from its end. So a burst of requests, each on its own thread, stayed in
//! memory for ever. Other C libraries have no arenas; there nothing is done.
//!
//! For the daemon. A library must not decide this for the program that it is part of.

/// Has the allocator serve all threads from at most so many arenas, and give what is large back as soon as it is freed.
/// Not to be called more than once, and best before there are threads.
pub fn bound_arenas(arenas: usize) {
    glibc::bound_arenas(arenas);
}

/// Gives freed memory back to the system. Takes some milliseconds for each 100 MiB of it, during which no thread
/// allocates: for moments at which nothing is done.
pub fn give_back() {
    glibc::give_back();
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod glibc {
    /// A block of at least this length has a mapping of its own, and goes back to the system when it is freed: buffers
    /// of requests are such blocks. Once set, it stays so; otherwise glibc would take the first of them for a reason to
    /// keep all others.
    const MAPPED_BYTES: libc::c_int = 512 << 10;
    /// As much may stay free at the end of the heap.
    const KEPT_BYTES: libc::c_int = 4 << 20;

    #[allow(unsafe_code)]
    pub(super) fn bound_arenas(arenas: usize) {
        let arenas = libc::c_int::try_from(arenas.max(1)).unwrap_or(libc::c_int::MAX);
        let said = [
            (libc::M_ARENA_MAX, arenas),
            (libc::M_MMAP_THRESHOLD, MAPPED_BYTES),
            (libc::M_TRIM_THRESHOLD, KEPT_BYTES),
        ];
        for (what, value) in said {
            // SAFETY: mallopt takes any two numbers, locks what it changes, and refuses what it does not know.
            if unsafe { libc::mallopt(what, value) } == 0 {
                tracing::debug!("the allocator refuses option {what} = {value}");
            }
        }
    }

    #[allow(unsafe_code)]
    pub(super) fn give_back() {
        // SAFETY: malloc_trim may be called at any time from any thread; it touches only memory that is free.
        unsafe { libc::malloc_trim(0) };
    }
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
mod glibc {
    pub(super) fn bound_arenas(_arenas: usize) {}

    pub(super) fn give_back() {}
}
