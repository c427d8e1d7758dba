/* Filling a pj_error: a code and one sentence. All functions accept a NULL error. */
#ifndef PJ_BASE_ERROR_H
#define PJ_BASE_ERROR_H

#include <perjoule/base.h>
#include <stdarg.h>

/* Writes the sentence, returns `status` so that a caller can `return pj_fail(...)`. */
pj_status pj_fail(pj_error *err, pj_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* As pj_fail, with ": <text of errno value>" appended and the status derived from it. */
pj_status pj_fail_errno(pj_error *err, int error_number, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
pj_status pj_fail_memory(pj_error *err, const char *what);
/* Prepends "context: " to the sentence. */
void pj_error_prefix(pj_error *err, const char *format, ...) __attribute__((format(printf, 2, 3)));
pj_status pj_status_of_errno(int error_number);

/* How much of a text that may contain an address can be repeated in a message, which may end up in
 * a log: nothing behind the scheme where a user or password follows, no query, no token. */
int pj_error_repeatable(const char *text);

#endif
