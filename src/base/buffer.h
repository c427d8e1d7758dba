/*
 * A growing byte buffer with a maximum given at the start. Errors stick: after the first append
 * that does not fit, every further one does nothing, so `failed` need be checked only once. The
 * content is always NUL-terminated; `length` excludes the NUL.
 */
#ifndef PJ_BASE_BUFFER_H
#define PJ_BASE_BUFFER_H

#include "base/error.h"

typedef struct pj_buffer {
    char *data; /* NULL until the first append */
    size_t length, capacity, max_bytes;
    bool failed;
} pj_buffer;

void pj_buffer_init(pj_buffer *buffer, size_t max_bytes); /* allocates nothing yet */
void pj_buffer_fini(pj_buffer *buffer);                   /* may run twice */
void pj_buffer_clear(pj_buffer *buffer);                  /* keeps the memory, clears `failed` */
bool pj_buffer_append(pj_buffer *buffer, const void *bytes, size_t count);
bool pj_buffer_text(pj_buffer *buffer, const char *text);
bool pj_buffer_char(pj_buffer *buffer, char c);
bool pj_buffer_printf(pj_buffer *buffer, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Room for `count` more bytes at data + length; the caller then adds to `length`. */
bool pj_buffer_reserve(pj_buffer *buffer, size_t count);
char *pj_buffer_take(pj_buffer *buffer); /* transfers ownership (pj_free); NULL when failed */
const char *pj_buffer_get(const pj_buffer *buffer); /* "" when nothing was appended */
pj_status pj_buffer_status(const pj_buffer *buffer, const char *what, pj_error *err);

#endif
