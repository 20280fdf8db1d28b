//! One daemon, many mounts: what happens beside its end, beside a join and beside the end of a mount.

use std::fs;
use std::path::Path;
use std::process::{Child, Stdio};

use crate::common::many::Many;
use crate::common::{Said, can_mount, said, signal, wait_until_ended};

fn start(many: &Many, args: &[&str]) -> Child {
    let mut command = many.place.command(args);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn end(child: Child) -> Said {
    said(child.wait_with_output().unwrap())
}

/// Done, or refused with one sentence.
#[track_caller]
fn expect_answer(said: &Said) {
    let lines = said.err.trim_end().lines().count();
    let is_refused = said.code != 0 && said.err.starts_with("holdfast: ") && lines == 1;
    assert!(said.code == 0 || is_refused, "{said:?}");
    assert!(!said.err.contains("os error") && !said.err.contains("nonsense"), "{said:?}");
}

/// Mounts below this volume's directory that have no daemon.
fn dead(many: &Many) -> Vec<String> {
    let below = many.place.root.path().to_str().unwrap();
    let mounts = holdfast_base::proc::list("/proc/self/mounts").unwrap();
    let dirs = mounts.lines().filter_map(|line| line.split(' ').nth(1));
    let own = dirs.filter(|dir| dir.starts_with(below) && fs::metadata(dir).is_err());
    own.map(Into::into).collect()
}

#[test]
fn sigterm_beside_joins_leaves_no_mount_without_a_daemon() {
    if !can_mount() {
        return;
    }
    let names = ["b1", "b2", "b3", "b4"];
    let many = Many::new(&names);
    for round in 0..4 {
        let main = many.mount("", "main");
        let daemon = many.pid(&main);
        let joins: Vec<Child> = names
            .iter()
            .map(|name| {
                let (what, dir) = (format!("{}:{name}", many.place.image()), many.dir(name));
                start(&many, &["mount", &what, dir.to_str().unwrap()])
            })
            .collect();
        // At another moment of the joins each time.
        std::thread::sleep(std::time::Duration::from_millis(15 * round));
        signal(daemon, "TERM");
        for (name, join) in names.iter().zip(joins) {
            let said = end(join);
            expect_answer(&said);
            // It joined the daemon that ended, or became or joined the next one.
            let is_there = fs::write(many.dir(name).join("file"), format!("{round}")).is_ok();
            assert!(said.code == 0 || !is_there || dead(&many).is_empty(), "{name}: {said:?}");
        }
        wait_until_ended(daemon);
        assert_eq!(dead(&many), [""; 0], "round {round}");
        let _ = many.place.run(&["umount", many.place.image()]);
        many.place.fsck();
    }
}

#[test]
fn sigterm_beside_a_rollback_leaves_one_state_or_the_other() {
    if !can_mount() {
        return;
    }
    let many = Many::new(&["work"]);
    for round in 0..4u64 {
        let [main, work] = [many.mount("", "a"), many.mount(":work", "b")];
        let daemon = many.pid(&main);
        let names = |suffix: &str| (0..200).map(|n| format!("{n}-{suffix}")).collect::<Vec<_>>();
        for name in names("old") {
            fs::write(work.join(name), "old").unwrap();
        }
        let of_work = format!("{}:work", main.display());
        let snapshot = format!("s{round}");
        many.place.run(&["snapshot", "create", &of_work, &snapshot]).fine();
        for (old, new) in names("old").into_iter().zip(names("new")) {
            fs::rename(work.join(old), work.join(new)).unwrap();
        }
        let args = ["snapshot", "rollback", "--discard", &of_work, &snapshot];
        let rollback = start(&many, &args);
        std::thread::sleep(std::time::Duration::from_millis(3 * round));
        signal(daemon, "TERM");
        let said = end(rollback);
        expect_answer(&said);
        wait_until_ended(daemon);
        assert_eq!(dead(&many), [""; 0]);
        let ls = many.place.run(&["ls", &format!("{}:work:/", many.place.image())]).fine();
        let count = |suffix: &str| ls.split_whitespace().filter(|it| it.ends_with(suffix)).count();
        let both = (count("-old"), count("-new"));
        assert!([(200, 0), (0, 200)].contains(&both), "round {round}: {both:?} after {said:?}");
        assert!(said.code != 0 || both.0 == 200, "it was said to be done: {both:?}");
        many.place.fsck();
        let work = many.mount(":work", "b");
        for name in names("old").into_iter().chain(names("new")) {
            let _ = fs::remove_file(work.join(name));
        }
        many.place.run(&["umount", many.place.image()]).fine();
    }
}

#[test]
fn the_snapshots_of_a_mount_that_is_only_read_are_only_read() {
    if !can_mount() {
        return;
    }
    let many = Many::new(&["work"]);
    let [main, work] = [many.mount("", "a"), many.mount(":work", "b")];
    fs::write(work.join("file"), "then").unwrap();
    let of_work = format!("{}:work", main.display());
    many.place.run(&["snapshot", "create", &of_work, "monday"]).fine();
    many.place.run(&["umount", work.to_str().unwrap()]).fine();
    let what = format!("{}:work", many.place.image());
    many.place.run(&["mount", "-o", "ro", &what, work.to_str().unwrap()]).fine();
    let all = work.join(".snapshots");
    let names =
        || fs::read_dir(&all).unwrap().map(|it| it.unwrap().file_name()).collect::<Vec<_>>();
    assert_eq!(names(), ["monday"]);
    assert_eq!(fs::read_to_string(all.join("monday/file")).unwrap(), "then");
    let refused = [
        fs::create_dir(all.join("new")),
        fs::remove_dir(all.join("monday")),
        fs::rename(all.join("monday"), all.join("tuesday")),
        fs::write(all.join("monday/file"), "now"),
    ];
    for (number, done) in refused.into_iter().enumerate() {
        let kind = done.map_err(|error| error.kind());
        assert_eq!(kind, Err(std::io::ErrorKind::ReadOnlyFilesystem), "{number}");
    }
    assert_eq!(names(), ["monday"]);
    many.place.run(&["umount", many.place.image()]).fine();
    many.place.fsck();
}

#[test]
fn commands_beside_the_end_of_their_mount_are_done_or_refused() {
    if !can_mount() {
        return;
    }
    let many = Many::new(&["work"]);
    let main = many.mount("", "a");
    let of_work = format!("{}:work", main.display());
    let exists = |name: &str| {
        let list = many.place.run(&["snapshot", "list", "--json", &of_work]).fine();
        list.contains(&format!("\"{name}\""))
    };
    for round in 0..6 {
        let work = many.mount(":work", "b");
        fs::write(work.join("file"), vec![round; 1 << 20]).unwrap();
        // One by the mount that goes, one by another.
        let [own, other] = ["own", "other"].map(|by| format!("{by}{round}"));
        let dir = work.to_str().unwrap().to_owned();
        let umount = start(&many, &["umount", &dir]);
        let commands = [
            start(&many, &["snapshot", "create", &dir, &own]),
            start(&many, &["snapshot", "create", &of_work, &other]),
        ];
        for (command, name) in commands.into_iter().zip([own, other]) {
            let said = end(command);
            expect_answer(&said);
            // Where nothing is mounted any more the directory is no volume.
            assert!(said.code != 0 || exists(&name), "{name}: {said:?}");
        }
        let said = end(umount);
        // The command had the directory open.
        let is_busy = said.code == 32 && said.err.contains("is busy");
        assert!(said.code == 0 || is_busy, "{said:?}");
        if is_busy {
            many.place.run(&["umount", &dir]).fine();
        }
        assert!(fs::metadata(Path::new(&dir).join("file")).is_err());
    }
    many.place.run(&["umount", many.place.image()]).fine();
    many.place.fsck();
}
