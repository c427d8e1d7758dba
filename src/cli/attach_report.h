/*
 * The cost of a load on a server: figures of the requests, and of the steady state, in which the
 * maximum number of requests is in flight. The steady-state window begins with the N-th first token
 * and ends with the (M-N)-th, where N is the concurrency and M the number of requests, which
 * excludes ramp-up and ramp-down.
 */
#ifndef PJ_CLI_ATTACH_REPORT_H
#define PJ_CLI_ATTACH_REPORT_H

#include "attach/dialect.h"
#include "requests/requests.h"

/* One request. Energies in mJ, times in ms; NAN: unknown. */
typedef struct pj_load_row {
    int64_t sent_ns, first_ns, last_ns;
    double input, cached, output; /* tokens; cached: 0 if unknown */
    double prefill_mj, decode_mj, total_mj;
    bool failed;
    int64_t *tokens_ns; /* arrival time of each */
    size_t token_count;
} pj_load_row;

typedef struct pj_load {
    pj_load_row *rows;
    uint32_t count, capacity;
    uint32_t failed, unstored, approximate;
    char first_failure[PJ_ERROR_TEXT_BYTES], store_failure[PJ_ERROR_TEXT_BYTES];
    pj_source_quality quality; /* the worst of the known energies; unavailable: there is none */
    uint32_t unknown;          /* requests without energy */
    char why_unknown[PJ_ERROR_TEXT_BYTES]; /* of the first */
    char partial[256];                     /* rails missing from the totals, in words; "": none */
    double gain_sd;      /* pj_run_gain_sd, the largest: intervals of the spread leave it out */
    char rule[16];       /* by which energy was divided; "" if energy is unavailable */
    bool keeps_data;     /* keep data for reports of single requests */
    pj_buffer summaries; /* JSON objects, separated by commas */
    char *report;        /* of the last run, as `perjoule run` prints it */
} pj_load;

void pj_load_add(pj_load *load, const pj_exchange *exchange, const pj_run_data *data,
                 const pj_error *err);
void pj_load_clear(pj_load *load);

typedef struct pj_load_window {
    const char *why_not; /* why there is no window; NULL: there is one */
    int64_t begin_ns, end_ns;
    double output, input; /* output tokens received; uncached prompt tokens of requests whose first
                             token lies in the window */
    pj_curve_energy machine;
    pj_source_quality quality; /* of the machine's energy */
} pj_load_window;
void pj_load_steady(const pj_load *load, uint32_t concurrency, pj_requests *requests,
                    pj_load_window *window);

void pj_load_print_one(const pj_load *load);
void pj_load_print(const pj_load *load, const pj_remote_server *server, uint32_t concurrency,
                   const pj_load_window *window);
void pj_load_print_json(const pj_load *load, const pj_remote_server *server, uint32_t concurrency,
                        const pj_load_window *window);

#endif
