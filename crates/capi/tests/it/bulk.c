/* All files at once, beside a walk.
 *
 *   bulk IMAGE THREADS FLAGS   prints how many inodes there are, and how many names
 *   bulk IMAGE broken          prints what cannot be read
 */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "extant.h"

enum { MOST = 4096 };

struct seen {
    pthread_mutex_t lock;
    struct extant_stat files[MOST];
    size_t count;
    size_t calls;
    size_t failures;
};

static void require(int condition, int code)
{
    if (!condition)
        exit(code);
}

static void check(int64_t result, const char *what)
{
    if (result < 0) {
        fprintf(stderr, "%s: %s (error %" PRId64 ")\n", what, extant_message(), -result);
        exit(1);
    }
}

static int take(void *user, const struct extant_stat *files, size_t count)
{
    struct seen *seen = user;

    pthread_mutex_lock(&seen->lock);
    require(count != 0 && seen->count + count <= MOST, 3);
    memcpy(seen->files + seen->count, files, count * sizeof *files);
    seen->count += count;
    seen->calls++;
    pthread_mutex_unlock(&seen->lock);
    return 0;
}

static int note(void *user, const char *message)
{
    struct seen *seen = user;

    pthread_mutex_lock(&seen->lock);
    require(message[0] != 0, 4);
    seen->failures++;
    pthread_mutex_unlock(&seen->lock);
    return 0;
}

static int end(void *user, const struct extant_stat *files, size_t count)
{
    take(user, files, count);
    return 1;
}

int main(int argc, char **argv)
{
    static struct seen seen = { .lock = PTHREAD_MUTEX_INITIALIZER };
    struct extant_bulkstat how = { .size = sizeof how, .files = take, .user = &seen };
    const struct extant_walk_entry *entry;
    extant_walk *walk;
    extant_fs *fs;
    int64_t n;
    size_t names = 0, i;
    int more;

    require(argc >= 3, 2);
    check(extant_open(argv[1], NULL, &fs), "open");
    if (strcmp(argv[2], "broken") == 0) {
        n = extant_bulkstat(fs, &how);
        printf("error %" PRId64 " kind %" PRIu32 ": %s\n", -n, extant_error_kind(), extant_message());
        how.failed = note;
        seen.count = 0;
        n = extant_bulkstat(fs, &how);
        check(n, "bulkstat");
        printf("told %" PRId64 " failed %zu\n", n, seen.failures);
        return extant_close(fs) != 0;
    }
    how.threads = (uint32_t)atoi(argv[2]);
    how.flags = (uint32_t)atoi(argv[3]);
    n = extant_bulkstat(fs, &how);
    check(n, "bulkstat");
    require((size_t)n == seen.count && seen.calls > 1, 5);
    check(extant_walk_open(fs, "/", &walk), "walk");
    while ((more = extant_walk_next(walk, &entry)) > 0) {
        names++;
        for (i = 0; i < seen.count && seen.files[i].ino != entry->stat.ino; i++)
            ;
        require(i < seen.count && memcmp(&seen.files[i], &entry->stat, sizeof entry->stat) == 0, 6);
    }
    check(more, "walk");
    extant_walk_close(walk);
    for (i = 0; i < seen.count; i++)
        for (size_t j = 0; j < i; j++)
            require(seen.files[i].ino != seen.files[j].ino, 7);
    printf("inodes %zu names %zu\n", seen.count, names);
    how.files = end;
    seen.count = 0;
    require(extant_bulkstat(fs, &how) == -ECANCELED && extant_error_kind() == EXTANT_ERROR_CANCELLED, 8);
    return extant_close(fs) != 0;
}
