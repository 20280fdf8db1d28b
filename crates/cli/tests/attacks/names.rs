//! Names that one user has chosen, on the terminal of another.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::common::users::{OTHER, as_user, place_of_user};
use crate::{TheirMount, lists, run, their_directory};

/// What a terminal obeys: clear, a title, a colour of one byte, a mark of direction, and a line of its own.
const OBEYED: &str = "\x1b[2J\x1b]0;owned\x07\u{9b}31m\u{202e}\nroot";

/// A text that a shell passes on as it is.
fn quoted(text: &str) -> String {
    format!("'{text}'")
}

#[test]
fn names_that_another_has_chosen_give_no_orders_to_a_terminal() {
    let Some(place) = place_of_user() else { return };
    let _lists = lists();
    let base = place.path("theirs");
    their_directory(&base);
    let [image, dir, file] = ["image", "dir", "file"].map(|kind| format!("{base}/{kind}{OBEYED}"));
    their_directory(&dir);
    let program = place.path("holdfast");
    let _theirs = TheirMount(dir.clone());
    let theirs = |args: &[&str]| as_user(OTHER, &program, args);
    theirs(&["mkfs", "-q", "--size", "64M", &image]).fine();
    theirs(&["mount", &image, &dir]).fine();
    // What is refused as a name is no danger.
    let taken = [
        &["tune", "--label", OBEYED, &dir][..],
        &["fork", &dir, &format!("branch{OBEYED}")],
        &["fork", &dir, "branch\x1b[2J"],
        &["fork", &dir, "branch\u{9b}31m"],
        &["snapshot", "create", &dir, &format!("snapshot{OBEYED}")],
        &["snapshot", "create", &dir, "snapshot\x1b[2J"],
    ]
    .map(|args| theirs(args).code);
    // A label, of any text. Branches and snapshots have names that are more.
    assert_eq!(taken, [0, 1, 1, 1, 1, 1]);
    as_user(OTHER, "touch", &[&format!("{dir}/file{OBEYED}")]).fine();
    as_user(OTHER, "ln", &["-s", OBEYED, &format!("{dir}/link{OBEYED}")]).fine();
    theirs(&["sync", &dir]).fine();
    fs::set_permissions(&image, fs::Permissions::from_mode(0o644)).unwrap();
    let (q_image, q_dir) = (quoted(&image), quoted(&dir));
    let names = [
        "list".into(),
        "list --json".into(),
        "metrics".into(),
        format!("info {q_image}"),
        format!("info {q_dir}"),
        format!("stats {q_dir}"),
        format!("ls {}", quoted(&format!("{image}:/"))),
        format!("ls --json {}", quoted(&format!("{image}:/"))),
        format!("cat {}", quoted(&format!("{image}:/{OBEYED}"))),
        format!("branch list {q_image}"),
        format!("snapshot list {q_image}"),
        format!("snapshot create {q_image} x"),
        format!("explain {}", quoted(&format!("{dir}/file{OBEYED}"))),
        format!("fsck -n {q_image}"),
        format!("mkfs {}", quoted(&file)),
        format!("mount {q_image} {}", quoted(&file)),
        format!("umount {}", quoted(&file)),
        format!("scrub {q_dir}"),
        format!("salvage --list {q_image}"),
        format!("umount --lazy {}", quoted(&format!("{dir}/none"))),
        format!("umount {q_dir}"),
        format!("info {q_image}"),
        format!("fsck -n {q_image}"),
        format!("ls --json {}", quoted(&format!("{image}:/"))),
        format!("tune --label x {q_image}"),
        format!("trim {q_image}"),
        format!("resize {q_image} 80M"),
    ];
    let mut escaped = 0;
    for (user, command) in names.iter().flat_map(|command| [(1, command), (0, command)]) {
        let said = match user {
            0 => as_user(0, "sh", &["-c", &format!("timeout 60 {program} {command}")]),
            _ => run(&place, command),
        };
        let shown = format!("{}{}", said.out, said.err);
        let is_order = |c: char| c.is_control() && c != '\n' || c == '\u{202e}';
        assert!(!shown.contains(is_order), "`{command}`: {shown:?}");
        assert!(!shown.contains("\nroot"), "a line of its own: `{command}`: {shown:?}");
        escaped += usize::from(shown.contains("u{1b}") || shown.contains("u001b"));
    }
    assert!(escaped >= 10, "names are shown, and this means something: {escaped}");
}
