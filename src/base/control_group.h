/* The limits of this process's control groups (of a container, say), from both versions' file
 * systems. `root`: what /proc and /sys are below, "" for the system's own. */
#ifndef PJ_BASE_CONTROL_GROUP_H
#define PJ_BASE_CONTROL_GROUP_H

#include <stdbool.h>

/* `second`: the folder is of version 2, whose files have other names. */
typedef void pj_group_visit(const char *folder, bool second, void *context);

/* Visits the group that `controller` ("cpu", "memory") has this process in, and those above it,
 * whose limits bind it, too. */
void pj_group_each(const char *root, const char *controller, pj_group_visit *visit, void *context);

#endif
