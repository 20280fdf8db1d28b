//! A thread that others rely on learns that it is about to wait, or to share its work.
//!
//! A thread that serves requests must not wait while no other thread would take
//! the next one. But whether a request waits is known only far below, when a block
//! is not in memory or another fsync is under way. So code that waits long, for a
//! device or for another thread that does, says so first. A thread that cares has
//! registered what to do then. Code that starts threads for a part of its work says
//! so too: they begin where the calling thread may run.

use std::cell::RefCell;
use std::rc::Rc;

/// What a thread is about to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// To wait for longer than a lock takes.
    Wait,
    /// To start threads and wait for them.
    Share,
}

type Care = Rc<dyn Fn(Next)>;

thread_local! {
    static CARES: RefCell<Option<Care>> = const { RefCell::new(None) };
}

/// Has `this` done on the calling thread whenever it [is about to wait](will_wait) or to [share its work](will_share).
pub fn before_waiting(this: impl Fn(Next) + 'static) {
    CARES.with_borrow_mut(|cares| *cares = Some(Rc::new(this)));
}

/// The calling thread is about to wait for longer than a lock takes.
pub fn will_wait() {
    tell(Next::Wait);
}

/// The calling thread is about to start threads that do a part of its work, and to wait for them.
pub fn will_share() {
    tell(Next::Share);
}

fn tell(next: Next) {
    // At the end of a thread its registration is gone already.
    let cares = CARES.try_with(|cares| cares.borrow().clone());
    if let Ok(Some(this)) = cares {
        this(next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_registered_thread_is_notified() {
        will_wait();
        let told = Rc::new(RefCell::new(Vec::new()));
        let mine = Rc::clone(&told);
        before_waiting(move |next| mine.borrow_mut().push(next));
        will_wait();
        std::thread::spawn(will_wait).join().unwrap();
        will_share();
        assert_eq!(*told.borrow(), [Next::Wait, Next::Share]);
    }
}
