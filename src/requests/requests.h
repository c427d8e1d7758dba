/*
 * The requests of a server that perjoule is attached to: each becomes a separate run in the
 * session's store, with its share of the machine's energy. The client or proxy that transfers the
 * bytes begins a request, reports progress, and ends it; the rest happens on two threads of this
 * object: one reads the meter, divides settled energy and writes the spools of open requests; the
 * other builds and stores runs once the sensors have seen their end.
 *
 * Threads: begin, progress, end and energy from any thread, each request from one at a time.
 */
#ifndef PJ_REQUESTS_REQUESTS_H
#define PJ_REQUESTS_REQUESTS_H

#include "requests/request_run.h"

typedef struct pj_requests pj_requests;
typedef struct pj_request pj_request;

/* A finished run, on the storing thread; `data` is NULL if it could not be built. `user` as given
 * to begin. `err` is why it is not stored, else PJ_OK. */
typedef void pj_request_done_fn(void *context, void *user, const pj_exchange *exchange,
                                const pj_run_data *data, const pj_error *err);

typedef struct pj_requests_options {
    pj_session *session; /* its meter and store must not be used by others meanwhile */
    const char *engine, *url, *model_name, *experiment_name;
    const char *const *tags;
    const pj_experiment_cell *cell_id; /* of all requests, in an experiment; or NULL */
    uint32_t concurrency; /* how many requests the client keeps in flight; 0: unknown */
    bool is_private;
    const char
        *no_power; /* reason why energy is unavailable even with a meter; NULL: it is available */
    pj_batch_rule rule;
    double weight_bytes, context_bytes; /* for PJ_BATCH_BYTES; 0: unknown */
    bool keeps_all; /* keep the machine's energy for pj_requests_machine over any interval */
    pj_request_done_fn *done;
    void *context;
} pj_requests_options;

/* Strings are borrowed until close. */
pj_status pj_requests_open(const pj_requests_options *options, pj_requests **requests,
                           pj_error *err);
/* Waits until every request that has ended is stored; those still open are ended as cancelled. */
void pj_requests_close(pj_requests *requests); /* NULL is allowed */
/* Waits until all requests that have ended so far are stored. */
void pj_requests_drain(pj_requests *requests);

/* Ownership of the exchange passes when the request ends. NULL when out of memory. */
pj_request *pj_request_begin(pj_requests *requests, pj_exchange *exchange, void *user);
void pj_request_progress(
    pj_request *request); /* to be called after the exchange has processed input */
/* The exchange has ended. Invalidates the request unless `holds`, in which case it stays valid
 * until pj_request_release. */
void pj_request_end(pj_request *request, bool holds);
void pj_request_release(pj_request *request);
const char *pj_request_id(const pj_request *request);

/* The current estimate of its energy; see pj_ledger_figure. */
pj_ledger_figure pj_request_energy(pj_request *request, int64_t now_ns);
pj_source_quality pj_requests_quality(const pj_requests *requests);
/* Energy of the machine over a settled interval; NAN: unknown. */
void pj_requests_machine(pj_requests *requests, int64_t begin_ns, int64_t end_ns,
                         pj_curve_energy *energy);
/* Energy divided among all requests so far, except while a sensor was silent. */
double pj_requests_divided_mj(pj_requests *requests, int64_t *unknown_ns);

#endif
