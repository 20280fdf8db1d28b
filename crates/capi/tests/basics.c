/* What POSIX says of files and names, through the library: one check after the other, in the manner of pjdfstest. */
#define _GNU_SOURCE
#include <holdfast.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#define CHECK(what)                                                                                          \
    do {                                                                                                     \
        if (!(what)) {                                                                                       \
            fprintf(stderr, "%s:%d: %s: errno %d, %s\n", __FILE__, __LINE__, #what, errno, holdfast_error()); \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)
/* A call fails with this errno. */
#define FAILS(call, number) CHECK((errno = 0, (call) == -1) && errno == (number))
#define FAILS_NULL(call, number) CHECK((errno = 0, (call) == NULL) && errno == (number))

static void write_file(holdfast_volume *v, const char *path, const char *text) {
    holdfast_file *f = holdfast_file_open(v, path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    CHECK(f && holdfast_write(f, text, strlen(text)) == (ssize_t)strlen(text));
    CHECK(holdfast_file_close(f) == 0);
}

static int holds(holdfast_volume *v, const char *path, const char *text) {
    char found[64];
    memset(found, '#', sizeof found);
    holdfast_file *f = holdfast_file_open(v, path, O_RDONLY, 0);
    CHECK(f);
    ssize_t len = holdfast_read(f, found, sizeof found);
    CHECK(holdfast_file_close(f) == 0);
    /* What was not read is not touched. */
    CHECK(len == sizeof found || len == 0 || found[len] == '#');
    return len == (ssize_t)strlen(text) && memcmp(found, text, (size_t)len) == 0;
}

static void opening(holdfast_volume *v) {
    holdfast_stat_t about;
    FAILS_NULL(holdfast_file_open(v, "/none", O_RDONLY, 0), ENOENT);
    FAILS_NULL(holdfast_file_open(v, "/", O_RDONLY, 0), EISDIR);
    FAILS_NULL(holdfast_file_open(v, "/f", O_RDONLY | O_CREAT, 0644), EINVAL);
    FAILS_NULL(holdfast_file_open(v, "/f", O_WRONLY | O_RDWR, 0644), EINVAL);
    FAILS_NULL(holdfast_file_open(v, "/f", O_RDWR | O_CREAT | O_DIRECTORY, 0644), EINVAL);
    holdfast_file *f = holdfast_file_open(v, "/f", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    CHECK(f && holdfast_fstat(f, &about) == 0 && about.mode == (S_IFREG | 0600) && about.nlink == 1);
    FAILS_NULL(holdfast_file_open(v, "/f", O_RDWR | O_CREAT | O_EXCL, 0600), EEXIST);
    FAILS_NULL(holdfast_file_open(v, "/f/g", O_RDONLY, 0), ENOTDIR);
    CHECK(holdfast_write(f, "hello", 5) == 5 && holdfast_lseek(f, 0, SEEK_CUR) == 5);
    CHECK(holdfast_pwrite(f, "J", 1, 0) == 1 && holdfast_lseek(f, -2, SEEK_END) == 3);
    uint8_t two[2];
    CHECK(holdfast_read(f, two, 2) == 2 && memcmp(two, "lo", 2) == 0 && holdfast_read(f, two, 2) == 0);
    CHECK(holdfast_pread(f, two, 2, 0) == 2 && memcmp(two, "Je", 2) == 0);
    FAILS(holdfast_lseek(f, -9, SEEK_CUR), EINVAL);
    FAILS(holdfast_lseek(f, 0, 99), EINVAL);
    FAILS(holdfast_lseek(f, 100, SEEK_DATA), ENXIO);
    CHECK(holdfast_ftruncate(f, 1 << 20) == 0 && holdfast_lseek(f, 0, SEEK_HOLE) <= 1 << 20);
    CHECK(holdfast_fallocate(f, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) == 0);
    CHECK(holdfast_pread(f, two, 1, 0) == 1 && two[0] == 0);
    FAILS(holdfast_fallocate(f, FALLOC_FL_PUNCH_HOLE, 0, 4096), EOPNOTSUPP);
    CHECK(holdfast_fsync(f) == 0 && holdfast_fdatasync(f) == 0);
    CHECK(holdfast_file_close(f) == 0);
    f = holdfast_file_open(v, "/f", O_WRONLY | O_APPEND | O_TRUNC, 0);
    FAILS(holdfast_read(f, two, 1), EBADF);
    CHECK(holdfast_write(f, "a", 1) == 1 && holdfast_pwrite(f, "b", 1, 0) == 1);
    CHECK(holdfast_file_close(f) == 0 && holds(v, "/f", "ab"));
    f = holdfast_file_open(v, "/", O_RDWR | O_TMPFILE, 0644);
    CHECK(f && holdfast_write(f, "named later", 11) == 11);
    CHECK(holdfast_file_link(f, "/named") == 0 && holdfast_file_close(f) == 0 && holds(v, "/named", "named later"));
}

static void names(holdfast_volume *v) {
    holdfast_stat_t about, other;
    char longest[300];
    memset(longest, 'n', sizeof longest);
    longest[256] = 0;
    FAILS(holdfast_mkdir(v, longest, 0755), ENAMETOOLONG);
    longest[255] = 0;
    CHECK(holdfast_mkdir(v, longest, 0755) == 0 && holdfast_rmdir(v, longest) == 0);
    CHECK(holdfast_mkdir(v, "/d", 0750) == 0);
    FAILS(holdfast_mkdir(v, "/d", 0750), EEXIST);
    FAILS(holdfast_mkdir(v, "/none/d", 0750), ENOENT);
    FAILS(holdfast_mkdir(v, "", 0750), ENOENT);
    CHECK(holdfast_stat(v, "/d", 1, &about) == 0 && about.mode == (S_IFDIR | 0750) && about.nlink == 2);
    write_file(v, "/d/a", "a");
    FAILS(holdfast_rmdir(v, "/d"), ENOTEMPTY);
    FAILS(holdfast_rmdir(v, "/d/a"), ENOTDIR);
    FAILS(holdfast_unlink(v, "/d"), EISDIR);
    FAILS(holdfast_unlink(v, "/d/none"), ENOENT);
    CHECK(holdfast_link(v, "/d/a", "/d/b") == 0);
    CHECK(holdfast_stat(v, "/d/a", 1, &about) == 0 && holdfast_stat(v, "/d/b", 1, &other) == 0);
    CHECK(about.ino == other.ino && about.nlink == 2);
    FAILS(holdfast_link(v, "/d/a", "/d/b"), EEXIST);
    FAILS(holdfast_link(v, "/d", "/e"), EPERM);
    CHECK(holdfast_symlink(v, "a", "/d/link") == 0 && holds(v, "/d/link", "a"));
    CHECK(holdfast_stat(v, "/d/link", 0, &about) == 0 && S_ISLNK(about.mode) && about.size == 1);
    uint8_t target[8];
    CHECK(holdfast_readlink(v, "/d/link", target, sizeof target) == 1 && target[0] == 'a');
    CHECK(holdfast_readlink(v, "/d/link", NULL, 0) == 1);
    FAILS(holdfast_readlink(v, "/d/a", target, sizeof target), EINVAL);
    FAILS_NULL(holdfast_file_open(v, "/d/link", O_RDONLY | O_NOFOLLOW, 0), ELOOP);
    CHECK(holdfast_symlink(v, "loop", "/loop") == 0);
    FAILS(holdfast_stat(v, "/loop", 1, &about), ELOOP);
    CHECK(holdfast_unlink(v, "/loop") == 0);

    write_file(v, "/x", "x");
    write_file(v, "/y", "y");
    FAILS(holdfast_rename(v, "/x", "/y", HOLDFAST_RENAME_NOREPLACE), EEXIST);
    CHECK(holdfast_rename(v, "/x", "/y", HOLDFAST_RENAME_EXCHANGE) == 0 && holds(v, "/x", "y"));
    CHECK(holdfast_rename(v, "/x", "/y", 0) == 0 && holds(v, "/y", "y"));
    FAILS(holdfast_stat(v, "/x", 1, &about), ENOENT);
    FAILS(holdfast_rename(v, "/d", "/d/in", 0), EINVAL);
    FAILS(holdfast_rename(v, "/y", "/d", 0), EISDIR);
    FAILS(holdfast_rename(v, "/d", "/y", 0), ENOTDIR);
    FAILS(holdfast_rename(v, "/y", "/z", 8), EINVAL);

    int seen = 0, n;
    holdfast_dirent_t entry;
    holdfast_dir *d = holdfast_opendir(v, "/d");
    CHECK(d);
    /* A place that is none costs no name. */
    FAILS(holdfast_readdir(d, NULL), EINVAL);
    while ((n = holdfast_readdir(d, &entry)) == 1) {
        CHECK(!strcmp(entry.name, "a") || !strcmp(entry.name, "b") || !strcmp(entry.name, "link"));
        CHECK(S_ISLNK(entry.mode) == !strcmp(entry.name, "link"));
        seen++;
    }
    CHECK(n == 0 && seen == 3 && holdfast_closedir(d) == 0);
    FAILS_NULL(holdfast_opendir(v, "/y"), ENOTDIR);
    CHECK(holdfast_fsync_dir(v, "/d") == 0);
}

static void attributes(holdfast_volume *v) {
    holdfast_stat_t about;
    holdfast_time before = {-5, 7}, wrong = {0, 1000000000};
    write_file(v, "/attributes", "x");
    CHECK(holdfast_chmod(v, "/attributes", 0440) == 0 && holdfast_chown(v, "/attributes", 7, UINT32_MAX) == 0);
    CHECK(holdfast_utimens(v, "/attributes", NULL, &before) == 0);
    FAILS(holdfast_utimens(v, "/attributes", &wrong, NULL), EINVAL);
    CHECK(holdfast_stat(v, "/attributes", 1, &about) == 0);
    CHECK(about.mode == (S_IFREG | 0440) && about.uid == 7 && about.gid == 0);
    CHECK(about.mtime.sec == -5 && about.mtime.nsec == 7 && about.size == 1);
    CHECK(holdfast_truncate(v, "/attributes", 100) == 0 && holdfast_stat(v, "/attributes", 1, &about) == 0 && about.size == 100);
    uint8_t value[16];
    CHECK(holdfast_setxattr(v, "/attributes", "user.colour", "green", 5, XATTR_CREATE) == 0);
    FAILS(holdfast_setxattr(v, "/attributes", "user.colour", "red", 3, XATTR_CREATE), EEXIST);
    CHECK(holdfast_getxattr(v, "/attributes", "user.colour", value, sizeof value) == 5 && !memcmp(value, "green", 5));
    FAILS(holdfast_getxattr(v, "/attributes", "user.colour", value, 4), ERANGE);
    FAILS(holdfast_getxattr(v, "/attributes", "user.none", value, 4), ENODATA);
    CHECK(holdfast_listxattr(v, "/attributes", value, sizeof value) == 12 && !strcmp((char *)value, "user.colour"));
    CHECK(holdfast_removexattr(v, "/attributes", "user.colour") == 0);
    CHECK(holdfast_listxattr(v, "/attributes", NULL, 0) == 0);
}

static void locks(holdfast_volume *v) {
    write_file(v, "/lock", "");
    holdfast_file *one = holdfast_file_open(v, "/lock", O_RDONLY, 0);
    holdfast_file *two = holdfast_file_open(v, "/lock", O_RDONLY, 0);
    CHECK(holdfast_flock(one, LOCK_EX) == 0);
    FAILS(holdfast_flock(two, LOCK_SH | LOCK_NB), EWOULDBLOCK);
    FAILS(holdfast_flock(two, 77), EINVAL);
    CHECK(holdfast_flock(one, LOCK_UN) == 0 && holdfast_flock(two, LOCK_SH | LOCK_NB) == 0);
    CHECK(holdfast_file_close(two) == 0 && holdfast_flock(one, LOCK_EX | LOCK_NB) == 0);
    CHECK(holdfast_file_close(one) == 0);
}

static int gather(void *context, const char *name) {
    strcat(strcat(context, name), " ");
    return strcmp(name, "enough") == 0 ? 42 : 0;
}

static void branches(holdfast_volume *v) {
    char list[200] = "";
    write_file(v, "/branch", "first");
    CHECK(holdfast_snapshot(v, NULL, "one") == 0);
    FAILS(holdfast_snapshot(v, NULL, "one"), EEXIST);
    write_file(v, "/branch", "second");
    CHECK(holdfast_fork(v, NULL, "one", "trial") == 0 && holdfast_fork(v, "main", NULL, "enough") == 0);
    holdfast_volume *trial = holdfast_open_branch(v, "trial", NULL);
    CHECK(trial && holds(trial, "/branch", "first"));
    FAILS_NULL(holdfast_open_branch(v, "trial", NULL), EBUSY);
    FAILS_NULL(holdfast_open_branch(v, "none", NULL), ENOENT);
    holdfast_volume *one = holdfast_open_branch(v, NULL, "one");
    CHECK(one && holds(one, "/branch", "first"));
    FAILS_NULL(holdfast_file_open(one, "/branch", O_WRONLY, 0), EROFS);
    CHECK(holdfast_close(one) == 0 && holdfast_close(trial) == 0);
    CHECK(holdfast_branches(v, gather, list) == 42 && !strcmp(list, "main trial enough "));
    list[0] = 0;
    CHECK(holdfast_snapshots(v, NULL, gather, list) == 0 && !strcmp(list, "one "));
    FAILS(holdfast_branches(v, NULL, NULL), EINVAL);
    FAILS(holdfast_promote(v, NULL, "trial", NULL), EAGAIN);
    CHECK(holdfast_rollback(v, NULL, "one", "two") == 0 && holds(v, "/branch", "first"));
    FAILS(holdfast_delete(v, NULL, NULL), EINVAL);
    CHECK(holdfast_delete(v, "trial", NULL) == 0 && holdfast_delete(v, "enough", NULL) == 0);
    CHECK(holdfast_delete(v, NULL, "two") == 0 && holdfast_delete(v, NULL, "one") == 0);
    FAILS(holdfast_delete(v, "main", NULL), EBUSY);
    CHECK(holdfast_fork(v, NULL, NULL, "better") == 0);
    trial = holdfast_open_branch(v, "better", NULL);
    write_file(trial, "/branch", "better");
    FAILS(holdfast_promote(v, NULL, "better", NULL), EBUSY);
    CHECK(holdfast_close(trial) == 0 && holdfast_promote(v, NULL, "better", NULL) == 0);
    CHECK(holds(v, "/branch", "better"));
}

static void null(void) {
    holdfast_stat_t about;
    FAILS_NULL(holdfast_open(NULL, NULL, NULL, 0), EINVAL);
    FAILS_NULL(holdfast_create(NULL, 64 << 20), EINVAL);
    FAILS_NULL(holdfast_file_open(NULL, "/f", O_RDONLY, 0), EINVAL);
    FAILS(holdfast_stat(NULL, "/f", 1, &about), EINVAL);
    FAILS(holdfast_read(NULL, NULL, 1), EINVAL);
    FAILS(holdfast_fsync(NULL), EINVAL);
    FAILS(holdfast_sync(NULL), EINVAL);
    FAILS(holdfast_has_stopped(NULL), EINVAL);
    FAILS(holdfast_readdir(NULL, NULL), EINVAL);
    CHECK(strstr(holdfast_error(), "NULL"));
    CHECK(holdfast_close(NULL) == 0 && holdfast_file_close(NULL) == 0 && holdfast_closedir(NULL) == 0);
}

static holdfast_volume *shared;

static void *thread(void *argument) {
    char path[64], text[64];
    for (int n = 0; n < 50; n++) {
        snprintf(path, sizeof path, "/thread-%s-%d", (char *)argument, n);
        snprintf(text, sizeof text, "%s of %d", (char *)argument, n);
        write_file(shared, path, text);
        CHECK(holds(shared, path, text));
        /* The errno and the sentence are this thread's. */
        FAILS(holdfast_unlink(shared, argument), ENOENT);
    }
    return NULL;
}

int main(int argc, char **argv) {
    holdfast_statfs_t space;
    uint8_t byte;
    CHECK(argc == 2);
    CHECK(strcmp(holdfast_error(), "") == 0 && strlen(holdfast_version()) > 0);
    null();
    holdfast_volume *v = holdfast_create(argv[1], 64 << 20);
    CHECK(v);
    FAILS_NULL(holdfast_create(argv[1], 64 << 20), EEXIST);
    FAILS_NULL(holdfast_open(argv[1], NULL, NULL, 0), EBUSY);
    CHECK(strstr(holdfast_error(), "in use by"));
    FAILS_NULL(holdfast_open(argv[1], NULL, NULL, 8), EINVAL);
    FAILS_NULL(holdfast_open(argv[0], NULL, NULL, HOLDFAST_READ_ONLY), EUCLEAN);
    FAILS(holdfast_stat(v, NULL, 1, NULL), EINVAL);
    FAILS(holdfast_stat(v, "/", 1, NULL), EINVAL);
    CHECK(holdfast_statfs(v, &space) == 0 && space.block_size == 4096 && space.blocks_available > 1000);
    opening(v);
    names(v);
    attributes(v);
    locks(v);
    branches(v);
    shared = v;
    pthread_t threads[4];
    char *called[] = {"0", "1", "2", "3"};
    for (int n = 0; n < 4; n++) CHECK(pthread_create(&threads[n], NULL, thread, called[n]) == 0);
    for (int n = 0; n < 4; n++) CHECK(pthread_join(threads[n], NULL) == 0);
    CHECK(holdfast_sync(v) == 0 && holdfast_has_stopped(v) == 0);
    /* Handles may outlive their volume, and say so. */
    holdfast_file *f = holdfast_file_open(v, "/f", O_RDWR, 0);
    holdfast_dir *d = holdfast_opendir(v, "/");
    CHECK(f && d && holdfast_close(v) == 0);
    FAILS(holdfast_read(f, &byte, 1), EBADF);
    FAILS(holdfast_fsync(f), EBADF);
    CHECK(holdfast_file_close(f) == 0 && holdfast_closedir(d) == 0);

    FAILS_NULL(holdfast_open(argv[1], NULL, NULL, HOLDFAST_NOT_THROUGH_MOUNT << 1), EINVAL);
    v = holdfast_open(argv[1], NULL, NULL, HOLDFAST_READ_ONLY | HOLDFAST_NOT_THROUGH_MOUNT);
    CHECK(v && holds(v, "/thread-3-49", "3 of 49"));
    FAILS(holdfast_mkdir(v, "/new", 0755), EROFS);
    CHECK(holdfast_close(v) == 0);
    puts("passed");
    return 0;
}
