//! File data in memory, on its way to the device.
//!
//! A write ([`accept`]) puts pages into [`crate::file_data`]; a writeback ([`writeback`] of
//! one file, [`group`] of several) gives them places ([`place`]), writes them, and
//! makes their extents visible ([`insert`], [`publish`]). Readers see pages first
//! and the tree after ([`view`]). On a full volume what a file has reserved is
//! written where it is ([`in_place`]).

pub(crate) mod background;
pub(crate) mod commit;
pub(crate) mod counted;
pub(crate) mod accept;
pub(crate) mod grow;
pub(crate) mod group;
pub(crate) mod writeback;
pub(crate) mod insert;
pub(crate) mod complete;
pub(crate) mod place;
pub(crate) mod publish;
pub(crate) mod in_place;
pub(crate) mod view;
pub(crate) mod punch;

#[cfg(test)]
mod in_place_tests;
#[cfg(test)]
mod lost_tests;
#[cfg(test)]
mod promise_tests;
#[cfg(test)]
mod tests;

pub(crate) use writeback::discard;
