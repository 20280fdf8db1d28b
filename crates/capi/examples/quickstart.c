/* A volume in a file, a file in the volume, and a name that changes in one step. */
#include <holdfast.h>

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

static int fail(const char *what) {
    fprintf(stderr, "%s: %s\n", what, holdfast_error());
    return 1;
}

int main(int argc, char **argv) {
    const char text[] = "held fast\n";
    if (argc != 2) return 2;
    holdfast_volume *volume = holdfast_create(argv[1], 64 << 20);
    if (!volume) return fail("create");
    if (holdfast_mkdir(volume, "/notes", 0755) != 0) return fail("mkdir");
    holdfast_file *file = holdfast_file_open(volume, "/notes/draft", O_RDWR | O_CREAT, 0644);
    if (!file) return fail("open");
    if (holdfast_write(file, text, strlen(text)) < 0) return fail("write");
    if (holdfast_fsync(file) != 0) return fail("fsync"); /* survives any crash from here on */
    holdfast_file_close(file);
    if (holdfast_rename(volume, "/notes/draft", "/notes/final", 0) != 0) return fail("rename");
    if (holdfast_snapshot(volume, NULL, "first") != 0) return fail("snapshot");
    if (holdfast_close(volume) != 0) return fail("close");
    puts("done");
    return 0;
}
