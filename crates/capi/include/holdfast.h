/*
 * libholdfast: a crash-safe filesystem in one file or block device, without a mount.
 *
 * What calls promise is in docs/DURABILITY.md; a promise is named by its number (P1 to P11). Calls are named after
 * those of POSIX that do the same, and answer as they do, but for this: holdfast_chown, holdfast_utimens and the calls
 * for extended attributes do not follow a symbolic link at the end of a path.
 *
 * ERRORS
 *   A call that fails returns -1, or NULL where it returns a pointer, and sets errno. holdfast_error() has a sentence
 *   about the last failure in this thread. Beside what POSIX gives each call:
 *   EINVAL   NULL where something must be, or a flag that is unknown.
 *   EBUSY    The volume, or the branch, is in use: the sentence says by which process. What is mounted is reached through its mount.
 *   EUCLEAN  What is opened is no volume, or damaged.
 *   EROFS    The volume was opened to be read, or is a snapshot.
 *   EBADF    The volume of this file or directory is closed.
 *   EIO      The device refuses, data does not have its checksum (P6), or the volume has stopped (P7). A mistake in this
 *            library stops the volume, too, and nothing is thrown at the caller: what is durable stays, and the
 *            sentence says so.
 *
 * THREADS
 *   Volumes, files and directories may be used by many threads at once; errno and holdfast_error() are the thread's.
 *   holdfast_pread and holdfast_pwrite have no position and do not wait for each other. A call that closes or frees a
 *   handle is its last: no other thread may be in a call with it, or make one later. Files and directories may be
 *   closed before or after their volume. A volume has threads of its own. They do not survive fork(2): the child may
 *   call nothing but execve and _exit. No call may be made from a signal handler.
 *
 * STRINGS
 *   Paths are bytes that end with 0, at most 255 for each name, and begin at the root of the volume, with or
 *   without `/`. What is returned through a pointer to const belongs to the library.
 *
 * A new library of this soname keeps all that a program was linked with. Structs do not grow.
 */


#ifndef HOLDFAST_H
#define HOLDFAST_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/**
 * Bytes of the longest name, with the 0 behind it.
 */
#define HOLDFAST_NAME_SIZE 256

/**
 * For holdfast_rename: EEXIST if something is at the new path.
 */
#define HOLDFAST_RENAME_NOREPLACE 1

/**
 * For holdfast_rename: both exist, and change places.
 */
#define HOLDFAST_RENAME_EXCHANGE 2

/**
 * For holdfast_open: nothing is written, whatever is called.
 */
#define HOLDFAST_READ_ONLY 1

/**
 * For holdfast_open: a volume that is in use is refused (EBUSY), not reached through its mount.
 */
#define HOLDFAST_NOT_THROUGH_MOUNT 2

/**
 * A directory that is being read.
 */
typedef struct holdfast_dir holdfast_dir;

/**
 * An open file. It has a position, which holdfast_read, holdfast_write and holdfast_lseek share.
 */
typedef struct holdfast_file holdfast_file;

/**
 * An open volume, at one of its branches or snapshots.
 */
typedef struct holdfast_volume holdfast_volume;

/**
 * What is called with each name; another answer than 0 ends the list. It must not throw nor jump out.
 */
typedef int (*holdfast_name_fn)(void *context, const char *name);

/**
 * One name of a directory.
 */
typedef struct holdfast_dirent_t {
  /**
   * Inode number.
   */
  uint64_t ino;
  /**
   * The type, as the upper bits of `mode` in holdfast_stat_t have it: S_IFREG and its kin.
   */
  uint32_t mode;
  /**
   * The name, with a 0 behind it.
   */
  char name[HOLDFAST_NAME_SIZE];
} holdfast_dirent_t;

/**
 * A moment: seconds since 1970, and nanoseconds behind them, 0 to 999999999.
 */
typedef struct holdfast_time {
  /**
   * Seconds, negative before 1970.
   */
  int64_t sec;
  /**
   * Nanoseconds.
   */
  int64_t nsec;
} holdfast_time;

/**
 * Attributes of a file, as stat(2) has them.
 */
typedef struct holdfast_stat_t {
  /**
   * Inode number: never given to another file in the volume's life.
   */
  uint64_t ino;
  /**
   * Bytes of a file; entries of a directory.
   */
  uint64_t size;
  /**
   * Units of 512 bytes in use.
   */
  uint64_t blocks;
  /**
   * Device number of a device file.
   */
  uint64_t rdev;
  /**
   * Type and permission bits: S_IFREG and its kin, 0644.
   */
  uint32_t mode;
  /**
   * Number of names.
   */
  uint32_t nlink;
  /**
   * Owner.
   */
  uint32_t uid;
  /**
   * Group.
   */
  uint32_t gid;
  /**
   * Last access.
   */
  struct holdfast_time atime;
  /**
   * Last change of the content.
   */
  struct holdfast_time mtime;
  /**
   * Last change of content or attributes.
   */
  struct holdfast_time ctime;
  /**
   * Creation.
   */
  struct holdfast_time btime;
} holdfast_stat_t;

/**
 * How full a volume is.
 */
typedef struct holdfast_statfs_t {
  /**
   * Bytes of a block.
   */
  uint64_t block_size;
  /**
   * Blocks of data and metadata in all.
   */
  uint64_t blocks;
  /**
   * Blocks in no use.
   */
  uint64_t blocks_free;
  /**
   * Blocks that can still be filled with data.
   */
  uint64_t blocks_available;
} holdfast_statfs_t;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * A sentence about the last call that failed in this thread; empty if none has. It is there until the next call fails
 * in this thread, or the thread ends.
 */
const char *holdfast_error(void);

/**
 * The version of this library, as text.
 */
const char *holdfast_version(void);

/**
 * Opens another branch, or with `snapshot` a snapshot of it, beside what is open: both share the host file. EBUSY if
 * the branch is open. Of a volume that is reached through a mount it is one more handle of the mount that shows it, and
 * EOPNOTSUPP if none does.
 */
struct holdfast_volume *holdfast_open_branch(const struct holdfast_volume *volume,
                                             const char *branch,
                                             const char *snapshot);

/**
 * Takes a snapshot of a branch, NULL for the one that is open. It costs the same for any tree.
 */
int holdfast_snapshot(const struct holdfast_volume *volume, const char *branch, const char *snapshot);

/**
 * Makes the branch `fork` out of a branch, NULL for the one that is open, or out of its snapshot if that is not NULL.
 */
int holdfast_fork(const struct holdfast_volume *volume, const char *branch, const char *snapshot, const char *fork);

/**
 * Takes a branch, NULL for the one that is open, back to its snapshot. What it was is kept as the snapshot `keep`, or
 * deleted with NULL.
 */
int holdfast_rollback(const struct holdfast_volume *volume, const char *branch, const char *snapshot, const char *keep);

/**
 * Makes a branch, NULL for the one that is open, what its fork is, in one step; the fork is a branch no more. What the
 * branch was is kept as the snapshot `keep`, or deleted with NULL. EAGAIN if the branch has changed since the fork was
 * made: nothing has happened. EBUSY if the fork is open.
 */
int holdfast_promote(const struct holdfast_volume *volume, const char *branch, const char *fork, const char *keep);

/**
 * Deletes the snapshot of a branch, NULL for the one that is open; or, with `snapshot` NULL, the branch with its
 * snapshots. Its space comes back in the background. EBUSY if it is open, or another branch has grown out of it.
 */
int holdfast_delete(const struct holdfast_volume *volume, const char *branch, const char *snapshot);

/**
 * Calls `each` with the name of each branch, in the order in which they were made. Returns 0, or what `each` has ended
 * it with.
 */
int holdfast_branches(const struct holdfast_volume *volume, holdfast_name_fn each, void *context);

/**
 * As holdfast_branches, for the snapshots of a branch, NULL for the one that is open.
 */
int holdfast_snapshots(const struct holdfast_volume *volume, const char *branch, holdfast_name_fn each, void *context);

/**
 * Begins to read the directory at `path`.
 */
struct holdfast_dir *holdfast_opendir(const struct holdfast_volume *volume, const char *path);

/**
 * The next name, without `.` and `..`, in no particular order: 1 if there was one, 0 at the end. A name that is there
 * all the time is given exactly once.
 */
int holdfast_readdir(const struct holdfast_dir *dir, struct holdfast_dirent_t *answer);

/**
 * Ends the reading; the handle is gone. NULL: nothing happens.
 */
int holdfast_closedir(struct holdfast_dir *dir);

/**
 * Opens a file. `flags` are those of open(2): O_RDONLY, O_WRONLY or O_RDWR, O_CREAT, O_EXCL, O_TRUNC, O_APPEND, O_SYNC,
 * O_DSYNC, O_NOFOLLOW, O_NOATIME; O_TMPFILE makes a file without a name in the directory at `path`. O_CREAT and
 * O_TRUNC need a way to write (EINVAL). `mode`: permission bits of a file that is made; there is no umask.
 */
struct holdfast_file *holdfast_file_open(const struct holdfast_volume *volume,
                                         const char *path,
                                         int flags,
                                         unsigned int mode);

/**
 * Closes the file; the handle is gone. Nothing becomes durable by it. NULL: nothing happens.
 */
int holdfast_file_close(struct holdfast_file *file);

/**
 * Reads up to `len` bytes from the position on; 0 at the end. Returns how many.
 */
ssize_t holdfast_read(const struct holdfast_file *file, void *into, size_t len);

/**
 * Writes `len` bytes at the position, or at the end with O_APPEND. Returns how many. Whether there is space is decided
 * now (P8); durable after holdfast_fsync.
 */
ssize_t holdfast_write(const struct holdfast_file *file, const void *from, size_t len);

/**
 * As holdfast_read, from `offset` on, without the position.
 */
ssize_t holdfast_pread(const struct holdfast_file *file, void *into, size_t len, uint64_t offset);

/**
 * As holdfast_write, at `offset`, without the position. With O_APPEND it writes at the end all the same, as Linux does.
 */
ssize_t holdfast_pwrite(const struct holdfast_file *file, const void *from, size_t len, uint64_t offset);

/**
 * Moves the position and returns it. `whence`: SEEK_SET, SEEK_CUR, SEEK_END, SEEK_DATA or SEEK_HOLE.
 */
int64_t holdfast_lseek(const struct holdfast_file *file, int64_t offset, int whence);

/**
 * Data, size, attributes and every name of the file survive any crash once this returns (P1).
 */
int holdfast_fsync(const struct holdfast_file *file);

/**
 * Data and size of the file survive any crash once this returns (P1).
 */
int holdfast_fdatasync(const struct holdfast_file *file);

/**
 * Cuts or extends the file; what is added reads as zeros (P5).
 */
int holdfast_ftruncate(const struct holdfast_file *file, uint64_t len);

/**
 * As fallocate(2). `mode`: 0, FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, FALLOC_FL_ZERO_RANGE,
 * FALLOC_FL_COLLAPSE_RANGE or FALLOC_FL_INSERT_RANGE; others are EOPNOTSUPP.
 */
int holdfast_fallocate(const struct holdfast_file *file, int mode, uint64_t offset, uint64_t len);

/**
 * Locks the whole file among the handles of this process, as flock(2): `operation` is LOCK_SH, LOCK_EX or LOCK_UN, and
 * LOCK_NB with it to get EWOULDBLOCK instead of waiting. The lock goes with the handle.
 */
int holdfast_flock(const struct holdfast_file *file, int operation);

/**
 * The attributes of the file.
 */
int holdfast_fstat(const struct holdfast_file *file, struct holdfast_stat_t *answer);

/**
 * Gives the file another name: its first if it was opened with O_TMPFILE.
 */
int holdfast_file_link(const struct holdfast_file *file, const char *path);

/**
 * As stat(2), or lstat(2) with `follow` 0.
 */
int holdfast_stat(const struct holdfast_volume *volume, const char *path, int follow, struct holdfast_stat_t *answer);

/**
 * Makes a directory. `mode`: its permission bits; there is no umask.
 */
int holdfast_mkdir(const struct holdfast_volume *volume, const char *path, unsigned int mode);

/**
 * Removes an empty directory. Works on a full volume (P8).
 */
int holdfast_rmdir(const struct holdfast_volume *volume, const char *path);

/**
 * Removes a name of anything but a directory. Works on a full volume (P8).
 */
int holdfast_unlink(const struct holdfast_volume *volume, const char *path);

/**
 * Moves `from` to `to` in one step: a crash leaves all of it or nothing, and a file that replaces another has its data
 * (P4). `flags`: 0, HOLDFAST_RENAME_NOREPLACE or HOLDFAST_RENAME_EXCHANGE.
 */
int holdfast_rename(const struct holdfast_volume *volume, const char *from, const char *to, unsigned int flags);

/**
 * Gives what is at `from` another name. A symbolic link gets one itself.
 */
int holdfast_link(const struct holdfast_volume *volume, const char *from, const char *to);

/**
 * Makes a symbolic link at `path` that holds `target`.
 */
int holdfast_symlink(const struct holdfast_volume *volume, const char *target, const char *path);

/**
 * What a symbolic link holds, without a 0 behind it. Returns its length; ERANGE if that is more than `len`, and with
 * `len` 0 only the length.
 */
ssize_t holdfast_readlink(const struct holdfast_volume *volume, const char *path, void *into, size_t len);

/**
 * Cuts or extends the file at `path`.
 */
int holdfast_truncate(const struct holdfast_volume *volume, const char *path, uint64_t len);

/**
 * Sets permission bits, symbolic links followed.
 */
int holdfast_chmod(const struct holdfast_volume *volume, const char *path, unsigned int mode);

/**
 * Sets owner and group, of a symbolic link itself; UINT32_MAX leaves one as it is.
 */
int holdfast_chown(const struct holdfast_volume *volume, const char *path, uint32_t uid, uint32_t gid);

/**
 * Sets the times of the last access and the last change, of a symbolic link itself; NULL leaves one as it is.
 */
int holdfast_utimens(const struct holdfast_volume *volume,
                     const char *path,
                     const struct holdfast_time *atime,
                     const struct holdfast_time *mtime);

/**
 * The names in the directory at `path` are durable when this returns, as an fsync of it makes them (P2).
 */
int holdfast_fsync_dir(const struct holdfast_volume *volume, const char *path);

/**
 * The value of an extended attribute, symbolic links not followed. Returns its length; ERANGE if that is more than
 * `len`, and with `len` 0 only the length. ENODATA if there is none.
 */
ssize_t holdfast_getxattr(const struct holdfast_volume *volume,
                          const char *path,
                          const char *name,
                          void *into,
                          size_t len);

/**
 * Sets an extended attribute, symbolic links not followed. `flags`: 0, XATTR_CREATE or XATTR_REPLACE.
 */
int holdfast_setxattr(const struct holdfast_volume *volume,
                      const char *path,
                      const char *name,
                      const void *value,
                      size_t len,
                      int flags);

/**
 * The names of all extended attributes, each with a 0 behind it, symbolic links not followed. Returns their length;
 * ERANGE if that is more than `len`, and with `len` 0 only the length.
 */
ssize_t holdfast_listxattr(const struct holdfast_volume *volume, const char *path, void *into, size_t len);

/**
 * Removes an extended attribute, symbolic links not followed; ENODATA if there is none.
 */
int holdfast_removexattr(const struct holdfast_volume *volume, const char *path, const char *name);

/**
 * Makes a file of `size` bytes with an empty volume in it, and opens it. The file must not exist (EEXIST), and is
 * readable by its owner alone.
 */
struct holdfast_volume *holdfast_create(const char *host_path, uint64_t size);

/**
 * Opens the volume in a file or block device. `branch`: NULL for `main`; `snapshot`: one of that branch, which is only
 * read, or NULL for the branch itself. `flags`: 0, or HOLDFAST_READ_ONLY and HOLDFAST_NOT_THROUGH_MOUNT, joined by `|`. After a crash this
 * recovers the volume first: everything that was acknowledged is there (P1 to P5, P9). A volume that is mounted is reached through its mount, unless a
 * flag says otherwise: files, directories and locks, with the rights of the process; branches and snapshots for root and the user who has mounted (EACCES for others);
 * EOPNOTSUPP of holdfast_open_branch for what no mount shows. Where no mount shows `branch` or
 * `snapshot` this call says EBUSY. Calls about branches and snapshots wait for the daemon without an end, also for one that is stopped.
 */
struct holdfast_volume *holdfast_open(const char *host_path,
                                      const char *branch,
                                      const char *snapshot,
                                      unsigned int flags);

/**
 * Makes everything durable and closes the volume; the host file is free when the last branch of it that is open here
 * is closed. If this fails, what was not fsynced before is lost. The handle is gone in any case. NULL: nothing happens.
 * Files and directories that are still open answer EBADF; they are closed all the same.
 */
int holdfast_close(struct holdfast_volume *volume);

/**
 * Everything that any thread did before is durable when this returns (P1 to P3).
 */
int holdfast_sync(const struct holdfast_volume *volume);

/**
 * How full the volume is.
 */
int holdfast_statfs(const struct holdfast_volume *volume, struct holdfast_statfs_t *answer);

/**
 * Whether the volume has stopped after a write or flush that the device refused (P7): 1 or 0. Nothing becomes durable any more
 * then, and what is there can be read. It stays so until it is opened again. Through a
 * mount it is not known, and 0.
 */
int holdfast_has_stopped(const struct holdfast_volume *volume);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* HOLDFAST_H */
