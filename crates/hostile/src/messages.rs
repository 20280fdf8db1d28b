//! Messages of the FUSE protocol as bytes: a request, or an error.

use holdfast_wire::init::Dialect;
use holdfast_wire::{Op, Request, init, split};

/// Bytes of a message's header.
const HEADER: usize = 40;

/// A message as it is, and once more with its length put right.
pub fn message(data: &[u8]) {
    for long_setxattr in [false, true] {
        message_in(data, Dialect { long_setxattr });
    }
}

fn message_in(data: &[u8], dialect: Dialect) {
    let _ = Request::decode(data, dialect);
    let mut message = data.to_vec();
    message.resize(data.len().max(HEADER), 0);
    let len = message.len() as u32;
    message[..4].copy_from_slice(&len.to_le_bytes());
    let _ = split(&message, dialect);
    let Ok(request) = Request::decode(&message, dialect) else { return };
    let all = message.len();
    // Nothing that it names is longer than the message.
    let most = match request.op {
        Op::BatchForget(ones) => Op::forgotten(ones).count() * 16,
        Op::Write { bytes, .. } | Op::Ioctl { bytes, .. } => bytes.len(),
        Op::Setxattr { name, value, .. } => name.len() + value.len(),
        Op::Lookup { name } | Op::Create { name, .. } | Op::Mkdir { name, .. } => name.len(),
        Op::Symlink { name, target } => name.len() + target.len(),
        Op::Rename { name, new_name, .. } => name.len() + new_name.len(),
        Op::Init(what) => {
            let _ = init::offered(&what);
            0
        }
        _ => 0,
    };
    assert!(most <= all, "{most} bytes out of a message of {all}");
}

/// A message of each kind, with names behind it.
pub fn message_seeds() -> Vec<Vec<u8>> {
    let of = |code: u8| {
        let mut message = vec![0; HEADER];
        message[4] = code;
        message.extend_from_slice(&[0; 64]);
        message.extend_from_slice(b"a name\0another\0value");
        message
    };
    (1..=60).map(of).collect()
}
