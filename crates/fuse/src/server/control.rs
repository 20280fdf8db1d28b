//! Commands for a mount, which a program carries out inside the daemon: snapshots, forks, rollbacks (`new_head`).

use holdfast_wire::ask::PIECE;

use super::Server;
use super::new_head::{Mount, PATIENCE, StopOnPanic};
use crate::interface::{Answer, Errno, Request};

impl Server {
    /// Carries out a command, and returns what is answered.
    pub(super) fn control(&self, request: &Request, command: &[u8]) -> Answer<Vec<u8>> {
        if !self.is_owner(request) {
            return Err(Errno(libc::EACCES));
        }
        let control = self.options.control.as_ref().ok_or(Errno(libc::EOPNOTSUPP))?;
        let fs = self.fs()?;
        let _stop = StopOnPanic(&fs);
        let (may_change, command) = self.permits.take(command);
        let mount = Mount { server: self, fs: &fs, may_change, patience: PATIENCE };
        let answer = control.carry_out(&mount, command);
        // What the caller sees next is what the command has made.
        self.notices.drain();
        match answer.len() <= PIECE {
            true => Ok(answer),
            false => Err(Errno(libc::E2BIG)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Control;
    use crate::server::fresh;

    #[test]
    fn strangers_command_nothing_and_nothing_is_commanded_where_nothing_obeys() {
        let fs = fresh::mount(&fresh::volume());
        let mut server = fresh::server(&fs);
        let me = rustix::process::getuid().as_raw();
        let request = |uid| Request { uid, gid: uid, pid: 0 };
        assert_eq!(server.control(&request(me), b"x"), Err(Errno(libc::EOPNOTSUPP)));
        server.options.control = Some(Control::new(|_, command| command.repeat(PIECE)));
        assert_eq!(server.control(&request(me + 4711), b"x"), Err(Errno(libc::EACCES)));
        assert_eq!(server.control(&request(me), b"x").map(|said| said.len()), Ok(PIECE));
        assert_eq!(server.control(&request(me), b"xy"), Err(Errno(libc::E2BIG)));
        server.close();
    }
}
