/* The files of /sys and /proc. The kernel regenerates an attribute's text at offset 0, so
 * pread(fd, .., 0) is a fresh reading without open and close. */
#include "power/sysfs.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int pj_sysfs_open(const char *path)
{
    return open(path, O_RDONLY | O_CLOEXEC);
}

void pj_sysfs_close(int fd)
{
    if (fd >= 0) close(fd);
}

int64_t pj_sysfs_fetch(int fd, char *text, size_t bytes)
{
    return pread(fd, text, bytes, 0);
}

void pj_sysfs_link(const char *path, char *target, size_t bytes)
{
    ssize_t length = readlink(path, target, bytes - 1);
    target[length > 0 ? length : 0] = 0;
}

static int by_length_then_name(const void *a, const void *b)
{
    size_t x = strlen(a), y = strlen(b);
    return x != y ? (x > y) - (x < y) : strcmp(a, b);
}

uint32_t pj_sysfs_list(const char *folder, const char *prefix, char (*names)[PJ_SYSFS_NAME_BYTES],
                       uint32_t max)
{
    uint32_t count = 0;
    DIR *dir = opendir(folder);
    if (!dir) return 0;
    for (struct dirent *e; (e = readdir(dir)) && count < max;) {
        size_t length = strlen(e->d_name);
        if (strncmp(e->d_name, prefix, strlen(prefix)) != 0 || length >= PJ_SYSFS_NAME_BYTES)
            continue;
        memcpy(names[count++], e->d_name, length + 1);
    }
    closedir(dir);
    qsort(names, count, PJ_SYSFS_NAME_BYTES, by_length_then_name);
    return count;
}
