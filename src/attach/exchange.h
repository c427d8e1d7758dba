/*
 * One request and its answer as observed on the wire by the client (client.h) or the proxy
 * (proxy.h). Records when each part arrived: the first token, every later token, the server's
 * counts and timings, and how the request ended. A request becomes a run from this.
 *
 * Memory is bounded: beyond the limits, pieces of an answer are counted but not stored. Pure: no
 * sockets, no clock. Not thread-safe.
 */
#ifndef PJ_ATTACH_EXCHANGE_H
#define PJ_ATTACH_EXCHANGE_H

#include "attach/answer.h"
#include "attach/answer_template.h"
#include "attach/events.h"
#include "attach/hidden.h"
#include "trace/run_data.h"

enum {
    PJ_EXCHANGE_PIECES_MAX = 1 << 20,
    PJ_EXCHANGE_TEXT_MAX_BYTES = 16 << 20,
    PJ_EXCHANGE_PROMPT_MAX_BYTES = 256 << 10,
    PJ_EXCHANGE_SESSION_MAX_BYTES = PJ_SESSION_ID_MAX,
    PJ_EXCHANGE_CLIENT_MAX_BYTES = 64
};

typedef enum pj_exchange_outcome {
    PJ_EXCHANGE_OPEN = 0,
    PJ_EXCHANGE_COMPLETED,
    PJ_EXCHANGE_FAILED,   /* server error or truncated answer */
    PJ_EXCHANGE_CANCELLED /* the client disconnected */
} pj_exchange_outcome;

/* The request's parameters. Texts belong to the exchange; NULL: not given. */
typedef struct pj_exchange_request {
    bool is_inference; /* it requests inference */
    bool wants_stream;
    bool offers_tools;
    char *prompt;        /* a text; of a chat, its messages as lines "role: text" */
    size_t prompt_bytes; /* of the whole prompt, even if `prompt` is truncated */
    char model[128];
    int64_t max_tokens;                              /* -1: not given */
    char session[PJ_EXCHANGE_SESSION_MAX_BYTES + 1]; /* the task that it is a part of; "": none */
    char client[PJ_EXCHANGE_CLIENT_MAX_BYTES + 1];   /* who sent it; "": unknown */
    bool names_client;                               /* it says so itself */
} pj_exchange_request;

/* A token, as finally determined. Text points into the exchange. */
typedef struct pj_exchange_token {
    int64_t at_ns; /* arrival time */
    const char *text;
    uint32_t bytes;
    uint32_t choice;
    int32_t id; /* -1: unknown */
} pj_exchange_token;

/* A part of the answer as it arrived. */
typedef struct pj_exchange_piece {
    int64_t at_ns;
    size_t text; /* offset in the text */
    uint32_t bytes, choice;
    int32_t tokens; /* -1: unknown */
    int32_t id;
    bool reasoning;
} pj_exchange_piece;

typedef struct pj_exchange {
    /* For everybody to read. */
    pj_exchange_request asked;
    pj_answer answer;
    pj_exchange_outcome outcome;
    char failure[PJ_ERROR_TEXT_BYTES]; /* "": none */
    int status;                        /* of the answer; 0: none */
    int64_t sent_ns, end_ns;           /* 0: it has not ended */
    int64_t first_ns, last_ns;         /* first and last token so far; 0: none */
    /* A completed answer of which nothing can be read counts as failed, too. Set by a client of
     * its own; a proxy passes on more than it can read. */
    bool must_be_read;
    pj_hidden hidden; /* secrets of the request, which are masked in what the server says */
    /* The recording itself. */
    pj_answer_template usual; /* event that only gives text */
    pj_events events;
    int64_t now_ns;
    bool has_head, encoded;
    pj_buffer text;
    pj_exchange_piece *pieces;
    size_t count, capacity;
    uint64_t counted, uncounted; /* tokens in pieces of known count; pieces of unknown count */
    uint64_t unkept;             /* pieces beyond the bound, not stored */
    bool overflowed;             /* pieces or their text exceeded it */
    uint64_t choices;            /* sequences of the answer */
    bool doubts;                 /* its running count cannot be true */
} pj_exchange;

/* Whether a request asks for inference; other requests use negligible energy. */
bool pj_exchange_is_inference(const char *method, const char *target);
/* `target` and `method` as in the request line, and the complete body. NULL when out of memory. */
pj_exchange *pj_exchange_new(const char *method, const char *target, const char *body, size_t bytes,
                             int64_t sent_ns);
/* Ignores an id that is longer than the maximum or has other than printable ASCII characters. */
void pj_exchange_set_session(pj_exchange *exchange, const char *id);
/* The same of the client. `named`: by the request; else it is the address that it came from. */
void pj_exchange_set_client(pj_exchange *exchange, const char *name, bool named);
void pj_exchange_free(pj_exchange *exchange); /* NULL is allowed */
/* The answer's head; `encoded`: its payload is compressed and cannot be parsed. */
void pj_exchange_head(pj_exchange *exchange, int status, const char *content_type,
                      size_t type_bytes, bool encoded);
void pj_exchange_payload(pj_exchange *exchange, const char *bytes, size_t count, int64_t at_ns);
/* `why` (may be NULL) is the reason of a failure when the answer contains none. A completed answer
 * that contains an error, or has a status of 300 or above, counts as failed. */
void pj_exchange_end(pj_exchange *exchange, pj_exchange_outcome outcome, const char *why,
                     int64_t at_ns);

/* Output tokens so far: a chunk without token information counts as one. */
uint64_t pj_exchange_tokens_so_far(const pj_exchange *exchange);

/* Figures of an ended exchange. */
typedef struct pj_exchange_counts {
    int64_t input, cached; /* -1: unknown */
    uint64_t output;
    bool approximate;   /* without ids, counts or usage: the number of chunks */
    bool spread;        /* several tokens arrived in one chunk: their times are interpolated */
    bool contradictory; /* the server's counts are inconsistent */
} pj_exchange_counts;

pj_exchange_counts pj_exchange_count(const pj_exchange *exchange);
/* Tokens of reasoning that the server gave apart, before the answer's first content; -1: it gave
 * none, or there are several choices. */
int64_t pj_exchange_reasoning(const pj_exchange *exchange);
/* All tokens in order of time; as many as were counted, up to the maximum number of pieces. NULL
 * when there are none or memory is out; the caller frees it with pj_free. */
pj_exchange_token *pj_exchange_tokens(const pj_exchange *exchange, size_t *count);
/* The text of all choices in order of arrival, NUL-terminated; "" without any. */
const char *pj_exchange_text(const pj_exchange *exchange);

#endif
