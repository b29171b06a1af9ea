/* Uses an image by its address.
 *
 *   address read ADDRESS     prints the file /in
 *   address write ADDRESS    writes /out, syncs it, and closes the file system
 *   address abandon ADDRESS  writes /out, syncs it, and ends without closing anything
 *   address commit ADDRESS   writes /out in a transaction, and commits that
 *   address forget ADDRESS   writes /out in a transaction, and closes the file system
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "extant.h"

enum { LINES = 40000, LINE = 16 };

static void check(int64_t result, const char *what)
{
    if (result < 0) {
        fprintf(stderr, "%s: %s (error %" PRId64 ")\n", what, extant_message(), -result);
        exit(1);
    }
}

static void print(const extant_fs *fs)
{
    char buffer[65536];
    extant_file *file;
    int64_t length;
    uint64_t at = 0;

    check(extant_file_open(fs, "/in", EXTANT_O_READ, 0, &file), "open");
    while ((length = extant_file_read(file, buffer, sizeof buffer, at)) > 0) {
        fwrite(buffer, 1, (size_t)length, stdout);
        at += (uint64_t)length;
    }
    check(length, "read");
    extant_file_close(file);
}

/* Lines of LINE bytes, from the last one to the first. */
static void write_out(const extant_fs *fs)
{
    char line[2 * LINE];
    extant_file *file;

    check(extant_file_open(fs, "/out", EXTANT_O_WRITE | EXTANT_O_CREATE | EXTANT_O_EXCLUSIVE, 0640, &file), "create");
    for (int n = LINES - 1; n >= 0; n--) {
        snprintf(line, sizeof line, "line %10d\n", n);
        if (extant_file_write(file, line, LINE, (uint64_t)n * LINE) != LINE) {
            fprintf(stderr, "write: %s\n", extant_message());
            exit(1);
        }
    }
    check(extant_file_sync(file), "sync");
    extant_file_close(file);
}

int main(int argc, char **argv)
{
    struct extant_options options = { .size = sizeof options };
    extant_fs *fs;

    if (argc != 3)
        return 2;
    if (strcmp(argv[1], "commit") == 0 || strcmp(argv[1], "forget") == 0)
        options.flags = EXTANT_TRANSACTION;
    else if (strcmp(argv[1], "read") != 0)
        options.flags = EXTANT_WRITABLE;
    check(extant_open(argv[2], &options, &fs), "open");
    if (strcmp(argv[1], "read") == 0)
        print(fs);
    else
        write_out(fs);
    if (strcmp(argv[1], "abandon") == 0)
        _exit(0);
    if (strcmp(argv[1], "commit") == 0)
        check(extant_commit(fs), "commit");
    else
        check(extant_close(fs), "close");
    return 0;
}
