//! Programs that do through a mount what is far from safe Rust, or what takes several users and processes.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use crate::common::{Mount, can_mount};

/// Runs a program with its arguments; `None`, and says so, where there is no Python.
fn python(program: &str, arguments: &[&str]) -> Option<Output> {
    match Command::new("python3").args(["-c", program]).args(arguments).output() {
        Ok(output) => Some(output),
        Err(error) => {
            holdfast_base::skip::skipped(format_args!("python3: {error}"));
            None
        }
    }
}

/// What it prints. It must end well.
pub(crate) fn told(program: &str, arguments: &[&str]) -> Option<String> {
    let output = python(program, arguments)?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{text}\n{complaint}", output.status);
    Some(text)
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A directory of the host's own filesystem that other users may come to.
fn on_the_host() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
    dir
}

/// The first lines that differ, with their numbers.
fn differences(ours: &str, theirs: &str) -> String {
    let (ours, theirs): (Vec<&str>, Vec<&str>) = (ours.lines().collect(), theirs.lines().collect());
    let mut report = String::new();
    for (at, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
        if ours != theirs && report.len() < 4000 {
            report += &format!("line {at}\n  here {ours}\n  host {theirs}\n");
        }
    }
    if ours.len() != theirs.len() {
        report += &format!("{} lines here, {} on the host\n", ours.len(), theirs.len());
    }
    report
}

/// Which user may do what, and the outcome, is as on the host's own filesystem: some thirteen thousand calls.
#[test]
fn every_call_is_allowed_to_whom_linux_allows_it() {
    if !can_mount() {
        return;
    }
    let program = include_str!("users.py");
    let host = on_the_host();
    let Some(expected) = told(program, &[text(host.path())]) else { return };
    let mount = Mount::fresh();
    let found = told(program, &[text(mount.dir.path())]).unwrap();
    let differ = differences(&found, &expected);
    assert!(differ.is_empty(), "{differ}");
    assert!(expected.lines().count() > 10_000, "calls are missing");
}

#[test]
fn asynchronous_direct_writes_leave_nothing_old_to_read() {
    if !can_mount() {
        return;
    }
    let mount = Mount::fresh();
    let file = mount.path("f");
    let calls = [libc::SYS_io_setup, libc::SYS_io_submit, libc::SYS_io_getevents];
    let calls = calls.map(|number| number.to_string());
    told(include_str!("coherence.py"), &[text(&file), &calls[0], &calls[1], &calls[2]]);
}

/// A handle that cannot read would be faster without the page cache. But then the kernel brings the page back as it was
/// before the write, if something else of it was stored meanwhile.
#[test]
fn a_write_beside_stores_into_a_mapping_of_its_page_is_not_lost() {
    if !can_mount() {
        return;
    }
    let mount = Mount::fresh();
    told(include_str!("mapping.py"), &[text(&mount.path("f"))]);
}

/// As a server of network filesystems uses them: also after the daemon was started anew.
#[test]
fn handles_of_files_and_directories_outlive_the_kernels_memory() {
    if !can_mount() {
        return;
    }
    let mount = Mount::fresh();
    for dir in ["d", "d/e", "gone"] {
        fs::create_dir(mount.path(dir)).unwrap();
    }
    for file in ["f", "d/g", "d/e/h", "gone/i", "away"] {
        fs::write(mount.path(file), file).unwrap();
    }
    let keep = on_the_host();
    let keep = keep.path().join("handles");
    let program = include_str!("handles.py");
    // Files first: listing a directory brings what is in it into the kernel's memory.
    let names = ["f", "d/g", "d/e/h", "gone/i", "away", "d", "d/e", "gone", ""];
    let paths: Vec<_> = names.iter().map(|name| mount.path(name)).collect();
    let mut arguments = vec!["keep", text(&keep)];
    arguments.extend(paths.iter().map(|path| text(path)));
    if told(program, &arguments).is_none() {
        return;
    }
    // Names change; numbers do not.
    fs::rename(mount.path("d"), mount.path("moved")).unwrap();
    fs::remove_dir_all(mount.path("gone")).unwrap();
    fs::remove_file(mount.path("away")).unwrap();
    fs::remove_file(mount.path("f")).unwrap();
    fs::write(mount.path("f"), "another").unwrap();
    let mount = mount.remount();
    let found = told(program, &["use", text(&keep), text(mount.dir.path())]).unwrap();
    let expected = [
        ("f", "ESTALE"),
        ("d", "directory e g"),
        ("g", "file d/g"),
        ("e", "directory h"),
        ("h", "file d/e/h"),
        ("gone", "ESTALE"),
        ("i", "ESTALE"),
        ("away", "ESTALE"),
    ];
    for (name, expected) in expected {
        let mut answers =
            found.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        let first = answers.next();
        assert_eq!(first, Some(expected), "{name} in\n{found}");
        assert!(answers.all(|answer| answer == expected), "{name} in\n{found}");
    }
}

/// As on the host's own filesystem.
#[test]
fn a_mount_may_be_mounted_again_with_other_owners() {
    if !can_mount() {
        return;
    }
    let program = include_str!("idmapped.py");
    let run = |source: &Path| {
        for (name, owner) in [("given", (100_005, 100_006)), ("root", (0, 0))] {
            fs::create_dir(source.join(name)).unwrap();
            let (uid, gid) = (Some(owner.0), Some(owner.1));
            std::os::unix::fs::chown(source.join(name), uid, gid).unwrap();
        }
        std::os::unix::fs::chown(source, Some(100_000), Some(100_000)).unwrap();
        fs::set_permissions(source, Permissions::from_mode(0o755)).unwrap();
        let place = on_the_host();
        told(program, &[text(source), text(place.path())])
    };
    let host = on_the_host();
    let Some(expected) = run(host.path()) else { return };
    let mount = Mount::fresh();
    let found = run(mount.dir.path()).unwrap();
    assert_eq!(found, expected);
    assert!(expected.contains("made d/g 0:0 100644, on the volume 100000:100000"), "{expected}");
}
