//! Archives into a branch.

use std::cell::Cell;

use holdfast::{Branch, Volume};
use holdfast_archive::{Form, Imported};
use holdfast_base::show;

use super::export::said;
use super::{Ends, In, Tree};
use crate::branches::by_time::Purpose;
use crate::outcome::{self, Failure, Outcome};

pub(super) fn run(
    door: &Volume,
    volume: &str,
    tree: &Tree,
    layer: bool,
    files: &[String],
    ends: &dyn Ends,
) -> Outcome {
    tree.expect_branch(volume)?;
    let branch = tree.branch(door, volume)?;
    let form = if layer { Form::Layer } else { Form::Tar };
    let imported = all(&branch, volume, form, files, ends)?;
    Ok(u8::from(imported.xattrs_left_out > 0))
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
    // None is imported if a name is taken. Only layers have snapshots behind them.
    let name = |at: usize| (form == Form::Layer).then(|| format!("layer-{}", at + 1));
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
