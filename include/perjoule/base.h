/*
 * perjoule/base.h: status, error, version and clock of libperjoule. Included by perjoule.h; on its
 * own it is enough for code that only passes errors on.
 */
#ifndef PERJOULE_BASE_H
#define PERJOULE_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PJ_VERSION_MAJOR 0
#define PJ_VERSION_MINOR 1
#define PJ_VERSION_PATCH 0

#if defined(__GNUC__)
#define PJ_API __attribute__((visibility("default")))
#else
#define PJ_API
#endif

typedef enum pj_status {
    PJ_OK = 0,
    PJ_E_INVALID = -1,     /* bad input: arguments, files, requests */
    PJ_E_UNAVAILABLE = -2, /* the machine lacks it, or it is currently absent */
    PJ_E_DENIED = -3,      /* missing permission; the sentence names the command that grants it */
    PJ_E_NOT_FOUND = -4,
    PJ_E_IO = -5,
    PJ_E_NO_MEMORY = -6,
    PJ_E_FULL = -7,        /* a bound was reached: queue, buffer, disk */
    PJ_E_STATE = -8,       /* called at the wrong time */
    PJ_E_UNSUPPORTED = -9, /* valid, but not supported by perjoule */
    PJ_E_CANCELLED = -10,
    PJ_E_LOST = -11,  /* it worked and then disappeared: a GPU, a subprocess */
    PJ_E_AGAIN = -12, /* nothing available now; try again */
    PJ_E_INTERNAL = -13
} pj_status;

#define PJ_ERROR_TEXT_BYTES 512

typedef struct pj_error {
    pj_status status;
    char text[PJ_ERROR_TEXT_BYTES]; /* one sentence, UTF-8, no newline */
} pj_error;

PJ_API const char *pj_status_name(pj_status status);
PJ_API const char *pj_version(void);
/* The clock that every time in this interface is on: CLOCK_MONOTONIC in nanoseconds. On x86 it may
 * be read from the time-stamp counter, and then differs by tens of nanoseconds, at most 1 us;
 * readings of one thread never go back. */
PJ_API int64_t pj_clock_ns(void);

#ifdef __cplusplus
}
#endif
#endif /* PERJOULE_BASE_H */
