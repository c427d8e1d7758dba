/* Status codes and error sentences. Always one line: control characters become spaces, so that
 * hostile names from files cannot corrupt a log or a terminal. */
#include "base/error.h"

#include "base/utf8.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const char *const status_names[] = {
    "ok",   "invalid", "unavailable", "denied",    "not found", "i/o error", "out of memory",
    "full", "state",   "unsupported", "cancelled", "lost",      "again",     "internal error"};

const char *pj_status_name(pj_status status)
{
    int index = -(int)status;
    int count = (int)(sizeof status_names / sizeof *status_names);
    return index >= 0 && index < count ? status_names[index] : "unknown";
}

static void make_one_line(char *text)
{
    uint32_t c;
    for (size_t n, left = strlen(text); left; text += n, left -= n) {
        n = pj_utf8_step(text, left, &c);
        if (pj_utf8_is_control(c) || c == '\n' || c == '\t') memset(text, ' ', n);
    }
}

pj_status pj_fail(pj_error *err, pj_status status, const char *format, ...)
{
    if (!err) return status;
    err->status = status;
    va_list args;
    va_start(args, format);
    vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);
    make_one_line(err->text);
    return status;
}

pj_status pj_status_of_errno(int error_number)
{
    switch (error_number) {
    case EACCES:
    case EPERM:
    case EROFS: return PJ_E_DENIED;
    case ENOENT:
    case ENOTDIR:
    case ENODEV:
    case ENXIO: return PJ_E_NOT_FOUND;
    case ENOMEM: return PJ_E_NO_MEMORY;
    case ENOSPC:
    case EDQUOT:
    case EFBIG: return PJ_E_FULL;
    case EINVAL: return PJ_E_INVALID;
    case EAGAIN: return PJ_E_AGAIN;
    default: return PJ_E_IO;
    }
}

/* strerror is not thread-safe and strerror_r has two incompatible forms; this hides both. */
static const char *errno_text(int error_number, char *space, size_t bytes)
{
#if defined(__GLIBC__) && defined(_GNU_SOURCE)
    return strerror_r(error_number, space, bytes);
#else
    return strerror_r(error_number, space, bytes) == 0 ? space : "unknown error";
#endif
}

pj_status pj_fail_errno(pj_error *err, int error_number, const char *format, ...)
{
    pj_status status = pj_status_of_errno(error_number);
    if (!err) return status;
    err->status = status;
    va_list args;
    va_start(args, format);
    int used = vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);
    if (used >= 0 && (size_t)used < sizeof err->text - 3) {
        char space[128];
        snprintf(err->text + used, sizeof err->text - (size_t)used, ": %s",
                 errno_text(error_number, space, sizeof space));
    }
    make_one_line(err->text);
    return status;
}

pj_status pj_fail_memory(pj_error *err, const char *what)
{
    return pj_fail(err, PJ_E_NO_MEMORY, "out of memory for %s", what);
}

void pj_error_prefix(pj_error *err, const char *format, ...)
{
    if (!err) return;
    char text[sizeof err->text], prefix[sizeof err->text];
    memcpy(text, err->text, sizeof text);
    va_list args;
    va_start(args, format);
    vsnprintf(prefix, sizeof prefix, format, args);
    va_end(args);
    size_t length = strnlen(prefix, sizeof prefix - 1);
    if (length > sizeof text - 3) length = sizeof text - 3;
    memcpy(err->text, prefix, length);
    memcpy(err->text + length, ": ", 2);
    snprintf(err->text + length + 2, sizeof err->text - length - 2, "%s", text);
    make_one_line(err->text);
}

int pj_error_repeatable(const char *text)
{
    enum { MOST = 200 };
    static const char token_key[] = "token=";
    const char *scheme = strstr(text, "://"), *token = strstr(text, token_key);
    size_t bytes = scheme ? strcspn(text, "?#") : MOST;
    if (scheme && strchr(scheme, '@')) bytes = (size_t)(scheme - text) + 3;
    if (token && (size_t)(token - text) < bytes)
        bytes = (size_t)(token - text) + sizeof token_key - 1;
    return bytes < MOST ? (int)bytes : MOST;
}
