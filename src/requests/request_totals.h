/*
 * What the requests of a server have used so far, by model and client, as Prometheus reads it. A
 * model or client beyond the first 128 pairs is counted as "other": clients choose both names.
 *
 * Any thread.
 */
#ifndef PJ_REQUESTS_REQUEST_TOTALS_H
#define PJ_REQUESTS_REQUEST_TOTALS_H

#include "attach/exchange.h"
#include "net/service.h"
#include "trace/run_data.h"

typedef struct pj_request_totals pj_request_totals;

pj_request_totals *pj_request_totals_new(void); /* NULL: out of memory */
void pj_request_totals_free(pj_request_totals *totals);
void pj_request_totals_begin(pj_request_totals *totals);
/* It has ended; its run may follow. */
void pj_request_totals_end(pj_request_totals *totals);
/* Its run is built; `data` NULL: it could not be. */
void pj_request_totals_add(pj_request_totals *totals, const pj_exchange *exchange,
                           const pj_run_data *data);
/* `machine_mj`: the machine's energy while any request was in flight; NAN: unknown. */
void pj_request_totals_write(pj_request_totals *totals, double machine_mj, pj_buffer *out);
/* Tokens, runs and seconds over all of them. */
void pj_request_totals_metrics(pj_request_totals *totals, pj_metrics *metrics);

#endif
