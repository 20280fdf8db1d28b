//! A volume with a history, and a destination in memory.

#![allow(dead_code, missing_docs, unreachable_pub, clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use holdfast::{CreateOptions, OpenOptions, Volume, VolumeOptions};
use holdfast_base::prng::Prng;
use holdfast_device::{Device, MemoryDevice};
use holdfast_salvage::{Attributes, Choice, Destination, FileNote, Scan, Tolerant};

/// Paths of regular files with their content, and of directories with nothing.
pub type Files = BTreeMap<String, Option<Vec<u8>>>;

/// A volume, and all that it ever held.
pub struct World {
    pub image: MemoryDevice,
    /// Which state a salvage of the sound volume takes.
    pub by: String,
    /// What its trees hold in the end.
    pub trees: BTreeMap<&'static str, Files>,
    /// What `main` held at each checkpoint, the last state included.
    pub states: Vec<Files>,
    /// Each content that each file ever had, by its number.
    pub versions: BTreeMap<u64, Vec<Vec<u8>>>,
    /// Each path that each file ever had.
    pub names: BTreeSet<(String, u64)>,
}

struct Making {
    prng: Prng,
    volume: Option<Volume>,
    files: Files,
    versions: BTreeMap<u64, Vec<Vec<u8>>>,
    names: BTreeSet<(String, u64)>,
}

impl Making {
    fn volume(&self) -> &Volume {
        self.volume.as_ref().unwrap()
    }

    fn note(&mut self, path: &str) {
        let inode = self.volume().metadata(path).unwrap().ino();
        self.names.insert((path.to_string(), inode));
        if let Some(Some(content)) = self.files.get(path) {
            self.versions.entry(inode).or_default().push(content.clone());
        }
    }

    fn write(&mut self, path: String) {
        let most = *self.prng.pick(&[100, 3_000, 20_000, 300_000]);
        let mut bytes = vec![0; 1 + self.prng.below(most) as usize];
        self.prng.fill(&mut bytes);
        self.volume().write(&path, &bytes).unwrap();
        // It is made, or cut, before it is written.
        self.files.insert(path.clone(), Some(Vec::new()));
        self.note(&path);
        self.files.insert(path.clone(), Some(bytes));
        self.note(&path);
    }

    /// Changes a part of a file in place.
    fn change(&mut self, path: &str) {
        let options = OpenOptions::new().write(true);
        let file = self.volume().open_with(path, &options).unwrap();
        let content = self.files.get_mut(path).unwrap().as_mut().unwrap();
        let at = self.prng.below(content.len() as u64) as usize;
        let mut bytes = vec![0; 1 + self.prng.below(9000) as usize];
        self.prng.fill(&mut bytes);
        file.write_all_at(&bytes, at as u64).unwrap();
        if content.len() < at + bytes.len() {
            content.resize(at + bytes.len(), 0);
        }
        content[at..at + bytes.len()].copy_from_slice(&bytes);
        file.sync_all().unwrap();
        self.note(path);
    }

    fn work(&mut self, count: u64) {
        for _ in 0..count {
            let dir = format!("/d{}", self.prng.below(6));
            if !self.files.contains_key(&dir) {
                self.volume().create_dir(&dir).unwrap();
                self.files.insert(dir.clone(), None);
                self.note(&dir);
            }
            let path = format!("{dir}/f{}", self.prng.below(14));
            let is_there = self.files.contains_key(&path);
            match self.prng.below(9) {
                0 if is_there => {
                    self.volume().remove_file(&path).unwrap();
                    self.files.remove(&path);
                }
                1 if is_there => {
                    let to = format!("{dir}/moved{}", self.prng.below(5));
                    self.volume().rename(&path, &to).unwrap();
                    let content = self.files.remove(&path).unwrap();
                    self.files.insert(to.clone(), content);
                    self.note(&to);
                }
                2..=4 if is_there => self.change(&path),
                _ => self.write(path),
            }
        }
    }
}

/// Many small files, so that the tree has inner nodes of several levels.
const SMALL: u64 = 500;

impl World {
    /// `is_closed`: the trees have everything. Else journal and log do.
    pub fn new(seed: u64, is_closed: bool) -> World {
        World::stored(seed, is_closed, 1)
    }

    /// The same, each node of which is stored so often.
    pub fn stored(seed: u64, is_closed: bool, copies: u8) -> World {
        let device = Arc::new(MemoryDevice::new(48 << 20));
        let target: Arc<dyn Device> = device.clone();
        CreateOptions::new().node_size(4096).metadata_copies(copies).format(&target).unwrap();
        let open = || VolumeOptions::new().commit_secs(0).open_device(device.clone()).unwrap();
        let mut making = Making {
            prng: Prng::seeded(seed),
            volume: Some(open()),
            files: Files::new(),
            versions: BTreeMap::new(),
            names: BTreeSet::new(),
        };
        let (mut states, mut trees) = (Vec::new(), BTreeMap::new());
        for index in 0..SMALL {
            let dir = format!("/small{}", index % 7);
            if !making.files.contains_key(&dir) {
                making.volume().create_dir(&dir).unwrap();
                making.files.insert(dir.clone(), None);
                making.note(&dir);
            }
            let path = format!("{dir}/{index}");
            let bytes = format!("content of {index} ").repeat(1 + index as usize % 40).into_bytes();
            making.volume().write(&path, &bytes).unwrap();
            making.files.insert(path.clone(), Some(bytes));
            making.note(&path);
        }
        for round in 0..4 {
            making.work(40);
            if round == 1 {
                making.volume().branch_here().unwrap().snapshot("one").unwrap();
                trees.insert("main@one", making.files.clone());
            }
            // Each closing is a checkpoint.
            making.volume.take().unwrap().close().unwrap();
            states.push(making.files.clone());
            making.volume = Some(open());
        }
        making.work(15);
        if is_closed {
            making.volume.take().unwrap().close().unwrap();
        } else {
            making.volume().commit().unwrap();
            making.work(6);
            making.volume().sync_all().unwrap();
            for path in
                making.files.iter().filter(|(_, content)| content.is_some()).map(|(path, _)| path)
            {
                making.volume().open_file(path).and_then(|file| file.sync_all()).unwrap();
            }
            // The last batch names no data: whether that arrived is no question.
            making.volume().create_dir("/end").and_then(|()| making.volume().sync_all()).unwrap();
            making.files.insert("/end".into(), None);
            making.note("/end");
        }
        states.push(making.files.clone());
        trees.insert("main", making.files.clone());
        let Making { versions, names, .. } = making;
        let image = device.snapshot();
        let by = {
            let tolerant = Tolerant::new(&image);
            Scan::read(&tolerant, &|_| ()).open(&tolerant, &Choice::default()).unwrap().by
        };
        World { image, by, trees, states, versions, names }
    }
}

/// What came to a path.
#[derive(Clone, Debug, PartialEq)]
pub enum Made {
    Directory,
    File(Vec<u8>),
    Other,
}

/// Files in memory.
#[derive(Debug, Default)]
pub struct Memory {
    path: Vec<String>,
    file: Option<(String, Vec<u8>)>,
    pub made: BTreeMap<String, Made>,
    pub found: Vec<FileNote>,
}

impl Memory {
    fn at(&self, name: &[u8]) -> String {
        let name = String::from_utf8_lossy(name);
        let dir: String = self.path.iter().map(|name| format!("/{name}")).collect();
        format!("{dir}/{name}")
    }

    fn make(&mut self, path: String, made: Made) -> io::Result<()> {
        if self.made.contains_key(&path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.made.insert(path, made);
        Ok(())
    }

    /// What was said of a path.
    pub fn found(&self, path: &str) -> Option<&FileNote> {
        self.found.iter().find(|found| found.path == path.as_bytes()[1..])
    }
}

impl Destination for Memory {
    fn enter(&mut self, name: &[u8]) -> io::Result<()> {
        self.make(self.at(name), Made::Directory)?;
        self.path.push(String::from_utf8_lossy(name).into_owned());
        Ok(())
    }

    fn leave(&mut self, _: &Attributes) -> io::Result<()> {
        self.path.pop();
        Ok(())
    }

    fn begin(&mut self, name: &[u8]) -> io::Result<()> {
        let path = self.at(name);
        if self.made.contains_key(&path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.file = Some((path, Vec::new()));
        Ok(())
    }

    fn write(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let (_, content) = self.file.as_mut().unwrap();
        let end = at as usize + bytes.len();
        if content.len() < end {
            content.resize(end, 0);
        }
        content[at as usize..end].copy_from_slice(bytes);
        Ok(())
    }

    fn end(&mut self, len: u64, _: &Attributes) -> io::Result<()> {
        let (path, mut content) = self.file.take().unwrap();
        content.resize(len as usize, 0);
        self.make(path, Made::File(content))
    }

    fn symlink(&mut self, name: &[u8], _: &[u8], _: &Attributes) -> io::Result<()> {
        self.make(self.at(name), Made::Other)
    }

    fn node(&mut self, name: &[u8], _: u64, _: &Attributes) -> io::Result<()> {
        self.make(self.at(name), Made::Other)
    }

    fn link(&mut self, name: &[u8], old: &[Vec<u8>]) -> io::Result<()> {
        let old: String =
            old.iter().map(|name| format!("/{}", String::from_utf8_lossy(name))).collect();
        let made = self.made[&old].clone();
        self.make(self.at(name), made)
    }

    fn report(&mut self, found: &FileNote) -> io::Result<()> {
        self.found.push(found.clone());
        Ok(())
    }
}
