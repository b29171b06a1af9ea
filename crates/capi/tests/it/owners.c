/* Access control lists, quotas, projects, pieces of files, a walk, and a pattern.
 *
 *   owners IMAGE   changes the image, and prints what it finds
 */
#include <errno.h>
#include <inttypes.h>
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

static void require(int condition, int code)
{
    if (!condition)
        exit(code);
}

int main(int argc, char **argv)
{
    static const struct extant_acl_entry list[] = {
        { EXTANT_ACL_USER_OBJ, 0, 7 }, { EXTANT_ACL_USER, 1000, 6 }, { EXTANT_ACL_GROUP_OBJ, 0, 5 },
        { EXTANT_ACL_GROUP, 27, 4 },   { EXTANT_ACL_MASK, 0, 7 },    { EXTANT_ACL_OTHER, 0, 0 },
    };
    enum { ENTRIES = sizeof list / sizeof list[0] };
    struct extant_options options = { .size = sizeof options, .flags = EXTANT_WRITABLE };
    struct extant_acl_entry read[ENTRIES];
    struct extant_quota quota, all[8];
    struct extant_extent extents[4];
    const struct extant_walk_entry *entry;
    extant_file *file;
    extant_walk *walk;
    extant_glob *glob;
    const char *path;
    extant_fs *fs;
    char data[8192];
    int64_t n;
    int more;

    require(argc == 2, 2);
    check(extant_open(argv[1], &options, &fs), "open");
    check(extant_mkdir(fs, "/shared", 0755), "mkdir");
    check(extant_mkdir(fs, "/shared/below", 0755), "mkdir");

    check(extant_set_acl(fs, "/shared", EXTANT_ACL_ACCESS, list, ENTRIES), "set_acl");
    check(extant_set_acl(fs, "/shared", EXTANT_ACL_DEFAULT, list, ENTRIES), "set_acl");
    require(extant_get_acl(fs, "/shared", EXTANT_ACL_ACCESS, NULL, 0) == ENTRIES, 3);
    require(extant_get_acl(fs, "/shared", EXTANT_ACL_ACCESS, read, 2) == -ERANGE, 4);
    n = extant_get_acl(fs, "/shared", EXTANT_ACL_DEFAULT, read, ENTRIES);
    require(n == ENTRIES && memcmp(read, list, sizeof list) == 0, 5);
    require(extant_get_acl(fs, "/", EXTANT_ACL_ACCESS, read, ENTRIES) == 0, 6);
    /* No mask: no list. */
    require(extant_set_acl(fs, "/shared", EXTANT_ACL_ACCESS, list, 3) == -EINVAL, 7);
    check(extant_set_acl(fs, "/shared", EXTANT_ACL_DEFAULT, NULL, 0), "remove acl");

    check(extant_file_open(fs, "/shared/file", EXTANT_O_WRITE | EXTANT_O_CREATE, 0644, &file), "create");
    memset(data, 'x', sizeof data);
    require(extant_file_write(file, data, sizeof data, 0) == sizeof data, 8);
    check(extant_file_allocate(file, 0, 1 << 20, 65536), "allocate");
    check(extant_file_sync(file), "sync");
    n = extant_file_extents(file, extents, 4);
    require(n == 2 && extents[0].offset == 0 && extents[0].length == sizeof data && extents[0].flags == 0, 9);
    require(extents[1].offset == 1 << 20 && extents[1].flags == EXTANT_EXTENT_UNWRITTEN, 10);
    require(extents[0].device_offset != EXTANT_NOWHERE, 11);
    extant_file_close(file);

    check(extant_lchown(fs, "/shared/file", 1000, 27), "chown");
    check(extant_set_project(fs, "/shared/file", 5), "project");
    check(extant_sync(fs), "sync");
    check(extant_get_quota(fs, EXTANT_QUOTA_USER, 1000, &quota), "get_quota");
    require(quota.inodes == 1 && quota.space >= sizeof data && quota.space_hard == 0, 12);
    quota.space_soft = 1 << 20;
    quota.space_hard = 2 << 20;
    quota.inode_hard = 100;
    check(extant_set_quota(fs, EXTANT_QUOTA_USER, &quota), "set_quota");
    n = extant_get_quotas(fs, EXTANT_QUOTA_USER, all, 8);
    require(n == 2 && all[1].id == 1000 && all[1].space_hard == 2 << 20 && all[1].inode_hard == 100, 13);
    require(extant_get_quota(fs, EXTANT_QUOTA_PROJECT, 5, &quota) == 0 && quota.inodes == 1, 14);
    require(extant_get_quota(fs, 9, 5, &quota) == -EINVAL, 15);

    check(extant_walk_open(fs, "/", &walk), "walk");
    while ((more = extant_walk_next(walk, &entry)) > 0) {
        printf("%" PRIu64 " %s %o\n", entry->depth, entry->path, (unsigned)entry->stat.mode);
        require(strlen(entry->path) == entry->length, 16);
        if (strcmp(entry->path, "/lost+found") == 0)
            check(extant_walk_skip(walk), "skip");
    }
    check(more, "walk");
    extant_walk_close(walk);
    require(extant_glob_open(fs, "/shared/[", &glob) == -EINVAL && glob == NULL, 17);
    check(extant_glob_open(fs, "/s*/[!b]*", &glob), "glob");
    while ((more = extant_glob_next(glob, &path)) > 0)
        printf("%s\n", path);
    check(more, "glob");
    extant_glob_close(glob);
    check(extant_close(fs), "close");
    return 0;
}
