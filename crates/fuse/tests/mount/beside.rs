//! A fork that is tested beside others: `HOLDFAST_BESIDE` says how many are mounted beside it, none if it says nothing.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use holdfast_fuse::{FuseOptions, Session, SharedThreads, end_all};
use holdfast_posix::FileSystem;

/// The fork that a test sees.
const TESTED: &[u8] = b"tested";

/// A filesystem that this process serves. The mount ends when it is dropped.
pub(crate) struct Served {
    session: Option<Session>,
    fs: Option<Arc<FileSystem>>,
}

impl Served {
    /// Mounts `fs` at `dir`.
    pub(crate) fn start(fs: FileSystem, dir: &Path, fuse: FuseOptions) -> Served {
        let fs = Arc::new(fs);
        let mounted = holdfast_fuse::mount(dir, &fuse).unwrap();
        let session = Session::start(Arc::clone(&fs), mounted, &fuse).unwrap();
        Served { session: Some(session), fs: Some(fs) }
    }

    /// What is served.
    pub(crate) fn fs(&self) -> Arc<FileSystem> {
        Arc::clone(self.fs.as_ref().expect("it is given back in the end"))
    }

    /// Ends the mount and gives the filesystem back.
    pub(crate) fn stop(mut self) -> Arc<FileSystem> {
        end_all(&mut [self.session.as_mut().expect("it is ended once")]);
        self.wait()
    }

    /// Waits until another program has unmounted.
    pub(crate) fn wait(mut self) -> Arc<FileSystem> {
        let session = self.session.take().expect("it is ended once");
        assert!(session.wait_ended(Duration::from_secs(120)), "it is mounted still");
        session.finish().unwrap();
        self.fs.take().expect("it is given back once")
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if let Some(mut session) = self.session.take() {
            end_all(&mut [&mut session]);
            let _ = session.finish();
        }
    }
}

/// Forks that are mounted beside the one that is tested, and the branch that all grew out of.
pub(crate) struct Beside {
    // Before the directories: they must be plain ones when they are removed.
    served: Vec<Served>,
    dirs: Vec<tempfile::TempDir>,
    main: FileSystem,
}

impl Beside {
    /// What a test is to see of a volume whose first branch is open: that branch, or a fork beside others. Forks that are there
    /// already, as before a crash, are mounted again, and nothing of the test is in them.
    pub(crate) fn fork(main: FileSystem) -> (FileSystem, Option<Beside>) {
        let count = std::env::var("HOLDFAST_BESIDE").map_or(0, |count| count.parse().unwrap());
        if count == 0 || main.options().read_only {
            return (main, None);
        }
        let tested = open(&main, TESTED);
        let shared = SharedThreads::default();
        let (mut served, mut dirs) = (Vec::new(), Vec::new());
        for number in 0..count {
            let name = format!("beside-{number}");
            let dir = tempfile::tempdir().unwrap();
            let fuse = FuseOptions { shared: shared.clone(), ..FuseOptions::default() };
            let fs = open(&main, name.as_bytes());
            served.push(Served::start(fs, dir.path(), fuse));
            let mark = dir.path().join("mark");
            if !mark.exists() {
                std::fs::write(&mark, &name).unwrap();
                // Or a crash would leave it empty, perhaps on a volume that the test has filled. No fsync: a test counts its own.
                served.last().unwrap().fs().sync().unwrap();
            }
            dirs.push(dir);
        }
        let beside = Beside { served, dirs, main };
        beside.expect_alone();
        (tested, Some(beside))
    }

    /// Each of the others has what was written into it, and nothing else.
    fn expect_alone(&self) {
        for (number, dir) in self.dirs.iter().enumerate() {
            let names: Vec<_> = std::fs::read_dir(dir.path())
                .unwrap()
                .map(|entry| entry.unwrap().file_name())
                .collect();
            assert_eq!(names, ["mark"], "beside-{number}");
            let mark = std::fs::read_to_string(dir.path().join("mark")).unwrap();
            assert_eq!(mark, format!("beside-{number}"));
        }
    }

    /// Unmounts them in good order.
    pub(crate) fn leave(mut self) {
        self.expect_alone();
        for served in self.served.drain(..) {
            Arc::into_inner(served.stop()).expect("nobody else holds it").unmount().unwrap();
        }
        self.main.unmount().unwrap();
    }
}

/// Opens a branch beside `main`, and makes it first if it is not there.
fn open(main: &FileSystem, name: &[u8]) -> FileSystem {
    if main.find_branch(name).is_err() {
        main.fork(name, None).unwrap();
    }
    main.open_branch(name, main.options().clone()).unwrap()
}
