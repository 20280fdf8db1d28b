//! Archives into a branch.

use std::cell::Cell;

use holdfast::{Branch, Volume};
use holdfast_archive::{Form, Imported};
use holdfast_base::show;
use serde::Serialize;

use super::export::said;
use super::{Ends, In, Out, Tree};
use crate::branches::by_time::Purpose;
use crate::json;
use crate::outcome::{self, Failure, Outcome, printed};

/// What was imported, for programs.
#[derive(Serialize)]
struct Came<'a> {
    branch: &'a str,
    /// Those that were taken, one behind each layer.
    snapshots: Vec<String>,
    members: u64,
    file_bytes: u64,
    xattrs_left_out: u64,
}

pub(super) fn run(
    door: &Volume,
    volume: &str,
    tree: &Tree,
    (layer, files): (bool, &[String]),
    for_programs: bool,
    ends: &dyn Ends,
) -> Outcome {
    use std::io::Write;
    tree.expect_branch(volume)?;
    let branch = tree.branch(door, volume)?;
    let form = if layer { Form::Layer } else { Form::Tar };
    let imported = all(&branch, volume, form, files, ends)?;
    let Imported { members, bytes: file_bytes, xattrs_left_out } = imported;
    if for_programs {
        let snapshots = (0..files.len()).filter_map(|at| behind(form, at)).collect();
        let branch = branch.name();
        let came = Came { branch, snapshots, members, file_bytes, xattrs_left_out };
        printed(writeln!(Out(ends), "{}", json::text(&came)))?;
    }
    Ok(u8::from(xattrs_left_out > 0))
}

/// The name of the snapshot behind an archive: only layers have one.
fn behind(form: Form, at: usize) -> Option<String> {
    (form == Form::Layer).then(|| format!("layer-{}", at + 1))
}

fn all(
    branch: &Branch,
    volume: &str,
    form: Form,
    files: &[String],
    ends: &dyn Ends,
) -> Result<Imported, Failure> {
    let fork = Purpose::Import.new_name();
    let fork = fork.utf8()?;
    let left_out = &mut |member: &[u8], names: &[Vec<u8>]| {
        let names: Vec<_> = names.iter().map(|name| show::name(name)).collect();
        let why = outcome::left_out(&names);
        ends.note(&format!("{}: {why}", show::name(member)));
    };
    if files.is_empty() {
        let archives = [(In(ends, 0), None)];
        return holdfast_archive::import_all(branch, form, fork, archives, left_out)
            .map_err(|error| said(&error));
    }
    let name = |at: usize| behind(form, at);
    // None is imported if a name is taken.
    let mut names = (0..files.len()).filter_map(name);
    if let Some(name) = names.find(|it| branch.snapshot_named(it).is_ok()) {
        let branch = branch.name();
        let why = format!("{volume} has a snapshot {branch}@{name}; rename or delete it");
        return Err(Failure::plain(why));
    }
    let last = Cell::new(0);
    let archives = (0..files.len()).map(|at| {
        last.set(at);
        (In(ends, at), name(at))
    });
    let imported = holdfast_archive::import_all(branch, form, fork, archives, left_out);
    imported.map_err(|error| {
        let failure = said(&error);
        let file = files.get(last.get()).map_or("", String::as_str);
        Failure::plain(format!("{file}: {}", failure.sentence))
    })
}
