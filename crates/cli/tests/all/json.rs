//! What commands print with `--json` keeps its numbers in programs that have doubles alone, as JavaScript and jq.

use std::fs;

use holdfast::Volume;
use serde_json::{Value, json};

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

/// The only line of what a command says, and nothing for people.
fn answer(place: &TestMount, args: &[&str]) -> Value {
    let said = place.run(args).fine();
    let answer =
        serde_json::from_str(&said).unwrap_or_else(|why| panic!("{args:?}: {why}: {said}"));
    assert!(is_exact(&answer), "{answer}");
    answer
}

#[test]
fn what_changes_a_volume_answers_programs() {
    let place = TestMount::new();
    let image = place.image();
    let planned = answer(&place, &["mkfs", "-n", "--json", "--size", "64M", image]);
    assert_eq!((&planned["made"], &planned["uuid"]), (&false.into(), &Value::Null));
    let made = answer(&place, &["mkfs", "--json", "--size", "64M", "--label", "l", image]);
    assert_eq!((&made["made"], &made["volume"]), (&true.into(), &image.into()));
    // Names mean the same wherever they are.
    let info = answer(&place, &["info", "--json", image]);
    let copies = ["metadata_copies", "leaf_copies", "ring_copies"];
    for name in ["uuid", "label", "volume_bytes", "node_size"].iter().chain(&copies) {
        assert!(!made[name].is_null() && made[name] == info[name], "{name}: {made} {info}");
    }
    let created: i64 = info["created_ns"].as_str().unwrap().parse().unwrap();
    assert!(created > 1 << 60 && info["recovery_estimate_ns"].is_u64(), "{info}");
    let facts = &answer(&place, &["fsck", "-n", "--json", image])["facts"];
    assert!(facts["recovery_estimate_ns"].is_u64(), "{facts}");
    for name in ["journal_bytes_used", "log_bytes_used"] {
        assert!(facts[name].is_u64() && facts[name] == info[name], "{name}: {facts} {info}");
    }

    let tune = |args: &[&str]| answer(&place, &[&["tune", "--json", image], args].concat());
    let limit = json!({ "branch": "main", "limit_bytes": 8 << 20 });
    assert_eq!(tune(&["--limit", "8M"]), limit);
    let both = json!({ "branch": "main", "limit_bytes": null, "label": "new" });
    assert_eq!(tune(&["--limit", "none", "--label", "new"]), both);
    let resize = |size: &str| answer(&place, &["resize", "--json", image, size]);
    let sizes = |now: u64, before: u64| json!({ "volume_bytes": now << 20, "volume_bytes_before": before << 20 });
    assert_eq!(resize("+16M"), sizes(80, 64));
    assert_eq!(resize("80M"), sizes(80, 80));
    assert_eq!(resize("64M"), sizes(64, 80));
    let trim = answer(&place, &["trim", "--json", image]);
    assert!(trim["trimmed_bytes"].is_u64() && trim["ranges"].is_u64(), "{trim}");

    place.run(&["snapshot", "create", image, "s"]).fine();
    let (stream, copy) = (place.path("stream"), place.path("copy.img"));
    let to = fs::File::create(&stream).unwrap();
    let sent = place.command(&["send", &format!("{image}@s")]).stdout(to).status().unwrap();
    assert!(sent.success());
    place.run(&["mkfs", "-q", "--size", "64M", &copy]).fine();
    let receive = || answer(&place, &["receive", "--json", &copy, &stream]);
    let come = |was_here: bool| json!({ "branch": "main", "snapshot": "s", "was_here": was_here, "kept": null });
    assert_eq!(receive(), come(false));
    assert_eq!(receive(), come(true));

    Volume::open(image).unwrap().write("/file", "four").unwrap();
    let layout = place.path("layout");
    let export = answer(&place, &["export", "--json", image, "--oci-layout", &layout]);
    assert!(export["digest"].as_str().unwrap().starts_with("sha256:"), "{export}");
    assert_eq!(export["layers"], 1);
    assert_eq!(place.run(&["export", "--json", image, "--tar"]).code, 2);
    let import = answer(&place, &["import", "--json", &copy, "--oci", &layout]);
    let wanted = json!({
        "branch": "main", "snapshots": ["layer-1"], "members": import["members"],
        "file_bytes": 4, "xattrs_left_out": 0,
    });
    assert_eq!(import, wanted);
}

#[test]
fn a_mount_says_what_is_mounted_where() {
    if !can_mount() {
        return;
    }
    let place = TestMount::with_volume();
    place.run(&["fork", place.image(), "work"]).fine();
    let work = format!("{}:work", place.image());
    let mounted = answer(&place, &["mount", "--json", &work, place.dir()]);
    let real = |path: &std::path::Path| fs::canonicalize(path).unwrap().display().to_string();
    let wanted = json!({
        "volume": real(&place.image), "directory": real(&place.dir), "branch": "work",
        "snapshot": null, "pid": place.daemon(),
    });
    assert_eq!(mounted, wanted);
    // A limit that goes is no limit that stays.
    for (limit, bytes) in [("8M", json!(8 << 20)), ("none", Value::Null)] {
        let wanted = json!({ "branch": "work", "limit_bytes": bytes });
        assert_eq!(answer(&place, &["tune", "--json", "--limit", limit, place.dir()]), wanted);
        let list = answer(&place, &["branch", "list", "--json", place.dir()]);
        assert_eq!(list["branches"][1]["limit_bytes"], bytes, "{list}");
    }
    let list = answer(&place, &["list", "--json"]);
    let is_this = |of: &&Value| of["volume"] == wanted["volume"];
    let listed = list["volumes"].as_array().unwrap().iter().find(is_this).unwrap();
    assert!(listed["memory_bytes"].is_u64(), "{listed}");
    // `_bytes` is a size, here as elsewhere.
    assert_eq!(listed.get("volume_bytes").or(listed["mounts"][0].get("directory_bytes")), None);
    place.umount();
}
