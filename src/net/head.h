/* Strict checks of a request head (RFC 9112) before libmicrohttpd sees it, so that bad requests get
 * the right status and one problem document. Semantic checks follow in http.c (methods, Host,
 * Origin, token, path). */
#ifndef PJ_NET_HEAD_H
#define PJ_NET_HEAD_H

#include <stdbool.h>
#include <stddef.h>

enum { PJ_HEAD_MAX_BYTES = 24 << 10, PJ_LENGTH_MAX_BYTES = 64 << 20 };

typedef struct pj_head_verdict {
    unsigned status;    /* 0: valid, or not complete yet; else the status to refuse with */
    const char *detail; /* of a refusal */
    bool complete;      /* the final empty line has arrived */
    bool is_head;       /* the method is HEAD: the answer has no body */
} pj_head_verdict;

/* `bytes` begin with the request line; anything after the head is ignored. */
pj_head_verdict pj_head_judge(const char *bytes, size_t count);

#endif
