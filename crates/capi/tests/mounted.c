/* A volume that is mounted is reached through its mount, unless that is not wanted. Arguments: the image, and where it is mounted. */
#include <holdfast.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(what)                                                                                          \
    do {                                                                                                     \
        if (!(what)) {                                                                                       \
            fprintf(stderr, "%s:%d: %s: errno %d, %s\n", __FILE__, __LINE__, #what, errno, holdfast_error()); \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)

static int count(void *counted, const char *name) {
    CHECK(name[0] != 0);
    ++*(int *)counted;
    return 0;
}

int main(int argc, char **argv) {
    CHECK(argc == 3);
    errno = 0;
    CHECK(holdfast_open(argv[1], NULL, NULL, HOLDFAST_NOT_THROUGH_MOUNT) == NULL && errno == EBUSY);
    CHECK(strstr(holdfast_error(), argv[2]));
    holdfast_volume *v = holdfast_open(argv[1], NULL, NULL, 0);
    CHECK(v);
    holdfast_file *f = holdfast_file_open(v, "/from-c", O_WRONLY | O_CREAT, 0644);
    CHECK(f && holdfast_write(f, "through the mount", 17) == 17);
    CHECK(holdfast_file_close(f) == 0);

    /* Its daemon is asked for branches and snapshots. */
    int snapshots = 0;
    CHECK(holdfast_snapshot(v, NULL, "s") == 0 && holdfast_snapshots(v, NULL, count, &snapshots) == 0 && snapshots == 1);
    errno = 0;
    CHECK(holdfast_snapshot(v, NULL, "s") == -1 && errno == EEXIST);
    holdfast_volume *was = holdfast_open_branch(v, NULL, "s");
    CHECK(was && holdfast_mkdir(was, "/d", 0755) == -1 && errno == EROFS && holdfast_close(was) == 0);
    CHECK(holdfast_fork(v, NULL, "s", "fork") == 0);
    CHECK(holdfast_open_branch(v, "fork", NULL) == NULL && errno == EOPNOTSUPP && strstr(holdfast_error(), "holdfast mount"));
    CHECK(holdfast_mkdir(v, "/after-s", 0755) == 0);
    CHECK(holdfast_rollback(v, NULL, "s", NULL) == 0);
    struct holdfast_stat_t attr;
    CHECK(holdfast_stat(v, "/after-s", 1, &attr) == -1 && errno == ENOENT && holdfast_stat(v, "/from-c", 1, &attr) == 0);
    CHECK(holdfast_delete(v, "fork", NULL) == 0 && holdfast_delete(v, NULL, "s") == 0);
    CHECK(holdfast_delete(v, NULL, "s") == -1 && errno == ENOENT);
    CHECK(holdfast_close(v) == 0);
    return 0;
}
