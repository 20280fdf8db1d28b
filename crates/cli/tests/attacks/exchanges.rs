//! Trees of another user, who exchanges names in the midst of a command of root's: before each call in turn that names something there. So
//! it depends on no luck whether one is hit between a look and what is done next.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::PATIENCE;
use crate::common::users::{OTHER, shell};
use crate::common::{PROGRAM, TestMount, said};

const SECRET: &str = "what is secret\n";
const TRACER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/attacks/exchange.py");

/// An attack.
struct Attack {
    what: &'static str,
    /// A shell script of the other user, in `theirs`.
    before: &'static str,
    /// As root, behind that.
    root: &'static str,
    /// The command, in the directory above.
    command: &'static str,
    /// The names that it is stopped at, and the two that are exchanged, in `theirs`.
    names: &'static str,
    exchanged: [&'static str; 2],
}

/// A file of links to what is secret, one of pipes without writers, and a tree.
const TREE: &str = "mkdir -p tree/dir links pipes; for n in f1 f2 f3; do
echo fine >tree/dir/$n; ln -s ../../root/secret links/$n; mkfifo pipes/$n; done; ln -s f1 tree/dir/link; mkfifo tree/dir/pipe";

const NOTHING: &str = ":";

const READ: [Attack; 4] = [
    Attack {
        what: "links in the place of a directory that is read",
        before: TREE,
        root: NOTHING,
        command: "cp -r theirs/tree root/copy",
        names: "tree,dir,f1,f2,f3,link,pipe",
        exchanged: ["tree/dir", "links"],
    },
    Attack {
        what: "a link in the place of a file that is read",
        before: TREE,
        root: NOTHING,
        command: "cp -a theirs/tree root/copy",
        names: "dir,f2",
        exchanged: ["tree/dir/f2", "links/f2"],
    },
    Attack {
        what: "a pipe in the place of a file that is read",
        before: TREE,
        root: NOTHING,
        command: "cp -r theirs/tree volume.img:/copy",
        names: "dir,f2",
        exchanged: ["tree/dir/f2", "pipes/f2"],
    },
    Attack {
        what: "a link in the place of a file that is named",
        before: TREE,
        root: NOTHING,
        command: "cp -a theirs/tree/dir/f2 root/copy",
        names: "f2",
        exchanged: ["tree/dir/f2", "links/f2"],
    },
];

/// Where root copies to: `source`, of root, has a directory that everybody may enter, a link, a pipe and a file of several names.
const PLACES: &str =
    "mkdir -p to/source; ln -s ../../root to/source/away; mkdir mine; ln -s ../../root mine/away";
const SOURCE: &str =
    "mkdir -p source/sub; chmod 777 source/sub; for n in f1 f2; do echo new >source/sub/$n; done
mkfifo -m 666 source/sub/pipe; ln -s f1 source/sub/link; ln source/sub/f1 source/sub/again
mkdir -m 700 theirs/to/source/kept; echo kept >theirs/to/source/kept/inside";

const WRITTEN: [Attack; 6] = [
    Attack {
        what: "a link in the place of a directory that is filled",
        before: PLACES,
        root: SOURCE,
        command: "cp -r source theirs/to",
        names: "source,sub,f1,f2,again,link,pipe",
        exchanged: ["to/source/sub", "to/source/away"],
    },
    Attack {
        what: "the same, and attributes are kept",
        before: PLACES,
        root: SOURCE,
        command: "cp -a source theirs/to",
        names: "source,sub,f1,f2,again,link,pipe",
        exchanged: ["to/source/sub", "to/source/away"],
    },
    Attack {
        what: "a directory of root's in the place of one that was made",
        before: PLACES,
        root: SOURCE,
        command: "cp -r source theirs/to",
        names: "source,sub,f1,f2,again,link,pipe",
        exchanged: ["to/source/sub", "to/source/kept"],
    },
    Attack {
        what: "a link in the place of the directory that was named",
        before: PLACES,
        root: SOURCE,
        command: "cp -a source/sub/pipe source/sub/f1 source/sub/link theirs/to/source",
        names: "source,pipe,f1,link",
        exchanged: ["to/source/pipe", "to/source/away"],
    },
    Attack {
        what: "a link in the place of a directory that is salvaged into",
        before: PLACES,
        root: SOURCE,
        command: "salvage -q volume.img theirs/mine/out",
        names: "mine,out,source,sub,f1,f2",
        exchanged: ["mine/out", "mine/away"],
    },
    Attack {
        what: "the same, of all branches",
        before: PLACES,
        root: SOURCE,
        command: "salvage -q --all volume.img theirs/mine/out",
        names: "mine,out,main,source",
        exchanged: ["mine/out", "mine/away"],
    },
];

/// Modes, owners and contents of what is root's.
fn picture(dir: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![dir.to_path_buf()];
    while let Some(path) = waiting.pop() {
        let of = fs::symlink_metadata(&path).unwrap();
        let mut words = format!("{:o} {} {}", of.mode(), of.uid(), of.gid());
        if of.is_dir() {
            waiting.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else if of.is_file() {
            words += &fs::read_to_string(&path).unwrap();
        }
        found.insert(path.display().to_string(), words);
    }
    found
}

/// A place with what an attack needs.
fn place_of(attack: &Attack) -> TestMount {
    let has_volume = attack.command.contains("volume.img");
    let place = if has_volume { TestMount::with_volume() } else { TestMount::new() };
    let at = place.root.path().display();
    let own = format!("chown {OTHER}:{OTHER} theirs");
    let secret =
        format!("mkdir -m 700 root; printf %s '{SECRET}' >root/secret; chmod 600 root/secret");
    shell(0, &format!("cd {at}; chmod 755 .; {secret}; mkdir theirs; {own}")).fine();
    shell(OTHER, &format!("cd {at}/theirs; {}", attack.before)).fine();
    shell(0, &format!("cd {at}; {}", attack.root)).fine();
    if attack.command.contains("salvage") {
        place.run(&["cp", "-r", &place.path("source"), &place.inside("/")]).fine();
    }
    place
}

/// Runs a command, with the exchange at its N-th call or behind that. Returns how many calls came before it, if it was made.
fn run(place: &TestMount, attack: &Attack, turn: &str) -> Option<String> {
    let their = |name: &str| place.path(&format!("theirs/{name}"));
    let [one, other] = attack.exchanged.map(their);
    let mut traced = Command::new("timeout");
    traced.args(["-k", "1", PATIENCE, "python3", TRACER, &OTHER.to_string(), turn]);
    traced.args([attack.names, &one, &other, "--", PROGRAM]).args(attack.command.split(' '));
    traced.current_dir(place.root.path()).stdin(Stdio::null());
    let said = said(traced.output().unwrap());
    assert!(matches!(said.code, 0 | 1 | 8), "{} at {turn}: {said:?}", attack.what);
    let last = said.out.lines().last().unwrap_or_default();
    last.strip_suffix(" exchanged").map(str::to_owned)
}

/// Makes each attack at each call in turn, all attacks at once, and looks at what is `expected` behind each.
fn sweep(
    attacks: &[Attack],
    expected: impl Fn(&TestMount, &str, &dyn Fn() -> Option<String>) -> Option<String> + Sync,
) {
    if !rustix::process::geteuid().is_root() {
        return holdfast_base::skip::skipped("needs root to become other users");
    }
    let make = |attack: &Attack| {
        let (mut turn, mut exchanges) = (String::from("0"), 0);
        loop {
            let place = place_of(attack);
            let what = format!("{} at {turn}", attack.what);
            match expected(&place, &what, &|| run(&place, attack, &turn)) {
                Some(next) => turn = next,
                None => break,
            }
            exchanges += 1;
        }
        assert!(exchanges > 2, "{}: {exchanges} exchanges", attack.what);
    };
    std::thread::scope(|scope| {
        attacks.iter().for_each(|attack| drop(scope.spawn(move || make(attack))));
    });
}

#[test]
fn what_another_user_exchanges_is_not_read_in_the_place_of_what_was_found() {
    sweep(&READ, |place, what, run| {
        let made = run();
        let copies = place.path("root/copy");
        let copies = Path::new(&copies);
        let copied = if copies.exists() { picture(copies) } else { BTreeMap::new() };
        assert!(!copied.values().any(|words| words.contains(SECRET)), "{what}: {copied:?}");
        made
    });
}

#[test]
fn nothing_is_written_where_another_user_leads_a_command() {
    sweep(&WRITTEN, |place, what, run| {
        // The directory that is kept is known by what is in it: it may have got another name.
        let kept = || {
            let all = fs::read_dir(place.path("theirs/to/source")).unwrap();
            let all = all.map(|entry| entry.unwrap().path());
            let kept = all.filter(|dir| dir.is_dir() && dir.join("inside").exists());
            kept.flat_map(|dir| picture(&dir).into_values()).collect::<Vec<_>>()
        };
        let now = || (picture(Path::new(&place.path("root"))), kept());
        let before = now();
        let made = run();
        assert_eq!(before, now(), "{what}");
        made
    });
}
