//! Branches and snapshots against a plain model: a map for each, over random histories with deletions and power cuts.

#![allow(missing_docs, clippy::unwrap_used, dead_code)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use holdfast_base::counters::Counters;
use holdfast_base::prng::Prng;
use holdfast_base::{BlockNo, BlockRange, InodeNo, Timestamp};
use holdfast_device::Device;
use holdfast_device::SimDevice;
use holdfast_device::memory::MemoryDevice;
use holdfast_device::sim::{Event, Policy};
use holdfast_format::item::{Extent, TreeKind};
use holdfast_format::{Geometry, ItemKind, Key};
use holdfast_store::{
    Branch, CreateOptions, Difference, Differing, Need, OpenOptions, Pin, Store, Transaction,
};

/// What a branch or snapshot holds: of each key the value, and of an extent its bytes.
type Map = BTreeMap<Key, Vec<u8>>;

pub(crate) fn make(blocks: u64, node_size: usize) -> Arc<MemoryDevice> {
    let made = Arc::new(MemoryDevice::new(blocks * 4096));
    let device: Arc<dyn Device> = made.clone();
    let options = CreateOptions {
        geometry: Geometry::for_device(blocks * 4096, node_size).unwrap(),
        uuid: uuid::Uuid::from_bytes([7; 16]),
        label: String::new(),
        hash_seed: 1,
        node_tag: [5; 8],
        created: Timestamp::default(),
    };
    Store::create(&device, &options).unwrap();
    made
}

pub(crate) fn open(device: &Arc<dyn Device>) -> Arc<Store> {
    let options = OpenOptions { threads: false, cache_bytes: 1 << 20, ..OpenOptions::default() };
    Arc::new(Store::open(device.clone(), &options, Arc::new(Counters::default())).unwrap())
}

/// A volume and what it must hold.
struct World {
    store: Arc<Store>,
    /// By number.
    branches: BTreeMap<u64, (Branch, Map)>,
    snapshots: BTreeMap<u64, (u64, Map)>,
    prng: Prng,
    names: u64,
    /// Inodes that change.
    inodes: u64,
    /// Whether all that was done so far is durable.
    is_durable: bool,
}

pub(crate) fn now() -> Timestamp {
    Timestamp { secs: 1, nanos: 0 }
}

impl World {
    fn new(device: &Arc<dyn Device>, seed: u64) -> World {
        let store = open(device);
        let main = Branch::main(store.clone());
        let branches = BTreeMap::from([(1, (main, Map::new()))]);
        World {
            store,
            branches,
            snapshots: BTreeMap::new(),
            prng: Prng::seeded(seed),
            names: 0,
            inodes: 400,
            is_durable: true,
        }
    }

    fn any<T: Copy>(&mut self, of: &[T]) -> Option<T> {
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
        let (branch, map) = self.branches.get_mut(&number).unwrap();
        let mut transaction = Transaction::new();
        let mut room = branch.reserve(Need::Grow { changes: 6, blocks: 8 }).unwrap();
        let inode = InodeNo(20 + self.prng.below(self.inodes));
        match self.prng.below(4) {
            0 => {
                let value = vec![self.prng.below(250) as u8; self.prng.below(120) as usize + 1];
                transaction.put(Key::inode(inode), &value);
                map.insert(Key::inode(inode), value);
            }
            1 => {
                transaction.delete(Key::inode(inode));
                map.remove(&Key::inode(inode));
            }
            _ => {
                let key = Key::new(inode, ItemKind::Extent, self.prng.below(3) * 8 * 4096);
                let old = branch.get(&key).unwrap().map(|old| Extent::decode(&old).unwrap());
                match (old, self.prng.below(3)) {
                    (Some(old), 0) => {
                        transaction.free(old.blocks, old.birth, key);
                        transaction.delete(key);
                        map.remove(&key);
                    }
                    (Some(old), 1) if old.blocks.count > 1 => {
                        let kept = 1 + self.prng.below(old.blocks.count - 1);
                        let start = BlockNo(old.blocks.start.0 + kept);
                        let rest = BlockRange::new(start, old.blocks.count - kept);
                        let at = Key { offset: key.offset + kept * 4096, ..key };
                        transaction.free(rest, old.birth, at);
                        let blocks = BlockRange::new(old.blocks.start, kept);
                        let sums = old.sums[..kept as usize].to_vec();
                        transaction.put(key, Extent { blocks, sums, birth: old.birth }.encode());
                        map.get_mut(&key).unwrap().truncate(kept as usize * 4096);
                    }
                    (old, _) => {
                        if let Some(old) = old {
                            transaction.free(old.blocks, old.birth, key);
                        }
                        let placed = branch.allocate(&mut room, 1 + self.prng.below(6), None);
                        let placed = placed.unwrap();
                        let byte = self.prng.below(250) as u8;
                        let bytes = vec![byte; placed.blocks().count as usize * 4096];
                        let written = branch.write(placed, &bytes).unwrap();
                        let extent = transaction.publish(written);
                        transaction.put(key, extent.encode());
                        map.insert(key, bytes);
                    }
                }
            }
        }
        let lsn = branch.apply(transaction, &mut room).unwrap();
        self.is_durable = self.prng.one_in(4);
        if self.is_durable {
            branch.sync(lsn, inode).unwrap();
        }
    }

    fn snapshot(&mut self) {
        let numbers: Vec<u64> = self.branches.keys().copied().collect();
        let branch = self.any(&numbers).unwrap();
        let name = self.name();
        let number = self.store.snapshot(branch, &name, now()).unwrap();
        self.snapshots.insert(number, (branch, self.branches[&branch].1.clone()));
        self.is_durable = true;
    }

    fn fork(&mut self) {
        let numbers: Vec<u64> = self.snapshots.keys().copied().collect();
        let Some(from) = self.any(&numbers) else { return };
        let name = self.name();
        let number = self.store.fork(from, &name, now()).unwrap();
        let branch = Branch::open(self.store.clone(), &name, None).unwrap();
        self.branches.insert(number, (branch, self.snapshots[&from].1.clone()));
        self.is_durable = true;
    }

    fn roll_back(&mut self) {
        let numbers: Vec<(u64, u64)> =
            self.snapshots.iter().map(|(number, (branch, _))| (*number, *branch)).collect();
        let Some((to, branch)) = self.any(&numbers) else { return };
        let Some((_, before)) = self.branches.get(&branch) else { return };
        let before = before.clone();
        if self.prng.one_in(2) {
            let name = self.name();
            self.store.roll_back(branch, to, Some(&name), now()).unwrap();
            let number = self.number_of(branch, &name);
            self.snapshots.insert(number, (branch, before));
        } else {
            self.store.roll_back(branch, to, None, now()).unwrap();
        }
        self.branches.get_mut(&branch).unwrap().1 = self.snapshots[&to].1.clone();
        self.is_durable = true;
    }

    fn number_of(&self, branch: u64, name: &[u8]) -> u64 {
        let trees = self.store.trees().unwrap();
        let same =
            |of: &&holdfast_store::TreeInfo| of.item.branch == branch && of.item.name == name;
        trees.iter().find(same).unwrap().number
    }

    fn delete_snapshot(&mut self) {
        let numbers: Vec<u64> = self.snapshots.keys().copied().collect();
        if let Some(number) = self.any(&numbers) {
            self.store.delete_snapshot(number).unwrap();
            self.snapshots.remove(&number);
            self.is_durable = true;
        }
    }

    fn delete_branch(&mut self) {
        let numbers: Vec<u64> = self.branches.keys().copied().filter(|no| *no != 1).collect();
        let Some(number) = self.any(&numbers) else { return };
        if self.store.delete_branch(number, now()).is_ok() {
            self.branches.remove(&number);
            self.snapshots.retain(|_, (branch, _)| *branch != number);
            self.is_durable = true;
        }
    }

    fn step(&mut self) {
        self.step_of(60);
    }

    /// One of `kinds` choices; the first fifteen are not changes of files.
    fn step_of(&mut self, kinds: u64) {
        match self.prng.below(kinds) {
            0..=2 => self.snapshot(),
            3 => self.fork(),
            4 => self.roll_back(),
            5 | 6 => self.delete_snapshot(),
            7 if self.prng.one_in(2) => self.delete_branch(),
            8..=12 => drop(self.store.work_off_deletions(1).unwrap()),
            13 => {
                self.store.commit().unwrap();
                self.is_durable = true;
            }
            14 => {
                self.store.checkpoint().unwrap();
                self.is_durable = true;
            }
            _ => self.change(),
        }
    }

    /// What a user of the volume sees.
    fn seen(&self) -> Seen {
        let name = |number: &u64| self.store.tree(*number).unwrap().name;
        let branches = self.branches.iter().map(|(no, (_, map))| ((name(no), None), map.clone()));
        let snapshots = self.snapshots.iter();
        let snapshots =
            snapshots.map(|(no, (branch, map))| ((name(branch), Some(name(no))), map.clone()));
        branches.chain(snapshots).collect()
    }

    /// Everything is what it must be.
    fn judge(&self) {
        #[cfg(debug_assertions)]
        self.store.invariants();
        for (number, (branch, map)) in &self.branches {
            assert_eq!(&content(branch), map, "branch {number}");
            expect_counted(&self.store, 1);
        }
        for (number, (branch, map)) in &self.snapshots {
            let item = self.store.tree(*number).unwrap();
            let of = self.store.tree(*branch).unwrap();
            let opened = Branch::open(self.store.clone(), &of.name, Some(&item.name)).unwrap();
            assert_eq!(&content(&opened), map, "snapshot {number} of {branch}");
            expect_counted(&self.store, 1);
        }
        self.judge_differences();
    }

    /// The difference of each tree and the one before it is what a look at all items of both finds.
    fn judge_differences(&self) {
        let numbers = self.branches.keys().chain(self.snapshots.keys());
        let pins: Vec<Pin> =
            numbers.map(|number| self.store.pin_number(*number).unwrap()).collect();
        for pair in pins.windows(2) {
            let [old, new] = pair else { unreachable!("windows of two") };
            let (before, after) = (items(&self.store, old), items(&self.store, new));
            let mut wanted = Vec::new();
            for key in before.keys().chain(after.keys()).collect::<BTreeSet<_>>() {
                let (old, new) = (before.get(key).cloned(), after.get(key).cloned());
                if old != new {
                    wanted.push(Differing { key: *key, old, new });
                }
            }
            let mut walk = Difference::new(old.clone(), new.clone());
            let mut found = Vec::new();
            while let Some(item) = walk.next(&self.store).unwrap() {
                found.push(item);
            }
            assert!(found == wanted, "the difference of {} and {}", old.number(), new.number());
        }
    }

    /// The volume as it is found after a crash of the program.
    fn reopen(&mut self, device: &Arc<dyn Device>) {
        let lsn = self.store.latest();
        self.store.sync(lsn, InodeNo(1)).unwrap();
        let names: Vec<(u64, Vec<u8>)> = self
            .branches
            .keys()
            .map(|number| (*number, self.store.tree(*number).unwrap().name))
            .collect();
        let maps: BTreeMap<u64, Map> =
            self.branches.iter().map(|(number, (_, map))| (*number, map.clone())).collect();
        self.branches.clear();
        self.store = open(device);
        for (number, name) in names {
            let branch = Branch::open(self.store.clone(), &name, None).unwrap();
            self.branches.insert(number, (branch, maps[&number].clone()));
        }
    }
}

fn items(store: &Store, pin: &Pin) -> Map {
    let mut map = Map::new();
    store
        .scan_pinned(pin, &Key::MIN, &Key::MAX, |key, value| {
            map.insert(key, value.to_vec());
            std::ops::ControlFlow::Continue(())
        })
        .unwrap();
    map
}

fn content(branch: &Branch) -> Map {
    let mut map = Map::new();
    branch
        .scan(&Key::MIN, &Key::MAX, |key, value| {
            map.insert(key, value.to_vec());
            std::ops::ControlFlow::Continue(())
        })
        .unwrap();
    for (key, value) in &mut map {
        if key.kind == ItemKind::Extent {
            let extent = Extent::decode(value).unwrap();
            let mut bytes = vec![0; extent.blocks.count as usize * 4096];
            branch.read(extent.blocks, &mut bytes).unwrap();
            *value = bytes;
        }
    }
    map
}

/// Keeps all trees open that have a name.
fn all_open(store: &Arc<Store>) -> Vec<Branch> {
    let trees = store.trees().unwrap().into_iter();
    let named = trees.filter(|of| !of.is_deleted && !of.item.name.is_empty());
    named.map(|of| Branch::open_number(store.clone(), of.number).unwrap()).collect()
}

/// Trees that were just read, and are open, are in memory, so that their blocks are counted and compared with what they say.
fn expect_counted(store: &Store, trees: usize) {
    #[cfg(debug_assertions)]
    assert!(store.invariants() >= trees, "{trees} trees are in memory");
    let _ = (store, trees);
}

/// The content of each branch, and of each snapshot of it, by their names.
type Seen = BTreeMap<(Vec<u8>, Option<Vec<u8>>), Map>;

/// What a volume shows.
fn shown(store: &Arc<Store>) -> Seen {
    let trees = store.trees().unwrap();
    let name =
        |number: u64| trees.iter().find(|of| of.number == number).map(|of| of.item.name.clone());
    let mut seen = Seen::new();
    for of in trees.iter().filter(|of| !of.is_deleted && !of.item.name.is_empty()) {
        let (branch, snapshot) = match of.item.kind {
            TreeKind::Branch => (of.item.name.clone(), None),
            TreeKind::Snapshot => (name(of.item.branch).unwrap(), Some(of.item.name.clone())),
            TreeKind::Going => unreachable!("it is in no list"),
        };
        let opened = Branch::open(store.clone(), &branch, snapshot.as_deref()).unwrap();
        seen.insert((branch, snapshot), content(&opened));
    }
    seen
}

/// Power is cut at some of the calls of a history: what is found is a moment of it, not before what was durable.
pub(crate) fn cut(seed: u64, steps: usize) -> usize {
    let device = Arc::new(SimDevice::new(&make(2048, 4096)));
    let under: Arc<dyn Device> = device.clone();
    let mut world = World::new(&under, seed);
    world.inodes = 12;
    let (mut states, mut durable) = (vec![world.seen()], vec![0]);
    for step in 0..steps {
        device.mark(step as u64);
        world.step_of(28);
        states.push(world.seen());
        let last = if world.is_durable { step + 1 } else { durable[step] };
        durable.push(last);
    }
    let recording = device.recording();
    let (mut done, mut images) = (0, 0);
    for (at, event) in recording.events.iter().enumerate() {
        if let Event::Mark(step) = event {
            done = *step as usize;
        }
        let is_call = matches!(event, Event::Write { .. } | Event::Flush { .. });
        if !is_call || !world.prng.one_in(3) {
            continue;
        }
        for image in recording.cut_at(at + 1).images(&Policy::default()).take(3) {
            images += 1;
            let found: Arc<dyn Device> = Arc::new(image.device());
            let store = open(&found);
            let seen = shown(&store);
            let may_be = &states[durable[done]..=done + 1];
            assert!(
                may_be.contains(&seen),
                "seed {seed}, step {done}, call {at}: {}: {:?} is none of {} moments from {:?}",
                image.describe(),
                seen.keys(),
                may_be.len(),
                may_be[0].keys()
            );
            // Deletions go on, and what is left is as it was.
            let mut more = 40;
            while store.work_off_deletions(3).unwrap() && more > 0 {
                more -= 1;
            }
            store.checkpoint().unwrap();
            let open = all_open(&store);
            assert_eq!(shown(&store), seen, "seed {seed}, step {done}, call {at}");
            expect_counted(&store, seen.len());
            drop(open);
        }
    }
    images
}

/// A random history; at its end all goes, and the space comes back.
pub(crate) fn history(seed: u64, steps: u64, node_size: usize) {
    let device: Arc<dyn Device> = make(16384, node_size);
    let mut world = World::new(&device, seed);
    let empty = world.store.space_use();
    for step in 0..steps {
        world.step();
        if step % 97 == 0 {
            world.judge();
        }
        if world.prng.one_in(150) {
            world.reopen(&device);
            world.judge();
        }
    }
    world.judge();
    // Everything goes, in any order: the space comes back.
    for number in world.snapshots.keys().copied().collect::<Vec<_>>() {
        world.store.delete_snapshot(number).unwrap();
        world.snapshots.remove(&number);
        if world.prng.one_in(3) {
            world.change();
        }
    }
    for number in world.branches.keys().copied().filter(|no| *no != 1).collect::<Vec<_>>() {
        world.store.delete_branch(number, now()).unwrap();
        world.branches.remove(&number);
    }
    while world.store.work_off_deletions(100).unwrap() {
        if world.prng.one_in(4) {
            world.change();
        }
    }
    world.judge();
    assert_eq!(world.store.trees().unwrap().len(), 1, "only main is left");
    let (main, map) = &world.branches[&1];
    let keys: Vec<Key> = map.keys().copied().collect();
    for key in keys {
        let mut transaction = Transaction::new();
        let mut room = main.reserve(Need::Shrink { changes: 1 }).unwrap();
        if key.kind == ItemKind::Extent {
            let extent = Extent::decode(&main.get(&key).unwrap().unwrap()).unwrap();
            transaction.free(extent.blocks, extent.birth, key);
        }
        transaction.delete(key);
        main.apply(transaction, &mut room).unwrap();
    }
    for _ in 0..3 {
        world.store.checkpoint().unwrap();
    }
    let left = world.store.space_use();
    let slot = node_size as u64 / 4096;
    assert!(
        left.available + 3 * slot >= empty.available,
        "{left:?} is left of {empty:?}: seed {seed}"
    );
}
