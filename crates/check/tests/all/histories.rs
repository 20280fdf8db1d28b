//! Random histories of branches, snapshots and deletions by the engine: whatever was durable at any moment, the second opinion
//! finds every block, every birth and every item of the lineage right.
//!
//! What the branches hold are no files, so the passes over files have much to say; they are not listened to.

use std::collections::BTreeMap;
use std::sync::Arc;

use holdfast_base::prng::Prng;
use holdfast_base::{BlockNo, BlockRange, InodeNo, Timestamp};
use holdfast_check::{Options, check};
use holdfast_device::{Device, MemoryDevice};
use holdfast_format::item::Extent;
use holdfast_format::{Geometry, ItemKind, Key};
use holdfast_store::{Branch, CreateOptions, Need, OpenOptions, Store, Transaction};

/// Passes that judge files and names.
const OF_FILES: [u16; 3] = [3, 5, 6];

fn open(device: &Arc<MemoryDevice>) -> Arc<Store> {
    let options = OpenOptions { threads: false, cache_bytes: 1 << 20, ..OpenOptions::default() };
    let store = Store::open(Arc::clone(device) as Arc<dyn Device>, &options, Arc::default());
    Arc::new(store.unwrap())
}

fn now() -> Timestamp {
    Timestamp { secs: 1, nanos: 0 }
}

struct World {
    store: Arc<Store>,
    branches: BTreeMap<u64, Branch>,
    /// Those with a name, and their branches.
    snapshots: BTreeMap<u64, u64>,
    prng: Prng,
    names: u64,
}

impl World {
    fn new(device: &Arc<MemoryDevice>, seed: u64) -> World {
        let store = open(device);
        let branches = BTreeMap::from([(1, Branch::main(store.clone()))]);
        let prng = Prng::seeded(seed);
        World { store, branches, snapshots: BTreeMap::new(), prng, names: 0 }
    }

    fn any(&mut self, of: &[u64]) -> Option<u64> {
        (!of.is_empty()).then(|| of[self.prng.below(of.len() as u64) as usize])
    }

    fn name(&mut self) -> Vec<u8> {
        self.names += 1;
        format!("n{}", self.names).into_bytes()
    }

    /// Puts, deletes, writes and cuts in one branch.
    fn change(&mut self) {
        let numbers: Vec<u64> = self.branches.keys().copied().collect();
        let number = self.any(&numbers).unwrap();
        let branch = &self.branches[&number];
        let mut transaction = Transaction::new();
        let mut room = branch.reserve(Need::Grow { changes: 6, blocks: 8 }).unwrap();
        let inode = InodeNo(20 + self.prng.below(200));
        let key = Key::new(inode, ItemKind::Extent, self.prng.below(3) * 8 * 4096);
        let old = branch.get(&key).unwrap().map(|old| Extent::decode(&old).unwrap());
        match (old, self.prng.below(5)) {
            (_, 0) => {
                transaction.put(Key::inode(inode), vec![7; self.prng.below(120) as usize + 1])
            }
            (Some(old), 1) => {
                transaction.free(old.blocks, old.birth, key);
                transaction.delete(key);
            }
            (Some(old), 2) if old.blocks.count > 1 => {
                let kept = 1 + self.prng.below(old.blocks.count - 1);
                let start = BlockNo(old.blocks.start.0 + kept);
                let rest = BlockRange::new(start, old.blocks.count - kept);
                let at = Key { offset: key.offset + kept * 4096, ..key };
                transaction.free(rest, old.birth, at);
                let blocks = BlockRange::new(old.blocks.start, kept);
                let sums = old.sums[..kept as usize].to_vec();
                transaction.put(key, Extent { blocks, sums, birth: old.birth }.encode());
            }
            (old, _) => {
                if let Some(old) = old {
                    transaction.free(old.blocks, old.birth, key);
                }
                let placed = branch.allocate(&mut room, 1 + self.prng.below(6), None).unwrap();
                let bytes = vec![self.names as u8; placed.blocks().count as usize * 4096];
                let written = branch.write(placed, &bytes).unwrap();
                let extent = transaction.publish(written);
                transaction.put(key, extent.encode());
            }
        }
        branch.apply(transaction, &mut room).unwrap();
    }

    fn lineage(&mut self, what: u64) {
        let branches: Vec<u64> = self.branches.keys().copied().collect();
        let snapshots: Vec<u64> = self.snapshots.keys().copied().collect();
        let name = self.name();
        match (what, self.any(&snapshots)) {
            (0..=2, _) | (_, None) => {
                let branch = self.any(&branches).unwrap();
                let number = self.store.snapshot(branch, &name, now()).unwrap();
                self.snapshots.insert(number, branch);
            }
            (3 | 4, Some(from)) => {
                let number = self.store.fork(from, &name, now()).unwrap();
                let branch = Branch::open(self.store.clone(), &name, None).unwrap();
                self.branches.insert(number, branch);
            }
            (5, Some(to)) => {
                let branch = self.snapshots[&to];
                if self.branches.contains_key(&branch) {
                    let kept = self.prng.one_in(2).then_some(&name[..]);
                    self.store.roll_back(branch, to, kept, now()).unwrap();
                }
            }
            (6, _) => {
                let Some(number) = self.any(&branches).filter(|number| *number != 1) else {
                    return;
                };
                if self.store.delete_branch(number, now()).is_ok() {
                    self.branches.remove(&number);
                    self.snapshots.retain(|_, branch| *branch != number);
                }
            }
            (7, Some(number)) => self.store.rename_tree(number, &name).unwrap(),
            (_, Some(number)) => {
                self.store.delete_snapshot(number).unwrap();
                self.snapshots.remove(&number);
            }
        }
    }

    fn step(&mut self) {
        match self.prng.below(40) {
            what @ 0..=9 => self.lineage(what),
            10..=14 => drop(self.store.work_off_deletions(1).unwrap()),
            15 | 16 => self.store.commit().unwrap(),
            17 => self.store.checkpoint().unwrap(),
            18 => drop(self.store.work_off_deletions(50).unwrap()),
            _ => self.change(),
        }
    }
}

/// What is durable by now.
fn judge(device: &MemoryDevice, what: &str) {
    let options = Options { data: true, ..Options::default() };
    let report = check(device, &options).unwrap();
    let of_files = |id: u16| OF_FILES.contains(&(id / 100));
    let found: Vec<_> = report.findings.iter().filter(|finding| !of_files(finding.id)).collect();
    assert!(found.is_empty(), "{what}: {found:#?}");
}

#[test]
fn nothing_is_wrong_with_what_the_engine_leaves() {
    for seed in 0..8 {
        let device = Arc::new(MemoryDevice::new(16_384 * 4096));
        let options = CreateOptions {
            geometry: Geometry::for_device(device.len(), 4096).unwrap(),
            uuid: uuid::Uuid::from_bytes([7; 16]),
            label: String::new(),
            hash_seed: 1,
            node_tag: [5; 8],
            created: Timestamp::default(),
        };
        Store::create(&(Arc::clone(&device) as Arc<dyn Device>), &options).unwrap();
        let mut world = World::new(&device, seed);
        for step in 0..600 {
            world.step();
            if world.prng.one_in(3) {
                world.store.sync(world.store.latest(), InodeNo(1)).unwrap();
            }
            if step % 5 == 0 {
                judge(&device, &format!("seed {seed} step {step}"));
            }
        }
        // After a recovery as well.
        world.store.sync(world.store.latest(), InodeNo(1)).unwrap();
        let copy = Arc::new(device.snapshot());
        drop(open(&copy));
        judge(&copy, &format!("seed {seed}, recovered"));
    }
}
