//! What the Node.js package `holdfast` is made of: volumes and files, whose calls run on libuv's threads. Arguments are checked, and errors,
//! attributes and everything that is JavaScript's own are made in `lib`.

mod branches;
mod call;
mod file;
mod volume;
