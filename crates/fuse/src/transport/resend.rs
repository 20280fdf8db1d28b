//! Requests that come again, because the process that had them has died ([`DuplicateRequests`]).
//!
//! Most are carried out once more. Others can be carried out only once ([`Change::is_once`]), and are noted. One of those that was carried out gets the
//! [answer](done) that the first process owed.
//!
//! [`DuplicateRequests`]: crate::duplicate_requests::DuplicateRequests

use holdfast_base::InodeNo;
use holdfast_wire::Op;
use holdfast_wire::abi::{self, UNIQUE_RESEND};

use super::answer::Out;
use super::convert;
use super::effect::{Change, Effect, effect};
use crate::duplicate_requests::Noted;
use crate::interface::{Answer, Entry, Errno};
use crate::server::Server;

/// Whether `op` is to be carried out once, however often it comes.
fn is_once(header: &abi::InHeader, op: &Op<'_>) -> bool {
    matches!(effect(header, op), Effect::Changes(Change { is_once: true, .. }))
}

/// Answers a request by `act`, unless a process that has died carried it out. What comes with the answer is to be kept
/// until that is sent.
pub(super) fn once(
    server: &Server,
    header: &abi::InHeader,
    op: &Op<'_>,
    act: impl FnOnce() -> Answer<Out>,
) -> (Answer<Out>, Option<Noted>) {
    let Some(duplicate_requests) =
        server.options.duplicate_requests.as_ref().filter(|_| is_once(header, op))
    else {
        return (act(), None);
    };
    let unique = header.unique & !UNIQUE_RESEND;
    if unique != header.unique && duplicate_requests.was(unique) {
        return (done(server, header, op), None);
    }
    let (answer, noted) = duplicate_requests.noting(unique, act);
    (answer, Some(noted))
}

/// The answer to a request that was carried out: what it has made, as it is now.
fn done(server: &Server, header: &abi::InHeader, op: &Op<'_>) -> Answer<Out> {
    let parent = InodeNo(header.nodeid);
    match op {
        Op::Symlink { name, .. }
        | Op::Mknod { name, .. }
        | Op::Mkdir { name, .. }
        | Op::Link { name, .. } => made(server, header, parent, name).map(Out::Entry),
        _ => Ok(Out::Nothing),
    }
}

fn made(server: &Server, header: &abi::InHeader, parent: InodeNo, name: &[u8]) -> Answer<Entry> {
    let entry = server.lookup(&convert::request(header), parent, name)?;
    // Another request has removed it meanwhile, before this one was answered.
    if entry.attr.is_none() { Err(Errno(libc::ENOENT)) } else { Ok(entry) }
}
