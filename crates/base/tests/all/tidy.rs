//! The mechanical part of the style: what every source file of the workspace keeps to.
//!
//! Each message says what to do instead. Code of tests is exempt from the rules
//! about what may be called, and about the length of a function: some are a table
//! with a case for each kind of call or finding, which is clearest in one piece.
//! Heads and sizes of files hold for tests, too.

use std::path::{Path, PathBuf};

/// Longest file, in lines.
const LINES_MAX: usize = 700;

/// Longest function, in lines.
const FUNCTION_MAX: usize = 80;

/// Comments about people where a thread, a caller or a program may be meant, and how many there are: users with rights. It only falls.
const PEOPLE: &[&str] =
    &["who", "whom", "whoever", "nobody", "he", "his", "him", "somebody", "anybody", "everybody"];
const PEOPLE_MAX: usize = 41;

/// A source file.
struct File {
    /// `crate/path`, without `src`.
    name: String,
    text: String,
    /// Whether the whole file is a test.
    is_test: bool,
}

fn files() -> Vec<File> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut files = Vec::new();
    for entry in std::fs::read_dir(&crates).expect("the crates are there") {
        let folder = entry.expect("a folder can be read").path();
        let own = folder.file_name().and_then(|name| name.to_str()).expect("a crate has a name");
        let mut paths = Vec::new();
        collect(&folder.join("src"), &mut paths);
        for path in paths {
            let inside = path.strip_prefix(folder.join("src")).expect("it was found there");
            let name = format!("{own}/{}", inside.display());
            let text = std::fs::read_to_string(&path).expect("a source file is text");
            let is_test = ["/tests/", "/tests.rs", "_tests.rs", "/testing"]
                .iter()
                .any(|part| name.contains(part));
            files.push(File { name, text, is_test });
        }
    }
    assert!(files.len() > 50, "only {} files were found", files.len());
    files
}

fn collect(folder: &Path, paths: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries {
        let path = entry.expect("an entry can be read").path();
        if path.is_dir() {
            collect(&path, paths);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            paths.push(path);
        }
    }
}

/// The lines of code with their numbers: no comments, no content of strings, no tests at the end of the file.
fn code(text: &str) -> Vec<(usize, String)> {
    let mut lines = Vec::new();
    let mut text = text.lines().enumerate().peekable();
    while let Some((index, line)) = text.next() {
        let trimmed = line.trim_start();
        let next_is_module = text.peek().is_some_and(|(_, next)| {
            let next = next.trim_start();
            next.starts_with("mod ") && next.ends_with('{')
        });
        if trimmed.starts_with("#[cfg(test)]") && next_is_module {
            break;
        }
        if !trimmed.starts_with("//") {
            lines.push((index + 1, without_strings(line)));
        }
    }
    lines
}

/// A line without its comment and what its strings hold. Strings over several lines are taken for code.
fn without_strings(line: &str) -> String {
    let mut out = String::new();
    let mut chars = line.chars().peekable();
    let mut inside = false;
    while let Some(c) = chars.next() {
        match c {
            '\\' if inside => drop(chars.next()),
            '\'' if !inside && chars.peek() == Some(&'"') => drop(chars.next()),
            '"' => inside = !inside,
            '/' if !inside && chars.peek() == Some(&'/') => break,
            c if !inside => out.push(c),
            _ => {}
        }
    }
    out
}

/// Whether `word` stands alone in `line`.
fn has_word(line: &str, word: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word)
        .any(|(at, _)| !line[..at].ends_with(part) && !line[at + word.len()..].starts_with(part))
}

/// Whether `line` names a constant of errno: `libc::EIO`, `Errno::IO`.
fn names_errno(line: &str) -> bool {
    let constant = |rest: &str| {
        let name: String = rest.chars().take_while(|c| c.is_ascii_alphanumeric()).collect();
        name.len() >= 2 && name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit())
    };
    line.match_indices("libc::E").any(|(at, _)| {
        // EPOLLIN and the like are flags, not errors.
        constant(&line[at + 6..]) && !line[at + 6..].starts_with("EPOLL")
    }) || line.match_indices("Errno::").any(|(at, _)| constant(&line[at + 7..]))
}

/// The name of the function that begins in a line.
fn function(line: &str) -> Option<&str> {
    let (before, rest) = line.split_once("fn ")?;
    let words = ["pub", "const", "async", "unsafe", "extern", "default"];
    let is_word = |word: &str| words.contains(&word) || word.starts_with("pub(");
    // `pub(in path)` has a space.
    let before = before.replace("(in ", "(");
    let name = rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
    (before.split_whitespace().all(is_word) && !name.is_empty()).then_some(name)
}

/// The functions of a file but for the tests at its end: the line of each, its name, and how many lines it has. What
/// `cargo fmt` has left ends where a brace closes as far to the left as the function began.
fn functions(text: &str) -> Vec<(usize, &str, usize)> {
    let tests = text.find("#[cfg(test)]\nmod tests {").unwrap_or(text.len());
    let lines: Vec<&str> = text[..tests].lines().collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let Some(name) = function(line) else { continue };
        let indent = line.len() - line.trim_start().len();
        let beside = |line: &str| line.len() - line.trim_start().len() == indent;
        // Its head may take several lines; a method that a trait only asks for ends with it.
        let head = lines[at..].iter().position(|line| line.ends_with(['{', '}', ';']));
        let body = head.filter(|&head| lines[at + head].ends_with('{')).map(|head| at + head);
        let Some(body) = body else { continue };
        let end = lines[body..].iter().position(|line| line.trim() == "}" && beside(line));
        if let Some(end) = end {
            found.push((at + 1, name, body + end + 1 - at));
        }
    }
    found
}

/// What is wrong with a line of code in the file `name`, and what to do instead.
fn judge(name: &str, line: &str) -> Option<&'static str> {
    let part = name.split('/').next().unwrap_or(name);
    if line.contains(".unwrap()") {
        return Some("`unwrap()`: return an error, or say with `expect` why it cannot be");
    }
    if has_word(line, "unsafe") && !["capi", "device", "wire"].contains(&part) {
        return Some("`unsafe` outside capi, device and wire: use a safe crate, or put it there");
    }
    let clocks = ["SystemTime::now", "Instant::now"];
    // `script` stands on nothing, not even on base.
    let may_ask = name == "base/clock.rs" || part == "script";
    if clocks.iter().any(|clock| has_word(line, clock)) && !may_ask {
        return Some("time enters through base/clock.rs: `Timestamp`, `Stopwatch`, `Deadline`");
    }
    let starts = ["thread::spawn(", "thread::Builder", "scope.spawn("];
    // Tools that measure may fail for it, and so may a daemon that is just starting.
    let may_start = ["sync", "bench", "daemon", "cli", "dev", "sim", "interleave"].contains(&part);
    if starts.iter().any(|start| line.contains(start)) && !may_start {
        return Some("the system may give no thread: `holdfast_sync::start` or `on_threads`");
    }
    // Crates that speak with the host or the user may; floors 0 to 3 may not.
    let may_name_errno = [
        "capi", "control", "device", "script", "wire", "holdfast", "fuse", "service", "daemon",
        "cli", "dev", "sim", "bench", "hostile",
    ]
    .contains(&part)
        || name == "posix/errno.rs";
    if names_errno(line) && !may_name_errno {
        return Some("errors become numbers in posix/errno.rs only: use an error of your own");
    }
    None
}

fn violations(file: &File) -> Vec<String> {
    let mut wrong = Vec::new();
    if !file.text.starts_with("//!") {
        wrong.push(format!("{}: begin with a head, `//! what this file holds`", file.name));
    }
    let lines = file.text.lines().count();
    if lines >= LINES_MAX {
        wrong.push(format!("{}: {lines} lines, {LINES_MAX} are too many: split it", file.name));
    }
    if !file.is_test {
        for (number, name, lines) in functions(&file.text) {
            if lines > FUNCTION_MAX {
                let why = format!("`{name}` has {lines} lines, more than {FUNCTION_MAX}");
                wrong.push(format!("{}:{number}: {why}: split it", file.name));
            }
        }
        for (number, line) in code(&file.text) {
            if let Some(what) = judge(&file.name, &line) {
                wrong.push(format!("{}:{number}: {what}", file.name));
            }
        }
    }
    wrong
}

#[test]
fn every_source_file_keeps_the_rules() {
    let wrong: Vec<_> = files().iter().flat_map(violations).collect();
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

/// Lines of comments with a word of [`PEOPLE`].
fn about_people(file: &File) -> Vec<String> {
    let is_about = |line: &str| {
        let line = line.to_lowercase();
        PEOPLE.iter().any(|word| has_word(&line, word))
    };
    let comments = file.text.lines().map(str::trim_start).enumerate();
    comments
        .filter(|(_, line)| line.starts_with("//") && is_about(line))
        .map(|(index, line)| format!("{}:{}: {line}", file.name, index + 1))
        .collect()
}

#[test]
fn comments_are_about_things() {
    let found: Vec<_> = files().iter().flat_map(about_people).collect();
    assert!(
        found.len() <= PEOPLE_MAX,
        "{} comments about people: name the thread, the caller or the program\n{}",
        found.len(),
        found.join("\n")
    );
    let text =
        "//! Head.\n/// Who waits calls it.\n    // nobody\nlet who = 1; // the whole\n".into();
    let file = File { name: "store/a.rs".into(), text, is_test: false };
    assert_eq!(about_people(&file).len(), 2);
}

#[test]
fn functions_are_measured() {
    let body = "    let a = 1;\n".repeat(79);
    let long = format!("pub(in crate::a) const fn a(\n    b: u8,\n) -> u8 {{\n{body}}}\n");
    assert_eq!(functions(&long), [(1, "a", 83)]);
    let method =
        "impl A {\n    fn b(&self) {\n        if c {\n        }\n    }\n    fn d() {}\n}\n";
    assert_eq!(functions(method), [(2, "b", 4)]);
    let asked = "trait A {\n    fn b(\n        c: u8,\n    );\n    fn d() {\n    }\n}\n";
    assert_eq!(functions(asked), [(5, "d", 2)]);
    assert_eq!(
        functions("// a fn b {\nlet fn_c = 1;\n#[cfg(test)]\nmod tests {\nfn a() {\n}\n}\n"),
        []
    );
    let judged = |name: &str| {
        let text = format!("//! H\n{long}");
        violations(&File { name: name.into(), text, is_test: name.contains("/tests/") }).len()
    };
    assert_eq!(["store/a.rs", "fuse/tests/a.rs"].map(judged), [1, 0]);
}

#[test]
fn the_alarms_ring() {
    let count = |name: &str, text: &str| {
        let file = File { name: name.into(), text: text.into(), is_test: false };
        violations(&file).len()
    };
    assert_eq!(count("store/a.rs", "//! Head.\nfn a() {}\n"), 0);
    assert_eq!(count("store/a.rs", "fn a() {}\n"), 1);
    assert_eq!(count("store/a.rs", "//! Head.\nfn a() { scope.spawn(b); }\n"), 1);
    assert_eq!(count("sync/a.rs", "//! Head.\nfn a() { std::thread::Builder::new(); }\n"), 0);
    assert_eq!(count("store/a.rs", &format!("//! Head.\n{}", "\n".repeat(700))), 1);
    assert_eq!(count("store/a.rs", "//! H\nlet a = b.unwrap();\n"), 1);
    assert_eq!(count("store/a.rs", "//! H\nlet a = \".unwrap()\"; // .unwrap()\n"), 0);
    assert_eq!(count("store/a.rs", "//! H\n#[cfg(test)]\nmod tests {\nb.unwrap();\n}\n"), 0);
    assert_eq!(count("store/a.rs", "//! H\nunsafe { a() }\n"), 1);
    assert_eq!(count("device/a.rs", "//! H\nunsafe { a() }\n#![deny(unsafe_code)]\n"), 0);
    assert_eq!(count("store/a.rs", "//! H\nlet a = Instant::now();\n"), 1);
    assert_eq!(count("base/clock.rs", "//! H\nlet a = Instant::now();\n"), 0);
    assert_eq!(count("store/a.rs", "//! H\nreturn libc::EIO;\n"), 1);
    assert_eq!(count("store/a.rs", "//! H\nreturn Errno::NOENT;\n"), 1);
    assert_eq!(count("posix/errno.rs", "//! H\nreturn libc::EIO;\n"), 0);
    assert_eq!(count("store/a.rs", "//! H\nuse rustix::io::Errno;\nlibc::EPOLLIN;\n"), 0);
}
