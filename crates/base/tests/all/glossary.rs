//! One word for one thing: a public type name that occurs in two crates is a decision that `docs/GLOSSARY.md` explains.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

const HEADING: &str = "## Names that several crates use";
/// Compiles the files of other crates once more, so it has no names of its own.
const SAME_FILES: &str = "interleave";
/// Crates of tests, models and benchmarks, which name what they are about as the crate does that has it.
const TOOLS: &[&str] = &["bench", "hostile", "protocol", "script", "sim"];

fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries {
        let path = entry.expect("an entry can be read").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// The name of the public type that `line` declares.
fn declared(line: &str) -> Option<&str> {
    let rest = line.trim_start().strip_prefix("pub ")?;
    let rest = ["struct ", "enum ", "trait ", "type ", "union "]
        .iter()
        .find_map(|keyword| rest.strip_prefix(keyword))?;
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
    // A macro's `$name` is none.
    (end > 0).then(|| &rest[..end])
}

/// Every public type name, with the crates that declare it.
fn public_types() -> BTreeMap<String, BTreeSet<String>> {
    let mut names: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for entry in std::fs::read_dir(top().join("crates")).expect("the crates are there") {
        let folder = entry.expect("a folder can be read").path();
        let own = folder.file_name().and_then(|name| name.to_str()).expect("a crate has a name");
        if own == SAME_FILES {
            continue;
        }
        let mut files = Vec::new();
        sources(&folder.join("src"), &mut files);
        for file in files {
            let text = std::fs::read_to_string(&file).expect("a source file is text");
            for name in text.lines().filter_map(declared) {
                names.entry(name.to_owned()).or_default().insert(own.to_owned());
            }
        }
    }
    assert!(names.len() > 200, "only {} public types were found", names.len());
    names
}

/// What the glossary's last part says: names that tests, models and benchmarks repeat, and the table of all others, with their crates.
fn explained() -> (BTreeSet<String>, BTreeMap<String, BTreeSet<String>>) {
    let text =
        std::fs::read_to_string(top().join("docs/GLOSSARY.md")).expect("there is a glossary");
    let (repeated, table) = text
        .split_once(HEADING)
        .and_then(|(_, part)| part.split_once("\n| "))
        .expect("the glossary has the table");
    let mut names = BTreeMap::new();
    for line in table.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, name, crates, meaning, _] = cells[..] else { panic!("four bars in {line}") };
        assert!(!meaning.is_empty(), "{name} is not explained");
        let crates: BTreeSet<_> = crates.split(',').map(|name| name.trim().to_owned()).collect();
        names.extend(in_backticks(name).map(|name| (name, crates.clone())));
    }
    (in_backticks(repeated).collect(), names)
}

fn in_backticks(text: &str) -> impl Iterator<Item = String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned)
}

#[test]
fn a_public_type_name_in_two_crates_is_explained_in_the_glossary() {
    let shared: BTreeMap<_, _> =
        public_types().into_iter().filter(|(_, crates)| crates.len() > 1).collect();
    let (repeated, explained) = explained();
    for (name, crates) in &shared {
        let product = crates.iter().filter(|own| !TOOLS.contains(&own.as_str())).count();
        assert!(
            (product < 2) == repeated.contains(name)
                && (product < 2 || explained.get(name) == Some(crates)),
            "`{name}` is a public type of {crates:?}: rename one, or say in docs/GLOSSARY.md that both have it"
        );
    }
    for name in explained.keys().chain(&repeated) {
        assert!(
            shared.contains_key(name),
            "`{name}` is in docs/GLOSSARY.md, but only one crate has it"
        );
    }
}

#[test]
fn declarations_are_found() {
    assert_eq!(declared("    pub struct Frame<'a> {"), Some("Frame"));
    assert_eq!(declared("pub type Result<T> = ..."), Some("Result"));
    assert_eq!(declared("pub(crate) struct Frame;"), None);
    assert_eq!(declared("// pub struct Frame;"), None);
    assert_eq!(declared("pub struct $name {"), None);
}
