/*
 * Children for tests to kill. A child starts the test's program anew: one that is only forked from
 * a program with threads inherits locked mutexes, and a virtual clock that counts threads which it
 * does not have, so it may wait forever.
 */
#ifndef PJ_TEST_CHILD_H
#define PJ_TEST_CHILD_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What a child does: `tell` is the end of a pipe to its parent. It ends with _exit() or is killed.
 */
typedef void child_work(const char *argument, int tell);

static const char *child_program;

/* To be called first in main(). `folder`: the test's own, which the child gets as well. */
static inline void child_or_parent(int argc, char **argv, char *folder, size_t size,
                                   child_work *work)
{
    child_program = argv[0];
    if (argc < 4) return;
    snprintf(folder, size, "%s", argv[1]);
    work(argv[2], atoi(argv[3]));
    _exit(0);
}

/* Returns the child's number, and in `told` what it says; -1: it could not be started. */
static inline pid_t child_start(const char *folder, const char *argument, int *told)
{
    int fds[2];
    char tell[16];
    if (pipe(fds) != 0) return -1;
    snprintf(tell, sizeof tell, "%d", fds[1]);
    pid_t child = fork();
    if (child == 0) {
        close(fds[0]);
        execl(child_program, child_program, folder, argument, tell, (char *)NULL);
        _exit(127);
    }
    close(fds[1]);
    *told = fds[0];
    return child;
}

#endif
