/* Makes, checks and changes file systems that are not open.
 *
 *   upkeep mkfs IMAGE [NAME=VALUE...]   makes an image at a path
 *   upkeep memory IMAGE                 makes one on a device of functions, writes to it, and stores it
 *   upkeep check IMAGE                  prints what a check finds
 *   upkeep repair IMAGE FLAGS [UNDO]    prints what a repair mends
 *   upkeep revert IMAGE UNDO
 *   upkeep resize IMAGE BYTES [UNDO]    prints the new size
 *   upkeep minimum IMAGE
 *   upkeep tune IMAGE [NAME=VALUE...]
 *   upkeep get IMAGE NAME               prints a setting
 *   upkeep end IMAGE                    ends checks, by a token and by what progress returns
 *   upkeep rounds IMAGE                 makes it as small as one round does, and ends the next; prints the new size
 *
 * Failures are printed with their numbers, and the program exits with 1.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "extant.h"

static int failed(int64_t result, const char *what)
{
    if (result >= 0)
        return 0;
    printf("%s: error %" PRId64 " kind %" PRIu32 ": %s\n", what, -result, extant_error_kind(), extant_message());
    return 1;
}

static void check(int64_t result, const char *what)
{
    if (failed(result, what))
        exit(1);
}

/* A device in an array. */

struct disk {
    unsigned char *bytes;
    size_t size;
    int released;
    int reads;
};

static int disk_read(void *user, void *buffer, size_t length, uint64_t offset)
{
    struct disk *disk = user;

    disk->reads++;
    memcpy(buffer, disk->bytes + offset, length);
    return 0;
}

static int disk_write(void *user, const void *buffer, size_t length, uint64_t offset)
{
    memcpy(((struct disk *)user)->bytes + offset, buffer, length);
    return 0;
}

static int disk_zero(void *user, uint64_t offset, uint64_t length)
{
    memset(((struct disk *)user)->bytes + offset, 0, (size_t)length);
    return 0;
}

static int disk_capacity(void *user, uint64_t *bytes)
{
    *bytes = ((struct disk *)user)->size;
    return 0;
}

static void disk_release(void *user)
{
    ((struct disk *)user)->released++;
}

static int disk_broken(void *user, void *buffer, size_t length, uint64_t offset)
{
    (void)user, (void)buffer, (void)length, (void)offset;
    return -ETIMEDOUT;
}

static extant_device *open_device(const char *image, uint32_t flags)
{
    struct extant_options options = { .size = sizeof options, .flags = flags };
    extant_device *device;
    int fd = open(image, flags & EXTANT_WRITABLE ? O_RDWR : O_RDONLY);

    if (fd < 0)
        exit(3);
    check(extant_device_from_fd(fd, &options, &device), "open");
    close(fd);
    return device;
}

static void print_list(const extant_report *report, uint32_t list, const char *what)
{
    const struct extant_finding *found;

    for (size_t i = 0; (found = extant_report_entry(report, list, i)) != NULL; i++)
        printf("%s %s severity %" PRIu32 ": %s\n", what, found->code, found->severity, found->text);
}

static void print_report(const extant_report *report)
{
    const struct extant_summary *summary = extant_report_summary(report);

    print_list(report, EXTANT_FIXES, "fix");
    print_list(report, EXTANT_LOSSES, "loss");
    print_list(report, EXTANT_FINDINGS, "finding");
    printf("clean %" PRIu32 " errors %" PRIu64 " inodes %" PRIu64 " fixes %" PRIu64 " written %" PRIu32 "\n", summary->clean,
           summary->errors, summary->inodes, summary->fixes, summary->written);
}

static int count(void *user, const char *what, uint64_t done, uint64_t total)
{
    if (what[0] == 0 || (total != 0 && done > total))
        exit(4);
    ++*(int *)user;
    return 0;
}

static int refuse(void *user, const char *what, uint64_t done, uint64_t total)
{
    (void)user, (void)what, (void)done, (void)total;
    return 1;
}

static void memory(const char *image)
{
    static const char *const settings[] = { "label=memory", "block-size=1K", "features=^resize_inode", NULL };
    static unsigned char piece[1 << 20];
    struct disk disk = { .size = 32 << 20 };
    struct extant_device_ops ops = { .size = sizeof ops,
                                     .read = disk_read,
                                     .write = disk_write,
                                     .zero = disk_zero,
                                     .capacity = disk_capacity,
                                     .release = disk_release };
    struct extant_options options = { .size = sizeof options, .flags = EXTANT_WRITABLE };
    int told = 0;
    struct extant_watch watch = { .size = sizeof watch, .progress = count, .user = &told };
    extant_device *device;
    extant_report *report;
    extant_fs *fs;
    extant_file *file;
    FILE *out;

    disk.bytes = malloc(disk.size);
    memset(disk.bytes, 0xaa, disk.size);
    check(extant_device_from_ops(&ops, &disk, &device), "device");
    if (extant_device_size(device) != (int64_t)disk.size)
        exit(5);
    if (extant_open_device(device, NULL, &fs) != -EMEDIUMTYPE || extant_error_kind() != EXTANT_ERROR_NOT_EXT4)
        exit(6);
    check(extant_mkfs_device(device, settings, &watch), "mkfs");
    check(extant_open_device(device, &options, &fs), "open");
    extant_device_close(device);
    check(extant_file_open(fs, "/hello", EXTANT_O_WRITE | EXTANT_O_CREATE, 0600, &file), "create");
    if (extant_file_write(file, "from memory\n", 12, 0) != 12)
        exit(7);
    extant_file_close(file);
    check(extant_file_open(fs, "/large", EXTANT_O_WRITE | EXTANT_O_CREATE, 0600, &file), "create");
    if (extant_file_write(file, piece, sizeof piece, 0) != sizeof piece)
        exit(15);
    extant_file_close(file);
    check(extant_close(fs), "close");
    if (disk.released != 1)
        exit(8);

    ops.release = NULL;
    ops.write = NULL;
    check(extant_device_from_ops(&ops, &disk, &device), "device");
    check(extant_open_device(device, NULL, &fs), "open");
    check(extant_file_open(fs, "/large", EXTANT_O_READ, 0, &file), "open");
    /* Blocks that lie together are read together, not one by one. */
    disk.reads = 0;
    if (extant_file_read(file, piece, sizeof piece, 0) != sizeof piece || disk.reads > 64)
        exit(16);
    extant_file_close(file);
    check(extant_close(fs), "close");
    check(extant_check(device, 0, &watch, &report), "check");
    print_report(report);
    extant_report_close(report);
    if (extant_open_device(device, &options, &fs) != -EROFS)
        exit(9);
    if (extant_tune(device, settings, NULL) != -EINVAL)
        exit(10);
    extant_device_close(device);
    ops.read = disk_broken;
    check(extant_device_from_ops(&ops, &disk, &device), "device");
    if (extant_check(device, 0, NULL, &report) != -ETIMEDOUT || extant_error_kind() != EXTANT_ERROR_DEVICE || report != NULL)
        exit(11);
    extant_device_close(device);
    if (told < 2)
        exit(12);

    out = fopen(image, "wb");
    if (out == NULL || fwrite(disk.bytes, 1, disk.size, out) != disk.size || fclose(out) != 0)
        exit(13);
    free(disk.bytes);
}

static void end(const char *image)
{
    struct extant_watch watch = { .size = sizeof watch };
    extant_device *device = open_device(image, 0);
    extant_report *report;
    extant_token *token;

    check(extant_token_new(&token), "token");
    watch.token = token;
    check(extant_check(device, 0, &watch, &report), "check");
    extant_report_close(report);
    extant_token_cancel(token);
    failed(extant_check(device, 0, &watch, &report), "token");
    extant_token_close(token);
    watch.token = NULL;
    watch.progress = refuse;
    failed(extant_check(device, 0, &watch, &report), "progress");
    if (report != NULL)
        exit(14);
    extant_device_close(device);
}

/* Ends work once the file system has another size than at first. */
static int end_when_smaller(void *user, const char *what, uint64_t done, uint64_t total)
{
    static char first[32], now[32];
    char *to = first[0] == 0 ? first : now;
    int64_t length = extant_setting(user, "blocks", to, sizeof first - 1);

    (void)what, (void)done, (void)total;
    if (length < 0)
        exit(17);
    to[length] = 0;
    return now[0] != 0 && strcmp(first, now) != 0;
}

static void rounds(const char *image)
{
    struct extant_watch watch = { .size = sizeof watch, .progress = end_when_smaller };
    extant_device *device = open_device(image, EXTANT_WRITABLE);
    uint64_t bytes;

    watch.user = device;
    check(extant_resize(device, EXTANT_MINIMUM, &watch, &bytes), "resize");
    printf("%" PRIu64 "\n", bytes);
    extant_device_close(device);
}

int main(int argc, char **argv)
{
    extant_device *device;
    extant_report *report;
    char value[256];
    uint64_t bytes;
    int64_t length;

    if (argc < 3)
        return 2;
    const char *what = argv[1], *image = argv[2];
    const char *const *settings = (const char *const *)argv + 3;
    if (strcmp(what, "mkfs") == 0) {
        check(extant_mkfs(image, settings, NULL), "mkfs");
    } else if (strcmp(what, "memory") == 0) {
        memory(image);
    } else if (strcmp(what, "end") == 0) {
        end(image);
    } else if (strcmp(what, "rounds") == 0) {
        rounds(image);
    } else if (strcmp(what, "check") == 0) {
        device = open_device(image, 0);
        check(extant_check(device, 0, NULL, &report), "check");
        extant_device_close(device);
        print_report(report);
        extant_report_close(report);
    } else if (strcmp(what, "repair") == 0) {
        device = open_device(image, EXTANT_WRITABLE);
        check(extant_repair(device, (uint32_t)atoi(argv[3]), argc > 4 ? argv[4] : NULL, NULL, &report), "repair");
        print_report(report);
        extant_report_close(report);
        extant_device_close(device);
    } else if (strcmp(what, "revert") == 0) {
        device = open_device(image, EXTANT_WRITABLE);
        check(extant_revert(device, argv[3]), "revert");
        extant_device_close(device);
    } else if (strcmp(what, "resize") == 0) {
        device = open_device(image, EXTANT_WRITABLE);
        bytes = strtoull(argv[3], NULL, 10);
        if (argc > 4)
            check(extant_resize_with_undo(device, bytes, argv[4], NULL, &bytes), "resize");
        else
            check(extant_resize(device, bytes, NULL, &bytes), "resize");
        printf("%" PRIu64 "\n", bytes);
        extant_device_close(device);
    } else if (strcmp(what, "minimum") == 0) {
        device = open_device(image, 0);
        check(extant_minimum(device, NULL, &bytes), "minimum");
        printf("%" PRIu64 "\n", bytes);
        extant_device_close(device);
    } else if (strcmp(what, "tune") == 0) {
        device = open_device(image, EXTANT_WRITABLE);
        check(extant_tune(device, settings, NULL), "tune");
        extant_device_close(device);
    } else if (strcmp(what, "get") == 0) {
        device = open_device(image, 0);
        length = extant_setting(device, argv[3], value, sizeof value);
        check(length, "get");
        printf("%.*s\n", (int)length, value);
        extant_device_close(device);
    } else {
        return 2;
    }
    return 0;
}
