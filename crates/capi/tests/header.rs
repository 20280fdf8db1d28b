//! The header is what the functions say. `UPDATE_HEADER=1 cargo test -p holdfast-capi --test header` makes it anew.

#![allow(missing_docs, clippy::unwrap_used)]

use std::path::Path;

#[test]
fn the_header_is_that_of_the_functions() {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    let path = own.join("include/holdfast.h");
    let config = cbindgen::Config::from_file(own.join("cbindgen.toml")).unwrap();
    let mut made = Vec::new();
    cbindgen::Builder::new()
        .with_config(config)
        .with_src(own.join("src/lib.rs"))
        .generate()
        .unwrap()
        .write(&mut made);
    let made = without_safety(&String::from_utf8(made).unwrap());
    if std::env::var_os("UPDATE_HEADER").is_some() {
        std::fs::write(&path, &made).unwrap();
    }
    let there = std::fs::read_to_string(&path).unwrap_or_default();
    let stale = "include/holdfast.h is stale: run this test with UPDATE_HEADER=1";
    assert!(there == made, "{stale}");
}

/// Without what is written for Rust: C knows no other functions than unsafe ones.
fn without_safety(header: &str) -> String {
    let mut out = String::new();
    let mut inside = false;
    let mut lines = header.lines().peekable();
    while let Some(line) = lines.next() {
        if line.trim() == "*" && lines.peek().is_some_and(|next| next.trim() == "* # Safety") {
            inside = true;
        }
        if line.trim() == "*/" {
            inside = false;
        }
        if !inside {
            out.push_str(line);
            out.push('\n');
        }
    }
    out
}

/// What the document shows is the program that is compiled and run.
#[test]
fn the_example_of_the_document_is_the_one_that_is_tested() {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    let document = std::fs::read_to_string(own.join("../../docs/BINDINGS.md")).unwrap();
    let shown = document.split("```c\n").nth(1).unwrap().split("```").next().unwrap();
    assert_eq!(shown, std::fs::read_to_string(own.join("examples/quickstart.c")).unwrap());
}

#[test]
fn the_alarm_rings() {
    let header = "/**\n * Does.\n *\n * # Safety\n * `x` is.\n */\nint a(void);\n";
    assert_eq!(without_safety(header), "/**\n * Does.\n */\nint a(void);\n");
}

/// Every function that C sees is checked for a panic: it goes through the border.
#[test]
fn every_function_goes_through_the_border() {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut count = 0;
    for file in std::fs::read_dir(own).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        for function in text.split("#[unsafe(no_mangle)]\n").skip(1) {
            let body = function.split_once("{\n").unwrap().1.trim_start();
            let comment = |line: &&str| line.trim_start().starts_with("//");
            let first = body.lines().find(|line| !comment(line)).unwrap().trim();
            let guarded = ["done(", "call(", "made("].iter().any(|by| first.starts_with(by));
            let plain =
                ["SENTENCE.try_with", "const VERSION"].iter().any(|by| first.starts_with(by));
            assert!(guarded || plain, "{first}");
            count += 1;
        }
    }
    assert!(count > 40, "only {count} were found");
}
