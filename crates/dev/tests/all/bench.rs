//! Benchmarks run, store what they measured, and leave nothing behind. No figure is judged.

use holdfast_bench::result::{Cell, Report};

use crate::common::{TestMount, can_mount};

#[test]
fn mechanisms_run_in_both_positions_and_are_stored_printed_and_rendered() {
    let place = TestMount::new();
    let path = |name: &str| place.path(name);
    let (json, kept, dir) = (path("m.json"), path("kept"), path("volumes"));
    std::fs::create_dir(&dir).unwrap();
    let mut words = vec!["bench", "mechanisms", "--scale", "quick"];
    words.extend(["--json", &json, "--keep", &kept]);
    let mounts = can_mount();
    if mounts {
        words.extend(["--mount", "--dir", &dir]);
    }
    let said = place.run(&words).fine();

    let report = Report::read(json.as_ref()).unwrap();
    assert_eq!(report.name(), "mechanisms");
    assert!(!report.command.join(" ").contains(&json), "{:?}", report.command);
    let names: Vec<&str> = report.sections.iter().map(|section| section.name.as_str()).collect();
    let mut expected = vec!["gains", "m1-library", "m2-library", "m3-library", "m3-bytes"];
    expected.extend(["m4-library", "m4-held", "m5-library-sequential", "m5-library-random"]);
    if mounts {
        expected.extend(["m1-mount", "m2-mount", "m3-mount", "m4-mount"]);
        expected.extend(["m5-mount-sequential", "m5-mount-random"]);
    }
    for name in &expected {
        assert!(names.contains(name), "{name} is missing: {names:?}");
    }
    assert_eq!(names.len(), expected.len(), "{names:?}");
    for mechanism in ["m2", "m3", "m4"] {
        let section = report.section(&format!("{mechanism}-library")).unwrap();
        let column = |key| section.table.columns.iter().position(|column| column.key == key);
        for row in &section.table.rows {
            for at in [column("before").unwrap(), column("after").unwrap()] {
                assert!(matches!(&row.cells[at], Cell::Number { median, .. } if *median > 0.0));
            }
        }
    }
    // One line for each gain, at the end.
    let gains = &report.section("gains").unwrap().table.rows;
    let last: Vec<&str> = said.lines().rev().skip(1).take(gains.len()).collect();
    assert!(last.iter().all(|line| line.contains("published")), "{last:?}");

    std::fs::write(path("doc.md"), "<!-- bench mechanisms m2-library -->\n<!-- end -->\n").unwrap();
    place.run(&["bench", "render", "--results", &kept, &path("doc.md")]).fine();
    let doc = std::fs::read_to_string(path("doc.md")).unwrap();
    assert!(doc.contains("before: directory"), "{doc}");

    let left = std::fs::read_dir(&dir).unwrap().count();
    assert_eq!(left, 0, "volumes and mounts are gone");
    let mounts = holdfast_base::proc::list("/proc/self/mounts").unwrap();
    assert!(!mounts.contains(&dir), "{mounts}");
}

#[test]
fn what_was_not_kept_is_said() {
    let place = TestMount::new();
    let text = "<!-- bench ops none -->\n<!-- end -->\n";
    std::fs::write(place.path("doc.md"), text).unwrap();
    let render = place.run(&["bench", "render", "--results", "nowhere", &place.path("doc.md")]);
    render.fails(1, "no kept report has the section");
    assert_eq!(std::fs::read_to_string(place.path("doc.md")).unwrap(), text);
}

#[test]
fn scaling_has_a_table_with_exponents_for_each_dimension() {
    let place = TestMount::new();
    let json = place.path("s.json");
    let words = ["bench", "scaling", "--scale", "quick", "--only", "directory,volume"];
    let said = place.run(&[&words[..], &["--json", &json]].concat()).fine();
    let report = Report::read(json.as_ref()).unwrap();
    let names: Vec<&str> = report.sections.iter().map(|section| section.name.as_str()).collect();
    assert_eq!(names, ["scaling-directory", "scaling-volume"]);
    assert!(said.contains("create + fsync") && said.contains("power of its growth"), "{said}");
}

#[test]
fn locks_that_do_not_count_are_not_measured() {
    let place = TestMount::new();
    let said = place.run(&["bench", "locks", "--threads", "1,2", "--ops", "10"]);
    if holdfast_bench::locks::COUNTED {
        let said = said.fine();
        assert!(said.contains("Serial part: ") && said.contains("Locks of: create"), "{said}");
    } else {
        said.fails(1, "`make locks` builds one");
    }
}

#[test]
fn the_library_is_measured_beside_the_bare_device() {
    let place = TestMount::new();
    let (json, file) = (place.path("l.json"), place.path("volume"));
    let words =
        ["bench", "--files=50", "--mebibytes=1", "--appends=3", "--rounds=2", "--node=4k,16k"];
    let words = [&words[..], &["--file", &file, "--json", &json]].concat();
    let output =
        place.command(&words).env("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1").output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("create empty files, nodes of 16 KiB"), "{said}");
    let report = Report::read(json.as_ref()).unwrap();
    assert_eq!(report.name(), "library");
    assert_eq!(report.command[0], "GLIBC_TUNABLES=glibc.malloc.hugetlb=1");
    assert_eq!(report.command[1..3], ["holdfast-dev", "bench"]);
    let fsyncs = &report.section("fsyncs").unwrap().table;
    let bare = fsyncs.cell("write 4 KiB and flush, bare device", "flushes").unwrap();
    assert_eq!(bare.median(), Some(1.0));
    assert!(!std::path::Path::new(&file).exists());
}
