/*
 * What a load on a server cost: the requests' own figures, and those of the steady state, in which
 * as many requests as are allowed are in flight. Its window begins with the N-th first token and
 * ends with the (M-N)-th, N being the concurrency and M the number of requests: neither the empty
 * server in the beginning nor the last ones in the end are in it.
 */
#ifndef PJ_CLI_ATTACH_REPORT_H
#define PJ_CLI_ATTACH_REPORT_H

#include "attach/dialect.h"
#include "profile/requests.h"

/* One request. Energies in mJ, times in ms; NAN: unknown. */
typedef struct pj_load_row {
    uint32_t index;
    int64_t sent_ns, first_ns, last_ns, end_ns;
    double input, cached, output; /* tokens */
    double prefill_mj, decode_mj, total_mj;
    bool failed;
    char run_id[PJ_UUID_BYTES];
    int64_t *tokens_ns; /* when each came */
    size_t token_count;
} pj_load_row;

typedef struct pj_load {
    pj_load_row *rows;
    uint32_t count, capacity;
    uint32_t failed, unstored, approximate;
    char first_failure[PJ_ERROR_TEXT_BYTES], store_failure[PJ_ERROR_TEXT_BYTES];
    pj_source_quality quality;
    char rule[16];       /* by which energy was divided; "" where none was known */
    bool keeps_data;     /* keep data for reports of single requests */
    pj_buffer summaries; /* JSON objects, separated by commas */
    char *report;        /* of the last run, as `perjoule run` prints it */
} pj_load;

void pj_load_add(pj_load *load, uint32_t index, const pj_exchange *exchange,
                 const pj_run_data *data, const pj_error *err);
void pj_load_clear(pj_load *load);

typedef struct pj_load_window {
    const char *why_not; /* why there is no window; NULL: there is one */
    int64_t begin_ns, end_ns;
    double output, input; /* tokens that came; prompt tokens of first tokens in it, not cached */
    pj_curve_energy machine;
} pj_load_window;
void pj_load_steady(const pj_load *load, uint32_t concurrency, pj_requests *requests,
                    pj_load_window *window);

void pj_load_print_one(const pj_load *load);
void pj_load_print(const pj_load *load, const pj_remote_server *server, uint32_t concurrency,
                   const pj_load_window *window);
void pj_load_print_json(const pj_load *load, const pj_remote_server *server, uint32_t concurrency,
                        const pj_load_window *window);

#endif
