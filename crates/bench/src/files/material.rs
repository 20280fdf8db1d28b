//! What workloads work with and what lies outside of the tested filesystem: an archive, a repository.

use std::io;
use std::path::{Path, PathBuf};

use super::git::{KeptRepository, made_repository};
use super::tree::{Archive, Kept, made_archive};
use super::{Needs, Scale, Workload};

/// The kernel's source as Debian packs it.
const LINUX: &str = "/usr/src/linux-source-6.1.tar.xz";

/// Where trees and repositories come from; those that are made are gone when this is dropped.
#[derive(Debug, Default)]
pub struct Material {
    archive: Option<Archive>,
    repository: Option<PathBuf>,
    // The repository before the archive that it was made from.
    _repository: Option<KeptRepository>,
    _archives: Vec<Kept>,
}

impl Material {
    /// What `workloads` need: the archive `tree` or the kernel's source, and the repository `git`. What is not there
    /// is made in `dir`: archives and repositories of `files` files.
    pub fn gather(
        workloads: &[Workload],
        tree: Option<&Path>,
        git: Option<&Path>,
        dir: &Path,
        files: u64,
        seed: u64,
    ) -> io::Result<Material> {
        let linux = Path::new(LINUX);
        let tree = tree.or(linux.is_file().then_some(linux));
        Material::from(workloads, tree, git, dir, files, seed)
    }

    /// The same, with a made archive wherever none is named.
    pub fn from(
        workloads: &[Workload],
        tree: Option<&Path>,
        git: Option<&Path>,
        dir: &Path,
        files: u64,
        seed: u64,
    ) -> io::Result<Material> {
        let needs = |what| workloads.iter().any(|workload| workload.needs == what);
        let mut material = Material::default();
        if needs(Needs::Archive) {
            let (archive, kept) = match tree {
                Some(path) => Archive::open(path, dir)?,
                None => made_archive(dir, "tree", files, seed)?,
            };
            material.archive = Some(archive);
            material._archives.push(kept);
        }
        if needs(Needs::Repository) {
            material.repository = Some(match git {
                Some(path) => path.to_path_buf(),
                None => {
                    let (archive, kept) = made_archive(dir, "git", files, seed)?;
                    material._archives.push(kept);
                    let (path, kept) = made_repository(&archive, dir)?;
                    material._repository = Some(kept);
                    path
                }
            });
        }
        Ok(material)
    }

    /// `scale` with this.
    pub fn on(&self, scale: Scale) -> Scale {
        Scale { archive: self.archive.clone(), repository: self.repository.clone(), ..scale }
    }

    /// What it is, for people; empty if nothing is needed.
    pub fn about(&self) -> String {
        let archive = self.archive.iter().map(|archive| format!("The tree is {}.", archive.about));
        let repository = match (&self.repository, &self._repository) {
            (Some(_), Some(_)) => Some("The repository is a made one.".to_string()),
            (Some(path), None) => Some(format!("The repository is {}.", path.display())),
            _ => None,
        };
        archive.chain(repository).collect::<Vec<_>>().join(" ")
    }
}
