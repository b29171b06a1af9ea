/* Works in processes that are forked after the library was used.
 *
 *   forked IMAGE TREE DIRECTORY
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "extant.h"

/* After so many seconds a process that waits for ever is killed. */
#define PATIENCE 600

static const char *image, *tree, *directory;

static int fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, extant_message());
    return 1;
}

static int check(void)
{
    extant_device *device = NULL;
    extant_report *report = NULL;
    uint64_t least = 0;

    if (extant_device_open(image, NULL, &device) != 0 || extant_check(device, 0, NULL, &report) != 0)
        return fail("check");
    extant_report_close(report);
    report = NULL;
    if (extant_repair(device, EXTANT_REPAIR_DRY_RUN, NULL, NULL, &report) != 0)
        return fail("repair");
    extant_report_close(report);
    if (extant_minimum(device, NULL, &least) != 0 || least == 0)
        return fail("minimum");
    extant_device_close(device);
    return 0;
}

static int make(void)
{
    char name[4096], from[4096];
    const char *settings[] = { "size=16M", from, NULL };

    snprintf(from, sizeof from, "from=%s", tree);
    snprintf(name, sizeof name, "%s/%ld.img", directory, (long)getpid());
    return extant_mkfs(name, settings, NULL) == 0 ? 0 : fail("mkfs");
}

static void *check_beside(void *failed)
{
    *(int *)failed = check();
    return NULL;
}

static int work(void)
{
    pthread_t beside;
    int failed = 0;

    if (pthread_create(&beside, NULL, check_beside, &failed) != 0)
        return 1;
    if (make() != 0 || check() != 0)
        return 1;
    pthread_join(beside, NULL);
    return failed;
}

/* Works in that many processes, each of which is forked from the one before. */
static int generations(int more)
{
    pid_t child;
    int status;

    alarm(PATIENCE);
    if (work() != 0)
        return 1;
    if (more == 0)
        return 0;
    child = fork();
    if (child == 0)
        _exit(generations(more - 1));
    if (child < 0 || waitpid(child, &status, 0) != child)
        return 1;
    if (WIFSIGNALED(status)) {
        fprintf(stderr, "a forked process was ended by signal %d\n", WTERMSIG(status));
        return 1;
    }
    /* What it did took nothing away from this one. */
    return WEXITSTATUS(status) != 0 || work() != 0;
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    image = argv[1];
    tree = argv[2];
    directory = argv[3];
    if (generations(2) != 0)
        return 1;
    printf("done\n");
    return 0;
}
