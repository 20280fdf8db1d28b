//! The terms of a power cut in plain words and numbers, as a saved case keeps them.
//!
//! Everything of a [`Policy`] but the faults of the device and the one image
//! to look at. What a file leaves out has its usual value.

use holdfast_base::switch::{Accounting, Batching, Dirty, FsyncWait, RenameLog};
use holdfast_device::sim;
use holdfast_posix::Discard;
use serde::{Deserialize, Serialize};

use crate::{Checkpoints, Policy, Setup};

/// Volume, mount and images of a power cut.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Terms {
    /// Bytes of the volume.
    pub volume: u64,
    /// Bytes of a sector: 512 or 4096.
    pub sector: u32,
    /// Bytes of a physical sector: 512 or 4096, and not below those of a sector.
    pub physical_sector: u32,
    /// Bytes of a tree node.
    pub node_size: usize,
    /// How often nodes and what is in the rings are stored: 1 or 2 times.
    pub metadata: u8,
    /// Inodes kept in memory although no handle holds them.
    pub inode_cache: usize,
    /// Bytes for tree nodes.
    pub cache_bytes: usize,
    /// Bytes for written data that is not on the device.
    pub dirty_bytes: usize,
    /// Bytes for data that was just written.
    pub recent_bytes: usize,
    /// Most bytes of data that an fsync puts into the log, if it is not what volumes of this size have.
    pub log_data_bytes: Option<usize>,
    /// `never`, `checkpoint N`, `commit N` (behind every N-th operation), `checkpoints beside`, `commits beside`,
    /// `rest N`, `rests beside`.
    pub checkpoints: String,
    /// Position of the switch of M3.
    pub dirty: String,
    /// Of M1.
    pub accounting: String,
    /// Of M4.
    pub batching: String,
    /// Of M2.
    pub rename_log: String,
    /// Of M5.
    pub fsync_wait: String,
    /// Whether what became free goes back to the device, at once.
    pub discard: bool,
    /// Whether the volume has threads for commits, checkpoints and writing data.
    pub threads: bool,
    /// Whether the volume is unmounted behind the script.
    pub unmount: bool,
    /// Seed of the images.
    pub seed: u64,
    /// Every subset of so many unflushed writes.
    pub exhaustive: usize,
    /// Above that: prefixes, and subsets that miss one.
    pub each: usize,
    /// Above that: random subsets.
    pub samples: usize,
    /// Images with a torn write.
    pub torn: usize,
    /// In one image of so many recovery is cut as well; 0 for none.
    pub recovery: u64,
    /// So many times one inside the other.
    pub deep: u32,
}

impl Default for Terms {
    fn default() -> Terms {
        Terms::of(&Policy::default())
    }
}

impl Terms {
    /// The terms of a policy.
    pub fn of(policy: &Policy) -> Terms {
        let Policy { images, setup, .. } = policy;
        let mount = &setup.mount;
        Terms {
            volume: policy.volume,
            sector: policy.sector,
            physical_sector: policy.physical_sector.max(policy.sector),
            node_size: setup.mkfs.node_size,
            metadata: setup.mkfs.metadata_copies,
            inode_cache: mount.inode_cache,
            cache_bytes: mount.cache_bytes,
            dirty_bytes: mount.dirty_bytes,
            recent_bytes: mount.recent_bytes,
            log_data_bytes: mount.log_data_bytes,
            checkpoints: words(setup.checkpoints),
            dirty: mount.dirty.to_string(),
            accounting: mount.accounting.to_string(),
            batching: mount.batching.to_string(),
            rename_log: mount.rename_log.to_string(),
            fsync_wait: mount.fsync_wait.to_string(),
            discard: mount.discard == Discard::On,
            threads: mount.threads,
            unmount: policy.unmount,
            seed: images.seed,
            exhaustive: images.exhaustive,
            each: images.each,
            samples: images.samples,
            torn: images.torn,
            recovery: policy.recovery,
            deep: policy.deep,
        }
    }

    /// The policy of these terms, or which word means nothing.
    pub fn policy(&self) -> Result<Policy, String> {
        if ![512, 4096].contains(&self.sector) {
            return Err(format!("sectors have 512 or 4096 bytes, not {}", self.sector));
        }
        if ![512, 4096].contains(&self.physical_sector) {
            let wrong = self.physical_sector;
            return Err(format!("physical sectors have 512 or 4096 bytes, not {wrong}"));
        }
        if ![1, 2].contains(&self.metadata) {
            return Err(format!("metadata is stored 1 or 2 times, not {}", self.metadata));
        }
        let mut setup = Setup::new(self.node_size, self.inode_cache);
        setup.mkfs.metadata_copies = self.metadata;
        setup.checkpoints = checkpoints(&self.checkpoints)?;
        if self.discard {
            setup = setup.discarding();
        }
        let mount = &mut setup.mount;
        mount.cache_bytes = self.cache_bytes;
        mount.dirty_bytes = self.dirty_bytes;
        mount.recent_bytes = self.recent_bytes;
        mount.log_data_bytes = self.log_data_bytes;
        mount.threads = self.threads;
        mount.dirty = self.dirty.parse::<Dirty>()?;
        mount.accounting = self.accounting.parse::<Accounting>()?;
        mount.batching = self.batching.parse::<Batching>()?;
        mount.rename_log = self.rename_log.parse::<RenameLog>()?;
        mount.fsync_wait = self.fsync_wait.parse::<FsyncWait>()?;
        let &Terms { seed, exhaustive, each, samples, torn, .. } = self;
        Ok(Policy {
            images: sim::Policy { seed, exhaustive, each, samples, torn },
            volume: self.volume,
            sector: self.sector,
            // A case that was saved before there were two kinds says only one.
            physical_sector: self.physical_sector.max(self.sector),
            setup,
            recovery: self.recovery,
            deep: self.deep.max(1),
            unmount: self.unmount,
            ..Policy::default()
        })
    }
}

fn words(checkpoints: Checkpoints) -> String {
    match checkpoints {
        Checkpoints::Never => "never".into(),
        Checkpoints::After(n) => format!("checkpoint {n}"),
        Checkpoints::CommitsAfter(n) => format!("commit {n}"),
        Checkpoints::Beside => "checkpoints beside".into(),
        Checkpoints::CommitsBeside => "commits beside".into(),
        Checkpoints::RestsAfter(n) => format!("rest {n}"),
        Checkpoints::RestsBeside => "rests beside".into(),
    }
}

fn checkpoints(words: &str) -> Result<Checkpoints, String> {
    let count = |n: &str| n.parse().ok().filter(|&n: &u64| n > 0);
    let found = match words.split_once(' ') {
        None if words == "never" => Some(Checkpoints::Never),
        Some(("checkpoint", n)) => count(n).map(Checkpoints::After),
        Some(("commit", n)) => count(n).map(Checkpoints::CommitsAfter),
        Some(("checkpoints", "beside")) => Some(Checkpoints::Beside),
        Some(("rest", n)) => count(n).map(Checkpoints::RestsAfter),
        Some(("rests", "beside")) => Some(Checkpoints::RestsBeside),
        Some(("commits", "beside")) => Some(Checkpoints::CommitsBeside),
        _ => None,
    };
    found.ok_or_else(|| format!("checkpoints = \"{words}\" means nothing"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_and_policies_are_the_same() {
        for (physical_sector, checkpoints) in [512, 4096].into_iter().cycle().zip([
            Checkpoints::Never,
            Checkpoints::After(3),
            Checkpoints::Beside,
            Checkpoints::CommitsAfter(1),
            Checkpoints::CommitsBeside,
            Checkpoints::RestsAfter(2),
            Checkpoints::RestsBeside,
        ]) {
            let setup = Setup { checkpoints, ..Setup::new(16384, 3) };
            let setup = if physical_sector == 512 { setup.discarding() } else { setup };
            let mut setup = setup;
            setup.mkfs.metadata_copies = if physical_sector == 512 { 1 } else { 2 };
            let policy = Policy { setup, physical_sector, unmount: false, ..Policy::default() };
            let terms = Terms::of(&policy);
            let text = toml::to_string(&terms).unwrap();
            let again: Terms = toml::from_str(&text).unwrap();
            assert_eq!((&again, &terms), (&terms, &Terms::of(&again.policy().unwrap())));
        }
        let wrong = Terms { checkpoints: "commit 0".into(), ..Terms::default() };
        assert!(wrong.policy().is_err());
        assert!(Terms { metadata: 3, ..Terms::default() }.policy().is_err());
        let silent: Terms = toml::from_str("volume = 8388608").unwrap();
        assert_eq!(silent.metadata, 1, "a case that was kept before there were copies");
        assert!(toml::from_str::<Terms>("sektor = 512").is_err());
    }
}
