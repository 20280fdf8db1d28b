//! What commands print with `--json` keeps its numbers in programs that have doubles alone, as JavaScript and jq.

use std::fs;

use holdfast::Volume;
use serde_json::Value;

use crate::common::{TestMount, can_mount};

/// Up to here a double has each whole number.
const EXACT_MAX: u64 = (1 << 53) - 1;

fn is_exact(value: &Value) -> bool {
    match value {
        Value::Array(all) => all.iter().all(is_exact),
        Value::Object(all) => all.values().all(is_exact),
        Value::Number(number) if number.is_f64() => true,
        Value::Number(number) => {
            number.as_i64().is_none_or(|it| it.unsigned_abs() <= EXACT_MAX)
                && number.as_u64().is_none_or(|it| it <= EXACT_MAX)
        }
        _ => true,
    }
}

/// Each line of what a command says.
fn said(place: &TestMount, args: &[&str]) -> Vec<Value> {
    let said = place.run(args);
    let lines: Vec<Value> =
        said.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(!lines.is_empty(), "{args:?}: {said:?}");
    for line in &lines {
        assert!(is_exact(line), "{args:?}: {line}");
    }
    lines
}

#[test]
fn no_number_is_changed_by_a_reader_with_doubles() {
    let place = TestMount::with_volume();
    let volume = Volume::open(place.image()).unwrap();
    volume.create("/huge").unwrap().set_len((1 << 62) + 1).unwrap();
    volume.write("/file", "content").unwrap();
    volume.close().unwrap();
    let image = place.image();
    place.run(&["snapshot", "create", image, "s"]).fine();
    let huge = place.inside("/huge");
    place.run(&["rm", &huge]).fine();
    let size = ((1_u64 << 62) + 1).to_string();
    let diff = said(&place, &["diff", "--json", image, "@s"]);
    assert_eq!(diff[0]["old_size"], size.as_str());
    let listed = said(&place, &["ls", "--json", &format!("{image}@s:/")]);
    assert_eq!(listed[1]["size"], size.as_str());
    let list = said(&place, &["snapshot", "list", "--json", image]);
    let created = list[0]["snapshots"][0]["created_ns"].as_str().unwrap();
    assert!(created.parse::<i64>().unwrap() > 1 << 60, "{created}");
    let out = place.path("out");
    for args in [
        &["info", "--json", image][..],
        &["fsck", "-n", "--json", image],
        &["snapshot", "show", "--json", image, "s"],
        &["snapshot", "create", "--json", image],
        &["fork", "--json", image, "f"],
        &["branch", "list", "--json", image],
        &["snapshot", "rollback", "--json", image, "s"],
        &["branch", "promote", "--force", "--json", image, "f"],
        &["diff", "--stat", "--json", image, "@s"],
        &["scrub", "--json", image],
        &["prune", "--json", "--keep", "1d:1d", image],
        &["salvage", "--list", "--json", image],
        &["salvage", "--json", image, &out],
    ] {
        said(&place, args);
    }
}

#[test]
fn no_number_of_a_mount_is_changed_by_a_reader_with_doubles() {
    if !can_mount() {
        return;
    }
    let place = TestMount::with_volume();
    place.mount();
    fs::write(place.dir.join("file"), "content").unwrap();
    let file = place.dir.join("file");
    fs::File::open(&file).unwrap().sync_all().unwrap();
    place.run(&["snapshot", "create", place.dir(), "s"]).fine();
    for args in [
        &["stats", "--json", place.dir()][..],
        &["info", "--json", place.dir()],
        &["list", "--json"],
        &["explain", "--json", file.to_str().unwrap()],
        &["snapshot", "list", "--json", place.dir()],
        &["branch", "list", "--json", place.dir()],
        &["scrub", "--json", place.dir()],
    ] {
        said(&place, args);
    }
    place.umount();
}
