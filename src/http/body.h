/* The payload inside a body's framing (RFC 9112, sections 6 and 7). Pure: no sockets, no
 * allocation. */
#ifndef PJ_HTTP_BODY_H
#define PJ_HTTP_BODY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum pj_body_kind {
    PJ_BODY_NONE = 0,
    PJ_BODY_LENGTH,
    PJ_BODY_CHUNKED,
    PJ_BODY_UNTIL_CLOSE
} pj_body_kind;

typedef enum pj_body_part_kind {
    PJ_PART_FRAMING = 0, /* sizes of chunks, line ends, trailers */
    PJ_PART_CHUNK,       /* framing that ends with the size line of a chunk: `chunk_bytes` follow */
    PJ_PART_DATA,
    PJ_PART_END, /* framing that completes the body */
    PJ_PART_BROKEN
} pj_body_part_kind;

typedef struct pj_body_part {
    pj_body_part_kind kind;
    size_t bytes; /* number of input bytes consumed */
    uint64_t chunk_bytes;
} pj_body_part;

typedef struct pj_body {
    pj_body_kind kind;
    uint64_t left; /* bytes left of the body or of the chunk */
    uint8_t state;
    uint8_t digits;
    bool done;
    uint32_t line_bytes; /* length of the size line or trailer section so far */
} pj_body;

void pj_body_begin(pj_body *body, pj_body_kind kind, uint64_t length);
/* The next part of the input. Consumes at least one byte unless the body is complete. */
pj_body_part pj_body_next(pj_body *body, const char *bytes, size_t count);

/* Between two chunks: no byte of the next size line has been received. */
bool pj_body_between(const pj_body *body);
/* The last chunk's size line has been received, the end of the trailer section has not. */
bool pj_body_ending(const pj_body *body);

#endif
