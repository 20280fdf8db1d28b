//! What workloads work with and what lies outside of the tested filesystem: an archive, a repository.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use super::git::make_repository;
use super::tree::write_archive;
use super::{Needs, Scale, Workload};
use crate::undo::run;

/// Where trees and repositories come from; what is made is gone when this is dropped.
#[derive(Debug)]
pub struct Material {
    archive: Option<PathBuf>,
    repository: Option<PathBuf>,
    about: Vec<String>,
    _made: TempDir,
}

impl Material {
    /// What `workloads` need: the archive `tree`, and the repository `git`. What is not named is made in `dir`, of so
    /// many files.
    pub fn gather(
        workloads: &[Workload],
        tree: Option<&Path>,
        git: Option<&Path>,
        dir: &Path,
        files: u64,
        seed: u64,
    ) -> io::Result<Material> {
        let needs = |what| workloads.iter().any(|workload| workload.needs == what);
        let made = tempfile::Builder::new().prefix("holdfast-bench-").tempdir_in(dir)?;
        let mut material =
            Material { archive: None, repository: None, about: Vec::new(), _made: made };
        let made = |name| material._made.path().join(name);
        let (archive, repository) = (made("tree.tar"), made("repository"));
        if needs(Needs::Archive) || (needs(Needs::Repository) && git.is_none()) {
            write_archive(&archive, files, seed)?;
        }
        if needs(Needs::Archive) {
            let name = tree.and_then(Path::file_name).map(|name| name.to_string_lossy());
            let what = name.map_or(format!("a made tree of {files} files"), String::from);
            material.about.push(format!("The tree is {what}."));
            material.archive = Some(match tree {
                Some(tree) if tree.extension().is_some_and(|end| end == "xz") => {
                    let plain = made("plain.tar");
                    let script = "exec xz -dc -- \"$1\" >\"$2\"";
                    run(Command::new("sh").args(["-c", script, "sh"]).arg(tree).arg(&plain))?;
                    plain
                }
                Some(tree) => tree.canonicalize()?,
                None => archive.clone(),
            });
        }
        if needs(Needs::Repository) {
            let named = git.map_or("a made one".into(), |git| git.display().to_string());
            material.about.push(format!("The repository is {named}."));
            if git.is_none() {
                make_repository(&archive, &repository)?;
            }
            material.repository = Some(git.map_or(repository, Path::to_path_buf));
        }
        Ok(material)
    }

    /// `scale` with this.
    pub fn on(&self, scale: Scale) -> Scale {
        Scale { archive: self.archive.clone(), repository: self.repository.clone(), ..scale }
    }

    /// What it is, for people; empty if nothing is needed.
    pub fn about(&self) -> String {
        self.about.join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_named_is_used_and_what_is_made_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().join("linux.tar.xz");
        write_archive(&dir.path().join("linux.tar"), 3, 1).unwrap();
        run(Command::new("xz").arg(dir.path().join("linux.tar"))).unwrap();
        let all = Workload::ALL;
        let material =
            Material::gather(all, Some(&tree), Some(dir.path()), dir.path(), 3, 1).unwrap();
        let wanted =
            format!("The tree is linux.tar.xz. The repository is {}.", dir.path().display());
        assert_eq!(material.about(), wanted);
        let listed = run(Command::new("tar").arg("-tf").arg(material.archive.as_ref().unwrap()));
        assert_eq!(listed.unwrap().lines().count(), 3);
        drop(material);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
