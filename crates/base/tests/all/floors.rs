//! A crate uses only what it stands on: the edges in ARCHITECTURE.md are those that cargo sees.
//!
//! The list stands in a block fenced as `floors`, one line `crate > crate, crate`
//! for each. Dev-dependencies are free.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use crate::cargo;
use crate::cargo::workspace;

type Edges = BTreeMap<String, BTreeSet<String>>;

/// The edges between crates of the workspace, by folder name.
fn found() -> Edges {
    let packages = cargo::packages();
    let folder = |path: &serde_json::Value| {
        let path = Path::new(path.as_str()?);
        let name = path.file_name()?.to_str()?;
        path.parent()?.ends_with("crates").then(|| name.to_string())
    };
    let mut edges = Edges::new();
    for package in &packages {
        let manifest = package["manifest_path"].as_str().expect("a package has a manifest");
        let own = Path::new(manifest).parent().expect("a manifest lies in a folder");
        let is_crate = own.parent().is_some_and(|parent| parent.ends_with("crates"));
        let own = own.file_name().and_then(|name| name.to_str()).expect("a folder has a name");
        if !is_crate {
            // A twin of a crate: it has its source, and its edges.
            continue;
        }
        let dependencies = package["dependencies"].as_array().expect("a package has a list");
        let used = dependencies
            .iter()
            .filter(|dependency| dependency["kind"].as_str() != Some("dev"))
            .filter_map(|dependency| folder(&dependency["path"]));
        edges.insert(own.to_string(), used.collect());
    }
    edges
}

/// The edges in the block fenced as `floors`.
fn listed() -> Edges {
    let path = workspace().join("ARCHITECTURE.md");
    let text = std::fs::read_to_string(path).expect("ARCHITECTURE.md exists");
    parse(&text)
}

fn parse(text: &str) -> Edges {
    let (_, block) = text.split_once("```floors\n").expect("there is a block fenced as `floors`");
    let (block, _) = block.split_once("```").expect("the block ends");
    let mut edges = Edges::new();
    for line in block.lines().filter(|line| !line.trim().is_empty()) {
        let (from, to) = line.split_once('>').unwrap_or_else(|| panic!("no `>` in {line:?}"));
        let to = to.split(',').map(|name| name.trim().to_string());
        let before = edges.insert(from.trim().to_string(), to.collect());
        assert!(before.is_none(), "{from} is listed twice");
    }
    edges
}

/// What one has and the other has not.
fn differences(found: &Edges, listed: &Edges) -> Vec<String> {
    let none = BTreeSet::new();
    let mut wrong = Vec::new();
    for name in found.keys().chain(listed.keys()).collect::<BTreeSet<_>>() {
        if !found.contains_key(name) {
            wrong.push(format!("{name} is listed, but there is no such crate"));
        }
        let (has, may) = (found.get(name).unwrap_or(&none), listed.get(name).unwrap_or(&none));
        for other in has.difference(may) {
            wrong.push(format!(
                "{name} uses {other}, which it does not stand on: move the code, or change ARCHITECTURE.md"
            ));
        }
        for other in may.difference(has) {
            wrong.push(format!("{name} > {other} is listed, but {name} does not use it"));
        }
    }
    wrong
}

/// The crates on a circle of edges, if there is one.
fn circle(edges: &Edges) -> Vec<String> {
    let mut left = edges.clone();
    loop {
        let free: Vec<_> = left
            .iter()
            .filter(|(_, uses)| uses.iter().all(|used| !left.contains_key(used)))
            .map(|(name, _)| name.clone())
            .collect();
        if free.is_empty() {
            return left.into_keys().collect();
        }
        free.iter().for_each(|name| drop(left.remove(name)));
    }
}

#[test]
fn crates_use_only_what_they_stand_on() {
    let (found, listed) = (found(), listed());
    assert!(found.len() >= 8, "cargo sees too few crates: {found:?}");
    let wrong = differences(&found, &listed);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(circle(&found).is_empty(), "these crates use each other: {:?}", circle(&found));
}

/// A dev-dependency that names a version must be published before, which another way round makes impossible: it names a path alone.
#[test]
fn public_crates_can_be_published_one_after_the_other() {
    let packages = cargo::packages();
    let public = packages.iter().filter(|package| package["publish"].is_null());
    let public: BTreeSet<_> = public.filter_map(|package| package["name"].as_str()).collect();
    assert!(public.len() >= 10, "cargo sees too few public crates: {public:?}");
    let wants = |package: &serde_json::Value| {
        let dependencies = package["dependencies"].as_array().expect("a package has a list");
        let with_version = dependencies.iter().filter(|dependency| dependency["req"] != "*");
        let names = with_version.filter_map(|dependency| dependency["name"].as_str());
        names.filter(|name| public.contains(name)).map(String::from).collect()
    };
    let edges: Edges = packages
        .iter()
        .filter_map(|package| Some((package["name"].as_str()?, package)))
        .filter(|(name, _)| public.contains(name))
        .map(|(name, package)| (name.to_string(), wants(package)))
        .collect();
    let circle = circle(&edges);
    assert!(circle.is_empty(), "each of these waits for another to be published: {circle:?}");
}

#[test]
fn the_alarm_rings() {
    let edges = |text: &str| parse(&format!("x\n```floors\n{text}```\n"));
    let base = edges("a > b, c\nb > c\n");
    let with_c = |mut edges: Edges| {
        edges.insert("c".into(), BTreeSet::new());
        edges
    };
    assert!(differences(&with_c(base.clone()), &base).is_empty());
    let extra = with_c(edges("a > b, c\nb > a, c\n"));
    assert_eq!(differences(&extra, &base).len(), 1);
    assert_eq!(circle(&extra), ["a", "b"]);
    let fewer = with_c(edges("a > b\nb > c\n"));
    assert_eq!(differences(&fewer, &base), ["a > c is listed, but a does not use it"]);
    assert_eq!(differences(&base, &edges("a > b, c\nb > c\nd > a\n")).len(), 2);
}

/// `holdfast` serves volumes: what is there to measure and to judge it, and what was done before its mechanisms, comes
/// into `holdfast-dev`.
#[test]
fn the_shipped_program_has_nothing_in_it_that_only_its_makers_need() {
    let tree = |package: &str, features: &[&str]| {
        let output = Command::new(env!("CARGO"))
            .args(["tree", "--offline", "-p", package, "-e", "normal,features", "--prefix", "none"])
            .args(["--format", "{p} {f}"])
            .args(features)
            .current_dir(workspace())
            .output()
            .expect("cargo runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("cargo prints text")
    };
    let (shipped, dev) = (tree("holdfast-cli", &[]), tree("holdfast-dev", &[]));
    let unwanted =
        ["holdfast-bench ", "holdfast-sim ", "holdfast-script ", "rusqlite ", "feature \"before\""];
    for what in unwanted {
        assert!(dev.contains(what), "it would not be seen: {what}");
        assert!(!shipped.contains(what), "holdfast has {what}");
    }
    // Not even that of its makers, unless `make locks` asks for it.
    let count = |tree: &str| {
        let mut locks = tree.lines().filter(|line| line.starts_with("holdfast-locks v"));
        locks.next().expect("all take locks").contains(" counted")
    };
    assert!(count(&tree("holdfast-dev", &["--features", "locks"])), "it would not be seen");
    assert!(!count(&shipped) && !count(&dev), "locks count unasked");
}

/// The mutants of `holdfast_base::mutants` must never come into a program for users: the feature is off
/// wherever it is not named, and only the simulator's tests can.
#[test]
fn no_crate_but_the_simulator_can_turn_mutants_on() {
    let crates = workspace().join("crates");
    let mut names = Vec::new();
    for folder in std::fs::read_dir(crates).expect("there is a folder of crates") {
        let folder = folder.expect("it can be listed").path();
        let Ok(manifest) = std::fs::read_to_string(folder.join("Cargo.toml")) else {
            continue;
        };
        let lines = manifest.lines().filter(|line| !line.starts_with('#'));
        let name = folder.file_name().and_then(|name| name.to_str()).expect("it has a name");
        names.extend(
            lines.filter(|line| line.contains("mutants")).map(|line| format!("{name}: {line}")),
        );
    }
    names.sort();
    let allowed = [
        "base: mutants = []",
        "sim: mutants = [\"holdfast-base/mutants\"]",
        "sim: name = \"mutants\"",
        "sim: required-features = [\"mutants\"]",
    ];
    assert_eq!(names, allowed);
    let top = std::fs::read_to_string(workspace().join("Cargo.toml")).expect("it exists");
    assert!(!top.contains("mutants"), "no feature for all crates");
}
