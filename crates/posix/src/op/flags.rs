//! Flags that forbid to change a file or directory. What obeys them asks `allow::expect_changeable`.

use holdfast_base::{InodeNo, Timestamp};
use holdfast_format::item::FileType;
use holdfast_store::{Need, Transaction};

use crate::*;

impl FileSystem {
    /// The flags of an inode.
    pub fn file_flags(&self, inode: InodeNo) -> Result<FileFlags> {
        let inode = self.core.inode(inode)?;
        let state = inode.state.read();
        state.expect_alive()?;
        Ok(FileFlags::from_bits_truncate(state.attr.flags))
    }

    /// Gives a file or directory these flags, and takes the others away. They hold from the next call on, for files that are open as well;
    /// what was written before and waits in memory is still written.
    ///
    /// # Errors
    /// [`FsError::NotPermitted`] unless the caller is root; [`FsError::NotSupported`] for anything but files and directories.
    pub fn set_file_flags(&self, caller: &Caller, inode: InodeNo, flags: FileFlags) -> Result<()> {
        let _inside = self.core.gate.enter();
        let core = &*self.core;
        let inode = core.inode(inode)?;
        if !matches!(inode.file_type, FileType::Regular | FileType::Directory) {
            return Err(FsError::NotSupported);
        }
        // Calls that write bytes look at the flags once, and are over then.
        let _writer = inode.data.lock_writer();
        let reserved = core.reserve(Need::Change { changes: 1, blocks: 0 });
        let mut state = inode.state.write();
        state.expect_alive()?;
        if FileFlags::from_bits_truncate(state.attr.flags) == flags {
            return Ok(());
        }
        if !caller.is_root() {
            return Err(FsError::NotPermitted);
        }
        let mut reservation = reserved?;
        let mut item = state.next_disk();
        item.flags = item.flags & !FileFlags::all().bits() | flags.bits();
        item.ctime = Timestamp::now();
        let mut transaction = Transaction::new();
        state.put(inode.no, &item, &mut transaction);
        let lsn = core.apply_asked_for(transaction, &mut reservation)?;
        state.took(item, lsn);
        Ok(())
    }
}
