/* Ends each piece of long work at many points: by what progress returns, by a token, and by a device that fails.
 *
 *   ending SOUND SMALL DAMAGED
 *
 * The images have the size of the first one, or less; the second one holds a smaller file system. What was ended has changed
 * nothing, but for a file system that was being made.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "extant.h"

enum work { MAKE, CHECK, REPAIR, GROW, MINIMUM, UUID, JOURNAL, BULK, WORKS };

static const char *const names[WORKS] = { "make", "check", "repair", "grow", "minimum", "uuid", "journal", "bulk" };

static unsigned char *bytes;
static size_t size;
static atomic_int uses;
/* The use of the device at which a token ends the work, and the one from which on all fail; below 0 for none. */
static int end_at, fail_from, fail_with;
static const extant_token *token;
/* The call of progress that ends the work, and how many there were. */
static int refuse_at, told;

static int use(void)
{
    int now = atomic_fetch_add(&uses, 1);

    if (now == end_at)
        extant_token_cancel(token);
    return fail_from >= 0 && now >= fail_from ? fail_with : 0;
}

static int disk_read(void *user, void *buffer, size_t length, uint64_t offset)
{
    int failed = use();

    (void)user;
    if (failed == 0)
        memcpy(buffer, bytes + offset, length);
    return failed;
}

static int disk_write(void *user, const void *buffer, size_t length, uint64_t offset)
{
    int failed = use();

    (void)user;
    if (failed == 0)
        memcpy(bytes + offset, buffer, length);
    return failed;
}

static int disk_flush(void *user)
{
    (void)user;
    return use();
}

static int disk_capacity(void *user, uint64_t *capacity)
{
    (void)user;
    *capacity = size;
    return 0;
}

static int progress(void *user, const char *what, uint64_t done, uint64_t total)
{
    (void)user, (void)what, (void)done, (void)total;
    return told++ == refuse_at;
}

static int files(void *user, const struct extant_stat *found, size_t count)
{
    (void)user, (void)found;
    return count == 0;
}

static int64_t run(enum work work, const struct extant_watch *watch)
{
    static const char *const plain[] = { "force=yes", NULL };
    static const char *const uuid[] = { "uuid=12345678-9abc-def0-1234-56789abcdef0", NULL };
    static const char *const journal[] = { "features=^has_journal", NULL };
    struct extant_device_ops ops = { .size = sizeof ops, .read = disk_read, .write = disk_write, .flush = disk_flush,
                                     .capacity = disk_capacity };
    struct extant_bulkstat all = { .size = sizeof all, .files = files, .threads = 2 };
    extant_report *report = NULL;
    extant_device *device;
    uint64_t now;
    extant_fs *fs;
    int64_t result = -1;

    atomic_store(&uses, 0);
    told = 0;
    if (extant_device_from_ops(&ops, NULL, &device) != 0)
        exit(3);
    switch (work) {
    case MAKE: result = extant_mkfs_device(device, plain, watch); break;
    case CHECK: result = extant_check(device, 0, watch, &report); break;
    case REPAIR: result = extant_repair(device, 0, NULL, watch, &report); break;
    case GROW: result = extant_resize(device, size, watch, &now); break;
    case MINIMUM: result = extant_minimum(device, watch, &now); break;
    case UUID: result = extant_tune(device, uuid, watch); break;
    case JOURNAL: result = extant_tune(device, journal, watch); break;
    case BULK:
        result = extant_open_device(device, NULL, &fs);
        if (result == 0) {
            result = extant_bulkstat(fs, &all);
            if (extant_close(fs) != 0)
                exit(4);
        }
        break;
    case WORKS: break;
    }
    if (result < 0 && report != NULL)
        exit(5);
    extant_report_close(report);
    extant_device_close(device);
    return result;
}

static unsigned char *load(const char *path)
{
    unsigned char *image = calloc(1, size);
    FILE *file = fopen(path, "rb");

    if (image == NULL || file == NULL || fread(image, 1, size, file) == 0 || fclose(file) != 0)
        exit(6);
    return image;
}

static void wrong(enum work work, const char *how, int at, int64_t result)
{
    printf("%s, %s %d: %lld kind %u %s\n", names[work], how, at, (long long)result, (unsigned)extant_error_kind(),
           extant_message());
    exit(1);
}

/* Ends work at many points; what the device holds before is `from`. */
static void sweep(enum work work, const unsigned char *from)
{
    struct extant_watch watch = { .size = sizeof watch, .progress = progress };
    static const int errors[] = { -ETIMEDOUT, ETIMEDOUT, 4096, -1000000 };
    int refused = 0, cancelled = 0, failed = 0, calls, all;
    int64_t result;

    end_at = fail_from = refuse_at = -1;
    memcpy(bytes, from, size);
    result = run(work, &watch);
    if (result < 0)
        wrong(work, "whole", 0, result);
    calls = told;
    all = atomic_load(&uses);
    for (refuse_at = 0; refuse_at < calls; refuse_at++, refused++) {
        memcpy(bytes, from, size);
        result = run(work, &watch);
        /* How often it is told depends on the time. */
        if (result >= 0 && told <= refuse_at)
            break;
        if (result != -ECANCELED || extant_error_kind() != EXTANT_ERROR_CANCELLED)
            wrong(work, "refused", refuse_at, result);
        if (work != MAKE && memcmp(bytes, from, size) != 0)
            wrong(work, "refused and changed", refuse_at, result);
    }
    watch.progress = NULL;
    for (end_at = 0; work != BULK && end_at < all; end_at += all / 15 + 1) {
        extant_token *mine;

        if (extant_token_new(&mine) != 0)
            exit(7);
        watch.token = token = mine;
        memcpy(bytes, from, size);
        result = run(work, &watch);
        extant_token_close(mine);
        /* What is being written is written to the end. */
        if (result < 0 && (result != -ECANCELED || extant_error_kind() != EXTANT_ERROR_CANCELLED))
            wrong(work, "ended", end_at, result);
        if (result < 0 && work != MAKE && memcmp(bytes, from, size) != 0)
            wrong(work, "ended and changed", end_at, result);
        cancelled += result < 0;
    }
    end_at = -1;
    for (fail_from = 0; fail_from < all; fail_from += all / 15 + 1, failed++) {
        fail_with = errors[failed % 4];
        memcpy(bytes, from, size);
        result = run(work, NULL);
        /* It may use the device less often than the run that was counted. */
        if (result >= 0 && atomic_load(&uses) <= fail_from)
            break;
        if (result >= 0 || extant_error_kind() != EXTANT_ERROR_DEVICE)
            wrong(work, "failed", fail_from, result);
    }
    fail_from = -1;
    printf("%s: %s%s%s\n", names[work], refused > 0 ? "refused " : "", cancelled > 0 ? "ended " : "",
           failed > 0 ? "failed" : "");
}

int main(int argc, char **argv)
{
    unsigned char *sound, *small, *damaged;
    FILE *file;

    if (argc != 4 || (file = fopen(argv[1], "rb")) == NULL || fseek(file, 0, SEEK_END) != 0)
        return 2;
    size = (size_t)ftell(file);
    fclose(file);
    bytes = malloc(size);
    sound = load(argv[1]);
    small = load(argv[2]);
    damaged = load(argv[3]);
    for (enum work work = MAKE; work < WORKS; work++)
        sweep(work, work == GROW ? small : work == REPAIR ? damaged : sound);
    free(damaged);
    free(small);
    free(sound);
    free(bytes);
    return 0;
}
