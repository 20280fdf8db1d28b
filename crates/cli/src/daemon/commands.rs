//! Commands for branches and snapshots, carried out in the daemon of a mount.

use std::sync::{Arc, Weak};

use holdfast_fuse::{Control, Controlled, NewHead, PIECE, Told};

use super::release::release;
use super::table::Table;
use crate::branches::carry_out::{Open, carry_out};
use crate::branches::{Ask, Reply};

/// Carries out commands for one of the mounts of a table. `may_write`: the user who has mounted it may write the volume, whatever the
/// kernel lets through.
pub(super) fn control(table: &Arc<Table>, may_write: bool) -> Control {
    let table = Arc::downgrade(table);
    Control::new(move |mount, command| {
        let reply = match serde_json::from_slice::<Ask>(command) {
            Ok(ask) if !(ask.only_looks() || may_write && mount.may_change()) => {
                refused("nothing says that the mount may be written here".into())
            }
            Ok(ask) => answer(&table, mount, &ask),
            Err(error) => refused(format!("the daemon does not understand the command: {error}")),
        };
        let message = encode(&reply);
        match message.len() <= PIECE {
            true => message,
            false => encode(&refused("the answer is too long".into())),
        }
    })
}

fn answer(table: &Weak<Table>, mount: &dyn Controlled, ask: &Ask) -> Reply {
    if !ask.only_looks()
        && let Some(table) = table.upgrade()
    {
        table.close_idle_snapshots();
    }
    let give_head = |branch: u64, head: NewHead<'_>| {
        let table = table.upgrade().ok_or("the daemon ends")?;
        table.give_head(branch, head, || {
            let done = head.give(mount.fs(), branch);
            done.map(|()| Told::All).map_err(|error| error.to_string())
        })
    };
    let open = Open { fs: mount.fs(), is_mounted: true, give_head: &give_head };
    let reply = match ask {
        Ask::Release { name } => match release(table, mount.fs(), name) {
            Ok(()) => Reply::Done { branch: name.clone(), number: None },
            Err(why) => refused(why),
        },
        ask => carry_out(&open, ask),
    };
    if !ask.only_looks() {
        match &reply {
            Reply::Refused { why } | Reply::Diverged { why } => {
                tracing::info!("refused: {ask:?}: {why}")
            }
            _ => tracing::info!("done: {ask:?}"),
        }
    }
    reply
}

fn refused(why: String) -> Reply {
    Reply::Refused { why }
}

fn encode(reply: &Reply) -> Vec<u8> {
    serde_json::to_vec(reply).expect("names, numbers and sentences")
}
