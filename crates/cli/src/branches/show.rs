//! Branches and snapshots for people, as tables, and for programs, as JSON.

use std::io::Write;

use comfy_table::{CellAlignment, Table};
use holdfast_control::{Branch, CopyOf, Failed, HeldBy, Origin, Snapshot};
use holdfast_service::branches::not_forgotten;
use holdfast_service::json;
use holdfast_service::moment::utc;
use serde_json::{Map, Value};

use super::{Ask, Name, TreeLocation};
use crate::outcome::{Failure, Outcome, printable, printed};

/// `2024-05-21 13:05:00`, in UTC.
pub(crate) fn time(nanoseconds: i64) -> String {
    utc(nanoseconds.div_euclid(1_000_000_000), "%Y-%m-%d %H:%M:%S")
}

/// The branches that grew out of a snapshot.
pub(crate) fn forks(of: &Snapshot) -> String {
    let mut forks: Vec<String> = of.forks.iter().map(Name::to_string).collect();
    if of.more_forks {
        forks.push("...".into());
    }
    forks.join(", ")
}

/// The holders of a snapshot.
pub(crate) fn holds(of: &Snapshot) -> String {
    let tags: Vec<String> = of.holds.iter().map(|hold| hold.tag.to_string()).collect();
    tags.join(", ")
}

/// What a snapshot is a copy of.
pub(crate) fn copy_of(of: &Snapshot) -> String {
    of.received.first().map_or("nothing".into(), |first| {
        let volume = uuid::Uuid::from_bytes(first.volume);
        format!("number {} of volume {volume}", first.number)
    })
}

/// `main@before-upgrade`, or what is known of it.
pub(crate) fn origin(of: &Origin) -> String {
    match (&of.branch, of.name.0.is_empty()) {
        (Some(branch), false) => format!("{branch}@{}", of.name),
        (Some(branch), true) => branch.to_string(),
        (None, _) => format!("number {}", of.number),
    }
}

/// Lines under a head. Columns of numbers and of nothing are as wide as they have to be.
pub(crate) fn table<const N: usize>(
    head: &[&str; N],
    rows: impl Iterator<Item = [String; N]>,
) -> Outcome {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table.set_header(head);
    for row in rows {
        table.add_row(row);
    }
    for (at, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        if matches!(
            head[at],
            "FILES" | "HELD" | "SNAPSHOTS" | "REFERENCED" | "LIMIT" | "PROCESS" | "USER" | "MEMORY"
        ) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let mut out = std::io::stdout().lock();
    for line in table.to_string().lines() {
        printed(writeln!(out, "{}", line.trim_end()))?;
    }
    Ok(0)
}

/// Lines under a table: deletions that have failed and wait.
pub(crate) fn failed(of: &[Failed]) -> Outcome {
    let mut out = std::io::stdout().lock();
    for of in of {
        printed(writeln!(out, "{}", failed_line(of)))?;
    }
    Ok(0)
}

fn failed_line(of: &Failed) -> String {
    let branch = of.branch.as_ref().map(|branch| format!(" of {branch}")).unwrap_or_default();
    let why = printable(&of.why);
    format!("failed{branch}, and takes its space on: {why}")
}

/// The same for programs.
pub(crate) fn failed_json(of: &[Failed]) -> Value {
    let object = |of: &Failed| {
        let mut object = Map::new();
        object.insert("number".into(), of.number.into());
        json::put_if(&mut object, "branch", of.branch.as_ref().map(Name::bytes));
        object.insert("why".into(), of.why.clone().into());
        Value::Object(object)
    };
    of.iter().map(object).collect()
}

/// Prints one JSON object.
pub(crate) fn json(object: Map<String, Value>) -> Outcome {
    printed(writeln!(std::io::stdout().lock(), "{}", json::text(&object))).map(|()| 0)
}

/// What was made: a snapshot of a branch, or a branch.
pub(crate) fn made(
    as_json: bool,
    branch: &Name,
    snapshot: Option<&Name>,
    number: Option<u64>,
) -> Outcome {
    if as_json {
        let mut object = named(branch);
        if let Some(snapshot) = snapshot {
            json::put(&mut object, "snapshot", snapshot.bytes());
        }
        object.insert("number".into(), number.into());
        return json(object);
    }
    let snapshot = snapshot.map(|name| format!("@{name}")).unwrap_or_default();
    printed(writeln!(std::io::stdout().lock(), "{branch}{snapshot}")).map(|()| 0)
}

fn diverged(why: String) -> Failure {
    Failure::plain(format!("{why}; --force promotes it all the same"))
}

/// Gives a branch another head, and says where what it was can be found. `from`: whose head it is, and what that is called in JSON;
/// `said`: what is said of the branch, which has this name.
pub(crate) fn new_head(
    place: &TreeLocation,
    question: &Ask,
    as_json: bool,
    from: (&str, &Name),
    kept: Option<&Name>,
    said: impl Fn(&Name) -> String,
) -> Outcome {
    let (branch, forgotten) = place.located()?.new_head(question)?.map_err(diverged)?;
    let said = format!("{branch} {}", said(&branch));
    if as_json {
        let mut object = named(&branch);
        json::put(&mut object, from.0, from.1.bytes());
        json::put_if(&mut object, "kept", kept.map(Name::bytes));
        object.insert("forgotten".into(), forgotten.into());
        json(object)?;
    } else {
        let kept = kept.map_or("nothing of what it was is kept".into(), |kept| {
            format!("what it was is kept as {branch}@{kept}")
        });
        printed(writeln!(std::io::stdout().lock(), "{said}; {kept}"))?;
    }
    if forgotten { Ok(0) } else { Err(not_forgotten(&said)) }
}

/// An object with the name of a branch.
pub(crate) fn named(branch: &Name) -> Map<String, Value> {
    let mut object = Map::new();
    json::put(&mut object, "branch", branch.bytes());
    object
}

/// A snapshot for programs.
pub(crate) fn snapshot(of: &Snapshot) -> Map<String, Value> {
    let mut object = Map::new();
    json::put(&mut object, "name", of.name.bytes());
    let forks: Vec<Value> = of.forks.iter().map(|name| name.text().into()).collect();
    object.extend([
        ("number".into(), of.number.into()),
        ("created_ns".into(), of.created_ns.into()),
        ("lsn".into(), of.lsn.into()),
        ("parent".into(), of.parent.into()),
        ("holds".into(), of.holds.iter().map(hold).collect::<Vec<_>>().into()),
        ("received".into(), of.received.iter().map(received).collect::<Vec<_>>().into()),
        ("inodes".into(), of.inodes.into()),
        ("forks".into(), forks.into()),
        ("more_forks".into(), of.more_forks.into()),
        ("mounted".into(), of.mounted.into()),
    ]);
    object
}

fn hold(of: &HeldBy) -> Map<String, Value> {
    let mut object = Map::new();
    json::put(&mut object, "tag", of.tag.bytes());
    object.insert("created_ns".into(), of.created_ns.into());
    object
}

fn received(of: &CopyOf) -> Map<String, Value> {
    Map::from_iter([
        ("volume".into(), uuid::Uuid::from_bytes(of.volume).to_string().into()),
        ("number".into(), of.number.into()),
        ("lsn".into(), of.lsn.into()),
        ("created_ns".into(), of.created_ns.into()),
    ])
}

/// A branch for programs.
pub(crate) fn branch(of: &Branch) -> Map<String, Value> {
    let mut object = Map::new();
    json::put(&mut object, "name", of.name.bytes());
    let origin = of.origin.as_ref().map(|parent| {
        let mut object = Map::new();
        object.insert("number".into(), parent.number.into());
        json::put_if(&mut object, "branch", parent.branch.as_ref().map(Name::bytes));
        json::put(&mut object, "name", parent.name.bytes());
        object
    });
    object.extend([
        ("number".into(), of.number.into()),
        ("created_ns".into(), of.created_ns.into()),
        ("origin".into(), origin.into()),
        ("snapshots".into(), of.snapshots.into()),
        ("referenced_bytes".into(), of.referenced_bytes.into()),
        ("limit_bytes".into(), of.limit_bytes.into()),
        ("mounted".into(), of.mounted.into()),
    ]);
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deletion_that_failed_is_one_line_whatever_a_daemon_says() {
        let why = "the deletion of snapshot 7 does not go on:\nit\u{1b}[2J rotted".to_owned();
        let failed = Failed { number: 7, branch: Some(Name(b"main".to_vec())), why };
        let line = failed_line(&failed);
        assert!(line.starts_with("failed of main, and takes its space on: the deletion"), "{line}");
        assert!(!line.contains(['\n', '\u{1b}']), "{line:?}");
        let json = failed_json(&[failed]);
        assert_eq!((&json[0]["number"], &json[0]["branch"]), (&7.into(), &"main".into()));
    }

    #[test]
    fn times_are_those_of_utc() {
        assert_eq!(time(951_782_400_999_999_999), "2000-02-29 00:00:00");
        assert_eq!(time(-1), "1969-12-31 23:59:59");
    }
}
