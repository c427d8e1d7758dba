/*
 * Inserts a JSON member into the body of an HTTP message that has already been received. In a
 * chunked body only the sizes of the chunks that grow are rewritten: the boundaries of chunks,
 * their extensions and the trailer section stay as the sender wrote them.
 */
#ifndef PJ_ATTACH_BODY_INSERT_H
#define PJ_ATTACH_BODY_INSERT_H

#include "base/buffer.h"

#include <stdint.h>

typedef struct pj_body_insert {
    const char *member; /* without a comma */
    size_t member_bytes;
    const size_t *at;     /* [count] offsets in the body as received, ascending */
    const bool *is_empty; /* [count] the object at this offset is empty, so no comma is needed */
    uint32_t count;
} pj_body_insert;

/* A body without framing, or a part of one. */
void pj_body_insert_plain(const pj_body_insert *in, const char *bytes, size_t count, pj_buffer *to);
/* Whole chunks with their framing, as received; may begin with the line end of an earlier chunk. */
void pj_body_insert_chunked(const pj_body_insert *in, const char *bytes, size_t count,
                            pj_buffer *to);

#endif
