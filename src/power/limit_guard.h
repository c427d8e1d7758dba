/*
 * A process that sets limits to their former values when the one that changed them ends, however it
 * ends: it holds one end of a socket, and when the other end closes, it restores. It has a session
 * of its own and ignores SIGHUP, SIGINT, SIGQUIT and SIGTERM, so that what ends a terminal or a
 * process group does not end it. There is one way to restore: an orderly end closes the socket too,
 * and waits for the guard's report.
 */
#ifndef PJ_POWER_LIMIT_GUARD_H
#define PJ_POWER_LIMIT_GUARD_H

#include "power/limits.h"

#include <sys/types.h>

typedef struct pj_limit_guard {
    pid_t pid; /* 0: not started */
    int fd, lock;
    bool armed;
} pj_limit_guard;

/* Forks: call it while the process has one thread and before NVML is loaded. One guard a machine:
 * a second one would take the values of the first for the former ones. */
pj_status pj_limit_guard_start(pj_limit_guard *guard, const pj_power_env *env, pj_error *err);
/* Tells it the former values; returns when it is ready to restore them. Nothing may be set before.
 */
pj_status pj_limit_guard_arm(pj_limit_guard *guard, const pj_limits *limits, const pj_limit *limit,
                             pj_error *err);
/* Has it restore, if it was armed, and end. May run twice. */
pj_status pj_limit_guard_end(pj_limit_guard *guard, pj_error *err);

#endif
