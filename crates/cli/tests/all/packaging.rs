//! What `make install` puts elsewhere, and what systemd, udev, file(1) and mount(8) make of it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{Said, TestMount, can_mount, said, signal, wait_until_ended};

/// The top of the repository.
fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The unit as `make install` writes it, for a program below `prefix`.
fn unit(prefix: &str) -> String {
    installed("holdfast@.service.in", prefix)
}

fn installed(name: &str, prefix: &str) -> String {
    let unit = fs::read_to_string(top().join("packaging").join(name)).unwrap();
    let unit = unit.replace("@PREFIX@", prefix);
    let is_set = |line: &str| line.starts_with("SystemCallFilter=@");
    let other = |line: &&str| {
        line.contains('@') && !line.ends_with("=holdfast@%i.service") && !is_set(line)
    };
    let rest: Vec<&str> = unit.lines().filter(other).collect();
    assert!(rest.iter().all(|line| line.starts_with('#')), "{rest:?}");
    unit
}

/// The program's arguments in the unit's line `key`, with the variables of a volume in their places.
fn arguments(unit: &str, key: &str, place: &TestMount, options: &str) -> Vec<String> {
    let line = unit.lines().find_map(|line| line.strip_prefix(&format!("{key}="))).unwrap();
    let line = line.replace("${VOLUME}", place.image()).replace("${DIR}", place.dir());
    let line = line.replace("${OPTIONS}", options).replace('"', "");
    line.split(' ').skip(1).map(String::from).collect()
}

#[test]
fn systemd_understands_the_unit_and_boots_with_it() {
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        holdfast_base::skip::skipped("there is no systemd-analyze here");
        return;
    }
    let place = TestMount::new();
    let bin = place.root.path().join("bin");
    fs::create_dir(&bin).unwrap();
    symlink(env!("CARGO_BIN_EXE_holdfast"), bin.join("holdfast")).unwrap();
    let units = place.root.path().join("units");
    let own = units.join("holdfast@data.service.d");
    fs::create_dir_all(&own).unwrap();
    fs::write(units.join("holdfast@.service"), unit(place.root.path().to_str().unwrap())).unwrap();
    symlink("holdfast@.service", units.join("holdfast@data.service")).unwrap();
    let volume = "[Unit]\nRequiresMountsFor=/srv/data.holdfast /mnt/data\n[Service]\n\
        Environment=VOLUME=/srv/data.holdfast DIR=/mnt/data OPTIONS=noatime\n";
    fs::write(own.join("volume.conf"), volume).unwrap();
    for what in ["prune", "scrub", "snapshot"] {
        let root = place.root.path().to_str().unwrap();
        let service = installed(&format!("holdfast-{what}@.service.in"), root);
        fs::write(units.join(format!("holdfast-{what}@.service")), service).unwrap();
        let timer = format!("holdfast-{what}@.timer");
        fs::copy(top().join("packaging").join(&timer), units.join(&timer)).unwrap();
        for kind in ["service", "timer"] {
            let one = format!("holdfast-{what}@data.{kind}");
            symlink(format!("holdfast-{what}@.{kind}"), units.join(one)).unwrap();
        }
    }
    for name in [
        "holdfast@.service",
        "holdfast@data.service",
        "holdfast-prune@data.service",
        "holdfast-prune@data.timer",
        "holdfast-scrub@data.service",
        "holdfast-scrub@data.timer",
        "holdfast-snapshot@data.service",
        "holdfast-snapshot@data.timer",
    ] {
        // It puts the unit into the boot of this machine, as far as that has units.
        let mut verify = Command::new("systemd-analyze");
        let verified =
            said(verify.args(["verify", "--man=no"]).arg(units.join(name)).output().unwrap());
        assert!(
            !verified.err.contains("holdfast") && !verified.err.contains("cycle"),
            "{verified:?}"
        );
        assert_eq!(verified.code, 0, "{verified:?}");
    }
}

#[test]
fn what_the_unit_runs_works_also_after_a_daemon_that_was_killed() {
    if !can_mount() {
        return;
    }
    let place = TestMount::with_volume();
    let unit = unit("/opt/holdfast");
    let run = |key: &str| {
        let args = arguments(&unit, key, &place, "noatime");
        place.run(&args.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let start = || {
        run("ExecStartPre").fine();
        let args = arguments(&unit, "ExecStart", &place, "noatime");
        let socket = std::os::unix::net::UnixDatagram::bind(place.path("notify")).unwrap();
        let mut server = place.command(&args.iter().map(String::as_str).collect::<Vec<_>>());
        server.env("NOTIFY_SOCKET", place.path("notify")).stderr(std::process::Stdio::null());
        let server = server.spawn().unwrap();
        let mut word = [0; 64];
        let length = socket.recv(&mut word).unwrap();
        assert_eq!(&word[..length], b"READY=1");
        fs::remove_file(place.path("notify")).unwrap();
        assert!(place.mount_line().unwrap().contains("noatime"));
        server
    };
    let mut server = start();
    fs::write(place.dir.join("file"), "content").unwrap();
    place.run(&["sync", place.dir()]).fine();
    signal(server.id(), "KILL");
    wait_until_ended(server.id());
    server.wait().unwrap();
    assert!(place.is_mounted(), "it is in the way");
    let mut server = start();
    assert_eq!(fs::read_to_string(place.dir.join("file")).unwrap(), "content");
    run("ExecStop").fine();
    assert_eq!(server.wait().unwrap().code(), Some(0));
    assert!(!place.is_mounted());
}

#[test]
fn what_the_timers_run_takes_snapshots_and_prunes() {
    let place = TestMount::with_volume();
    let run = |what: &str, keep: Option<&str>| {
        let unit = installed(&format!("holdfast-{what}@.service.in"), "/opt/holdfast");
        let line = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
        let variables = unit.lines().find_map(|line| line.strip_prefix("Environment="));
        let mut line = line.replace("${DIR}", place.image()).replace('"', "");
        for variable in variables.into_iter().flat_map(|all| all.split(' ')) {
            let (name, value) = variable.split_once('=').unwrap();
            let value = keep.filter(|_| name == "KEEP").unwrap_or(value);
            line = line.replace(&format!("${{{name}}}"), value);
        }
        let args: Vec<&str> = line.split(' ').skip(1).collect();
        place.run(&args).fine()
    };
    place.run(&["snapshot", "create", place.image(), "before-upgrade"]).fine();
    run("snapshot", None);
    assert_eq!(run("prune", None), "", "a young snapshot stays, and so does one with a name");
    let list = place.run(&["snapshot", "list", place.image()]).fine();
    assert_eq!(list.lines().count(), 3, "{list}");
    run("snapshot", None);
    let pruned = run("prune", Some("10000d:10000d"));
    assert!(pruned.starts_with("deleted  main@20"), "{pruned}");
    // One line turns on both.
    let timer = fs::read_to_string(top().join("packaging/holdfast-snapshot@.timer")).unwrap();
    assert!(timer.contains("Wants=holdfast-prune@%i.timer"), "{timer}");
}

#[test]
fn what_the_timer_runs_scrubs() {
    let place = TestMount::with_volume();
    let unit = installed("holdfast-scrub@.service.in", "/opt/holdfast");
    let line = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
    for rate in ["", "--rate=50M "] {
        let line = line.replace("$SCRUB ", rate).replace("\"${DIR}\"", place.image());
        let args: Vec<&str> = line.split(' ').skip(1).collect();
        let mut scrub = place.command(&args);
        let said = said(scrub.env("XDG_STATE_HOME", place.path("state")).output().unwrap());
        assert!(said.fine().contains("nothing is damaged"));
    }
}

/// `make TARGET` in the repository, as root calls it who has no compiler.
fn make(target: &str, variables: &[String]) -> Said {
    let mut make = Command::new("make");
    make.arg("--no-print-directory").arg("-C").arg(top()).arg(target).args(variables);
    said(make.env_clear().env("PATH", "/usr/bin:/bin").output().unwrap())
}

/// Everything below a directory that is none itself, without the directory in front.
fn files(below: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut left = vec![below.to_path_buf()];
    while let Some(folder) = left.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            match entry.file_type().unwrap().is_dir() {
                true => left.push(entry.path()),
                false => {
                    let path = entry.path();
                    found.push(path.strip_prefix(below).unwrap().to_str().unwrap().to_owned());
                }
            }
        }
    }
    found.sort();
    found
}

/// Where a tree of `make install` has one thing, from the prefix.
const PAGES: &str = "share/man/man8";

/// What `make install` has put below `prefix` of the tree `dest`, whose links are in `sbin`.
#[track_caller]
fn is_complete(dest: &Path, prefix: &str, sbin: &str) {
    let installed = files(dest);
    let own = prefix.trim_start_matches('/');
    let sbin = sbin.trim_start_matches('/');
    let astray = |path: &&String| !path.starts_with(own) && !path.starts_with(sbin);
    assert_eq!(installed.iter().find(astray), None, "outside of the prefix");
    for path in [
        "bin/holdfast",
        "lib/systemd/system/holdfast@.service",
        "lib/systemd/system/holdfast-prune@.service",
        "lib/systemd/system/holdfast-prune@.timer",
        "lib/systemd/system/holdfast-scrub@.service",
        "lib/systemd/system/holdfast-scrub@.timer",
        "lib/systemd/system/holdfast-snapshot@.service",
        "lib/systemd/system/holdfast-snapshot@.timer",
        "lib/udev/rules.d/61-holdfast.rules",
        "share/bash-completion/completions/holdfast",
        "share/doc/holdfast/CHANGELOG.md",
        "share/doc/holdfast/LICENSE-APACHE",
        "share/doc/holdfast/LICENSE-MIT",
        "share/fish/vendor_completions.d/holdfast.fish",
        "share/holdfast/holdfast.magic",
        "share/man/man1/holdfast.1",
        "share/man/man1/holdfast-snapshot-create.1",
        "share/man/man8/mount.fuse.holdfast.8",
        "share/zsh/site-functions/_holdfast",
    ] {
        assert!(fs::metadata(dest.join(own).join(path)).unwrap().len() > 0, "{path}");
    }
    for path in installed.iter().filter(|path| !path.ends_with("/holdfast")) {
        let Ok(text) = fs::read_to_string(dest.join(path)) else { continue };
        // `@SNAPSHOT` stands in pages, and nothing but capitals between two of them is left of a place.
        let is_place = |part: &&str| part.len() > 1 && part.bytes().all(|b| b.is_ascii_uppercase());
        let parts: Vec<&str> = text.split('@').collect();
        let inner = parts.get(1..parts.len() - 1).unwrap_or_default();
        assert_eq!(inner.iter().find(|part| is_place(part)), None, "{path}");
        // Others read it, whatever the umask of root was.
        let mode = fs::metadata(dest.join(path)).unwrap().permissions().mode();
        assert_eq!(mode & 0o444, 0o444, "{path}");
    }
    // A link for each page, and a page for each link.
    let names = |folder: &str| {
        let mut names = Vec::new();
        for entry in fs::read_dir(dest.join(folder)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            names.push(name.trim_end_matches(".8").to_owned());
        }
        names.sort();
        names
    };
    let linked = names(sbin);
    assert_eq!(linked, names(&format!("{own}/{PAGES}")));
    assert!(linked.len() >= 6, "{linked:?}");
    for name in linked {
        let link = fs::read_link(dest.join(sbin).join(&name)).unwrap();
        let target = match link.strip_prefix("/") {
            Ok(path) => dest.join(path),
            Err(_) => dest.join(sbin).join(&link),
        };
        let program = dest.join(own).join("bin/holdfast");
        assert_eq!(target.canonicalize().unwrap(), program.canonicalize().unwrap(), "{name}");
    }
    let unit = dest.join(own).join("lib/systemd/system/holdfast@.service");
    let start = format!("ExecStart={prefix}/bin/holdfast mount ");
    assert!(fs::read_to_string(unit).unwrap().contains(&start));
    let rules = fs::read_to_string(dest.join(own).join("lib/udev/rules.d/61-holdfast.rules"));
    let import = format!("\nIMPORT{{program}}=\"{prefix}/bin/holdfast info --udev $devnode\"\n");
    assert!(rules.unwrap().contains(&import));
}

#[test]
fn make_install_puts_all_of_it_below_its_prefix_and_make_uninstall_takes_it_away() {
    let place = TestMount::new();
    // Whatever is beside it stays, also where directories are its own.
    let neighbours =
        ["opt/it/share/doc/holdfast/notes", "opt/it/share/holdfast/x", "opt/it/share/man/man8/x.8"];
    for (prefix, sbin) in
        [("/opt/it", "/opt/it/sbin"), ("/usr", "/usr/sbin"), ("/usr/local", "/sbin")]
    {
        let dest = place.root.path().join(prefix.replace('/', "_"));
        let variables =
            [format!("DESTDIR={}", dest.display()), format!("PREFIX={prefix}"), program()];
        let said = make("install", &variables);
        assert_eq!(said.code, 0, "{said:?}");
        assert_eq!(said.err, "", "{said:?}");
        // Elsewhere mount(8) does not look for its helpers.
        assert_eq!(said.out.contains("SBINDIR=/sbin"), prefix == "/opt/it", "{said:?}");
        assert_eq!(said.out.matches("neither systemd nor udev").count() == 2, prefix == "/opt/it");
        is_complete(&dest, prefix, sbin);
        let stays: &[&str] = if prefix == "/opt/it" { &neighbours } else { &[] };
        for neighbour in stays {
            fs::write(dest.join(neighbour), "another's").unwrap();
        }
        // Once more over itself, as an upgrade does it from a version that had another command.
        let gone = dest.join(prefix.trim_start_matches('/')).join("share/man/man1/holdfast-gone.1");
        fs::write(&gone, "a page").unwrap();
        assert_eq!(make("install", &variables).code, 0);
        assert!(!gone.exists());
        assert_eq!(make("uninstall", &variables).code, 0);
        assert_eq!(files(&dest), stays);
    }
}

#[test]
fn links_of_another_program_are_neither_replaced_nor_removed() {
    let place = TestMount::new();
    let dest = place.root.path().join("dest");
    let sbin = dest.join("sbin");
    fs::create_dir_all(&sbin).unwrap();
    // As a package has it, where /sbin is /usr/sbin.
    symlink("../bin/holdfast", sbin.join("mkfs.holdfast")).unwrap();
    fs::write(sbin.join("fsck.holdfast"), "another's").unwrap();
    let mut variables = vec![format!("DESTDIR={}", dest.display()), program()];
    for name in ["fsck", "mkfs"] {
        let said = make("install", &variables);
        assert_ne!(said.code, 0);
        let sentence = format!("/sbin/{name}.holdfast is not a link to /usr/local/bin/holdfast: ");
        assert!(said.err.contains(&sentence) && said.err.contains("FORCE=1"), "{said:?}");
        assert_eq!(files(&dest).len(), 2, "nothing was installed");
        let said = make("uninstall", &variables);
        assert_eq!((said.code, said.err.as_str()), (0, ""), "{said:?}");
        assert!(said.out.contains(&format!("/sbin/{name}.holdfast stays")), "{said:?}");
        assert_eq!(files(&dest).len(), 2, "nothing was removed");
        if name == "fsck" {
            fs::rename(sbin.join("fsck.holdfast"), sbin.join("umount.holdfast")).unwrap();
        }
    }
    variables.push("FORCE=1".to_owned());
    assert_eq!(make("install", &variables).code, 0);
    is_complete(&dest, "/usr/local", "/sbin");
    assert_eq!(make("uninstall", &variables).code, 0);
    assert_eq!(files(&dest), [""; 0]);
}

#[test]
fn a_directory_that_is_not_absolute_is_refused() {
    let place = TestMount::new();
    let dest = place.root.path().join("dest");
    for path in ["PREFIX=~/.local", "DOCDIR=", "SBINDIR=sbin"] {
        for target in ["install", "uninstall"] {
            let variables = [format!("DESTDIR={}", dest.display()), program(), path.to_owned()];
            let said = make(target, &variables);
            assert_ne!(said.code, 0);
            let value = path.split_once('=').unwrap().1;
            let sentence = format!("begin with a slash, which '{value}' does not; write $HOME");
            assert!(said.err.contains(&sentence), "{said:?}");
            assert!(!dest.exists());
        }
    }
}

fn program() -> String {
    format!("PROGRAM={}", env!("CARGO_BIN_EXE_holdfast"))
}

#[test]
fn what_is_not_built_is_not_installed() {
    let place = TestMount::new();
    for (how, built_by) in [("", "build"), ("STATIC=1", "static"), ("PROFILED=1", "profiled")] {
        let dest = place.root.path().join("dest");
        let variables = [
            format!("DESTDIR={}", dest.display()),
            format!("TARGET_DIR={}", place.path("nothing")),
            how.to_owned(),
        ];
        let set = variables.iter().filter(|it| !it.is_empty()).cloned().collect::<Vec<_>>();
        let said = make("install", &set);
        assert_ne!(said.code, 0);
        assert!(said.err.starts_with("there is no "), "{said:?}");
        assert!(said.err.contains("make install CARGO_TARGET_DIR=DIRECTORY\n"), "{said:?}");
        assert!(said.err.contains(&format!("yet; run: make {built_by}, or name ")), "{said:?}");
        assert!(!dest.exists(), "nothing was installed");
    }
}

/// What udev knows of a device, by name.
fn properties(said: Said) -> BTreeMap<String, String> {
    let said = said.fine();
    let pair = |line: &str| line.split_once('=').map(|(name, value)| (name.into(), value.into()));
    said.lines().map(|line| pair(line).unwrap()).collect()
}

#[test]
fn udev_is_told_what_a_device_holds() {
    let place = TestMount::new();
    let uuid = "0d5d3cc5-5c3a-4b68-9a1f-5c6f0c7a1b2d";
    let hostile = "a b\nID_FS_TYPE=ext4\u{1b}/..";
    place.run(&["mkfs", "-q", "--size", "64M", "-U", uuid, "-L", hostile, place.image()]).fine();
    let known = properties(place.run(&["info", "--udev", place.image()]));
    let told = |name: &str| known[&format!("ID_FS_{name}")].as_str();
    assert_eq!((told("TYPE"), told("USAGE")), ("holdfast", "filesystem"));
    assert_eq!((told("UUID"), told("UUID_ENC")), (uuid, uuid));
    assert_eq!(told("LABEL"), "a_b_ID_FS_TYPE=ext4__..");
    assert_eq!(told("LABEL_ENC"), "a\\x20b\\x0aID_FS_TYPE=ext4\\x1b\\x2f..");
    assert_eq!(known.len(), 7);
    // A damaged superblock has another beside it, and rings that are lost hide nothing of it.
    let image = File::options().write(true).open(&place.image).unwrap();
    image.write_all_at(&[0xff; 4096], 16 * 4096).unwrap();
    image.write_all_at(&[0xff; 1 << 20], 1 << 20).unwrap();
    assert_eq!(properties(place.run(&["info", "--udev", place.image()])), known);
    image.write_all_at(&[0xff; 4096], 48 * 4096).unwrap();
    let said = place.run(&["info", "--udev", place.image()]);
    assert_eq!((said.code, said.out.as_str()), (1, ""), "{said:?}");
    fs::write(place.path("other"), [0; 1 << 20]).unwrap();
    place.run(&["info", "--udev", "other"]).fails(1, "not a Holdfast volume");
}

#[test]
fn udev_is_told_of_a_volume_in_use() {
    if !can_mount() {
        return;
    }
    let place = TestMount::with_volume();
    place.mount();
    place.run(&["tune", "--label", "new", place.dir()]).fine();
    let known = properties(place.run(&["info", "--udev", place.image()]));
    assert_eq!(known["ID_FS_LABEL"], "new");
    place.umount();
}

#[test]
fn file_knows_volumes() {
    let magic = top().join("packaging/holdfast.magic");
    let place = TestMount::new();
    place.run(&["mkfs", "-q", "--size", "64M", "-L", "data", place.image()]).fine();
    let ask = || Command::new("file").arg("-bm").arg(&magic).arg(&place.image).output();
    let Ok(first) = ask() else {
        holdfast_base::skip::skipped("there is no file(1) here");
        return;
    };
    let first = said(first).fine();
    let info = place.run(&["info", "--json", place.image()]).fine();
    let uuid = info.split("\"uuid\":\"").nth(1).unwrap().split('"').next().unwrap();
    let wanted = format!(
        "Holdfast volume, format {}, UUID {uuid}, label \"data\", 16384 blocks of 4 KiB\n",
        holdfast::FORMAT_VERSION
    );
    assert_eq!(first, wanted);
    let image = File::options().write(true).open(&place.image).unwrap();
    image.write_all_at(&[0; 4096], 16 * 4096).unwrap();
    assert_eq!(said(ask().unwrap()).fine(), wanted, "the second one says the same");
    image.write_all_at(&[0; 4096], 48 * 4096).unwrap();
    assert!(!said(ask().unwrap()).fine().contains("Holdfast"));
}
