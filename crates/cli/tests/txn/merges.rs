//! `holdfast txn --theirs-if-disjoint`: what a command and others did at the same time, put together or named.

use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use rustix::fs::IFlags;

use crate::common::{PROGRAM, TestMount, said, signal, wait_for, wait_until_ended};
use crate::{can_run, expect_nothing_left, go_on, lineage, mounted, names, start, text, txn};

/// The option.
const DISJOINT: &[&str] = &["--theirs-if-disjoint"];

#[test]
fn what_others_did_elsewhere_is_carried_over() {
    if !can_run() {
        return;
    }
    let place = mounted();
    let at = |name: &str| place.dir.join(name);
    for dir in ["a", "b", "c"] {
        fs::create_dir(at(dir)).unwrap();
        fs::write(at(dir).join("f"), format!("{dir}\n")).unwrap();
    }
    fs::hard_link(at("file"), at("c/link")).unwrap();
    // Names in one directory, a renamed directory on each side, and files with several names.
    let script =
        "echo two > file; mv a moved; mkdir -p b/new; echo mine > b/new/x; ln b/f second; rm c/f";
    let child = start(&place, DISJOINT, script);
    fs::write(at("b/theirs"), "theirs\n").unwrap();
    fs::create_dir(at("d")).unwrap();
    fs::rename(at("b/theirs"), at("d/theirs")).unwrap();
    fs::write(at("other"), vec![7; 300_000]).unwrap();
    fs::write(at("b/beside"), "beside\n").unwrap();
    // What is open goes on with what became of its file.
    let mut open = fs::File::options().append(true).open(at("b/beside")).unwrap();
    go_on(child).fine();
    open.write_all(b"and more\n").unwrap();
    drop(open);
    assert_eq!(names(&place.dir), ["b", "c", "d", "file", "moved", "other", "second"]);
    assert_eq!(names(&at("b")), ["beside", "f", "new"]);
    let texts = ["file", "c/link", "moved/f", "b/new/x", "d/theirs", "b/beside"];
    let found = texts.map(|name| text(&place, name));
    assert_eq!(found, ["two\n", "two\n", "a\n", "mine\n", "theirs\n", "beside\nand more\n"]);
    assert_eq!(fs::read(at("other")).unwrap(), vec![7; 300_000]);
    let inode = |name: &str| fs::metadata(at(name)).unwrap().ino();
    assert_eq!((inode("file"), inode("b/f")), (inode("c/link"), inode("second")));
    assert!(names(&at("c")) == ["link"]);
    expect_nothing_left(&place);
    // Of many at once each is done, and one in another as well.
    let inner = format!("\"{}\" txn --theirs-if-disjoint . -- touch inner", PROGRAM);
    let all: Vec<_> =
        (0..4).map(|n| start(&place, DISJOINT, &format!("{inner}-{n}; echo {n} > n{n}"))).collect();
    for child in all.into_iter().rev() {
        go_on(child).fine();
    }
    for n in 0..4 {
        assert_eq!(text(&place, &format!("n{n}")), format!("{n}\n"));
        assert!(at(&format!("inner-{n}")).exists(), "{n}");
    }
    expect_nothing_left(&place);
    // Both have changed the same: that is named, and kept, and can be compared.
    let child = start(&place, DISJOINT, "echo mine > file; mv moved back; rm other");
    fs::write(at("file"), "theirs\n").unwrap();
    fs::write(at("moved/new"), "x").unwrap();
    let said = go_on(child);
    assert!(said.err.contains("(both have changed c/link, moved)"), "{said:?}");
    said.fails(75, "kept as the branch txn-");
    assert_eq!((text(&place, "file"), at("other").exists()), ("theirs\n".into(), true));
    let (branches, snapshots) = lineage(&place);
    assert!(branches.len() == 2 && snapshots == branches[1..], "{branches:?} {snapshots:?}");
    let kept = branches[1].as_str();
    let mine = place.run(&["diff", place.dir(), &format!("@{kept}"), kept]).fine();
    assert!(mine.contains("removed     other\n"), "{mine}");
    place.run(&["branch", "delete", place.dir(), kept]).fine();
    assert!(lineage(&place).1.is_empty(), "the snapshot that it began with goes with it");
    // Snapshots that the command has taken are of a history that the branch does not have.
    let take = format!("touch mine; \"{}\" snapshot create . taken >/dev/null", PROGRAM);
    let child = start(&place, DISJOINT, &take);
    fs::write(at("theirs"), "x").unwrap();
    go_on(child).fails(75, "the command has taken snapshots (taken)");
    assert!(!at("mine").exists());
    // What fails is not put together with anything, and a dry run is none.
    let failed = txn(&place, DISJOINT, "touch failed; exit 4");
    assert_eq!((failed.code, at("failed").exists()), (4, false));
    let both = ["txn", "--dry-run", "--theirs-if-disjoint", place.dir(), "--", "true"];
    place.run(&both).fails(125, "cannot be used with");
    place.umount();
    place.fsck();
}

/// What chattr(1) has set, on either side, is there behind a merge, and refuses no merge.
#[test]
fn flags_of_both_are_kept() {
    if !can_run() || !rustix::process::geteuid().is_root() {
        return;
    }
    let place = mounted();
    let at = |name: &str| place.dir.join(name);
    let set = |name: &str, flags| {
        let file = fs::File::open(at(name)).unwrap();
        rustix::fs::ioctl_setflags(&file, flags).unwrap();
    };
    fs::create_dir(at("grows")).unwrap();
    for name in ["log", "fixed", "gone", "free", "kept", "other"] {
        fs::write(at(name), name).unwrap();
    }
    ["log", "grows"].iter().for_each(|name| set(name, IFlags::APPEND));
    ["fixed", "gone", "kept"].iter().for_each(|name| set(name, IFlags::IMMUTABLE));
    let script = "echo more >>log; touch grows/mine; chattr -i fixed gone; rm gone; echo new >fixed; \
        chattr +i fixed; echo more >>free; chattr +i free; echo new >new; chattr +a new; mkdir d; chattr +i d";
    let child = start(&place, DISJOINT, &format!("set -e; {script}"));
    fs::write(at("grows/theirs"), "").unwrap();
    set("other", IFlags::IMMUTABLE);
    set("kept", IFlags::APPEND);
    go_on(child).fine();
    let of = |name: &str| rustix::fs::ioctl_getflags(fs::File::open(at(name)).unwrap()).unwrap();
    for (flags, names) in [
        (IFlags::IMMUTABLE, &["fixed", "free", "d", "other"][..]),
        (IFlags::APPEND, &["log", "grows", "new", "kept"]),
        (IFlags::empty(), &["grows/mine", "grows/theirs", "."]),
    ] {
        names.iter().for_each(|name| assert_eq!(of(name), flags, "{name}"));
    }
    let texts = ["log", "fixed", "free", "new"].map(|name| text(&place, name));
    assert_eq!(texts, ["logmore\n", "new\n", "freemore\n", "new\n"]);
    assert!(!at("gone").exists());
    expect_nothing_left(&place);
    place.umount();
    place.fsck();
}

/// The command, or the daemon, is killed at moments around that in which the branch becomes what both did: what others did is there
/// in any case, and what the command did as a whole or not at all.
#[test]
fn what_is_killed_in_a_merge_leaves_the_branch_as_it_was_or_with_both() {
    if !can_run() {
        return;
    }
    let place = mounted();
    for kills_daemon in [false, true] {
        killed(&place, kills_daemon);
    }
    place.umount();
    place.fsck();
}

fn killed(place: &TestMount, kills_daemon: bool) {
    let (mut outcomes, mut before, mut behind) = ([0, 0], 0.0, None);
    // More of them where it takes very long.
    for number in 0..14 {
        if number >= 9 && outcomes.iter().all(|count| *count > 0) {
            break;
        }
        let delay_ms = behind.map_or(before * 2.0 + 8.0, |behind: f64| (before + behind) / 2.0);
        let round = format!("{number}-{kills_daemon}");
        let script = format!(
            "for n in 1 2 3 4 5 6; do echo {round} > f$n; done; rm -f big; head -c 2000000 /dev/zero > big"
        );
        let mut child = start(place, DISJOINT, &script);
        let others = place.dir.join(format!("others-{round}"));
        let mut file = fs::File::create(&others).unwrap();
        file.write_all(round.as_bytes()).unwrap();
        file.sync_all().unwrap();
        drop(file);
        let daemon = place.daemon();
        child.stdin.take().unwrap().write_all(b"\n").unwrap();
        std::thread::sleep(Duration::from_secs_f64(delay_ms / 1000.0));
        signal(if kills_daemon { daemon } else { child.id() }, "KILL");
        let done = said(child.wait_with_output().unwrap());
        if kills_daemon {
            wait_until_ended(daemon);
            place.run(&["umount", place.dir()]);
            place.mount();
        } else {
            // What the killed command had asked for may still be done, or not: behind a transaction it is decided.
            wait_for("what is left is not swept", || {
                txn(place, &[], "true").fine();
                lineage(place) == (vec!["main".into()], vec![])
            });
        }
        let is = [1, 2, 3, 4, 5, 6].map(|n| {
            fs::read_to_string(place.dir.join(format!("f{n}"))).unwrap_or_default().trim_end()
                == round
        });
        let all = is.iter().all(|is| *is);
        assert!(all || is.iter().all(|is| !is), "{round} after {delay_ms} ms: {is:?}, {done:?}");
        assert!(all || done.code != 0, "{round}: it was said to be done: {done:?}");
        assert_eq!(
            fs::read_to_string(&others).unwrap(),
            round,
            "what others did is lost: {done:?}"
        );
        outcomes[usize::from(all)] += 1;
        match all {
            true => behind = Some(delay_ms),
            false => before = delay_ms,
        }
        txn(place, &[], "true").fine();
        expect_nothing_left(place);
    }
    assert!(outcomes.iter().all(|count| *count > 0), "kills before and behind it: {outcomes:?}");
}
