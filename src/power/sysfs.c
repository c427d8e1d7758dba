/* Reads /sys and /proc. The kernel regenerates an attribute's text at offset 0, so pread(fd, .., 0)
 * is a fresh reading without open and close. */
#include "power/sysfs.h"

#include "power/source.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int pj_sysfs_open(const char *path)
{
    return open(path, O_RDONLY | O_CLOEXEC);
}

bool pj_sysfs_text(const char *path, char *text, size_t bytes)
{
    int fd = pj_sysfs_open(path);
    ssize_t got = fd >= 0 ? pread(fd, text, bytes - 1, 0) : -1;
    if (fd >= 0) close(fd);
    if (got < 0) got = 0;
    while (got > 0 && (text[got - 1] == '\n' || text[got - 1] == ' ')) got--;
    text[got] = 0;
    return got > 0;
}

static pj_status parse(const char *text, size_t bytes, int64_t *value)
{
    uint64_t number;
    bool negative = bytes > 0 && text[0] == '-';
    if (!pj_power_parse_u64(text + negative, bytes - negative, &number) || number > INT64_MAX)
        return PJ_E_INVALID;
    *value = negative ? -(int64_t)number : (int64_t)number;
    return PJ_OK;
}

bool pj_sysfs_number(const char *path, int64_t *value)
{
    char text[64];
    return pj_sysfs_text(path, text, sizeof text) && parse(text, strlen(text), value) == PJ_OK;
}

pj_status pj_sysfs_read(int fd, int64_t *value)
{
    char text[64];
    ssize_t got = pread(fd, text, sizeof text, 0);
    if (got < 0) return pj_status_of_errno(errno);
    return parse(text, (size_t)got, value);
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
