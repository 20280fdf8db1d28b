//! A thread hears of the number that the change gets which its request asks for, before that can become durable.
//!
//! A server of requests notes the number of each change where the server after it finds that. Only so does that one know which
//! requests were carried out. The note must be there before the change can reach the device. The number is known to the
//! store alone, which tells it under the lock in which it gives numbers. Which change of a request is the one that it asks for is
//! known to the call of the filesystem alone: data may be written before it, and blocks freed behind it.

use std::cell::{Cell, RefCell};

use crate::Lsn;

type Watcher = Box<dyn FnOnce(Lsn)>;

thread_local! {
    static WATCHER: RefCell<Option<Watcher>> = const { RefCell::new(None) };
    static IS_ASKED_FOR: Cell<bool> = const { Cell::new(false) };
}

/// Has `watcher` told of the change that [is asked for](asked_for) of the calling thread in `body`. It is called under the lock
/// of the trees, so it must be quick, and lock nothing.
pub fn watch<T>(watcher: impl FnOnce(Lsn) + 'static, body: impl FnOnce() -> T) -> T {
    let _end = End;
    WATCHER.with_borrow_mut(|it| *it = Some(Box::new(watcher)));
    body()
}

/// `body` makes one change visible: that which the request asks for.
pub fn asked_for<T>(body: impl FnOnce() -> T) -> T {
    let _end = NotAsked(IS_ASKED_FOR.replace(true));
    body()
}

/// The calling thread makes a change visible that has this number.
pub fn note(lsn: Lsn) {
    if !IS_ASKED_FOR.try_with(Cell::get).unwrap_or(false) {
        return;
    }
    // At the end of a thread it is gone already.
    let watcher = WATCHER.try_with(|it| it.borrow_mut().take());
    if let Ok(Some(watcher)) = watcher {
        watcher(lsn);
    }
}

struct NotAsked(bool);

impl Drop for NotAsked {
    fn drop(&mut self) {
        let _ = IS_ASKED_FOR.try_with(|it| it.set(self.0));
    }
}

/// Also after a panic nothing of the next request is told to the watcher of the last one.
struct End;

impl Drop for End {
    fn drop(&mut self) {
        let _ = WATCHER.try_with(|it| it.borrow_mut().take());
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use super::*;

    #[test]
    fn the_change_that_is_asked_for_of_the_thread_is_told_once() {
        let told = Rc::new(Cell::new(Vec::new()));
        let watcher = |told: &Rc<Cell<Vec<Lsn>>>| {
            let told = Rc::clone(told);
            move |lsn| {
                let mut all = told.take();
                all.push(lsn);
                told.set(all);
            }
        };
        asked_for(|| note(Lsn(1)));
        watch(watcher(&told), || {
            std::thread::spawn(|| asked_for(|| note(Lsn(2)))).join().unwrap();
            // Data that has to be there before, and what is tidied up behind it.
            note(Lsn(3));
            asked_for(|| note(Lsn(4)));
            note(Lsn(5));
            asked_for(|| note(Lsn(6)));
        });
        watch(watcher(&told), || {});
        asked_for(|| note(Lsn(7)));
        assert_eq!(told.take(), [Lsn(4)]);
    }
}
