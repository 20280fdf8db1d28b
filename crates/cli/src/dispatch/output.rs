//! Where bytes go that a command writes.

use std::cell::RefCell;
use std::io::{self, Write};
use std::rc::Rc;

/// Standard output, or what is made of the bytes.
pub(crate) enum Output {
    Stdout,
    Made(Rc<RefCell<dyn Write>>),
}

impl Output {
    /// The same place.
    pub(super) fn again(&self) -> Output {
        match self {
            Output::Stdout => Output::Stdout,
            Output::Made(made) => Output::Made(Rc::clone(made)),
        }
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Output::Stdout => io::stdout().lock().write(bytes),
            Output::Made(made) => made.borrow_mut().write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Output::Stdout => io::stdout().lock().flush(),
            Output::Made(made) => made.borrow_mut().flush(),
        }
    }
}
