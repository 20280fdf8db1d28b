//! What an argument means: images, branches, snapshots and paths, by examples and by the rules alone.

use std::collections::HashSet;

use proptest::prelude::*;

use super::*;
use crate::branches::Name;

#[test]
fn an_image_is_recognised_by_being_there() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("a:b.img");
    std::fs::write(&image, "").unwrap();
    let text = format!("{}:/x:y", image.display());
    let alone = TreeLocation { path: image.clone(), branch: None, snapshot: None };
    assert_eq!(Target::parse(&text), Target::Inside { place: alone.clone(), path: "/x:y".into() });
    let whole = image.display().to_string();
    assert_eq!(Target::parse(&whole), Target::Host(image.clone()));
    assert_eq!(Target::inside(&whole).unwrap(), (alone.clone(), PathBuf::from("/")));
    let work = TreeLocation { branch: Some(Name("work".into())), ..alone };
    assert_eq!(Target::inside(format!("{whole}:work")).unwrap(), (work, PathBuf::from("/")));
    assert_eq!(Target::parse("no/such:/path"), Target::Host("no/such:/path".into()));
    assert!(Target::inside("no/such:/path").is_err());
}

#[test]
fn a_colon_in_the_name_of_a_host_file_is_a_colon() {
    let dir = tempfile::tempdir().unwrap();
    let notes = dir.path().join("notes");
    std::fs::write(&notes, "no volume").unwrap();
    for text in [format!("{}:today", notes.display()), "./any:thing".into(), "no/such:x".into()] {
        assert_eq!(Target::on_either_side(&text).unwrap(), Target::Host(text.into()));
    }
}

/// What stands behind an image, and is no colon with a path.
type Names = (Option<String>, Option<String>);

fn name() -> impl Strategy<Value = String> {
    "[a-c .ö-]{1,3}"
}

/// What `text` means by the rules alone, where `there` are the files: of all ways to read it as a file, a branch or none,
/// a snapshot or none, a colon, and a path that is empty or begins with a slash, the one with the shortest front; and
/// for one front, that with the longest file.
fn plainly(text: &str, there: &HashSet<String>) -> Option<(String, Names, String)> {
    if there.contains(text) {
        return None;
    }
    for (at, _) in text.match_indices(':') {
        let (front, path) = (&text[..at], &text[at + 1..]);
        if !(path.is_empty() || path.starts_with('/')) {
            continue;
        }
        let mut ways: Vec<(String, Names)> = Vec::new();
        for file in there.iter().filter(|file| front.starts_with(file.as_str())) {
            let rest = &front[file.len()..];
            let (branch, snapshot) = match rest.split_once('@') {
                Some((branch, snapshot)) => (branch, Some(snapshot.to_owned())),
                None => (rest, None),
            };
            let branch = match branch.strip_prefix(':') {
                Some(branch) => Some(branch.to_owned()),
                None if branch.is_empty() => None,
                None => continue,
            };
            let is_name = |name: &String| !name.is_empty() && !name.contains([':', '@', '/']);
            if [&branch, &snapshot].into_iter().flatten().all(is_name) {
                ways.push((file.clone(), (branch, snapshot)));
            }
        }
        // The whole front as a file wins; otherwise the shortest file with names behind it.
        ways.sort_by_key(|(file, _)| (file != front, file.len()));
        if let Some((file, names)) = ways.into_iter().next() {
            let path = if path.is_empty() { "/" } else { path };
            return Some((file, names, path.to_owned()));
        }
    }
    None
}

/// The same from the parser, in a directory with these files.
fn parsed(dir: &Path, text: &str) -> Option<(String, Names, String)> {
    let front = format!("{}/", dir.display());
    let of = |name: Option<Name>| name.map(|name| name.text().into_owned());
    match Target::parse(format!("{front}{text}")) {
        Target::Host(host) => {
            assert_eq!(host.to_str(), Some(&*format!("{front}{text}")));
            None
        }
        Target::Inside { place, path } => {
            let file = place.path.to_str().unwrap().strip_prefix(&front).unwrap().to_owned();
            let names = (of(place.branch), of(place.snapshot));
            Some((file, names, path.to_str().unwrap().to_owned()))
        }
    }
}

fn with_files(files: &HashSet<String>) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for file in files {
        std::fs::write(dir.path().join(file), "").unwrap();
    }
    dir
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..Default::default() })]

    /// What is written from its parts is read as these parts.
    #[test]
    fn what_is_written_is_read(
        branch in proptest::option::of(name()),
        snapshot in proptest::option::of(name()),
        path in "(/[a-c:@ö]{0,3}){1,3}",
    ) {
        let dir = with_files(&HashSet::from(["i.img".to_owned()]));
        let behind = |mark: &str, name: &Option<String>| match name {
            Some(name) => format!("{mark}{name}"),
            None => String::new(),
        };
        let text = format!("i.img{}{}:{path}", behind(":", &branch), behind("@", &snapshot));
        prop_assert_eq!(parsed(dir.path(), &text), Some(("i.img".to_owned(), (branch, snapshot), path)));
    }

    /// Any text means what the rules say, whatever files there are with colons and at signs in their names.
    #[test]
    fn any_text_means_what_the_rules_say(
        files in proptest::collection::hash_set("a[a:@]{0,4}", 0..5),
        text in "a[a:@/]{0,8}",
    ) {
        let dir = with_files(&files);
        // A path that leads somewhere is a host path: `a/` leads nowhere, as `a` is a file.
        prop_assert_eq!(parsed(dir.path(), &text), plainly(&text, &files), "{:?}", files);
    }
}
