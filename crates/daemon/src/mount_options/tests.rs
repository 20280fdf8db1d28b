//! What options mean, alone and together.

use super::table::{GROUPS, IGNORED, REFUSED, Row, Word};
use super::*;

#[test]
fn what_fstab_lines_hold() {
    let options = DaemonOptions::parse(
        ["rw,noatime,nofail,x-systemd.automount,_netdev,user", "commit=30,cache=64M,ro"],
        false,
    )
    .unwrap();
    assert!(options.read_only && options.nofail);
    assert_eq!(options.atime, Some(Atime::Never));
    assert_eq!((options.commit, options.cache), (Some(30), Some(64 << 20)));
}

#[test]
fn a_branch_or_snapshot_is_an_option_or_stands_behind_the_volume() {
    let of = |list: &str| DaemonOptions::parse([list], false).unwrap();
    let name = |name: &str| Name(name.into());
    let option = of("snapshot=\"a,b\",branch=work,rw");
    assert_eq!((option.branch.as_deref(), option.snapshot.as_deref()), (Some("work"), Some("a,b")));
    assert!(option.read_only, "a snapshot never changes");
    let mut behind = of("rw");
    behind.choose(Some(&name("work")), Some(&name("a,b"))).unwrap();
    assert!(behind.read_only);
    assert_eq!((&behind.branch, &behind.snapshot), (&option.branch, &option.snapshot));
    assert!(of("branch=work").choose(Some(&name("work")), None).is_ok());
    assert!(of("branch=work").choose(Some(&name("other")), None).is_err());
    let refused = of("branch=work").not_to_be_changed(&["branch=work", "branch=main"]);
    assert_eq!(refused, Ok(vec!["branch=main"]));
}

#[test]
fn the_switches_and_limits_of_the_journal() {
    fn of(list: &str) -> DaemonOptions {
        DaemonOptions::parse([list], false).unwrap()
    }
    let options = of("dirty=ranges,accounting=changed,recover=0.5,commit=1,dirty_bytes=32M");
    assert_eq!(options.recover, Some(Duration::from_millis(500)));
    assert_eq!((options.commit, options.dirty_bytes), (Some(1), Some(32 << 20)));
    for position in Dirty::ALL {
        assert_eq!(of(&format!("dirty=ranges,dirty={position}")).dirty, *position);
    }
    for position in Accounting::ALL {
        assert_eq!(of(&format!("accounting={position}")).accounting, *position);
    }
    let usual = of("defaults");
    assert_eq!((usual.dirty, usual.accounting), (Dirty::Ranges, Accounting::Changed));
    assert_eq!((usual.recover, usual.commit, usual.dirty_bytes), (None, None, None));
}

#[test]
fn what_was_done_before_is_there_or_it_is_said_where() {
    // The tests of the whole workspace have it; those of this crate alone are as the shipped program.
    let is_here = Dirty::ALL.len() > 1;
    for option in [
        "dirty=bitmap",
        "dirty=whole",
        "accounting=always",
        "batch=scan",
        "rename_log=directory",
        "fsync_wait=completion",
    ] {
        match DaemonOptions::parse([option], false) {
            Ok(options) => {
                let usual = DaemonOptions { text: option.into(), ..DaemonOptions::default() };
                assert!(is_here && options != usual, "{option}");
            }
            Err(why) => {
                let said =
                    why.starts_with(&format!("option {option} ")) && why.contains("make dev");
                assert!(!is_here && said, "{why}");
            }
        }
    }
}

#[test]
fn the_switches_and_limits_of_the_log() {
    fn of(list: &str) -> DaemonOptions {
        DaemonOptions::parse([list], false).unwrap()
    }
    for position in Batching::ALL {
        assert_eq!(of(&format!("batch=indexed,batch={position}")).batching, *position);
    }
    for position in RenameLog::ALL {
        assert_eq!(of(&format!("rename_log={position}")).rename_log, *position);
    }
    for position in FsyncWait::ALL {
        assert_eq!(of(&format!("fsync_wait={position}")).fsync_wait, *position);
    }
    for position in Opens::ALL {
        assert_eq!(of(&format!("open=kernel,open={position}")).opens, *position);
    }
    for position in SnapDir::ALL {
        assert_eq!(of(&format!("snapdir=off,snapdir={position}")).snapdir, *position);
    }
    let usual = of("defaults");
    assert_eq!((usual.opens, usual.snapdir), (Opens::Server, SnapDir::Hidden));
    assert_eq!((usual.batching, usual.rename_log), (Batching::Indexed, RenameLog::Names));
    assert_eq!((usual.log_data, usual.slow_fsync()), (None, Some(Duration::from_secs(1))));
    assert_eq!(of("slow_fsync=20").slow_fsync(), Some(Duration::from_millis(20)));
    assert_eq!(of("slow_fsync=0").slow_fsync(), None);
    assert_eq!(of("log_data=0").log_data, Some(0));
    assert_eq!(of("log_data=64k").log_data, Some(65536));
    assert!(!usual.noxattr && of("noxattr").noxattr && !of("noxattr,xattr").noxattr);
    assert_eq!((usual.spin, of("spin=0").spin), (None, Some(Duration::ZERO)));
}

#[test]
fn what_mount_8_passes_on_has_its_meaning_or_none_that_is_missed() {
    let of = |list: &str| DaemonOptions::parse([list], false).unwrap();
    let ignored = "lazytime,nolazytime,nostrictatime,norelatime,silent,loud,acl,user_xattr,iversion,\
        noiversion,nousers,noowner,nogroup,user=me,uhelper=x";
    let words: Vec<&str> = split(ignored).collect();
    assert_eq!(DaemonOptions::default().not_to_be_changed(&words), Ok(vec![]));
    let options = of("nodiratime,sync,dirsync,nosymfollow,remount");
    assert!(options.nodiratime && options.sync && options.dirsync && options.nosymfollow);
    assert!(options.remount && !of("nodiratime,diratime,sync,async").sync);
    let labels = of("ro,context=\"a:b:c0,c1\",rootcontext=x,noexec");
    assert_eq!(labels.labels, ["context=\"a:b:c0,c1\"", "rootcontext=x"]);
    assert!(labels.read_only && labels.noexec);
    // Options whose absence would be missed are refused.
    for wrong in ["noacl", "nouser_xattr", "mand", "usrquota", "context"] {
        assert!(DaemonOptions::parse([wrong], false).is_err(), "{wrong}");
    }
}

#[test]
fn each_word_without_a_meaning_is_ignored_or_refused_with_what_to_do() {
    let usual = DaemonOptions::parse([""], false).unwrap();
    let refused = REFUSED.iter().map(|(words, why)| (*words, Some(*why)));
    for (words, why) in IGNORED.iter().map(|words| (*words, None)).chain(refused) {
        for option in words.split(' ').flat_map(|word| [word.to_owned(), format!("{word}=1")]) {
            let parsed = |sloppy| {
                let parsed = DaemonOptions::parse([option.as_str()], sloppy);
                parsed.map(|options| DaemonOptions { text: String::new(), ..options })
            };
            let (word, _) = set::parted(&option);
            let said = why.map_or(Ok(usual.clone()), |why| Err(format!("option {word} {why}")));
            assert_eq!(parsed(false), said, "{option}");
            // mount -s.
            assert_eq!(parsed(true), Ok(usual.clone()), "{option}");
        }
    }
    for ignored in ["", "x-systemd.automount", "X-mount.mkdir=755", "x-gvfs-hide"] {
        assert_eq!(usual.clone().set(ignored), Ok(()), "{ignored}");
    }
    assert!(usual.clone().set("binds").unwrap_err().starts_with("unknown"));
}

/// What engine and kernel are told of a list that makes sense.
fn told(list: &str) -> Option<String> {
    let options = DaemonOptions::parse([list], false).ok()?;
    Some(format!("{:?} {:?}", options.volume(), options.fuse("/".as_ref())))
}

fn words() -> impl Iterator<Item = (&'static Row, &'static Word)> {
    let rows = GROUPS.iter().flat_map(|group| group.rows);
    rows.flat_map(|row| row.words.iter().chain(row.also).map(move |word| (row, word)))
}

#[test]
fn each_word_is_there_once_and_reaches_engine_or_kernel() {
    // The program itself asks for these; a machine without SELinux is told no labels.
    let own = "supervised nosupervised remount nofail log context fscontext defcontext rootcontext";
    let values = "7 8M rings kernel off root bitmap always scan directory completion work";
    let on = "ro,nodev,nosuid,noexec,nosymfollow,nodiratime,noxattr,sync,dirsync,handover,discard,\
        strictatime,noallow_other";
    let mut known: Vec<&str> = IGNORED.iter().flat_map(|words| words.split(' ')).collect();
    known.extend(REFUSED.iter().flat_map(|(words, _)| words.split(' ')));
    for (_, word) in words() {
        known.push(word.name);
        let option = |value: &str| match word.form {
            "" => word.name.to_owned(),
            _ => format!("{}={value}", word.name),
        };
        let fine = |option: &String| DaemonOptions::parse([option.as_str()], false).is_ok();
        let mut options = values.split(' ').map(option).filter(fine);
        // The way of before is in the tests of the whole workspace only.
        let is_before = word.form == "HOW" && Dirty::ALL.len() == 1;
        let is_own = own.split(' ').any(|it| it == word.name);
        let reaches = options.any(|option| {
            ["rw", on, "nodefault_permissions", "allow_other"].iter().any(|base| {
                told(&format!("{base},{option}")).is_some_and(|it| Some(it) != told(base))
            })
        });
        assert!(reaches || is_before || is_own, "{} reaches nothing", word.name);
    }
    let count = known.len();
    known.sort_unstable();
    known.dedup();
    assert_eq!(known.len(), count, "a word is there twice");
}

#[test]
fn the_defaults_that_help_shows_are_those() {
    let mut unchecked = Vec::new();
    for (row, word) in words().filter(|(_, word)| !["", "HOW"].contains(&word.form)) {
        let help = row.help.split_whitespace().collect::<Vec<_>>().join(" ");
        let Some((before, behind)) = help.split_once("(default") else { continue };
        // `(default 5, ...)`, or `auto (default)`.
        let behind = behind.split([',', ';', ')']).next().unwrap_or_default().trim();
        let value = match behind.starts_with(':') || behind.is_empty() {
            true => before.trim().rsplit(' ').next().unwrap_or_default(),
            false => behind,
        };
        let option = format!("{}={value}", word.name);
        if told(&option) != told("rw") {
            unchecked.push(option);
        }
    }
    // The volume says these, or the machine.
    unchecked.retain(|it| {
        !it.starts_with("spin=") || std::thread::available_parallelism().unwrap().get() <= 4
    });
    assert_eq!(unchecked, ["log_data=16k", "branch=main", "threads=64"]);
}

#[test]
fn help_has_each_option_in_lines_that_fit() {
    let help = help();
    let column = help.lines().filter_map(|line| line.strip_prefix("  ")?.split("  ").next());
    let one_line = help.split_whitespace().collect::<Vec<_>>().join(" ");
    let (_, also) = one_line.split_once("For the opposite or the same: ").unwrap();
    let listed = column.chain(also.split('.').next()).flat_map(|words| words.split(", "));
    let there: Vec<&str> = listed.map(|word| set::parted(word).0).collect();
    for (_, word) in words().filter(|(_, word)| word.form != "HOW") {
        assert!(there.contains(&word.name), "{}", word.name);
    }
    let fits = |line: &str| line.chars().count() <= 100 && line.trim_end() == line;
    assert!(help.lines().all(fits), "{help}");
    assert!(help.contains("\n  commit=SECONDS      a power cut takes at most"), "{help}");
    assert!(help.contains("\n                      durable (default 5)."), "{help}");
}

/// `UPDATE_DOCS=1` writes the lists into the document instead of comparing.
#[test]
fn the_documents_have_each_word() {
    let quoted = |words: Vec<String>| {
        words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
    };
    let list = format!(
        "- A remount changes: {}.\n- Of the volume: {}.\n- Of the call: {}.\n",
        quoted(help::names(Scope::Remount)),
        quoted(help::names(Scope::Volume)),
        quoted(help::names(Scope::Call)),
    );
    let docs = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let path = docs.join("SEMANTICS.md");
    let old = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = old.split_once("<!-- table: mount options -->\n").unwrap();
    let (_, behind) = rest.split_once("<!-- end -->").unwrap();
    let new = format!("{before}<!-- table: mount options -->\n{list}<!-- end -->{behind}");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        return std::fs::write(&path, new).unwrap();
    }
    assert!(old == new, "docs/SEMANTICS.md is out of date; run with UPDATE_DOCS=1");
    let mechanisms = std::fs::read_to_string(docs.join("MECHANISMS.md")).unwrap();
    for (_, word) in words().filter(|(_, word)| word.form == "HOW") {
        assert!(mechanisms.contains(&format!("The switch is `{}=", word.name)), "{}", word.name);
    }
}

#[test]
fn words_that_mean_others_are_put_behind_them_by_mount_8() {
    let of = |list: &str| {
        let options = DaemonOptions::parse([list], false).unwrap();
        [options.noexec, options.nosuid, options.nodev]
    };
    assert_eq!(of("user"), [true; 3]);
    assert_eq!(of("users"), [true; 3]);
    assert_eq!(of("owner"), [false, true, true]);
    assert_eq!(of("group"), [false, true, true]);
    // What mount(8) 2.38 makes of `user,exec`, and of `user,suid,dev,exec`.
    assert_eq!(of("rw,nosuid,nodev,user,exec"), [false, true, true]);
    assert_eq!(of("rw,user,exec,suid,dev"), [false; 3]);
    let atime = |list: &str| DaemonOptions::parse([list], false).unwrap().atime;
    assert_eq!(atime("strictatime,nostrictatime"), Some(Atime::Relative));
    assert_eq!(atime("nostrictatime,strictatime"), Some(Atime::Always));
    assert_eq!(atime("noatime,nostrictatime"), Some(Atime::Never));
}

#[test]
fn a_remount_changes_what_it_can_and_names_the_rest() {
    let options = DaemonOptions::parse(["commit=30,cache=64M,noatime"], false).unwrap();
    let refused = |list: &[&'static str]| options.not_to_be_changed(list).unwrap();
    assert!(refused(&["ro", "relatime", "sync", "noexec", "commit=30", "cache=65536k"]).is_empty());
    assert_eq!(refused(&["ro", "commit=5", "dirsync"]), ["commit=5", "dirsync"]);
    assert!(options.not_to_be_changed(&["odd"]).is_err());
}

#[test]
fn what_the_kernel_shows_counts_instead_of_what_was_said() {
    let shown = |words: &str| {
        let words: Vec<String> = split(words).map(String::from).collect();
        let list = as_shown("noatime,commit=3,nodev,user,dirsync,rw", &words);
        DaemonOptions::parse([list.as_str()], false).unwrap()
    };
    let now = shown("ro,relatime,nosuid,rw,sync,user_id=0");
    assert!(now.read_only && now.nosuid && now.sync && now.dirsync);
    assert!(!now.nodev && !now.noexec);
    assert_eq!((now.commit, now.atime), (Some(3), Some(Atime::Relative)));
    let now = shown("rw,nodiratime,nosymfollow");
    assert!(!now.read_only && !now.nosuid && !now.sync && now.nodiratime && now.nosymfollow);
    assert_eq!(now.atime, Some(Atime::Always));
}

/// A name may have a quote, behind which all would be one option.
#[test]
fn what_the_kernel_shows_is_not_hidden_by_an_open_quote() {
    let words = ["rw", "nosuid", "nodev", "sync"].map(String::from);
    for open in ["sync,branch=a\"b,commit=3", "x-a=\",noatime"] {
        let now = DaemonOptions::parse([as_shown(open, &words).as_str()], false).unwrap();
        assert!(now.nosuid && now.nodev && now.sync, "{open}");
        assert_eq!(now.atime, Some(Atime::Always), "{open}");
    }
    let lists = ["x-a=\"", "supervised,nohandover"];
    assert!(DaemonOptions::parse(lists, false).is_err());
}

#[test]
fn what_differs_for_a_volume_that_is_mounted_is_named() {
    let first = DaemonOptions::parse(["cache=64M,noatime,threads=3"], false).unwrap();
    let differing = |list: &'static str| first.of_volume_differing([list]).unwrap();
    let fine = "commit=5,cache=65536k,relatime,threads=7,log_data=0,ro,branch=x,dirty_bytes=8M";
    assert!(differing(fine).is_empty());
    assert_eq!(differing("ro,commit=9,cache=1M,log=/x"), ["commit=9", "cache=1M", "log=/x"]);
    // The last one counts, wherever an option is asked for.
    assert_eq!(differing("commit=9,discard,nodiscard,commit=5,discard"), ["discard"]);
    assert_eq!(differing("commit=5,commit=9"), ["commit=9"]);
    assert!(first.of_volume_differing(["commit=9", "commit=5"]).unwrap().is_empty());
    assert!(first.of_volume_differing(["odd"]).is_err());
}

#[test]
fn a_size_for_dirty_is_told_what_dirty_is_now() {
    let why = DaemonOptions::parse(["dirty=256M"], false).unwrap_err();
    assert!(why.contains("one of ranges") && why.contains("dirty_bytes=256M"), "{why}");
}

#[test]
fn what_is_not_known_or_makes_no_sense_is_said() {
    let wrong = [
        "comit=3",
        "commit",
        "commit=soon",
        "commit=-1",
        "cache=3X",
        "data=journal",
        "dirty",
        "dirty=some",
        "dirty=Ranges",
        "dirty_bytes=much",
        "accounting=never",
        "accounting",
        "batch=all",
        "rename_log=no",
        "fsync_wait=long",
        "open=me",
        "log_data=1M",
        "log_data",
        "slow_fsync=1s",
        "slow_fsync=-1",
        "spin=10001",
        "spin=50us",
        "recover=0",
        "recover=-1",
        "recover=NaN",
        "recover=1s",
        "recover",
        "allow_other,nodefault_permissions",
        "nodefault_permissions,ro,allow_other",
    ];
    for wrong in wrong {
        assert!(DaemonOptions::parse([wrong], false).is_err(), "{wrong}");
    }
    assert!(DaemonOptions::parse(["data=journal,ro"], true).unwrap().read_only);
    assert!(DaemonOptions::parse(["commit=soon"], true).is_err());
    let alone = DaemonOptions::parse(["allow_other,nodefault_permissions,noallow_other"], false);
    assert!(alone.unwrap().nodefault_permissions, "the last word counts");
}
