//! Paths in volumes that a command changes: `IMAGE:/path`, or any path in a directory where a branch is mounted.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use holdfast_base::user_namespace::maker;
use holdfast_service::work::{Work, names};

use crate::branches::{Name, TreeLocation};
use crate::outcome::{Context, Failure, Outcome};
use crate::pipes::out;
use crate::target::{Target, in_mount};

/// Bytes of paths that go to a daemon at once.
const BYTES: usize = 8 << 10;

/// The bits that new files do not get.
pub(super) fn umask() -> u32 {
    // It can only be asked for by setting it.
    let umask = rustix::process::umask(rustix::fs::Mode::empty());
    rustix::process::umask(umask);
    umask.bits()
}

/// Where these paths are. None is changed if one is in no volume.
pub(super) fn all_inside(texts: &[OsString]) -> Result<Vec<(TreeLocation, PathBuf)>, Failure> {
    texts.iter().map(|text| inside(text)).collect()
}

/// Makes the change that `change` says for the paths of each place, one place after the other.
pub(super) fn changed_all(
    all: Vec<(TreeLocation, PathBuf)>,
    change: impl Fn(Vec<Name>) -> names::Change,
) -> Outcome {
    let mut code = 0;
    for (place, paths) in portions(all) {
        code = code.max(changed(&place, change(paths))?);
    }
    Ok(code)
}

/// Changes names of a branch, where the volume is. What is made belongs to this user.
pub(super) fn changed(place: &TreeLocation, change: names::Change) -> Outcome {
    let located = place.located()?;
    let what = names::NamespaceChange { tree: located.tree(), owner: maker(), change };
    located.run(Work::Names(what), out())
}

/// Paths that stand side by side and are in one place, together.
pub(super) fn portions(all: Vec<(TreeLocation, PathBuf)>) -> Vec<(TreeLocation, Vec<Name>)> {
    let mut portions: Vec<(TreeLocation, Vec<Name>)> = Vec::new();
    for (place, path) in all {
        let name = Name::of(path.into());
        let bytes = |names: &[Name]| names.iter().map(|it| it.0.len()).sum::<usize>();
        match portions.last_mut() {
            Some((last, names)) if *last == place && bytes(names) + name.0.len() <= BYTES => {
                names.push(name);
            }
            _ => portions.push((place, vec![name])),
        }
    }
    portions
}

/// The place and the path in it.
pub(super) fn inside(text: &OsStr) -> Result<(TreeLocation, PathBuf), Failure> {
    let host = match Target::parse(text) {
        Target::Inside { place, path } => return Ok((place, path)),
        Target::Host(host) => host,
    };
    match in_mount(&host)? {
        // `.` and `..` name a directory by no name that could go.
        Some((_, path)) if host.file_name().is_none() && path != Path::new("/") => {
            Err(no_path(text))
        }
        Some(inside) => Ok(inside),
        None => {
            if let Some(above) = host.parent().filter(|above| *above != Path::new("")) {
                above.metadata().context(above.display())?;
            }
            Err(no_path(text))
        }
    }
}

fn no_path(text: &OsStr) -> Failure {
    let text = text.display();
    Failure::plain(format!(
        "{text} is in no volume; write IMAGE:/path, or a path in a directory where a volume is mounted"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_one_place_go_together_as_far_as_a_message_has_room() {
        let place = |name: &str| TreeLocation { path: name.into(), branch: None, snapshot: None };
        let of = |name: &str, path: &str| (place(name), PathBuf::from(path));
        let long = format!("/{}", "x".repeat(5000));
        let all = vec![
            of("a", "/1"),
            of("a", "/2"),
            of("b", "/3"),
            of("a", "/4"),
            of("a", &long),
            of("a", &long),
        ];
        let found = portions(all);
        let counts: Vec<_> = found
            .iter()
            .map(|(place, names)| (place.path.to_str().unwrap(), names.len()))
            .collect();
        assert_eq!(counts, [("a", 2), ("b", 1), ("a", 2), ("a", 1)]);
    }
}
