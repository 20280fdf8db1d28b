//! Commands for branches and snapshots on a volume that is not mounted.

use std::fs;

use crate::common::{TestMount, can_mount, number};

fn put(place: &TestMount, text: &str) {
    fs::write(place.path("host"), text).unwrap();
    place.run(&["cp", &place.path("host"), &place.inside("/file")]).fine();
}

fn cat(place: &TestMount) -> String {
    place.run(&["cat", &place.inside("/file")]).fine()
}

#[test]
fn snapshots_are_taken_listed_shown_renamed_held_and_deleted() {
    let place = TestMount::with_volume();
    let image = place.image();
    put(&place, "one");
    let made = place.run(&["snapshot", "create", image, "first"]).fine();
    assert_eq!(made, "main@first\n");
    let by_time = place.run(&["snapshot", "create", image]).fine();
    assert!(by_time.starts_with("main@20") && by_time.ends_with("Z\n"), "{by_time}");
    let by_time = by_time.trim().strip_prefix("main@").unwrap();

    let list = place.run(&["snapshot", "list", image]).fine();
    let names: Vec<&str> = list.lines().map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!(names, ["NAME", "first", by_time], "{list}");
    let show = place.run(&["snapshot", "show", image, "first"]).fine();
    assert!(show.contains("held        no") && show.contains("forks       none"), "{show}");

    place.run(&["snapshot", "rename", image, "first", "1st; größe"]).fine();
    place
        .run(&["snapshot", "show", image, "first"])
        .fails(1, "there is no snapshot `main@first`; `holdfast snapshot list` shows them");
    place.run(&["snapshot", "hold", image, "main@1st; größe"]).fine();
    place.run(&["snapshot", "hold", "--tag", "backup", image, "1st; größe"]).fine();
    place.run(&["snapshot", "hold", "--tag", "backup", image, "1st; größe"]).fails(1, "already");
    let json = place.run(&["snapshot", "show", "--json", image, "1st; größe"]).fine();
    assert!(json.contains("\"tag\":\"hold\"") && json.contains("\"tag\":\"backup\""), "{json}");
    assert!(json.contains("\"name\":\"1st; größe\"") && json.contains("\"branch\":\"main\""));
    assert!(json.contains("\"created_ns\":\"1") || json.contains("\"created_ns\":\"2"), "{json}");
    assert!(!json.contains('.'), "whole numbers: {json}");
    place.run(&["snapshot", "unhold", image, "1st; größe"]).fine();
    place.run(&["snapshot", "unhold", image, "1st; größe"]).fails(1, "is not held by `hold`");
    let show = place.run(&["snapshot", "show", image, "1st; größe"]).fine();
    assert!(show.contains("held        by backup"), "{show}");
    place.run(&["snapshot", "delete", image, "1st; größe"]).fails(1, "is held by `backup`");
    place.run(&["snapshot", "unhold", "--tag", "backup", image, "1st; größe"]).fine();
    let twice = place.run(&[
        "snapshot",
        "delete",
        image,
        "main@1st; größe",
        "none",
        &format!("@{by_time}"),
    ]);
    twice.fails(1, "there is no snapshot `none`");
    let json = place.run(&["snapshot", "list", "--json", image]).fine();
    assert_eq!(json, "{\"branch\":\"main\",\"failed_deletions\":[],\"snapshots\":[]}\n");
    assert_eq!(cat(&place), "one");
    place.fsck();
}

#[test]
fn a_rollback_keeps_what_was_or_discards_it() {
    let place = TestMount::with_volume();
    let image = place.image();
    let names = || {
        let json = place.run(&["snapshot", "list", "--json", image]).fine();
        let parts = json.split("\"name\":\"").skip(1);
        parts.map(|part| part.split('"').next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    put(&place, "one");
    place.run(&["snapshot", "create", image, "one"]).fine();
    put(&place, "two");
    let said = place.run(&["snapshot", "rollback", image, "one"]).fine();
    assert_eq!(cat(&place), "one");
    let kept = names().pop().unwrap();
    assert!(kept.starts_with("before-rollback-20"), "{kept}");
    assert_eq!(said, format!("main is as main@one; what it was is kept as main@{kept}\n"));
    place.run(&["snapshot", "rollback", "--keep", "1", image, &format!("main@{kept}")]).fine();
    assert_eq!(cat(&place), "two");
    let json = place.run(&["snapshot", "rollback", "--discard", "--json", image, "one"]).fine();
    assert_eq!(
        json,
        "{\"branch\":\"main\",\"forgotten\":true,\"kept\":null,\"snapshot\":\"one\"}\n"
    );
    assert_eq!(cat(&place), "one");
    assert_eq!(names(), ["one", &kept, "1"]);
    place.run(&["snapshot", "rollback", "--keep", "1", image, "one"]).fails(1, "exists");
    place
        .run(&["snapshot", "rollback", "--keep", "x", "--discard", image, "one"])
        .fails(2, "--help");
    let fork = format!("{image}:fork");
    place.run(&["snapshot", "rollback", &fork, "main@one"]).fails(2, "and main@one of main");
    place.run(&["snapshot", "rollback", image, "none"]).fails(1, "there is no snapshot `none`");
    assert_eq!(cat(&place), "one");
    place.fsck();
}

#[test]
fn branches_are_forked_listed_renamed_limited_and_deleted() {
    let place = TestMount::with_volume();
    let image = place.image();
    put(&place, "one");
    place.run(&["snapshot", "create", image, "s"]).fine();
    put(&place, "two");
    assert_eq!(place.run(&["fork", image, "now"]).fine(), "now\n");
    let json = place.run(&["fork", "--json", image, "--from", "main@s", "then"]).fine();
    assert!(json.contains("\"branch\":\"then\"") && number(&json, "number") > 1, "{json}");
    place.run(&["fork", &format!("{image}@s"), "again"]).fine();
    place.run(&["fork", &format!("{image}@s"), "--from", "main", "x"]).fails(2, "--from");
    place.run(&["fork", image, "--from", "now", "then"]).fails(1, "`then` exists");
    place.run(&["fork", image, "--from", "main@t", "x"]).fails(1, "there is no");
    let words = "there is no branch `s`; a snapshot is written @s";
    place.run(&["fork", image, "--from", "s", "x"]).fails(1, words);

    place.run(&["snapshot", "create", &format!("{image}:then"), "of then"]).fine();
    place.run(&["branch", "limit", image, ":then", "1M"]).fine();
    let list = place.run(&["branch", "list", image]).fine();
    let rows: Vec<&str> = list.lines().collect();
    assert_eq!(rows.len(), 5, "{list}");
    assert!(rows[1].starts_with("main ") && !list.contains("mounted"), "{list}");
    assert!(rows[3].starts_with("then ") && rows[3].contains("main@s"), "{list}");
    assert!(rows[3].contains("1.0 MiB") || rows[3].contains("1 MiB"), "{list}");
    let json = place.run(&["branch", "list", "--json", image]).fine();
    assert_eq!(json.matches("\"name\":\"s\"").count(), 2, "two grew out of it: {json}");
    assert!(json.contains("\"limit_bytes\":1048576"), "{json}");
    place.run(&["branch", "limit", image, "then", "none"]).fine();
    let json = place.run(&["branch", "list", "--json", image]).fine();
    assert!(!json.contains("1048576") && json.contains("\"limit_bytes\":null"), "{json}");
    let show = place.run(&["snapshot", "show", image, "s"]).fine();
    assert!(show.contains("then, again"), "{show}");

    place.run(&["branch", "rename", image, "then", "later"]).fine();
    place
        .run(&["branch", "rename", image, "then", "x"])
        .fails(1, "there is no branch `then`; `holdfast branch list` shows them");
    place.run(&["branch", "rename", image, "later", "now"]).fails(1, "exists");
    let words = "`main` is the volume's first branch, which is never deleted";
    place.run(&["branch", "delete", image, "main"]).fails(1, words);
    place.run(&["fork", image, "--from", "later@of then", "child"]).fine();
    place.run(&["branch", "delete", image, "later"]).fails(1, "child");
    place
        .run(&["branch", "delete", image, "child", "none", ":later", "again", "now"])
        .fails(1, "`none`");
    let info = place.run(&["info", image]).fine();
    assert!(info.contains("1 branch, "), "{info}");
    let json = place.run(&["info", "--json", image]).fine();
    for name in ["live", "transport", "mounted_branch", "mounted_snapshot"] {
        assert!(json.contains(&format!("\"{name}\":null")), "{name}: {json}");
    }
    assert_eq!(cat(&place), "two");
    place.fsck();
}

#[test]
fn what_cannot_be_is_refused_in_words() {
    let place = TestMount::with_volume();
    let image = place.image();
    let long = "x".repeat(256);
    for (name, words) in [
        ("", "1 to 255"),
        (&long, "1 to 255"),
        ("a/b", "no `/`"),
        ("a@b", "`@`"),
        ("a:b", "`:`"),
        ("a\nb", "control character"),
        ("..", "no names"),
    ] {
        place.run(&["snapshot", "create", image, name]).fails(1, words);
        place.run(&["fork", image, name]).fails(1, words);
    }
    place.run(&["snapshot", "create", image, &"x".repeat(255)]).fine();
    place.run(&["snapshot", "create", image, &"x".repeat(255)]).fails(1, "exists");
    place
        .run(&["snapshot", "create", &format!("{image}:none"), "x"])
        .fails(1, "there is no branch `none`");
    place
        .run(&["snapshot", "list", &format!("{image}:none")])
        .fails(1, "there is no branch `none`");
    place.run(&["snapshot", "create", &format!("{image}@x"), "y"]).fails(2, "names a snapshot");
    place.run(&["branch", "list", &format!("{image}:x")]).fails(2, "names a branch");
    place.run(&["snapshot", "list", "missing.img"]).fails(1, "missing.img");
    place.run(&["snapshot", "list", place.dir()]).fails(1, "not a mounted");
    assert_eq!(place.run(&["snapshot"]).code, 2);
    place.fsck();
}

#[test]
fn a_snapshot_or_branch_is_mounted_by_its_name() {
    if !can_mount() {
        return;
    }
    let place = TestMount::with_volume();
    let image = place.image();
    put(&place, "one");
    place.run(&["snapshot", "create", image, "monday"]).fine();
    put(&place, "two");
    place.run(&["fork", image, "--from", "@monday", "work"]).fine();
    let file = place.dir.join("file");
    let mount = |what: &str| place.run(&["mount", &format!("{image}{what}"), place.dir()]);

    mount("@monday").fine();
    assert_eq!(fs::read_to_string(&file).unwrap(), "one");
    let refused = fs::write(&file, "three").unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc_erofs()));
    assert!(place.mount_line().unwrap().contains(" ro,"), "{:?}", place.mount_line());
    place.run(&["mount", "-o", "remount,rw", place.dir(), place.dir()]).fails(32, "read-only");
    place.run(&["snapshot", "create", place.dir(), "x"]).fails(1, "read-only");
    let info = place.run(&["info", image]).fine();
    assert!(info.contains("main@monday") && info.contains("2 branches, 1 snapshot"), "{info}");
    // Others that only read come in beside it.
    let beside = place.path("beside");
    fs::create_dir(&beside).unwrap();
    place.run(&["mount", &format!("{image}:main@monday"), &beside]).fine();
    place.run(&["umount", &beside]).fine();
    place.umount();

    mount(":work").fine();
    fs::write(&file, "three").unwrap();
    let stats = place.run(&["stats", place.dir()]).fine();
    assert!(stats.contains("work; the volume has 2 branches, 1 snapshot"), "{stats}");
    let stats = place.run(&["stats", "--json", place.dir()]).fine();
    assert!(stats.contains("\"branch\":\"work\""), "{stats}");
    assert_eq!(number(&stats, "snapshots"), 1);
    place.umount();
    assert_eq!(cat(&place), "two", "what is done in a branch shows in no other");

    place.run_as("mount.holdfast", &[image, place.dir(), "-o", "rw,branch=work"]).fine();
    assert_eq!(fs::read_to_string(&file).unwrap(), "three");
    place.umount();
    place.run_as("mount.holdfast", &[&format!("{image}:work"), place.dir(), "-o", "rw"]).fine();
    assert_eq!(fs::read_to_string(&file).unwrap(), "three");
    place.umount();
    place.run(&["mount", "-o", "snapshot=monday", image, place.dir()]).fine();
    assert_eq!(fs::read_to_string(&file).unwrap(), "one");
    place.umount();
    mount(":none").fails(32, "there is no branch `none`");
    mount("@none").fails(32, "there is no snapshot `none`");
    place
        .run(&["mount", "-o", "branch=main", &format!("{image}:work"), place.dir()])
        .fails(1, "work");
    // A file of the whole name wins.
    let whole = format!("{image}:work");
    place.run(&["mkfs", "-q", "--size", "16M", &whole]).fine();
    place.run(&["mount", &whole, place.dir()]).fine();
    assert_eq!(fs::read_dir(&place.dir).unwrap().count(), 0);
    place.umount();
    place.fsck();
}

fn libc_erofs() -> i32 {
    30
}

#[test]
fn paths_in_branches_and_snapshots() {
    let place = TestMount::with_volume();
    let image = place.image();
    let at = |tree: &str, path: &str| format!("{image}{tree}:{path}");
    put(&place, "one");
    place.run(&["snapshot", "create", image, "s"]).fine();
    place.run(&["fork", image, "work"]).fine();
    place.run(&["snapshot", "create", &format!("{image}:work"), "monday"]).fine();
    put(&place, "two");
    fs::write(place.path("host"), "three").unwrap();
    place.run(&["cp", &place.path("host"), &at(":work", "/file")]).fine();

    let trees = [("", "two"), (":main", "two"), ("@s", "one"), (":main@s", "one")];
    let all = [&trees[..], &[(":work", "three"), (":work@monday", "one")]].concat();
    for (tree, text) in &all {
        assert_eq!(place.run(&["cat", &at(tree, "/file")]).fine(), *text, "{tree}");
        assert_eq!(place.run(&["ls", &at(tree, "/")]).fine(), "file\n", "{tree}");
        assert_eq!(place.run(&["ls", &at(tree, "")]).fine(), "file\n", "{tree}");
        assert_eq!(place.run(&["ls", &format!("{image}{tree}")]).fine(), "file\n", "{tree}");
        place.run(&["cp", &at(tree, "/file"), &place.path("out")]).fine();
        assert_eq!(fs::read_to_string(place.path("out")).unwrap(), *text, "{tree}");
    }
    // Several trees of one volume in one command, written and read.
    place.run(&["cp", &at("@s", "/file"), &at("", "/as-it-was")]).fine();
    place.run(&["cp", "-a", &at(":work", "/file"), &at(":main", "/of-work")]).fine();
    fs::create_dir(place.path("out-dir")).unwrap();
    let three = [at("", "/as-it-was"), at(":work@monday", "/file"), at(":work", "/file")];
    let three = three.each_ref().map(String::as_str);
    place.run(&["cp", three[0], three[1], &place.path("out-dir")]).fine();
    assert_eq!(fs::read_to_string(place.path("out-dir/file")).unwrap(), "one");
    place.run(&["cp", three[0], three[2], &place.path("out-dir")]).fine();
    assert_eq!(fs::read_to_string(place.path("out-dir/file")).unwrap(), "three");
    place.run(&["cp", &at("", "/as-it-was"), &at(":main", "/of-work"), &at(":work", "/")]).fine();
    assert_eq!(
        place.run(&["cat", &at(":work", "/as-it-was"), &at(":work", "/of-work")]).fine(),
        "onethree"
    );
    // Nothing is copied into a snapshot, and what is not there is named.
    place.run(&["cp", &place.path("host"), &at("@s", "/new")]).fails(1, "never changes");
    place.run(&["cat", &at("@t", "/file")]).fails(1, "there is no snapshot `t`");
    place.run(&["cat", &at(":none", "/file")]).fails(1, "`none`");
    place.run(&["cat", &at(":work@monday", "/none")]).fails(1, "No such file");
    // A file of the whole name wins.
    fs::copy(image, format!("{image}@s")).unwrap();
    place.run(&["cp", &place.path("host"), &at("@s", "/file")]).fine();
    assert_eq!(place.run(&["cat", &at("@s", "/file")]).fine(), "three");
    assert_eq!(place.run(&["cat", &at(":main@s", "/file")]).fine(), "one");
    place.fsck();
}

#[test]
fn a_fork_is_promoted_unless_its_branch_has_changed() {
    let place = TestMount::with_volume();
    let image = place.image();
    put(&place, "one");
    place.run(&["fork", image, "try"]).fine();
    fs::write(place.path("host"), "two").unwrap();
    let fork = format!("{image}:try");
    place.run(&["cp", &place.path("host"), &format!("{fork}:/file")]).fine();
    place.run(&["snapshot", "create", &fork, "of-the-fork"]).fine();
    let said = place.run(&["branch", "promote", "--keep", "was", image, "try"]).fine();
    assert_eq!(said, "main is what try was; what it was is kept as main@was\n");
    assert_eq!(cat(&place), "two");
    let list = place.run(&["snapshot", "list", image]).fine();
    assert!(list.contains("of-the-fork") && list.contains("was"), "{list}");
    place.run(&["branch", "promote", image, "try"]).fails(1, "there is no branch `try`");
    place
        .run(&["branch", "promote", image, "main"])
        .fails(1, "`main` cannot be promoted to itself");
    place
        .run(&["tune", "--label", "x", &format!("{image}:main")])
        .fails(2, "name the volume alone");

    place.run(&["fork", image, "late"]).fine();
    put(&place, "three");
    place
        .run(&["branch", "promote", image, "late"])
        .fails(1, "`main` has changed since the fork was made; --force");
    assert_eq!(cat(&place), "three");
    let json =
        place.run(&["branch", "promote", "--force", "--discard", "--json", image, "late"]).fine();
    assert_eq!(json, "{\"branch\":\"main\",\"forgotten\":true,\"fork\":\"late\",\"kept\":null}\n");
    assert_eq!(cat(&place), "two");
    place.fsck();
}
