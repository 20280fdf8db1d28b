//! The public crates have what publishing them needs, and stand on nothing that is not public. `scripts/publishable.sh` tries it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::cargo;
use crate::cargo::workspace;

/// The packages of the workspace, by name.
fn packages() -> BTreeMap<String, Value> {
    let name = |it: &Value| it["name"].as_str().unwrap_or_default().to_owned();
    cargo::packages().into_iter().map(|it| (name(&it), it)).collect()
}

/// `publish = false` is an empty list of registries.
fn is_public(package: &Value) -> bool {
    package["publish"].is_null()
}

/// What is wrong with a public package among `all`.
fn wrong(package: &Value, all: &BTreeMap<String, Value>) -> Vec<String> {
    let mut wrong = Vec::new();
    for field in ["description", "license", "rust_version"] {
        if package[field].as_str().is_none_or(str::is_empty) {
            wrong.push(format!("it has no {field}"));
        }
    }
    for (field, most) in [("keywords", 5), ("categories", 5)] {
        let count = package[field].as_array().map_or(0, Vec::len);
        if !(1..=most).contains(&count) {
            wrong.push(format!("it has {count} {field}, where 1 to {most} may be"));
        }
    }
    for dependency in package["dependencies"].as_array().into_iter().flatten() {
        let Some(on) = dependency["name"].as_str().and_then(|name| all.get(name)) else { continue };
        let name = &on["name"];
        let needs_version = dependency["kind"].as_str() != Some("dev");
        let exactly = format!("={}", on["version"].as_str().unwrap_or_default());
        match dependency["req"].as_str() {
            // Packing leaves out a dependency of tests that has no version.
            Some("*") if !needs_version => {}
            Some(version) if version == exactly && is_public(on) => {}
            version => wrong.push(format!("it stands on {name} {version:?}, wanted {exactly}")),
        }
    }
    wrong
}

#[test]
fn public_crates_can_be_published() {
    let all = packages();
    let public: Vec<&Value> = all.values().filter(|package| is_public(package)).collect();
    for name in ["holdfast-fs", "holdfast-cli"] {
        assert!(public.iter().any(|package| package["name"] == name), "{name} is not public");
    }
    for name in ["holdfast-sim", "holdfast-dev", "holdfast-bench", "holdfast-interleave-store"] {
        assert!(public.iter().all(|package| package["name"] != name), "{name} is public");
    }
    for package in public {
        let name = &package["name"];
        assert_eq!(wrong(package, &all), Vec::<String>::new(), "{name}");
        let manifest = package["manifest_path"].as_str().expect("it has a manifest");
        let folder = Path::new(manifest).parent().expect("it lies in a folder");
        for licence in ["LICENSE-MIT", "LICENSE-APACHE"] {
            let text = |path: PathBuf| std::fs::read(path).expect("a licence can be read");
            let same = text(folder.join(licence)) == text(workspace().join(licence));
            assert!(same, "{name}: {licence} is not that of the repository");
        }
    }
}

#[test]
fn the_alarm_rings() {
    let package = |text: &str| serde_json::from_str::<Value>(text).expect("it is JSON");
    let fine = r#"{"name": "a", "version": "1.0.0", "publish": null, "description": "d", "license": "MIT",
        "rust_version": "1", "keywords": ["k"], "categories": ["c"], "dependencies": []}"#;
    let secret = fine.replace("\"a\"", "\"b\"").replace("null", "[]");
    let all = [("a".to_owned(), package(fine)), ("b".to_owned(), package(&secret))].into();
    let count = |text: &str| wrong(&package(text), &all).len();
    assert_eq!(count(fine), 0);
    let on = |dependency: &str| fine.replace("[]}", &format!("[{dependency}]}}"));
    assert_eq!(count(&on(r#"{"name": "a", "kind": null, "req": "=1.0.0"}"#)), 0);
    assert_eq!(count(&on(r#"{"name": "a", "kind": null, "req": "*"}"#)), 1);
    assert_eq!(count(&on(r#"{"name": "a", "kind": "dev", "req": "*"}"#)), 0);
    assert_eq!(count(&on(r#"{"name": "b", "kind": null, "req": "=1.0.0"}"#)), 1);
    assert_eq!(count(&on(r#"{"name": "x", "kind": null, "req": "*"}"#)), 0);
    assert_eq!(count(&fine.replace("\"d\"", "\"\"")), 1);
    assert_eq!(count(&fine.replace("[\"k\"]", "[]")), 1);
}
