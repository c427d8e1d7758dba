/* Small text files of /sys and /proc: read once, or kept open and reread with one pread each, which
 * keeps a thousand readings per second cheap. */
#ifndef PJ_POWER_SYSFS_H
#define PJ_POWER_SYSFS_H

#include "base/error.h"

enum { PJ_SYSFS_NAME_BYTES = 64 };

/* Opens for repeated reading; -1 with errno set, also for a path that is too long. */
int pj_sysfs_open_at(const char *path_format, ...) __attribute__((format(printf, 1, 2)));
/* Reads a small file completely, without its trailing newline, and closes it; false (text "") on
 * failure, as for an fd of -1. */
bool pj_sysfs_text(int fd, char *text, size_t bytes);
/* The same of an integer, possibly negative; false when the file holds something else. */
bool pj_sysfs_number(int fd, int64_t *value);
/* Rereads an open file from its start. PJ_E_INVALID: not a number; other failures by errno. */
pj_status pj_sysfs_read(int fd, int64_t *value);

/* The file operations themselves (sysfs_files.c). A fuzz target replaces them with a machine in
 * memory, because system calls would take nearly all of its time. */

/* Opens for repeated reading; -1 with errno set. */
int pj_sysfs_open(const char *path);
void pj_sysfs_close(int fd); /* -1 is allowed */
/* The first bytes of an open file; returns how many, or -1 with errno set. */
int64_t pj_sysfs_fetch(int fd, char *text, size_t bytes);
/* Target of a symbolic link, "" if there is none. */
void pj_sysfs_link(const char *path, char *target, size_t bytes);
/* Names in a folder that begin with `prefix`, sorted (shorter first, so hwmon2 before hwmon10).
 * Returns how many were stored, at most `max`. */
uint32_t pj_sysfs_list(const char *folder, const char *prefix, char (*names)[PJ_SYSFS_NAME_BYTES],
                       uint32_t max);

#endif
