//! Commands for branches and snapshots, carried out in the daemon of a mount.

use holdfast_fuse::{Control, Controlled, PIECE};

use crate::branches::carry_out::{Open, carry_out};
use crate::branches::{Ask, Reply};

/// Carries out commands for a mount.
pub(super) fn control() -> Control {
    Control::new(|mount, command| {
        let reply = match serde_json::from_slice::<Ask>(command) {
            Ok(ask) if !ask.only_looks() && !mount.may_change() => {
                refused("nothing says that the mount may be written here".into())
            }
            Ok(ask) => answer(mount, &ask),
            Err(error) => refused(format!("the daemon does not understand the command: {error}")),
        };
        let message = encode(&reply);
        match message.len() <= PIECE {
            true => message,
            false => encode(&refused("the answer is too long".into())),
        }
    })
}

fn answer(mount: &dyn Controlled, ask: &Ask) -> Reply {
    let roll_back = |to: &[u8], keep: Option<&[u8]>| {
        mount.roll_back(to, keep).map_err(|error| error.to_string())
    };
    let promote = |fork: &[u8], keep: Option<&[u8]>, unchanged| {
        mount.promote(fork, keep, unchanged).map_err(|error| error.to_string())
    };
    let open = Open { fs: mount.fs(), is_mounted: true, roll_back: &roll_back, promote: &promote };
    let reply = carry_out(&open, ask);
    if !ask.only_looks() {
        match &reply {
            Reply::Refused { why } => tracing::info!("refused: {ask:?}: {why}"),
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
