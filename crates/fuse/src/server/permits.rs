//! Permits: that a program may write to a mount is asked of the kernel, by writing an attribute, before it commands a change.

use std::collections::VecDeque;

use holdfast_wire::ask::PERMIT;
use parking_lot::Mutex;

use crate::interface::{Answer, Errno};

/// Permits that wait for their commands; others push them out.
const PERMITS: usize = 256;

/// Permits that were written and not used.
#[derive(Debug, Default)]
pub(super) struct Permits(Mutex<VecDeque<[u8; PERMIT]>>);

impl Permits {
    /// One is written.
    pub(super) fn add(&self, permit: &[u8]) -> Answer<()> {
        let permit = permit.try_into().map_err(|_| Errno(libc::EINVAL))?;
        let mut waiting = self.0.lock();
        if waiting.len() >= PERMITS {
            waiting.pop_front();
        }
        waiting.push_back(permit);
        Ok(())
    }

    /// Takes the permit off a command; whether it was written before, and the command.
    pub(super) fn take<'a>(&self, command: &'a [u8]) -> (bool, &'a [u8]) {
        let Some((permit, rest)) = command.split_at_checked(PERMIT) else {
            return (false, command);
        };
        let Some((b' ', rest)) = rest.split_first() else { return (false, command) };
        if !permit.iter().all(u8::is_ascii_hexdigit) {
            return (false, command);
        }
        let mut waiting = self.0.lock();
        let at = waiting.iter().position(|it| it == permit);
        (at.and_then(|at| waiting.remove(at)).is_some(), rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_permit_is_for_one_command() {
        let permits = Permits::default();
        let permit = [b'a'; PERMIT];
        let command = [&permit[..], b" do it"].concat();
        assert_eq!(permits.take(&command), (false, &b"do it"[..]));
        assert_eq!(permits.add(b"short"), Err(Errno(libc::EINVAL)));
        assert_eq!(permits.add(&permit), Ok(()));
        assert_eq!(permits.take(b"{}"), (false, &b"{}"[..]));
        assert_eq!(permits.take(&command[1..]), (false, &command[1..]));
        assert_eq!(permits.take(&command), (true, &b"do it"[..]));
        assert_eq!(permits.take(&command), (false, &b"do it"[..]));
        (0..2 * PERMITS).for_each(|_| permits.add(&permit).unwrap());
        assert_eq!(permits.0.lock().len(), PERMITS);
    }
}
