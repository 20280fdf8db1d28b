//! Modules beside each other do not import each other in a circle.
//!
//! Each path in a crate's source that begins with `crate::` or `super::` is followed to the module that has the name,
//! also where a parent only re-exports it. Such a path is an edge between the two modules beside each other in which
//! its ends lie. A module and its own children may use each other; tests may use anything.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Edges that are still to be cut: `parent: user > used`. Without them there is no circle. A list that only shrinks.
const KNOWN: &[&str] = &[];

/// A module, by the names from the crate's root to it.
type Name = Vec<String>;

/// The code of a module: no comments, no strings, no tests.
struct Module {
    code: String,
    children: BTreeSet<String>,
    /// Names that it takes from a child, and from which one.
    taken: BTreeMap<String, Name>,
}

/// The modules of one crate.
#[derive(Default)]
struct Crate(BTreeMap<Name, Module>);

/// Where a module uses another, as a reader would look for it: `module: path`.
type Edges = BTreeMap<(String, String), String>;

impl Crate {
    /// The crate that these files make, by their path below `src` and their text.
    fn of(files: &[(&str, &str)]) -> Self {
        let mut modules = BTreeMap::<Name, Module>::new();
        for (path, text) in files {
            let name = module(path);
            if name.iter().any(|part| part == "tests" || part.ends_with("_tests")) {
                continue;
            }
            let code = code(text);
            let empty = || Module {
                code: String::new(),
                children: BTreeSet::new(),
                taken: BTreeMap::new(),
            };
            modules.entry(name.clone()).or_insert_with(empty).code.push_str(&code);
            for depth in 0..name.len() {
                let parent = modules.entry(name[..depth].to_vec()).or_insert_with(empty);
                parent.children.insert(name[depth].clone());
            }
        }
        let mut this = Self(modules);
        for name in this.0.keys().cloned().collect::<Vec<_>>() {
            let taken = this.taken(&name);
            this.0.get_mut(&name).expect("it is there").taken = taken;
        }
        this
    }

    /// The names that a module takes from its children.
    fn taken(&self, name: &[String]) -> BTreeMap<String, Name> {
        let module = &self.0[name];
        let mut taken = BTreeMap::new();
        for (at, _) in module.code.match_indices("use ") {
            if module.code[..at].ends_with(part_of_name) {
                continue;
            }
            for mut path in paths(&module.code[at + 4..]) {
                if path.first().is_some_and(|first| first == "self") {
                    path.remove(0);
                }
                let from_child = path.first().is_some_and(|first| module.children.contains(first));
                if let (true, Some(last)) = (from_child && path.len() > 1, path.last()) {
                    taken.insert(last.clone(), path.clone());
                }
            }
        }
        taken
    }

    /// The module that has the name at the end of a path, which begins below `start`.
    fn follow(&self, start: &[String], path: &[String]) -> Name {
        let mut at = start.to_vec();
        let mut left: Vec<_> = path.to_vec();
        left.reverse();
        while let Some(part) = left.pop() {
            let Some(module) = self.0.get(&at) else { break };
            if module.children.contains(&part) {
                at.push(part);
            } else if let Some(path) = module.taken.get(&part) {
                at.push(path[0].clone());
                left.clear();
                left.extend(path[1..].iter().rev().cloned());
            } else {
                break;
            }
        }
        at
    }

    /// For each parent: which of its children use which.
    fn edges(&self) -> BTreeMap<Name, Edges> {
        let mut edges = BTreeMap::<Name, Edges>::new();
        for (name, module) in &self.0 {
            for (start, path) in imports(name, &module.code) {
                let used = self.follow(&start, &path);
                let common = name.iter().zip(&used).take_while(|(a, b)| a == b).count();
                if common < name.len() && common < used.len() {
                    let edge = (name[common].clone(), used[common].clone());
                    let place = format!("{}: {}", name.join("/"), path.join("::"));
                    let shown = edges.entry(name[..common].to_vec()).or_default().entry(edge);
                    let shown = shown.or_default();
                    shown.push_str(if shown.is_empty() { "" } else { "; " });
                    shown.push_str(&place);
                }
            }
        }
        edges
    }

    /// The edges on circles. Those in `known` are left out, and noted in `seen` if they are there.
    fn circles(&self, own: &str, known: &[&str], seen: &mut BTreeSet<String>) -> Vec<String> {
        let mut circles = Vec::new();
        for (parent, mut edges) in self.edges() {
            let parent: Vec<_> = std::iter::once(own.to_string()).chain(parent).collect();
            let parent = parent.join("::");
            edges.retain(|(from, to), _| {
                let edge = format!("{parent}: {from} > {to}");
                let is_known = known.contains(&&edge[..]);
                if is_known {
                    seen.insert(edge);
                }
                !is_known
            });
            let reaches = |from: &String, to: &String| {
                let (mut seen, mut left) = (BTreeSet::new(), vec![from]);
                while let Some(one) = left.pop() {
                    let next = edges.keys().filter(|(from, _)| from == one).map(|(_, to)| to);
                    left.extend(next.filter(|next| seen.insert(*next)));
                }
                seen.contains(to)
            };
            for ((from, to), places) in &edges {
                if reaches(to, from) {
                    circles.push(format!("{parent}: {from} > {to} ({places})"));
                }
            }
        }
        circles
    }
}

/// The module that a file is.
fn module(path: &str) -> Name {
    let mut name: Name = path.trim_end_matches(".rs").split('/').map(ToString::to_string).collect();
    let root = name.len() == 1 && (name[0] == "lib" || name[0] == "main");
    if root || name.last().is_some_and(|last| last == "mod") {
        name.pop();
    }
    name
}

fn part_of_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// A source file without comments, without what stands in strings on one line, and without the tests at its end.
fn code(text: &str) -> String {
    let tests = text.find("#[cfg(test)]\nmod tests {").unwrap_or(text.len());
    let mut code = String::new();
    for line in text[..tests].lines() {
        let mut quoted = false;
        let mut last = ' ';
        for (at, c) in line.char_indices() {
            if !quoted && line[at..].starts_with("//") {
                break;
            }
            let quote = c == '"' && last != '\\' && !line[at + 1..].starts_with('\'');
            quoted ^= quote;
            if !quoted && !quote {
                code.push(c);
            }
            last = if last == '\\' { ' ' } else { c };
        }
        code.push('\n');
    }
    code
}

/// The paths of a `use`, or the one path of an expression, at the beginning of a text.
fn paths(text: &str) -> Vec<Name> {
    let mut found = Vec::new();
    tree(text, &mut Vec::new(), &mut found);
    found
}

/// Reads one path, with what stands in braces. Answers what is left of the text.
fn tree<'a>(text: &'a str, before: &mut Name, found: &mut Vec<Name>) -> &'a str {
    let mut text = text.trim_start();
    let depth = before.len();
    loop {
        let end = text.find(|c| !part_of_name(c)).unwrap_or(text.len());
        if end > 0 {
            before.push(text[..end].to_string());
            text = &text[end..];
            if let Some(rest) = text.strip_prefix("::") {
                text = rest.trim_start();
                continue;
            }
            found.push(before.clone());
        } else if let Some(rest) = text.strip_prefix('{') {
            text = rest.trim_start();
            while !text.is_empty() && !text.starts_with('}') {
                let rest = tree(text, before, found).trim_start();
                // A name that it gets here (`as`) is of no interest.
                let next = rest.find([',', '}']).unwrap_or(rest.len());
                text = rest[next..].trim_start_matches(',').trim_start();
            }
            text = text.strip_prefix('}').unwrap_or(text);
        } else {
            found.push(before.clone());
        }
        before.truncate(depth);
        return text;
    }
}

/// The paths in the code of a module that go to its own crate: the module at which one begins, and its parts.
fn imports(name: &[String], code: &str) -> Vec<(Name, Name)> {
    let mut found = Vec::new();
    for word in ["crate::", "super::"] {
        for (at, _) in code.match_indices(word) {
            let before = &code[..at];
            if before.ends_with(|c| part_of_name(c) || c == ':') || before.ends_with("(in ") {
                continue;
            }
            for path in paths(&code[at..]) {
                let ups = path.iter().take_while(|part| *part == "super").count();
                let start = match ups {
                    0 => Vec::new(),
                    ups => name[..name.len().saturating_sub(ups)].to_vec(),
                };
                found.push((start, path[ups.max(1)..].to_vec()));
            }
        }
    }
    found
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder can be listed") {
        let path = entry.expect("an entry can be read").path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// The crates of the workspace, by the names of their folders.
fn crates() -> BTreeMap<String, Crate> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut crates = BTreeMap::new();
    for entry in std::fs::read_dir(top).expect("the crates are there") {
        let folder = entry.expect("a folder can be read").path();
        let source = folder.join("src");
        if !source.is_dir() {
            continue;
        }
        let mut files = Vec::new();
        collect(&source, &mut files);
        let files: Vec<_> = files
            .iter()
            .map(|path| {
                let inside = path.strip_prefix(&source).expect("it was found there");
                let inside = inside.to_str().expect("names are text").to_string();
                (inside, std::fs::read_to_string(path).expect("a source file is text"))
            })
            .collect();
        let files: Vec<_> = files.iter().map(|(path, text)| (&path[..], &text[..])).collect();
        let name = folder.file_name().and_then(|name| name.to_str()).expect("a crate has a name");
        crates.insert(name.to_string(), Crate::of(&files));
    }
    crates
}

#[test]
fn modules_beside_each_other_do_not_import_each_other_in_a_circle() {
    let crates = crates();
    assert!(crates.len() >= 15, "only {} crates were found", crates.len());
    let (mut wrong, mut seen) = (Vec::new(), BTreeSet::new());
    for (own, modules) in &crates {
        wrong.extend(modules.circles(own, KNOWN, &mut seen));
    }
    assert!(wrong.is_empty(), "these are on circles, cut one of each:\n{}", wrong.join("\n"));
    let gone: Vec<_> = KNOWN.iter().filter(|known| !seen.contains(**known)).collect();
    assert!(gone.is_empty(), "it is cut, take it off the list: {gone:?}");
}

#[test]
fn the_alarm_rings() {
    let judged = |files: &[(&str, &str)], known: &[&str]| {
        Crate::of(files).circles("own", known, &mut BTreeSet::new()).len()
    };
    let circles = |files: &[(&str, &str)]| judged(files, &[]);
    let root = ("lib.rs", "mod a;\nmod b;\npub use b::{c::D, E as F};\n");
    // A path in a `use`, one in an expression, one through the root's re-export, and one from a module below.
    assert_eq!(circles(&[root, ("a.rs", "use crate::b::E;"), ("b.rs", "super::a::f()")]), 2);
    assert_eq!(
        circles(&[root, ("a.rs", "crate::{x, b::{self}}"), ("b/mod.rs", "crate::a::f()")]),
        2
    );
    let below = ("b/c.rs", "use super::super::a::{G};");
    assert_eq!(circles(&[root, ("a.rs", "use crate::D;"), ("b/mod.rs", ""), below]), 2);
    // In one direction, in comments, in tests, from a child to its parent: no circle.
    let one = ("a.rs", "use crate::b::E;");
    assert_eq!(circles(&[root, one, ("b.rs", "// crate::a::f()\n\"crate::a::f()\"")]), 0);
    assert_eq!(circles(&[root, one, ("b.rs", "#[cfg(test)]\nmod tests {\n use crate::a;\n}")]), 0);
    assert_eq!(circles(&[root, one, ("b.rs", "pub(in crate::a) fn f() {}")]), 0);
    assert_eq!(
        circles(&[("lib.rs", "use a::A;"), ("a/mod.rs", "use b::B;"), ("a/b.rs", "use super::C;")]),
        0
    );
    // A known edge is left out, and a circle beside it is not.
    let both = [root, one, ("b.rs", "use crate::a::G;")];
    assert_eq!((judged(&both, &["own: b > a"]), judged(&both, &["own: b > c"])), (0, 2));
}
