/*
 * Heads of HTTP/1.1 messages: the end of the head, its fields, and the kind of body that follows.
 * Strict where leniency lets two parties see different messages in the same bytes (request
 * smuggling; RFC 9112, sections 5 and 6): such a message is rejected.
 *
 * Pure: no sockets, no allocation.
 */
#ifndef PJ_HTTP_HEAD_H
#define PJ_HTTP_HEAD_H

#include "http/body.h"

enum { PJ_HEAD_MAX_BYTES = 64 << 10 };

typedef struct pj_head {
    size_t bytes; /* of the head, with the empty line */
    bool is_request;
    char method[16];    /* of a request */
    const char *target; /* of a request: part of the parsed bytes */
    size_t target_bytes;
    bool has_host;          /* of a request; several are rejected */
    bool wrong_expectation; /* Expect with anything but 100-continue */
    int status;             /* of a response */
    int minor;              /* of HTTP/1.x: 0, or 1 for all later ones */
    pj_body_kind body;      /* of a response, assuming that the request was not HEAD */
    uint64_t length;        /* PJ_BODY_LENGTH */
    bool keep_alive;        /* the connection can be reused */
    bool upgrades;          /* has a field Upgrade */
} pj_head;

typedef enum pj_head_verdict {
    PJ_HEAD_INCOMPLETE = 0,
    PJ_HEAD_COMPLETE,
    PJ_HEAD_BAD
} pj_head_verdict;

/* Why a head is bad. */
typedef struct pj_head_fault {
    int status; /* to answer a request with */
    const char *detail;
} pj_head_fault;

/* Parses the bytes received so far; whatever follows the head is ignored. A fault is reported as
 * soon as its line is complete. In a head that is incomplete or bad, the members read so far are
 * set. */
pj_head_verdict pj_head_parse(const char *bytes, size_t count, bool is_request, size_t max_bytes,
                              pj_head *head, pj_head_fault *fault);

/* A field of a complete head. */
typedef struct pj_head_field {
    const char *line; /* the whole line with CR LF */
    size_t line_bytes;
    const char *name, *value;
    size_t name_bytes, value_bytes; /* the value without the white space around it */
} pj_head_field;

/* Iterates over the fields of a complete head; *at is 0 before the first call. */
bool pj_head_next(const char *head, size_t bytes, size_t *at, pj_head_field *field);
/* The value of the first field of that name; NULL: there is none. */
const char *pj_head_find(const char *head, size_t bytes, const char *name, size_t *length);
bool pj_field_is(const pj_head_field *field, const char *name);
/* Whether a comma-separated value holds the token, in any case. */
bool pj_field_has(const char *value, size_t length, const char *token);

#endif
