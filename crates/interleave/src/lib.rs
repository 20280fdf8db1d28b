//! The engine under threads that a seed steers: see `tests/threads.rs`.
//!
//! The folders `device`, `store` and `posix` here hold no code: each compiles the
//! source of the crate of that name, with `primitives` instead of
//! `parking_lot` and `holdfast-sync`. So every lock, atomic, wait and call of the
//! device is a point where another thread may go on, and the same seed takes the
//! same way again.
