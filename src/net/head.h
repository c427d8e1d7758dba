/*
 * The head of an HTTP request, judged strictly (RFC 9112) before libmicrohttpd sees it, so that what
 * has to be refused is refused once, with the right status and a problem document. What passes here
 * is still checked for meaning by http.c (methods, Host, Origin, token, path).
 */
#ifndef PJ_NET_HEAD_H
#define PJ_NET_HEAD_H

#include <stdbool.h>
#include <stddef.h>

enum { PJ_HEAD_MAX_BYTES = 24 << 10, PJ_LENGTH_MAX_BYTES = 64 << 20 };

typedef struct pj_head_verdict {
    unsigned status;    /* 0: fine, or not complete yet; else the status to refuse with */
    const char *detail; /* of a refusal */
    bool complete;      /* the empty line at its end is there */
    bool is_head;       /* the method is HEAD: an answer has no body */
} pj_head_verdict;

/* `bytes` begin with the request line; what follows the head is not looked at. */
pj_head_verdict pj_head_judge(const char *bytes, size_t count);

#endif
