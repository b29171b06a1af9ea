/* Journals on devices of their own.
 *
 *   journal read IMAGE JOURNAL PATH             prints a file
 *   journal check IMAGE JOURNAL                 prints how many errors there are; "-" for no journal
 *   journal add IMAGE JOURNAL MAJOR MINOR
 *   journal remove IMAGE JOURNAL                "-" where the device is lost
 *
 * Failures are printed with their numbers, and the program exits with 1.
 */
#define _POSIX_C_SOURCE 200809L

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "extant.h"

static void check(int64_t result, const char *what)
{
    if (result >= 0)
        return;
    printf("%s: error %" PRId64 " kind %" PRIu32 ": %s\n", what, -result, extant_error_kind(), extant_message());
    exit(1);
}

static extant_device *open_device(const char *image, uint32_t flags)
{
    struct extant_options options = { .size = sizeof options, .flags = flags };
    extant_device *device;
    /* As libraries open files. */
    int fd = open(image, (flags & EXTANT_WRITABLE ? O_RDWR : O_RDONLY) | O_CLOEXEC);

    if (fd < 0)
        exit(3);
    check(extant_device_from_fd(fd, &options, &device), "open");
    close(fd);
    return device;
}

int main(int argc, char **argv)
{
    struct extant_options options = { .size = sizeof options };
    extant_device *device, *journal = NULL;
    extant_report *report;
    extant_file *file;
    extant_fs *fs;
    char text[64];
    int64_t n;

    if (argc < 4)
        return 2;
    const char *what = argv[1];
    int writes = strcmp(what, "add") == 0 || strcmp(what, "remove") == 0;
    if (strcmp(argv[3], "-") != 0) {
        /* Block devices are named. */
        struct extant_options how = { .size = sizeof how, .flags = writes ? EXTANT_WRITABLE : 0 };
        check(extant_device_open(argv[3], &how, &journal), "journal");
    }
    if (strcmp(what, "read") == 0) {
        options.journal = journal;
        check(extant_open(argv[2], &options, &fs), "open");
        extant_device_close(journal);
        check(extant_file_open(fs, argv[4], EXTANT_O_READ, 0, &file), "file");
        while ((n = extant_file_read(file, text, sizeof text, 0)) > 0) {
            printf("%.*s", (int)n, text);
            break;
        }
        check(n, "read");
        extant_file_close(file);
        check(extant_close(fs), "close");
        return 0;
    }
    device = open_device(argv[2], writes ? EXTANT_WRITABLE : 0);
    if (strcmp(what, "check") == 0) {
        if (journal == NULL)
            check(extant_check(device, 0, NULL, &report), "check");
        else
            check(extant_check_with_journal(device, journal, 0, NULL, &report), "check");
        printf("errors %" PRIu64 "\n", extant_report_summary(report)->errors);
        extant_report_close(report);
    } else if (strcmp(what, "add") == 0) {
        check(extant_add_journal(device, journal, (uint32_t)atoi(argv[4]), (uint32_t)atoi(argv[5]), NULL), "add");
    } else if (strcmp(what, "remove") == 0) {
        check(extant_remove_journal(device, journal, NULL), "remove");
    } else {
        return 2;
    }
    extant_device_close(device);
    extant_device_close(journal);
    return 0;
}
