//! What a daemon says of its mounts, and to which users.

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use holdfast_control::Name;
use holdfast_service::outcome::printable;

use crate::callers::is_trusted;
use crate::control_socket::message::{DaemonAnswer, ServedMount};
use crate::table::{ActiveMounts, Entry, Failed, Table};

/// How long a mount may take to end, and the volume.
const CLOSING: Duration = Duration::from_secs(110);
/// Mounts that a sentence names.
const NAMED: usize = 3;

/// Whether `user` may hear of a mount of `owner`: root and the user of the daemon of all, others of their own.
pub(super) fn may_hear(user: u32, owner: u32) -> bool {
    user == owner || is_trusted(user)
}

pub(super) fn name(path: &Path) -> Name {
    Name(path.as_os_str().as_bytes().into())
}

/// The mounts that `user` may hear of.
pub(super) fn mounts(state: &ActiveMounts, user: u32) -> Vec<ServedMount> {
    let mount = |entry: &Entry| {
        // One that is being closed has no names any more.
        let engine = entry.volume.as_ref()?.engine().ok()?;
        Some(ServedMount {
            dir: name(&entry.dir),
            branch: Name(engine.branch_name().ok()?),
            snapshot: engine.snapshot_name().ok()?.map(Name),
            options: entry.options.clone(),
            read_only: entry.read_only,
            user: entry.user,
        })
    };
    let all = state.mounts.values().filter(|entry| may_hear(user, entry.user));
    all.filter_map(mount).collect()
}

/// Waits until a mount that `user` has unmounted is closed, and says whether the daemon goes on. If it does not, waits until the
/// volume is closed. The kernel gives the numbers of devices away again: a mount that is connected elsewhere is another one.
pub(super) fn closed(table: &Table, user: u32, dir: &Name, device: &str) -> DaemonAnswer {
    let is_it = |at: &Path, of: Option<&str>, owner: u32| {
        may_hear(user, owner)
            && of.map_or_else(|| at.as_os_str().as_bytes() == dir.0, |of| of == device)
    };
    let mut waited_for = BTreeSet::new();
    let mut state = table.wait_while(CLOSING, |state| {
        let mut all = state.mounts.iter();
        let found = all.find(|(_, entry)| {
            // Connected at the same place: another mount namespace has a copy of it still.
            let is_there = entry.dir.as_os_str().as_bytes() == dir.0;
            let is_same = is_it(&entry.dir, entry.device.as_deref(), entry.user);
            is_same && (is_there || !entry.is_connected())
        });
        waited_for.extend(found.map(|(number, _)| *number));
        found.is_some() || !state.goes_on() && state.is_closed.is_none()
    });
    let is_of = |it: &Failed| {
        let is_at = it.dir.as_os_str().as_bytes() == dir.0;
        let is_same = is_at && is_it(&it.dir, it.device.as_deref(), it.user);
        is_same || waited_for.contains(&it.number)
    };
    let at = state.failed.iter().rposition(is_of);
    let own = at.and_then(|at| state.failed.remove(at)).map(|it| it.why);
    let goes_on = state.goes_on();
    let of_all = match &state.is_closed {
        Some(Err(why)) => Some(format!("the volume could not be closed: {why}")),
        _ => None,
    };
    DaemonAnswer::Closed { goes_on, failed: own.or(of_all) }
}

/// Why the volume does not become free when the daemon may end: there are mounts still, or there will be.
pub(super) fn keeps_it(state: &ActiveMounts) -> Option<String> {
    let there: Vec<&Entry> = state.mounts.values().filter(|it| it.is_connected()).collect();
    if there.is_empty() {
        let why = "another mount of it is just being made; try again";
        return state.is_joined().then(|| why.into());
    }
    let one = |it: &&Entry| {
        let dir = it.dir.to_string_lossy();
        format!("{} (user {})", printable(&dir), it.user)
    };
    let mut named: Vec<String> = there.iter().take(NAMED).map(one).collect();
    if there.len() > NAMED {
        named.push(format!("{} more, see holdfast list", there.len() - NAMED));
    }
    Some(format!("it is still mounted at {}; unmount that too", named.join(", ")))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn what_could_not_be_written_is_told_once_to_those_who_may_hear_it() {
        let table = Table::new(channel().0, None);
        let failed = |number, dir: &str, user| Failed {
            number,
            dir: dir.into(),
            device: Some("0:53".into()),
            user,
            why: format!("{dir} broke"),
        };
        let stranger = 1_000_000;
        let mut state = table.lock();
        state.lingers = true;
        state.failed.extend([failed(1, "/a", 0), failed(2, "/b", stranger)]);
        drop(state);
        let ask = |user, dir: &str, device: &str| {
            let answer = closed(&table, user, &Name(dir.as_bytes().into()), device);
            let DaemonAnswer::Closed { goes_on, failed } = answer else { panic!("{answer:?}") };
            (goes_on, failed)
        };
        assert_eq!(ask(stranger, "/a", "0:53"), (true, None), "of another user");
        assert_eq!(ask(0, "/a", "0:54"), (true, None), "another mount");
        assert_eq!(ask(0, "/a", "0:53"), (true, Some("/a broke".into())));
        assert_eq!(ask(0, "/a", "0:53"), (true, None));
        assert_eq!(ask(stranger, "/b", "0:53"), (true, Some("/b broke".into())));
        // The end of all of it.
        table.lock().lingers = false;
        assert!(keeps_it(&table.lock()).is_none());
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| ask(0, "/c", "0:55"));
            table.closed(Err("the device is gone".into()), Duration::from_secs(60));
            let (goes_on, failed) = waits.join().unwrap();
            assert!(!goes_on && failed.unwrap().contains("the device is gone"));
        });
    }
}
