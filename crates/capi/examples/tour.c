/* A tour of an image: makes a directory and files in it, reads them back, lists them, and reports an error as a sentence.
 *
 *   cc examples/tour.c $(pkg-config --cflags --libs extant) -o tour && ./tour disk.img
 */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "extant.h"

static void check(int64_t result, const char *what)
{
    if (result < 0) {
        fprintf(stderr, "%s: %s (error %" PRId64 ")\n", what, extant_message(), -result);
        exit(1);
    }
}

struct writer {
    extant_fs *fs;
    int number;
    int64_t result;
};

/* Each thread writes a file of its own. */
static void *write_one(void *argument)
{
    struct writer *writer = argument;
    char path[64], text[64];
    extant_file *file;

    snprintf(path, sizeof path, "/tour/thread-%d", writer->number);
    int length = snprintf(text, sizeof text, "written by thread %d\n", writer->number);
    writer->result = extant_file_open(writer->fs, path, EXTANT_O_WRITE | EXTANT_O_CREATE | EXTANT_O_EXCLUSIVE, 0640, &file);
    if (writer->result < 0)
        return NULL;
    writer->result = extant_file_write(file, text, (size_t)length, 0);
    if (writer->result == length)
        writer->result = extant_file_sync(file);
    extant_file_close(file);
    return NULL;
}

int main(int argc, char **argv)
{
    enum { THREADS = 4 };
    extant_fs *fs;
    extant_file *file;
    extant_dir *dir;
    struct extant_stat stat;
    struct extant_space space;
    struct extant_entry entry;
    struct extant_options options = { .size = sizeof options, .flags = EXTANT_WRITABLE };
    pthread_t threads[THREADS];
    struct writer writers[THREADS];
    char buffer[256];
    int64_t length;
    uint64_t at;
    int more;

    if (argc != 2) {
        fprintf(stderr, "usage: tour IMAGE\n");
        return 2;
    }
    check(extant_open(argv[1], &options, &fs), "open");
    check(extant_mkdir(fs, "/tour", 0755), "mkdir");

    for (int i = 0; i < THREADS; i++) {
        writers[i] = (struct writer){ .fs = fs, .number = i };
        if (pthread_create(&threads[i], NULL, write_one, &writers[i]) != 0)
            return 1;
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        check(writers[i].result, "thread");
    }

    check(extant_file_open(fs, "/tour/log", EXTANT_O_READ | EXTANT_O_APPEND | EXTANT_O_CREATE, 0644, &file), "open log");
    check(extant_file_append(file, "one\n", 4, NULL), "append");
    check(extant_file_append(file, "two\n", 4, &at), "append");
    length = extant_file_read(file, buffer, sizeof buffer, 0);
    check(length, "read");
    printf("log: %" PRId64 " bytes, the last line at %" PRIu64 "\n", length, at);
    check(extant_file_stat(file, &stat), "stat of an open file");
    printf("log: size %" PRIu64 ", mode %o\n", stat.size, (unsigned)stat.mode);
    extant_file_close(file);

    check(extant_symlink(fs, "log", "/tour/link"), "symlink");
    length = extant_readlink(fs, "/tour/link", buffer, sizeof buffer);
    check(length, "readlink");
    printf("link: %.*s\n", (int)length, buffer);
    check(extant_lsetxattr(fs, "/tour/log", "user.origin", "C", 1, EXTANT_XATTR_CREATE), "setxattr");
    check(extant_llistxattr(fs, "/tour/log", buffer, sizeof buffer), "listxattr");
    printf("attribute: %s\n", buffer);
    check(extant_rename(fs, "/tour/log", "/tour/log.1", EXTANT_RENAME_NO_REPLACE), "rename");

    check(extant_dir_open(fs, "/tour", &dir), "opendir");
    while ((more = extant_dir_next(dir, &entry)) > 0)
        printf("entry: %s %o\n", entry.name, (unsigned)entry.type);
    check(more, "readdir");
    extant_dir_close(dir);

    check(extant_statfs(fs, &space), "statfs");
    if (space.free == 0 || space.free > space.blocks)
        return 1;

    if (extant_stat(fs, "/tour/missing", &stat) != -ENOENT)
        return 1;
    printf("error: %s\n", extant_message());
    if (extant_mkdir(NULL, "/x", 0755) != -EINVAL)
        return 1;
    printf("error: %s\n", extant_message());

    check(extant_close(fs), "close");

    /* Once more, for reading only. */
    check(extant_open(argv[1], NULL, &fs), "open for reading");
    check(extant_file_open(fs, "/tour/log.1", EXTANT_O_READ, 0, &file), "open log");
    if (extant_mkdir(fs, "/tour/more", 0755) != -EROFS)
        return 1;
    check(extant_sync(fs), "sync of what is open for reading");
    check(extant_close(fs), "close");
    /* An open file can be read after that. */
    length = extant_file_read(file, buffer, sizeof buffer, 4);
    check(length, "read");
    printf("read: %.*s", (int)length, buffer);
    extant_file_close(file);
    return 0;
}
