/* Shared by the conformance tests: finding and iterating over folders of reference data. */
#ifndef PJ_TESTS_JUDGE_H
#define PJ_TESTS_JUDGE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../unit/assertions.h"
#include "base/file.h"
#include "base/memory.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The folder named by the environment variable; skips the test if it is not set. */
static inline const char *judge_folder(const char *variable)
{
    const char *folder = getenv(variable);
    if (!folder || !folder[0]) {
        print_message("%s is not set: nothing to check against\n", variable);
        skip();
    }
    return folder;
}

/* Calls `check` for each entry of a folder; fails when there is none. */
static inline void judge_each(const char *folder, void (*check)(const char *path))
{
    int count = 0;
    DIR *dir = opendir(folder);
    if (!dir) fail_msg("cannot list %s", folder);
    for (struct dirent *e; (e = readdir(dir));) {
        char path[PATH_MAX];
        if (e->d_name[0] == '.' || !pj_path_join(path, sizeof path, folder, e->d_name)) continue;
        check(path);
        count++;
    }
    closedir(dir);
    assert_that(count, >, 0);
}

static inline char *judge_join(char out[PATH_MAX], const char *a, const char *b)
{
    assert_true(pj_path_join(out, PATH_MAX, a, b));
    return out;
}

#endif
