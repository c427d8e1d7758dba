/* Replays a response through wire, events and exchange as client and proxy do, split into reads at
 * arbitrary positions. */
#ifndef PJ_TEST_REPLAYED_H
#define PJ_TEST_REPLAYED_H

#include "attach/exchange.h"
#include "http/head.h"

typedef struct replayed {
    pj_exchange *exchange;
    pj_head head;
    pj_body body;
    pj_buffer waiting; /* received part of the head */
    bool has_head, broken;
} replayed;

void replay_begin(replayed *r, const char *path, const char *request_body);
void replay_feed(replayed *r, const char *bytes, size_t count, int64_t at_ns);
void replay_end(replayed *r, int64_t at_ns); /* end of the connection */
void replay_fini(replayed *r);

#endif
