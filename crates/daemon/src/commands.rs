//! What is asked of branches and snapshots, answered in the daemon: by the control socket, or through a mount.

use std::sync::{Arc, Weak};

use holdfast::{FileSystem, NewHead, Told};
use holdfast_control::REPLY_MAX;
use holdfast_control::{Ask, Reply};
use holdfast_fuse::Control;
use holdfast_service::branches::answer::{Open, Refusal, answer};
use holdfast_service::rights::judge;
use rustix::io::Errno;

use crate::release::release;
use crate::table::Table;

/// Carries out commands for one of the mounts of a table. `may_write`: the user who has mounted it may write the volume, whatever the
/// kernel lets through.
pub(super) fn control(table: &Arc<Table>, may_write: bool) -> Control {
    let table = Arc::downgrade(table);
    Control::new(move |mount, command| {
        let reply = read(command).and_then(|ask| {
            let judged = judge((&ask).into(), Some(may_write && mount.may_change()), false);
            judged.map_err(|why| Refusal::new(Errno::ROFS, why))?;
            Ok(carry_out(&table, mount.fs(), REPLY_MAX, &ask))
        });
        let reply = reply.unwrap_or_else(Refusal::reply);
        let message = encode(&reply);
        match message.len() <= REPLY_MAX {
            true => message,
            false => encode(&Refusal::new(Errno::MSGSIZE, "the answer is too long").reply()),
        }
    })
}

/// What a command asks. One that this program does not know may be of a newer one.
fn read(command: &[u8]) -> Result<Ask, Refusal> {
    serde_json::from_slice(command).map_err(|error| {
        let why = format!("the daemon does not understand the command: {error}");
        Refusal::new(Errno::OPNOTSUPP, why)
    })
}

/// Answers with `most` bytes, by what is open of the volume.
pub(super) fn carry_out(table: &Weak<Table>, fs: &FileSystem, most: usize, ask: &Ask) -> Reply {
    let give_head = |branch: u64, head: NewHead<'_>| {
        let table = table.upgrade().ok_or_else(|| Refusal::new(Errno::BUSY, "the daemon ends"))?;
        table.give_head(branch, head, || Ok(head.give(fs, branch).map(|()| Told::All)?))
    };
    let open = Open { fs, is_mounted: true, most, give_head: &give_head };
    let reply = match ask {
        Ask::Release { name } => match release(table, fs, name) {
            Ok(()) => Reply::Done { branch: name.clone(), number: None },
            Err(no) => no.reply(),
        },
        ask => answer(&open, ask),
    };
    if !ask.only_looks() {
        match &reply {
            Reply::Refused { why, .. } | Reply::Diverged { why } => {
                tracing::info!("refused: {ask:?}: {why}")
            }
            _ => tracing::info!("done: {ask:?}"),
        }
    }
    reply
}

fn encode(reply: &Reply) -> Vec<u8> {
    serde_json::to_vec(reply).expect("names, numbers and sentences")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_understood_has_a_number() {
        assert!(matches!(read(br#"{"branches":{"after":0}}"#), Ok(Ask::Branches { after: 0 })));
        for unknown in [&b"{}"[..], b"", b"\xff", br#"{"later":{}}"#] {
            let Reply::Refused { why, errno } = read(unknown).unwrap_err().reply() else {
                panic!()
            };
            assert_eq!(errno, Some(Errno::OPNOTSUPP.raw_os_error()), "{why}");
        }
    }
}
