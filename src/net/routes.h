/* The routing table: which method, path and parameters lead to which handler. */
#ifndef PJ_NET_ROUTES_H
#define PJ_NET_ROUTES_H

#include "net/http.h"
#include "net/hub.h"
#include "net/relay.h"
#include "net/service.h"
#include "net/turns.h"

typedef struct pj_routes {
    const pj_service *service;
    pj_hub *hub;
    pj_relay *relay;               /* live streams of other machines; NULL: joining is disabled */
    void (*say)(const char *text); /* NULL: nobody listens */
    pj_turns *turns;               /* of answers that are computed from all runs */
    pj_gate gate;
} pj_routes;

/* The head has been checked and the body read. */
enum MHD_Result pj_routes_answer(const pj_routes *routes, pj_http *http);

/* The OpenAPI document embedded in the binary. */
extern const unsigned char pj_openapi_json[];
extern const size_t pj_openapi_json_bytes;

#endif
