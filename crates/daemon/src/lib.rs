//! Floor 7: the process that serves the mounts of a volume, and how other processes reach it.
//!
//! ```text
//! command ── start ──▶ daemon: opens the volume, mounts, answers the kernel, callers and joining mounts
//!    │                    ▲ keeps its mounts, and starts the next one
//!    │                supervisor
//!    ├── dispatch ──▶ control socket ──▶ host ──▶ service, on the open volume; at rest on one that it opens itself
//!    └── ask ───────▶ the mount itself, asked by a process of its own
//! ```
//! What a command calls: [`start`] begins a daemon, [`dispatch`] has work done and questions answered, [`client`] what only a daemon can
//! do. [`ask`] and [`report`] lead to the one behind a mount, [`opening`] to a volume that none has. [`mounts`] says what is mounted,
//! [`metrics`] serves what daemons have counted.
//!
//! The program is run again for what needs a process: `mount --detached`, `ask`, `door`, `watchdog` and `private` are its arguments, and a crate
//! with a `main` ignores SIGXFSZ first and hands these on to [`start::detached`], [`ask::run`], [`descriptor_filter::run`],
//! [`watch`](holdfast_fuse::connection::watch) and [`private_mount::become_command`].
//!
//! Prints nothing but its log: what fails is a [`Failure`](holdfast_service::outcome::Failure), what is to be told goes to the caller.

mod activity;
pub mod ask;
pub mod ask_all;
mod bounds;
mod callers;
mod seccomp;
pub mod client;
mod commands;
mod control_socket;
pub mod descriptors;
pub mod dispatch;
pub mod descriptor_filter;
mod host;
pub mod hung;
pub mod interrupt;
mod log;
pub mod metrics;
pub mod mount_options;
pub mod mounts;
pub mod opening;
pub mod private_mount;
pub mod recovery;
mod release;
pub mod report;
mod drop_privileges;
pub mod uring;
mod serve;
mod mount_list;
mod settle;
pub mod start;
mod stop_reason;
mod supervisor_link;
mod supervisor;
mod surroundings;
mod table;
#[cfg(test)]
mod wire_tests;

/// The code of a failure that keeps a volume from being mounted, as mount(8) has it.
pub const MOUNT_FAILED: u8 = 32;
