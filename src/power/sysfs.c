/* Parses the small texts of /sys and /proc. */
#include "power/sysfs.h"

#include "power/source.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int pj_sysfs_open_at(const char *path_format, ...)
{
    char path[1024];
    va_list args;
    va_start(args, path_format);
    int length = vsnprintf(path, sizeof path, path_format, args);
    va_end(args);
    errno = ENAMETOOLONG;
    return length < (int)sizeof path ? pj_sysfs_open(path) : -1;
}

bool pj_sysfs_text(int fd, char *text, size_t bytes)
{
    int64_t got = fd >= 0 ? pj_sysfs_fetch(fd, text, bytes - 1) : -1;
    pj_sysfs_close(fd);
    if (got < 0) got = 0;
    while (got > 0 && (text[got - 1] == '\n' || text[got - 1] == ' ')) got--;
    text[got] = 0;
    return got > 0;
}

static pj_status sysfs_parse(const char *text, size_t bytes, int64_t *value)
{
    uint64_t number;
    bool negative = bytes > 0 && text[0] == '-';
    if (!pj_power_parse_u64(text + negative, bytes - negative, &number) || number > INT64_MAX)
        return PJ_E_INVALID;
    *value = negative ? -(int64_t)number : (int64_t)number;
    return PJ_OK;
}

bool pj_sysfs_number(int fd, int64_t *value)
{
    char text[64];
    return pj_sysfs_text(fd, text, sizeof text) && sysfs_parse(text, strlen(text), value) == PJ_OK;
}

pj_status pj_sysfs_read(int fd, int64_t *value)
{
    char text[64];
    int64_t got = pj_sysfs_fetch(fd, text, sizeof text);
    if (got < 0) return pj_status_of_errno(errno);
    return sysfs_parse(text, (size_t)got, value);
}
