//! A decoded request becomes a call of the server, and its answer bytes.
//!
//! The same for both transports. Most requests are a [`call`]: decode, call,
//! [`encode`](super::answer::encode), with no buffer of the request in use any more while the answer is
//! written, since a ring has one buffer for both. Those that [`fill`] a buffer
//! with data carry none themselves.

use holdfast_base::InodeNo;
use holdfast_wire::Op;
use holdfast_wire::abi::{self, opcode};
use holdfast_wire::dirents::Dirents;

use super::act::{act, file, told};
use super::answer::Out;
use super::convert::{self, Names};
use super::{resend, stale, synchronous, within};
use crate::duplicate_requests::Noted;
use crate::interface::{Answer, Errno};
use crate::server::Server;
use crate::troubles;

/// Whether requests of this kind are a [`fill`].
pub(super) fn fills(code: u32) -> bool {
    matches!(code, opcode::READ | opcode::READDIR | opcode::READDIRPLUS)
}

/// How many bytes a [`fill`] may need; `None` if `op` is none.
pub(super) fn most_filled(op: &Op<'_>) -> Option<u32> {
    match op {
        Op::Read(how) | Op::Readdir(how) | Op::Readdirplus(how) => Some(how.size),
        _ => None,
    }
}

/// Reads into `out` and says how many bytes.
pub(super) fn fill(
    server: &Server,
    header: &abi::InHeader,
    op: &Op<'_>,
    out: &mut [u8],
) -> Answer<usize> {
    troubles::begin();
    if let Some(filled) = within::fill(server, header, op, out) {
        return filled;
    }
    let (how, names) = match op {
        Op::Read(how) => (how, None),
        Op::Readdir(how) => (how, Some(false)),
        Op::Readdirplus(how) => (how, Some(true)),
        _ => return Err(Errno(libc::EIO)),
    };
    let most = out.len().min(how.size as usize);
    let out = &mut out[..most];
    let Some(plus) = names else {
        let file = file(InodeNo(header.nodeid), how.fh, how.flags);
        return told(server, header, op, stale::judged(op, server.read(file, how.offset, out)));
    };
    let mut names = Names::of(Dirents::new(out), plus, server, None);
    server.expect_to_list(&convert::request(header), InodeNo(header.nodeid))?;
    let done = server.readdir(InodeNo(header.nodeid), how.offset, plus, &mut names);
    told(server, header, op, stale::judged(op, done))?;
    names.used()
}

/// Does what is asked. `None`: the request gets no answer.
pub(super) fn call(server: &Server, header: &abi::InHeader, op: &Op<'_>) -> Option<Answer<Out>> {
    call_noting(server, header, op).map(|(answer, _)| answer)
}

/// As [`call`]; what comes with the answer is to be kept until that is sent.
pub(super) fn call_noting(
    server: &Server,
    header: &abi::InHeader,
    op: &Op<'_>,
) -> Option<(Answer<Out>, Option<Noted>)> {
    match op {
        Op::Forget(forget) => {
            if !within::forget(server, header.nodeid, forget.nlookup) {
                server.forget(InodeNo(header.nodeid), forget.nlookup);
            }
        }
        Op::BatchForget(ones) => {
            let live =
                Op::forgotten(ones).filter(|one| !within::forget(server, one.nodeid, one.nlookup));
            server.forget_all(live.map(|one| (InodeNo(one.nodeid), one.nlookup)));
        }
        // Most requests cannot be given up half-way; their answers come by themselves.
        Op::Interrupt(which) => server.interrupts.interrupt(which.unique),
        op => {
            troubles::begin();
            let (answer, noted) = match within::answer(server, header, op) {
                Some(answer) => (answer, None),
                None => {
                    let act = || stale::judged(op, answer(server, header, op));
                    let (answer, noted) = resend::once(server, header, op, act);
                    (told(server, header, op, answer), noted)
                }
            };
            return Some((answer.map(|out| out.shown(&server.options.owners)), noted));
        }
    }
    None
}

fn answer(server: &Server, header: &abi::InHeader, op: &Op<'_>) -> Answer<Out> {
    if !server.is_synchronous(true) && !server.hands_over() {
        return act(server, header, op);
    }
    // The program waits for both.
    let _longer = server.requests().operations().longer();
    let done = act(server, header, op)?;
    synchronous::sync(server, header, op, done)
}
