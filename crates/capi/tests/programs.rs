//! C programs that use the library: compiled with each compiler that is here, run, and killed.

#![allow(missing_docs, clippy::unwrap_used)]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use holdfast::Volume;
use holdfast_base::skip::skipped;
use tempfile::TempDir;

const OWN: &str = env!("CARGO_MANIFEST_DIR");

/// A compiler, or what else there may be.
fn is_here(program: &str) -> bool {
    let said = Command::new(program).arg("--version").output();
    said.is_ok_and(|said| said.status.success())
}

/// The library under the names that an installation gives it.
struct Library(TempDir);

impl Library {
    fn installed() -> Library {
        let place = tempfile::tempdir().unwrap();
        let built = std::env::current_exe().unwrap().with_file_name("libholdfast_c.so");
        for name in ["libholdfast.so", "libholdfast.so.0"] {
            std::os::unix::fs::symlink(&built, place.path().join(name)).unwrap();
        }
        Library(place)
    }

    /// Compiles a program of one file.
    fn compile(&self, compiler: &str, source: &str, more: &[&str]) -> PathBuf {
        let program = self.0.path().join(format!("{compiler}-{}", source.replace('/', "-")));
        let done = Command::new(compiler)
            .args(["-std=gnu11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-g"])
            .args(more)
            .arg(format!("-I{OWN}/include"))
            .arg(format!("{OWN}/{source}"))
            .arg("-o")
            .arg(&program)
            .arg(format!("-L{}", self.0.path().display()))
            .args(["-lholdfast", "-pthread"])
            .output()
            .unwrap();
        assert!(done.status.success(), "{source}: {}", String::from_utf8_lossy(&done.stderr));
        program
    }

    /// `program`, finding the library by its soname.
    fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(program.as_ref());
        command.env("LD_LIBRARY_PATH", self.0.path());
        command
    }
}

#[track_caller]
fn succeeds(output: &Output) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}", output.status);
}

#[test]
fn what_posix_says_holds_with_each_compiler_that_is_here() {
    let compilers: Vec<_> = ["gcc", "clang"].into_iter().filter(|name| is_here(name)).collect();
    if compilers.is_empty() {
        return skipped("there is neither gcc nor clang here");
    }
    compilers.into_iter().for_each(basics);
}

fn basics(compiler: &str) {
    let library = Library::installed();
    let place = tempfile::tempdir().unwrap();
    let program = library.compile(compiler, "tests/basics.c", &[]);
    succeeds(&library.command(program).arg(place.path().join("volume")).output().unwrap());
    let program = library.compile(compiler, "examples/quickstart.c", &[]);
    let image = place.path().join("quickstart");
    succeeds(&library.command(program).arg(&image).output().unwrap());
    let volume = Volume::open(image).unwrap();
    assert_eq!(volume.read("/notes/final").unwrap(), b"held fast\n");
    assert_eq!(volume.branch("main").unwrap().snapshots().unwrap().len(), 1);
}

#[test]
fn the_header_is_one_for_cxx_as_well() {
    if !is_here("g++") {
        return skipped("there is no g++ here");
    }
    let place = tempfile::tempdir().unwrap();
    let source = place.path().join("a.cc");
    let text = "#include <holdfast.h>\nint main() { return holdfast_close(nullptr); }\n";
    std::fs::write(&source, text).unwrap();
    let library = Library::installed();
    let done = Command::new("g++")
        .args(["-Wall", "-Wextra", "-Werror", "-o"])
        .arg(place.path().join("a"))
        .arg(format!("-I{OWN}/include"))
        .arg(source)
        .arg(format!("-L{}", library.0.path().display()))
        .arg("-lholdfast")
        .output()
        .unwrap();
    succeeds(&done);
    succeeds(&library.command(place.path().join("a")).output().unwrap());
}

#[test]
fn valgrind_finds_nothing() {
    if !is_here("valgrind") || !is_here("gcc") {
        return skipped("there is no valgrind, or no gcc, here");
    }
    let library = Library::installed();
    let place = tempfile::tempdir().unwrap();
    let program = library.compile("gcc", "tests/basics.c", &[]);
    let done = library
        .command("valgrind")
        .args([
            "--quiet",
            "--error-exitcode=99",
            "--leak-check=full",
            "--errors-for-leak-kinds=definite",
        ])
        .arg(program)
        .arg(place.path().join("volume"))
        .output()
        .unwrap();
    succeeds(&done);
}

#[test]
fn what_was_acknowledged_before_a_sigkill_is_there() {
    if !is_here("gcc") {
        return skipped("there is no gcc here");
    }
    let library = Library::installed();
    let place = tempfile::tempdir().unwrap();
    let image = place.path().join("volume");
    let program = library.compile("gcc", "examples/records.c", &[]);
    let mut acknowledged = 0;
    for more in [1, 40, 97, 300] {
        let mut child =
            library.command(&program).arg(&image).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        for line in (&mut lines).take(more) {
            acknowledged = line.unwrap().parse().unwrap();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        // What it has said until it was dead counts as well.
        if let Some(line) = lines.map_while(Result::ok).last() {
            acknowledged = line.parse().unwrap_or(acknowledged);
        }
        let verify = library.command(&program).arg(&image).arg(acknowledged.to_string()).output();
        succeeds(&verify.unwrap());
        // The alarm: what was never written is missed.
        let too_many = (acknowledged + 5).to_string();
        let missed = library.command(&program).arg(&image).arg(too_many).output().unwrap();
        assert!(!missed.status.success(), "records are there that nobody wrote");
    }
    assert!(acknowledged > 400, "only {acknowledged} records");
}

/// Nothing but the calls of the header is seen by programs, under a name of its own.
#[test]
fn the_library_has_its_soname_and_no_other_names() {
    if !is_here("nm") || !is_here("objdump") {
        return skipped("there are no binutils here");
    }
    let library = Library::installed();
    let file = library.0.path().join("libholdfast.so");
    let run = |program: &str, arguments: &[&str]| {
        let done = Command::new(program).args(arguments).arg(&file).output().unwrap();
        succeeds(&done);
        String::from_utf8(done.stdout).unwrap()
    };
    assert!(
        run("objdump", &["-p"])
            .lines()
            .any(|line| { line.split_whitespace().eq(["SONAME", "libholdfast.so.0"]) })
    );
    let names = run("nm", &["-D", "--defined-only"]);
    let names: Vec<_> = names.lines().filter_map(|line| line.split_whitespace().nth(2)).collect();
    let header = std::fs::read_to_string(format!("{OWN}/include/holdfast.h")).unwrap();
    assert!(names.len() > 40, "{names:?}");
    for name in names {
        assert!(header.contains(&format!("{name}(")), "{name} is not in the header");
    }
}
