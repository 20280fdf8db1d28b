//! Ways for requests to arrive and for answers to leave.
//!
//! ```text
//! device: /dev/fuse, some threads read, as many as needed          --+
//!                                                                    +--> dispatch --> server
//! rings:  a queue for each processor, served by threads on it      --+
//! ```
//!
//! The kernel always has the device: for the handshake, and for what it does not
//! send through rings. Rings serve a request on the processor that asks, which
//! saves the wake-up of another one; the kernel has them only where root has
//! allowed it (`enable_uring` of the module `fuse`).

mod act;
mod resend;
mod backoff;
mod answer;
mod convert;
mod device;
mod dispatch;
mod effect;
mod fsync;
mod kind;
pub(crate) mod ending;
mod panics;
mod processors;
pub(crate) mod readers;
mod uring;
mod stale;
mod synchronous;
mod to_kernel;
mod within;

use holdfast_base::switch::{Opens, Transport};

pub(crate) use device::{MAX_WRITE, connect, resume};

/// What is wanted of the kernel, where there is a choice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ways {
    pub(crate) transport: Transport,
    pub(crate) opens: Opens,
    /// Bytes of a request that a ring has room for.
    pub(crate) ring_bytes: usize,
}
