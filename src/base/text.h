/* Beginnings and endings of texts. */
#ifndef PJ_BASE_TEXT_H
#define PJ_BASE_TEXT_H

#include <stdbool.h>
#include <string.h>

static inline bool pj_starts_with(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

static inline bool pj_ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), tail = strlen(end);
    return length >= tail && strcmp(text + length - tail, end) == 0;
}

#endif
