/*
 * HTTP/1.1 framing: the end of a head, the kind of its body, and the payload inside the body's
 * framing. Strict where leniency lets two parties see different messages in the same bytes (request
 * smuggling; RFC 9112, sections 5 and 6): such a message is rejected.
 *
 * Pure: no sockets, no allocation.
 */
#ifndef PJ_ATTACH_WIRE_H
#define PJ_ATTACH_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PJ_WIRE_HEAD_MAX_BYTES = 64 << 10 };

typedef enum pj_body_kind {
    PJ_BODY_NONE = 0,
    PJ_BODY_LENGTH,
    PJ_BODY_CHUNKED,
    PJ_BODY_UNTIL_CLOSE
} pj_body_kind;

typedef struct pj_wire_head {
    size_t bytes; /* of the head, with the empty line */
    bool is_request;
    int status;            /* of a response */
    char method[16];       /* of a request */
    char target[2048];     /* of a request */
    int minor;             /* of HTTP/1.x */
    pj_body_kind body;     /* of a response, assuming that the request was not HEAD */
    uint64_t length;       /* PJ_BODY_LENGTH */
    bool keep_alive;       /* the connection can be reused */
    bool upgrades;         /* Upgrade, which is not supported */
    bool expects_continue; /* Expect: 100-continue */
} pj_wire_head;

typedef enum pj_wire_verdict {
    PJ_WIRE_INCOMPLETE = 0,
    PJ_WIRE_COMPLETE,
    PJ_WIRE_BAD
} pj_wire_verdict;

/* Parses the bytes received so far. `why` (may be NULL) gets a sentence when the verdict is BAD. */
pj_wire_verdict pj_wire_parse(const char *bytes, size_t count, bool is_request, pj_wire_head *head,
                              const char **why);
/* The value of the first field of that name in a complete head, without the white space around
 * it; NULL: there is none. */
const char *pj_wire_field(const char *head, size_t bytes, const char *name, size_t *length);
/* Iterates over the fields of a complete head; *at is 0 before the first call. */
typedef struct pj_wire_line {
    const char *line; /* the whole line with CR LF */
    size_t line_bytes;
    const char *name, *value;
    size_t name_bytes, value_bytes;
} pj_wire_line;
bool pj_wire_next_field(const char *head, size_t bytes, size_t *at, pj_wire_line *line);
bool pj_wire_name_is(const pj_wire_line *line, const char *name);
/* Whether a comma-separated field holds the token, in any case. */
bool pj_wire_has_token(const char *value, size_t length, const char *token);

/* ---- bodies --------------------------------------------------------------------------------- */

typedef enum pj_wire_part_kind {
    PJ_WIRE_FRAMING = 0, /* sizes of chunks, line ends, trailers */
    PJ_WIRE_CHUNK,       /* framing that ends with the size line of a chunk: `chunk_bytes` follow */
    PJ_WIRE_DATA,
    PJ_WIRE_END, /* framing that completes the body */
    PJ_WIRE_BROKEN
} pj_wire_part_kind;

typedef struct pj_wire_part {
    pj_wire_part_kind kind;
    size_t bytes; /* number of input bytes consumed */
    uint64_t chunk_bytes;
} pj_wire_part;

typedef struct pj_wire_body {
    pj_body_kind kind;
    uint64_t left; /* bytes left of the body or of the chunk */
    uint8_t state;
    uint8_t digits;
    bool done;
    uint32_t line_bytes; /* length of the size line or trailer section so far */
} pj_wire_body;

void pj_wire_body_begin(pj_wire_body *body, pj_body_kind kind, uint64_t length);
/* The next part of the input. Consumes at least one byte unless the body is complete. */
pj_wire_part pj_wire_body_next(pj_wire_body *body, const char *bytes, size_t count);

/* Between two chunks: no byte of the next size line has been received. */
bool pj_wire_body_between(const pj_wire_body *body);
/* The last chunk's size line has been received, the end of the trailer section has not. */
bool pj_wire_body_ending(const pj_wire_body *body);

#endif
