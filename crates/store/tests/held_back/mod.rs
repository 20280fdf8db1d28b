//! An fsync of another thread while the commit of a rollback is on its way: no batch of the log holds what comes behind the
//! rollback before that is durable, or a replay without it would mix both trees (S7, P3).

#![allow(missing_docs, clippy::unwrap_used)]

use std::fmt;
use std::sync::mpsc::{TryRecvError, channel};
use std::sync::{Arc, Mutex};

use holdfast_base::InodeNo;
use holdfast_device::{Device, DeviceError, MemoryDevice, forward};
use holdfast_format::Key;
use holdfast_store::{Branch, Need, Transaction};

use crate::branches::{make, now, open};

/// What happens before a write.
type Hook = Box<dyn FnOnce() + Send>;

/// Does something before the next write, once.
struct Gate {
    device: Arc<MemoryDevice>,
    hook: Mutex<Option<Hook>>,
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.device.fmt(f)
    }
}

impl Device for Gate {
    forward!(device: read, flush, discard, room, take_room, len, sector_size, reach, stats);

    fn write(&self, at: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        let hook = self.hook.lock().unwrap().take();
        hook.into_iter().for_each(|hook| hook());
        self.device.write(at, bytes)
    }
}

const FILE: InodeNo = InodeNo(20);
const LATER: InodeNo = InodeNo(21);

fn put(branch: &Branch, inode: InodeNo, value: u8) {
    let mut room = branch.reserve(Need::Grow { changes: 1, blocks: 0 }).unwrap();
    let mut transaction = Transaction::new();
    transaction.put(Key::inode(inode), [value]);
    let lsn = branch.apply(transaction, &mut room).unwrap();
    branch.sync(lsn, inode).unwrap();
}

/// What a recovery shows of both files.
fn recovered(image: MemoryDevice) -> [Option<u8>; 2] {
    let store = open(&(Arc::new(image) as Arc<dyn Device>));
    let main = Branch::main(store);
    [FILE, LATER].map(|inode| main.get(&Key::inode(inode)).unwrap().map(|value| value[0]))
}

/// The error says what a power cut shows.
pub(crate) fn an_fsync_waits_for_the_rollback_before_it() -> Result<(), String> {
    let device = make(8192, 4096);
    let gate = Arc::new(Gate { device: device.clone(), hook: Mutex::default() });
    let store = open(&(gate.clone() as Arc<dyn Device>));
    let main = Branch::main(store.clone());
    put(&main, FILE, 1);
    let first = store.snapshot(1, b"first", now()).unwrap();
    put(&main, FILE, 2);
    store.commit().unwrap();

    let (tell, hear) = channel();
    let hook = {
        let (main, device) = (main.clone(), device.clone());
        move || {
            let (ends, ended) = channel();
            let beside = main.clone();
            let thread = std::thread::spawn(move || {
                put(&beside, LATER, 3);
                // The listener is gone if it has waited.
                let _ = ends.send(());
            });
            // The rollback goes on when the fsync waits for it, or has ended.
            while ended.try_recv() == Err(TryRecvError::Empty)
                && main.counters().log_held_back.get() == 0
            {
                std::thread::yield_now();
            }
            tell.send((device.snapshot(), thread)).unwrap();
        }
    };
    *gate.hook.lock().unwrap() = Some(Box::new(hook));
    store.roll_back(1, first, None, now()).unwrap();
    let (meanwhile, thread) = hear.recv().unwrap();
    thread.join().unwrap();
    let (meanwhile, behind) = (recovered(meanwhile), recovered(device.snapshot()));
    if behind != [Some(1), Some(3)] {
        return Err(format!("behind the rollback and the fsync: {behind:?}"));
    }
    match meanwhile {
        [Some(2), None] | [Some(1), _] => Ok(()),
        mixed => Err(format!("what was before the rollback, with what came behind it: {mixed:?}")),
    }
}
