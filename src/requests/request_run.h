/* Makes a run of a recorded request (attach/exchange.h) and its share of the machine's energy
 * (attribution/ledger.h): phases and tokens as spans, the share as readings of counters, built by
 * the same code as every other run. */
#ifndef PJ_REQUESTS_REQUEST_RUN_H
#define PJ_REQUESTS_REQUEST_RUN_H

#include "attach/exchange.h"
#include "attribution/ledger.h"
#include "record/experiment_cell.h"
#include "record/session.h"

enum { PJ_REQUEST_WARNINGS = 8 };

typedef struct pj_request_warning {
    int64_t t_ns;
    char code[32];
    char text[PJ_ERROR_TEXT_BYTES];
} pj_request_warning;

/* Facts common to all requests of a server. Strings are borrowed. */
typedef struct pj_request_origin {
    const pj_session *session;
    const char *engine, *url, *experiment_name;
    const char *model_name;            /* used if neither request nor response names one; or NULL */
    const char *const *tags;           /* NULL-terminated, or NULL */
    const pj_experiment_cell *cell_id; /* in an experiment; or NULL */
    uint32_t concurrency;              /* 0: unknown */
    bool is_private;
    const pj_rail *rails; /* the ledger's rails */
    uint32_t rail_count;
    pj_source_quality quality;
    const char *power_sources, *partial_rails; /* NULL: none */
} pj_request_origin;

/* The times of a request's phases, as far as its response reveals them. */
typedef struct pj_request_times {
    int64_t begin_ns, load_ns, load_end_ns, prefill_ns, first_ns, last_ns, end_ns;
    bool has_load, has_prefill;
    bool is_whole; /* its tokens arrived at once: equal shares of decode */
    bool is_one;   /* prefill and decode are indistinguishable */
} pj_request_times;
pj_request_times pj_request_times_of(const pj_exchange *exchange);

/* Facts of a run that has begun or ended. Texts go to the arena. */
pj_status pj_request_info(const pj_request_origin *origin, const pj_exchange *exchange,
                          const char *id, int64_t wall_ns, const char *allocation, pj_arena *arena,
                          pj_run_info *info, pj_error *err);

/* A rail whose readings are the request's share, as a counter without noise; `sd_mj` of the share
 * becomes the counter's resolution. */
pj_rail pj_request_rail(const pj_request_origin *origin, uint32_t rail, double sd_mj);
pj_reading pj_request_reading(const pj_ledger_series *series, size_t point, uint32_t rail,
                              bool after_gap, uint32_t sequence);

/* The finished run. */
typedef struct pj_request_parts {
    const pj_request_origin *origin;
    const pj_exchange *exchange;
    const char *allocation;  /* name of the rule; NULL: no energy is known */
    bool is_shared;          /* other requests were in flight at the same time */
    pj_ledger_series series; /* the following members are meaningless without one */
    double sd_mj[PJ_MAX_RAILS], idle_mj[PJ_MAX_RAILS], idle_sd_mj[PJ_MAX_RAILS];
    double total_mj; /* NAN: unknown */
    const char *id;
    int64_t wall_ns;
    const pj_request_warning *warnings;
    uint32_t warning_count;
} pj_request_parts;
pj_status pj_request_build(const pj_request_parts *parts, pj_run_data *data, pj_error *err);

#endif
