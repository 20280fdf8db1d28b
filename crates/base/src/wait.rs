//! A thread that others rely on learns that it is about to wait.
//!
//! Whoever serves requests must not wait while nobody else would take the next
//! one. But whether a request waits is known only far below, when a block is not
//! in memory or another fsync is under way. So what waits long, for a device or
//! for another thread that does, says so first; and a thread that cares has said
//! what it wants to do then.

use std::cell::RefCell;
use std::rc::Rc;

thread_local! {
    static CARES: RefCell<Option<Rc<dyn Fn()>>> = const { RefCell::new(None) };
}

/// Has `this` done on the calling thread whenever it [is about to wait](will_wait).
pub fn before_waiting(this: impl Fn() + 'static) {
    CARES.with_borrow_mut(|cares| *cares = Some(Rc::new(this)));
}

/// The calling thread is about to wait for longer than a lock takes.
pub fn will_wait() {
    // At the end of a thread there is nobody left to tell.
    let cares = CARES.try_with(|cares| cares.borrow().clone());
    if let Ok(Some(this)) = cares {
        this();
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn only_who_cares_is_told() {
        will_wait();
        let told = Rc::new(Cell::new(0));
        let mine = Rc::clone(&told);
        before_waiting(move || mine.set(mine.get() + 1));
        will_wait();
        std::thread::spawn(will_wait).join().unwrap();
        will_wait();
        assert_eq!(told.get(), 2);
    }
}
