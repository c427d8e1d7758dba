/* Spans as they travel from a recording thread to the collector and the spool: fixed layout, 56
 * bytes, ids instead of strings. Statistics and extra figures follow in the same record. */
#ifndef PJ_TRACE_SPAN_H
#define PJ_TRACE_SPAN_H

#include <perjoule.h>

/* The context is that of the enclosing spans on the same lane when the span was open. */
typedef struct pj_span {
    int64_t begin_ns, end_ns;
    float flops, bytes; /* NAN: not given */
    uint32_t serial;    /* counts spans of this lane from 0 */
    uint32_t id;        /* meaning by kind, see pj_span_kind */
    int32_t token;      /* output position of the enclosing token span, -1: none */
    int16_t layer;      /* -1: none */
    uint16_t lane;      /* number of the recording thread in this run, from 0 */
    uint16_t section;   /* interned name, 0: none */
    uint16_t component; /* interned name, 0: none */
    uint8_t kind;       /* pj_span_kind */
    uint8_t phase;      /* pj_phase */
    uint8_t flags;      /* PJ_SPAN_... */
    uint8_t device;     /* number of the device, 0: the host */
    uint32_t reserved;
} pj_span;

enum {
    PJ_SPAN_HAS_STATS = 1,
    PJ_SPAN_HAS_EXTRAS = 2,
    PJ_SPAN_DEVICE = 4,    /* of a device; its times came from that device's clock */
    PJ_SPAN_UNFINISHED = 8 /* still open when the run ended */
};

_Static_assert(sizeof(pj_span) == 56, "spans are part of the spool's format");

/* A span outside layers whose work is unknown; a token's span lies in its token. */
static inline pj_span pj_span_make(uint32_t serial, pj_span_kind kind, uint32_t id, pj_phase phase,
                                   int64_t begin_ns, int64_t end_ns)
{
    return (pj_span){.begin_ns = begin_ns,
                     .end_ns = end_ns,
                     .flops = __builtin_nanf(""),
                     .bytes = __builtin_nanf(""),
                     .serial = serial,
                     .id = id,
                     .token = kind == PJ_SPAN_TOKEN ? (int32_t)id : -1,
                     .layer = -1,
                     .kind = (uint8_t)kind,
                     .phase = (uint8_t)phase};
}

#endif
