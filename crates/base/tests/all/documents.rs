//! What the documents name exists: every path and type in backticks, every link, every heading that a link goes to. And
//! none has more words than its budget.
//!
//! A path is checked if it ends like a file of this repository (`.rs`, `.sh`, ...) or begins with one of its folders
//! or crates. It may be given from the top, from `crates`, or as the end of a path. Blocks of code are not looked at.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Most words of documents, each alone or some together, as `wc -w` counts them. A document that would have more says
/// something twice, or something that a help text, a head of a source file or a kept result says.
const WORDS_MAX: &[(&[&str], usize)] = &[
    // A new reader reads that much.
    (&["README.md"], 900),
    (&["docs/GUIDE.md"], 800),
    (&["ARCHITECTURE.md"], 2500),
    (&["CONTRIBUTING.md"], 600),
    (&["docs/SEMANTICS.md"], 5000),
    (&["docs/GLOSSARY.md"], 1200),
    (&["docs/MECHANISMS.md"], 2500),
    (&["CHANGELOG.md"], 600),
    (&["docs/BRANCHES.md"], 3500),
    (&["docs/DURABILITY.md"], 5000),
    // Every field and rule: a reader and a writer are made from it.
    (&["docs/FORMAT.md"], 9000),
    (&["docs/FSCK.md"], 4500),
    (&["docs/MEASURED.md"], 3800),
    (&["docs/TESTING.md"], 2250),
    (
        &[
            "docs/BINDINGS.md",
            "docs/INSTALL.md",
            "docs/RECIPES.md",
            "docs/RECOVERY.md",
            "docs/STREAM.md",
        ],
        6000,
    ),
];
/// Most words of all documents together.
const ALL_WORDS_MAX: usize = 48_000;
/// How files of the repository end, so that `NAME.rs` is a path wherever it stands.
const ENDINGS: &[&str] = &[".rs", ".sh", ".py", ".md", ".toml", ".svg", ".in", ".hf"];
/// What is made by running something, and is no part of the repository.
const MADE: &[&str] = &["target", "fuzz/artifacts", "fuzz/corpus"];
/// Files that a case or a volume has, of which documents speak by name.
const OF_A_CASE: &[&str] = &["case.toml", "script.hf", "before.hf"];

/// Types of other languages.
const FOREIGN_TYPES: &[&str] = &["OSError"];

fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Files and folders of the repository, from its top.
fn paths() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut left = vec![PathBuf::new()];
    while let Some(folder) = left.pop() {
        for entry in std::fs::read_dir(top().join(&folder)).expect("a folder can be listed") {
            let entry = entry.expect("an entry can be read");
            let path = folder.join(entry.file_name());
            let name = path.to_str().expect("names are text").to_string();
            let made = name == ".git"
                || MADE.iter().any(|made| name == *made || name.ends_with("/target"));
            if made || !found.insert(name) {
                continue;
            }
            if entry.file_type().expect("it has a type").is_dir() {
                left.push(path);
            }
        }
    }
    found
}

/// The documents, by their path from the top.
fn documents() -> Vec<(String, String)> {
    let names: Vec<_> = paths()
        .into_iter()
        .filter(|path| path.ends_with(".md") && (!path.contains('/') || path.starts_with("docs/")))
        .collect();
    assert!(names.len() >= 10, "too few documents: {names:?}");
    let read = |name: String| {
        let text = std::fs::read_to_string(top().join(&name)).expect("a document is text");
        (name, text)
    };
    names.into_iter().map(read).collect()
}

/// The lines outside fenced blocks, numbered from 1.
fn prose(text: &str) -> Vec<(usize, &str)> {
    let mut fenced = false;
    let mut lines = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            lines.push((index + 1, line));
        }
    }
    lines
}

/// Whether a part of a path stands for many: `NAME`, `<thing>.rs`, `volume-N`, `*.rs`.
fn stands_for_many(part: &str) -> bool {
    let stem = part.split('.').next().unwrap_or(part);
    let word =
        stem.len() > 1 && stem.chars().all(|c| c.is_ascii_uppercase()) && !part.ends_with(".md");
    word || part.contains(['<', '*']) || part.ends_with("-N")
}

/// The path that a span of code names, if it names one of the repository. `None` for other words.
fn named(span: &str, paths: &BTreeSet<String>) -> Option<String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-/@<>*".contains(c);
    if span.starts_with(['/', '.', '-']) || !span.chars().all(plain) {
        return None;
    }
    let first = span.split('/').next().unwrap_or(span);
    let is_folder = paths.contains(first) || paths.contains(&format!("crates/{first}"));
    let ends = ENDINGS.iter().any(|ending| span.ends_with(ending));
    if !(ends || span.contains('/') && is_folder) {
        return None;
    }
    if OF_A_CASE.contains(&span) || MADE.iter().any(|made| span.starts_with(made)) {
        return None;
    }
    let known: Vec<_> = span
        .split('/')
        .take_while(|part| !stands_for_many(part))
        .filter(|part| !part.is_empty())
        .collect();
    (!known.is_empty()).then(|| known.join("/"))
}

fn exists(path: &str, paths: &BTreeSet<String>) -> bool {
    let end = format!("/{path}");
    paths.contains(path) || paths.iter().any(|known| known.ends_with(&end))
}

/// Headings as links name them: lower case, words joined by `-`.
fn anchors(text: &str) -> BTreeSet<String> {
    let anchor = |line: &str| {
        let title = line.trim_start_matches('#').trim();
        let kept = title.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.collect::<String>().to_lowercase().replace(' ', "-")
    };
    prose(text)
        .into_iter()
        .filter(|(_, line)| line.starts_with('#'))
        .map(|(_, line)| anchor(line))
        .collect()
}

/// What is wrong with `text`, the document `name`. `others` finds the text of a document.
fn wrong(
    name: &str,
    text: &str,
    paths: &BTreeSet<String>,
    others: &dyn Fn(&str) -> Option<String>,
) -> Vec<String> {
    let mut wrong = Vec::new();
    for (number, line) in prose(text) {
        for span in line.split('`').skip(1).step_by(2) {
            if let Some(path) = named(span, paths).filter(|path| !exists(path, paths)) {
                wrong.push(format!("{name}:{number}: there is no {path} (`{span}`)"));
            }
        }
        let links = line.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
        for (link, _) in links.filter(|(link, _)| !link.contains("://")) {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let folder = Path::new(name).parent().unwrap_or(Path::new(""));
            let target = match (file, file.strip_prefix("../")) {
                ("", _) => name.to_string(),
                (_, Some(file)) => file.to_string(),
                (file, None) => folder.join(file).to_str().expect("names are text").to_string(),
            };
            if !paths.contains(&target) {
                wrong.push(format!(
                    "{name}:{number}: the link goes to {target}, which does not exist"
                ));
            } else if !anchor.is_empty()
                && !others(&target).is_some_and(|text| anchors(&text).contains(anchor))
            {
                wrong.push(format!("{name}:{number}: {target} has no heading for #{anchor}"));
            }
        }
    }
    wrong
}

#[test]
fn what_documents_name_exists() {
    let (paths, documents) = (paths(), documents());
    let text = |name: &str| {
        documents.iter().find(|(known, _)| known == name).map(|(_, text)| text.clone())
    };
    let found: Vec<_> =
        documents.iter().flat_map(|(name, own)| wrong(name, own, &paths, &text)).collect();
    assert!(found.is_empty(), "\n{}\n", found.join("\n"));
}

/// Names in the last column of the glossary's tables: `Type`, or `Type::function`, which counts as two.
fn names_of_glossary(text: &str) -> BTreeSet<String> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let mut names = BTreeSet::new();
    for (_, line) in prose(text).into_iter().filter(|(_, line)| line.starts_with("| ")) {
        let column = line.trim_end_matches('|').rsplit(" | ").next().unwrap_or_default();
        for span in column.split('`').skip(1).step_by(2).filter(|span| span.chars().all(is_name)) {
            // A name of a crate or folder alone says where, not what.
            let is_type = span.starts_with(|c: char| c.is_ascii_uppercase());
            names.extend(is_type.then(|| span.split("::").map(String::from)).into_iter().flatten());
        }
    }
    names
}

/// The words of the source of all crates.
fn source_words() -> BTreeSet<String> {
    let mut words = BTreeSet::new();
    for path in paths().iter().filter(|path| {
        path.starts_with("crates/") && path.contains("/src/") && path.ends_with(".rs")
    }) {
        let text = std::fs::read_to_string(top().join(path)).expect("a source file is text");
        let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        for line in code {
            words.extend(
                line.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).map(String::from),
            );
        }
    }
    words
}

#[test]
fn the_types_of_the_glossary_exist() {
    let text =
        std::fs::read_to_string(top().join("docs/GLOSSARY.md")).expect("docs/GLOSSARY.md exists");
    let (names, words) = (names_of_glossary(&text), source_words());
    assert!(names.len() > 30 && words.contains("Store"), "too few were found: {names:?}");
    let missing: Vec<_> = names.difference(&words).collect();
    assert!(missing.is_empty(), "the glossary names what no code has: {missing:?}");
}

/// Names of types and traits: `declared` by the code of each crate, and all that code begins a line with (variants) or takes from a path.
#[derive(Default)]
struct Names {
    declared: BTreeMap<String, BTreeSet<String>>,
    known: BTreeSet<String>,
}

impl Names {
    fn of_the_source() -> Names {
        let mut names = Names::default();
        names.known.extend(FOREIGN_TYPES.iter().map(|name| (*name).to_owned()));
        for path in paths().iter().filter(|path| path.ends_with(".rs")) {
            let Some((own, _)) = path.strip_prefix("crates/").and_then(|rest| rest.split_once('/'))
            else {
                continue;
            };
            let text = std::fs::read_to_string(top().join(path)).expect("a source file is text");
            let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
            code.for_each(|line| names.take(own, line));
        }
        names
    }

    fn take(&mut self, own: &str, line: &str) {
        let mut before = "";
        for word in line.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':')) {
            let keyword = ["struct", "enum", "trait", "type", "union"].contains(&before);
            let name = word.trim_matches(':');
            if keyword && is_type(name) {
                self.declared.entry(own.to_owned()).or_default().insert(name.to_owned());
            }
            // `1005 ChildItem "child-item"`: a variant of a list with numbers.
            let begins = before.is_empty() || before.chars().all(|c| c.is_ascii_digit());
            if keyword || begins || word.contains("::") {
                self.known.extend(word.split("::").filter(|it| is_type(it)).map(String::from));
            }
            if !word.is_empty() {
                before = word;
            }
        }
    }

    /// The type that `span` names and no code has. `store::Batch` is one of that crate.
    fn missing<'s>(&self, span: &'s str) -> Option<&'s str> {
        if !span.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == ':') {
            return None;
        }
        let parts: Vec<&str> = span.split("::").collect();
        let own = parts.first().and_then(|own| self.declared.get(*own));
        match (own, &parts[..]) {
            (Some(own), [_, name]) if is_type(name) => (!own.contains(*name)).then_some(span),
            _ => parts.into_iter().find(|it| is_type(it) && !self.known.contains(*it)),
        }
    }
}

/// Whether a word is in `CamelCase`.
fn is_type(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_uppercase())
        && word.contains(|c: char| c.is_ascii_lowercase())
        && word.chars().all(|c| c.is_ascii_alphanumeric())
}

#[test]
fn the_types_that_documents_name_exist() {
    let names = Names::of_the_source();
    assert!(names.declared.len() > 20, "too few crates: {:?}", names.declared.keys());
    let mut found = Vec::new();
    for (document, text) in documents() {
        for (number, line) in prose(&text) {
            let missing = line.split('`').skip(1).step_by(2).filter_map(|it| names.missing(it));
            found.extend(missing.map(|it| format!("{document}:{number}: no code has {it}")));
        }
    }
    assert!(found.is_empty(), "\n{}\n", found.join("\n"));
    let mut few = Names::default();
    for line in ["pub struct Store<T> {", "    Left(u8),", "    1005 Child \"c\" Error", "a::Kind"]
    {
        few.take("store", line);
    }
    for (span, is_there) in [
        ("Store", true),
        ("store::Store", true),
        ("Left", true),
        ("a::Kind::Child", true),
        ("EIO", true),
        ("x=True", true),
        ("Placed", false),
        ("store::Left", false),
    ] {
        assert_eq!(few.missing(span).is_none(), is_there, "{span}");
    }
}

/// Most words of a cell in a table of docs/SEMANTICS.md: a longer one is a paragraph.
const CELL_WORDS_MAX: usize = 40;

#[test]
fn no_cell_of_the_semantics_is_a_paragraph() {
    let longest = |text: &str| {
        let rows = prose(text).into_iter().filter(|(_, line)| line.starts_with('|'));
        let words = |cell: &str| cell.split_whitespace().count();
        rows.flat_map(|(_, line)| line.split('|').map(words).max()).max().unwrap_or(0)
    };
    let documents = documents();
    let own = documents.iter().find(|(name, _)| name == "docs/SEMANTICS.md");
    let own = longest(&own.expect("docs/SEMANTICS.md exists").1);
    assert!(own <= CELL_WORDS_MAX, "{own} words in a cell, {CELL_WORDS_MAX} at most");
    assert_eq!(longest("| a | b c d |\n|---|---|\nfour words are free\n"), 3);
}

/// Those of `budgets` whose documents have more words, or that name what is none of `documents`.
fn too_long(budgets: &[(&[&str], usize)], documents: &[(String, String)]) -> Vec<String> {
    let words = |name: &str| {
        let text = documents.iter().find(|(known, _)| known == name).map(|(_, text)| text);
        text.map(|text| text.split_whitespace().count())
    };
    let mut wrong = Vec::new();
    for (names, most) in budgets {
        match names.iter().map(|name| words(name)).sum::<Option<usize>>() {
            None => wrong.push(format!("{names:?}: one of them does not exist")),
            Some(count) if count > *most => {
                wrong.push(format!("{names:?}: {count} words, {most} at most"));
            }
            Some(_) => {}
        }
    }
    wrong
}

#[test]
fn documents_keep_to_their_words() {
    let documents = documents();
    let mut found = too_long(WORDS_MAX, &documents);
    let all: Vec<&str> = documents.iter().map(|(name, _)| name.as_str()).collect();
    found.extend(too_long(&[(&all[..], ALL_WORDS_MAX)], &documents));
    assert!(found.is_empty(), "\n{}\n", found.join("\n"));
}

#[test]
fn the_alarms_ring() {
    let paths: BTreeSet<String> = [
        "README.md",
        "crates",
        "crates/store",
        "crates/store/src",
        "crates/store/src/a.rs",
        "fuzz",
        "golden",
    ]
    .map(String::from)
    .into();
    let readme = "# A head\n## Two: words\n";
    let count = |text: &str| {
        wrong("docs/X.md", text, &paths, &|name| (name == "README.md").then(|| readme.into())).len()
    };
    for fine in [
        "`store/src/a.rs`, `crates/store`, `a.rs`, `src/a.rs`, `store/src/<thing>.rs`, `golden/volume-N`",
        "`fuzz/artifacts/NAME` `/dev/fuse` `read/write` `a.b` `store::Step` `-o a=b.rs` `x/y`",
        "```\n`store/src/b.rs`\n```",
        "[a](../README.md) [b](../README.md#two-words) [c](https://a.b/c)",
    ] {
        assert_eq!(count(fine), 0, "{fine}");
    }
    let few = [("A.md".to_string(), "one two".to_string()), ("B.md".into(), "x | y".into())];
    for (names, most, is_fine) in [
        (&["A.md"][..], 2, true),
        (&["A.md"], 1, false),
        (&["A.md", "B.md"], 5, true),
        (&["A.md", "B.md"], 4, false),
        (&["C.md"], 9, false),
    ] {
        assert_eq!(too_long(&[(names, most)], &few).is_empty(), is_fine, "{names:?}, {most}");
    }
    let glossary = "| a `No` | `Yes`, `A::b` in `store` |\n| x | `c/d.rs` |\nno `Table`\n";
    assert_eq!(names_of_glossary(glossary), ["A", "Yes", "b"].map(String::from).into());
    for broken in [
        "`store/src/b.rs`",
        "`b.rs`",
        "`store/c`",
        "`golden/x/NAME`",
        "[a](Y.md)",
        "[a](../README.md#three)",
        "x `a.rs` `c.sh`",
    ] {
        assert_eq!(count(broken), 1, "{broken}");
    }
}

#[test]
fn the_book_has_every_document() {
    let summary = std::fs::read_to_string(top().join("packaging/book/SUMMARY.md"));
    let summary = summary.expect("the book has a summary");
    for (name, _) in documents() {
        assert!(summary.contains(&format!("]({name})")), "packaging/book/SUMMARY.md: {name}");
    }
}
