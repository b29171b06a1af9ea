/* What programs do wrong, as far as it can be noticed: each is an error, and nothing else happens.
 *
 *   misuse IMAGE
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "extant.h"

static void refused(int64_t result, int line)
{
    if (result != -EINVAL || extant_error_kind() != EXTANT_ERROR_MISUSE || extant_message()[0] == 0) {
        fprintf(stderr, "line %d: %lld %s\n", line, (long long)result, extant_message());
        exit(1);
    }
}

#define REFUSED(call) refused(call, __LINE__)

static int nothing(void *user, void *buffer, size_t length, uint64_t offset)
{
    (void)user, (void)buffer, (void)length, (void)offset;
    return 0;
}

static int count(void *user, const struct extant_stat *files, size_t count)
{
    (void)user;
    return count == 0 || files[count - 1].ino == 0;
}

static int too_much(void *user, uint64_t *bytes)
{
    (void)user;
    *bytes = UINT64_MAX;
    return 0;
}

/* A directory is no image. */
static int directories(void)
{
    struct extant_options writes = { .size = sizeof writes, .flags = EXTANT_WRITABLE };
    const char *const settings[] = { "force=yes", NULL };
    extant_device *device = NULL;
    extant_fs *fs = NULL;

    if (extant_open("/", NULL, &fs) != -EISDIR || extant_open("/", &writes, &fs) != -EISDIR)
        return 1;
    if (extant_device_open("/", NULL, &device) != -EISDIR || extant_device_open("/", &writes, &device) != -EISDIR)
        return 2;
    return extant_mkfs("/", settings, NULL) != -EISDIR;
}

/* What a transaction did is forgotten, and a file that is left open says so. */
static int transaction(const char *image)
{
    struct extant_options options = { .size = sizeof options, .flags = EXTANT_TRANSACTION };
    struct extant_stat stat;
    extant_file *file;
    extant_fs *fs;
    char content[3];

    if (extant_open(image, &options, &fs) != 0 ||
        extant_file_open(fs, "/left", EXTANT_O_READ | EXTANT_O_WRITE | EXTANT_O_CREATE, 0644, &file) != 0 ||
        extant_file_write(file, "abc", 3, 0) != 3 || extant_close(fs) != 0)
        return 1;
    if (extant_file_read(file, content, 3, 0) != 3 || memcmp(content, "abc", 3) != 0)
        return 2;
    if (extant_file_write(file, "d", 1, 3) != -EROFS || extant_file_truncate(file, 0) != -EROFS)
        return 3;
    extant_file_close(file);
    if (extant_open(image, NULL, &fs) != 0 || extant_stat(fs, "/left", &stat) != -ENOENT)
        return 4;
    return extant_close(fs);
}

/* What cannot be written to is refused at once, and no undo file is left. */
static int reading_only(const char *image)
{
    static const char undo[] = "nowhere/undo";
    static const char *const label[] = { "label=x", "undo=nowhere/undo", NULL };
    extant_device *device;
    extant_report *report;
    int results[6];
    size_t i;

    if (extant_device_open(image, NULL, &device) != 0)
        return 1;
    results[0] = extant_tune(device, label, NULL);
    results[1] = extant_resize(device, EXTANT_MINIMUM, NULL, NULL);
    results[2] = extant_resize_with_undo(device, EXTANT_MINIMUM, undo, NULL, NULL);
    results[3] = extant_repair(device, 0, undo, NULL, &report);
    results[4] = extant_add_journal(device, device, 1, 1, NULL);
    results[5] = extant_remove_journal(device, NULL, NULL);
    for (i = 0; i < sizeof results / sizeof *results; i++)
        if (results[i] != -EROFS)
            return 2;
    if (strstr(extant_message(), "a part of the changes") != NULL)
        return 3;
    extant_device_close(device);
    return 0;
}

int main(int argc, char **argv)
{
    struct extant_options options = { .size = 3 };
    struct extant_options flags = { .size = sizeof flags, .flags = 0x80000000u };
    struct extant_device_ops ops = { .size = sizeof ops };
    struct extant_watch watch = { .size = 0 };
    struct extant_bulkstat all = { .size = sizeof all };
    struct { struct extant_options known; uint64_t later; } longer = { .known = { .size = sizeof longer }, .later = 1 };
    static const char *const no_value[] = { "label", NULL };
    static const char *const unknown[] = { "colour=red", NULL };
    static const char *const wrong[] = { "size=large", NULL };
    static const char *const size[] = { "size=8M", NULL };
    static const char *const both[] = { "size=8M", "headroom=1M", NULL };
    struct extant_stat stat;
    struct extant_acl_entry entry;
    struct extant_quota quota;
    extant_device *device = NULL;
    extant_report *report;
    extant_file *file;
    extant_walk *walk;
    extant_dir *dir;
    extant_fs *fs;
    char byte;

    if (argc != 2)
        return 2;
    REFUSED(extant_open(NULL, NULL, &fs));
    REFUSED(extant_open(argv[1], NULL, NULL));
    REFUSED(extant_open(argv[1], &options, &fs));
    REFUSED(extant_open(argv[1], &flags, &fs));
    REFUSED(extant_open(argv[1], &longer.known, &fs));
    longer.later = 0;
    if (extant_open(argv[1], &longer.known, &fs) != 0)
        return 3;
    REFUSED(extant_stat(NULL, "/", &stat));
    REFUSED(extant_stat(fs, NULL, &stat));
    REFUSED(extant_stat(fs, "/", NULL));
    REFUSED(extant_rename(fs, "/a", "/b", 0x40));
    if (strstr(extant_message(), "0x40 is not known") == NULL)
        return 13;
    REFUSED(extant_rename(fs, "/a", "/b", EXTANT_RENAME_EXCHANGE | EXTANT_RENAME_NO_REPLACE));
    if (strstr(extant_message(), "EXTANT_RENAME_EXCHANGE goes with no other") == NULL)
        return 13;
    if (directories() != 0)
        return 14;
    REFUSED(extant_lutimens(fs, "/", NULL));
    REFUSED(extant_mkdir(fs, "/x", 0x10000));
    REFUSED(extant_file_open(fs, "/", EXTANT_O_READ, 0, NULL));
    REFUSED(extant_file_open(fs, "/", 0x1000, 0, &file));
    REFUSED(extant_file_read(NULL, &byte, 1, 0));
    REFUSED(extant_file_extents(NULL, NULL, 0));
    REFUSED(extant_dir_open(fs, "/", NULL));
    REFUSED(extant_dir_next(NULL, NULL));
    if (extant_dir_open(fs, "/", &dir) != 0)
        return 4;
    REFUSED(extant_dir_next(dir, NULL));
    extant_dir_close(dir);
    if (extant_walk_open(fs, "/", &walk) != 0)
        return 5;
    REFUSED(extant_walk_next(walk, NULL));
    REFUSED(extant_walk_skip(NULL));
    extant_walk_close(walk);
    REFUSED(extant_glob_next(NULL, NULL));
    extant_glob_close(NULL);
    REFUSED(extant_set_acl(fs, "/", 7, NULL, 0));
    REFUSED(extant_set_acl(fs, "/", EXTANT_ACL_ACCESS, NULL, 3));
    memset(&entry, 0xff, sizeof entry);
    REFUSED(extant_set_acl(fs, "/", EXTANT_ACL_ACCESS, &entry, 1));
    /* More than there is memory for, and so many that the size of all of them is small again. */
    REFUSED(extant_set_acl(fs, "/", EXTANT_ACL_ACCESS, &entry, (size_t)1 << 30));
    REFUSED(extant_set_acl(fs, "/", EXTANT_ACL_ACCESS, &entry, SIZE_MAX / sizeof entry + 2));
    REFUSED(extant_set_acl(fs, "/", EXTANT_ACL_ACCESS, &entry, SIZE_MAX));
    REFUSED(extant_get_quota(fs, EXTANT_QUOTA_GROUP + 9, 0, &quota));
    REFUSED(extant_set_quota(fs, EXTANT_QUOTA_USER, NULL));
    REFUSED(extant_bulkstat(fs, NULL));
    REFUSED(extant_bulkstat(fs, &all));
    all.files = count;
    REFUSED(extant_bulkstat(NULL, &all));
    all.flags = 64;
    REFUSED(extant_bulkstat(fs, &all));
    all.flags = 0;
    all.threads = 2;
    if (extant_bulkstat(fs, &all) < 2)
        return 11;
    if (extant_close(fs) != 0 || extant_close(NULL) != 0 || extant_commit(NULL) != 0)
        return 6;
    if (transaction(argv[1]) != 0 || reading_only(argv[1]) != 0)
        return 12;
    REFUSED(extant_mkfs("", no_value, NULL));
    REFUSED(extant_mkfs("", size, NULL));

    REFUSED(extant_device_open(NULL, NULL, &device));
    REFUSED(extant_device_from_fd(-1, NULL, &device));
    REFUSED(extant_device_from_ops(NULL, NULL, &device));
    REFUSED(extant_device_from_ops(&ops, NULL, &device));
    ops.read = nothing;
    ops.capacity = too_much;
    REFUSED(extant_device_from_ops(&ops, NULL, &device));
    ops.sector = 77;
    REFUSED(extant_device_from_ops(&ops, NULL, &device));
    REFUSED(extant_device_in_memory(UINT64_MAX, &device));
    if (device != NULL || extant_device_in_memory(1 << 20, &device) != 0)
        return 7;
    REFUSED(extant_device_size(NULL));
    REFUSED(extant_device_read(device, NULL, 1, 0));
    if (extant_device_read(device, &byte, 1, 1 << 20) >= 0 || extant_device_write(device, &byte, 1, UINT64_MAX) >= 0)
        return 8;
    REFUSED(extant_open_device(NULL, NULL, &fs));
    flags.flags = EXTANT_WRITABLE;
    flags.journal = device;
    REFUSED(extant_open(argv[1], &flags, &fs));
    REFUSED(extant_mkfs_device(device, no_value, NULL));
    REFUSED(extant_mkfs_device(device, unknown, NULL));
    REFUSED(extant_mkfs_device(device, wrong, NULL));
    REFUSED(extant_mkfs_device(device, both, NULL));
    REFUSED(extant_check(device, 64, NULL, &report));
    REFUSED(extant_check(device, 0, &watch, &report));
    REFUSED(extant_check(NULL, 0, NULL, &report));
    REFUSED(extant_check_with_journal(device, NULL, 0, NULL, &report));
    REFUSED(extant_add_journal(device, NULL, 7, 0, NULL));
    REFUSED(extant_add_journal(device, device, 1 << 12, 0, NULL));
    REFUSED(extant_remove_journal(NULL, device, NULL));
    REFUSED(extant_repair(device, 64, NULL, NULL, &report));
    REFUSED(extant_minimum(device, NULL, NULL));
    REFUSED(extant_token_new(NULL));
    if (extant_report_summary(NULL) != NULL || extant_report_entry(NULL, 0, 0) != NULL)
        return 9;
    /* Nothing is a file system: that is told from a damaged one. */
    if (extant_check(device, 0, NULL, &report) != -EMEDIUMTYPE || extant_error_kind() != EXTANT_ERROR_NOT_EXT4)
        return 10;
    extant_device_close(device);
    extant_device_close(NULL);
    extant_file_close(NULL);
    extant_dir_close(NULL);
    extant_walk_close(NULL);
    extant_report_close(NULL);
    extant_token_close(NULL);
    extant_token_cancel(NULL);
    printf("refused\n");
    return 0;
}
