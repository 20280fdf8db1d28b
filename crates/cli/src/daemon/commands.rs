//! Commands for branches and snapshots, carried out in the daemon of a mount.

use std::sync::{Arc, Weak};

use holdfast::{NewHead, Told};
use holdfast_control::REPLY_MAX;
use holdfast_fuse::{Control, Controlled};
use holdfast_service::branches::answer::{Open, Refusal, answer};
use rustix::io::Errno;

use super::release::release;
use super::table::Table;
use crate::branches::{Ask, Reply};

/// Carries out commands for one of the mounts of a table. `may_write`: the user who has mounted it may write the volume, whatever the
/// kernel lets through.
pub(super) fn control(table: &Arc<Table>, may_write: bool) -> Control {
    let table = Arc::downgrade(table);
    Control::new(move |mount, command| {
        let reply = match read(command) {
            Ok(ask) if !(ask.only_looks() || may_write && mount.may_change()) => {
                Refusal::new(Errno::ROFS, "nothing says that the mount may be written here").reply()
            }
            Ok(ask) => carry_out(&table, mount, &ask),
            Err(no) => no.reply(),
        };
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

fn carry_out(table: &Weak<Table>, mount: &dyn Controlled, ask: &Ask) -> Reply {
    let give_head = |branch: u64, head: NewHead<'_>| {
        let table = table.upgrade().ok_or_else(|| Refusal::new(Errno::BUSY, "the daemon ends"))?;
        table.give_head(branch, head, || Ok(head.give(mount.fs(), branch).map(|()| Told::All)?))
    };
    let open = Open { fs: mount.fs(), is_mounted: true, give_head: &give_head };
    let reply = match ask {
        Ask::Release { name } => match release(table, mount.fs(), name) {
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
