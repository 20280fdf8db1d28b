/* Appends records, each with an fsync, and says of each when it is durable. Made to be killed at any moment:
 * `records IMAGE` writes, `records IMAGE N` verifies that the first N are there. */
#include <holdfast.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RECORD = 700 };

static void record(unsigned number, uint8_t *into) {
    memset(into, 'a' + number % 26, RECORD);
    snprintf((char *)into, RECORD, "%u", number);
}

static int fail(const char *what) {
    fprintf(stderr, "%s: %s\n", what, holdfast_error());
    return 1;
}

static int verify(holdfast_volume *volume, unsigned count) {
    uint8_t wanted[RECORD], found[RECORD];
    holdfast_file *file = holdfast_file_open(volume, "records", O_RDONLY, 0);
    if (!file) return fail("open");
    for (unsigned number = 0; number < count; number++) {
        record(number, wanted);
        ssize_t len = holdfast_pread(file, found, RECORD, (uint64_t)number * RECORD);
        if (len != RECORD || memcmp(found, wanted, RECORD) != 0) {
            fprintf(stderr, "record %u is lost: %zd\n", number, len);
            return 1;
        }
        char name[32];
        holdfast_stat_t about;
        snprintf(name, sizeof name, "file-%u", number);
        if (holdfast_stat(volume, name, 1, &about) != 0) return fail(name);
    }
    holdfast_file_close(file);
    return 0;
}

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    holdfast_volume *volume = holdfast_open(argv[1], NULL, NULL, 0);
    if (!volume && errno == ENOENT) volume = holdfast_create(argv[1], 256 << 20);
    if (!volume) return fail("open the volume");
    if (argc > 2) {
        int wrong = verify(volume, (unsigned)strtoul(argv[2], NULL, 10));
        if (holdfast_close(volume) != 0) return fail("close");
        return wrong;
    }
    holdfast_file *file = holdfast_file_open(volume, "records", O_RDWR | O_CREAT | O_APPEND, 0600);
    if (!file) return fail("open");
    uint8_t bytes[RECORD];
    int64_t end = holdfast_lseek(file, 0, SEEK_END);
    if (end < 0) return fail("lseek");
    /* A killed run may have left part of a record, which was never acknowledged. */
    unsigned number = (unsigned)(end / RECORD);
    if (holdfast_ftruncate(file, (uint64_t)number * RECORD) != 0) return fail("ftruncate");
    for (;; number++) {
        char name[32];
        record(number, bytes);
        snprintf(name, sizeof name, "file-%u", number);
        holdfast_file *beside = holdfast_file_open(volume, name, O_WRONLY | O_CREAT, 0600);
        if (!beside) return fail(name);
        if (holdfast_write(beside, bytes, RECORD) != RECORD) return fail("write beside");
        if (holdfast_fsync(beside) != 0) return fail("fsync beside");
        holdfast_file_close(beside);
        if (holdfast_write(file, bytes, RECORD) != RECORD) return fail("write");
        if (holdfast_fdatasync(file) != 0) return fail("fdatasync");
        printf("%u\n", number + 1);
        fflush(stdout);
    }
}
