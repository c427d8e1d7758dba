/* Private to exchange*.c: measurements, and who writes them. */
#ifndef PJ_REPORT_EXCHANGE_FORMS_H
#define PJ_REPORT_EXCHANGE_FORMS_H

#include "insight/sides.h"
#include "report/exchange.h"

/* Runs of one model with equal settings. Energies are gross, of the request: without loading the
 * model and idle time. */
typedef struct pj_exchange_item {
    const pj_run_info *first; /* stands for all in what they have in common */
    uint32_t runs;
    pj_mean joules;           /* of a request (of all sequences of a batch), with its interval */
    pj_mean joules_per_token; /* output token */
    double seconds;           /* of a request, mean */
    double input_tokens, output_tokens;                            /* of a request, mean */
    double total_joules, total_seconds, total_input, total_output; /* of all requests */
    double flops;      /* of a request; NAN: not counted */
    double gpu_joules; /* of all requests; NAN: no measured rail of a GPU */
    uint32_t gpus;
    bool gpu_modelled;
} pj_exchange_item;

typedef struct pj_exchange {
    const pj_exchange_item *items;
    uint32_t count; /* at least 1, each with an energy */
    const pj_exchange_terms *terms;
    char now[32]; /* ISO 8601, UTC, whole seconds */
    char id[PJ_UUID_BYTES];
} pj_exchange;

void pj_exchange_cyclonedx(const pj_exchange *exchange, pj_json *json);
void pj_exchange_spdx(const pj_exchange *exchange, pj_json *json);
void pj_exchange_sci(const pj_exchange *exchange, pj_json *json);
void pj_exchange_eu(const pj_exchange *exchange, pj_json *json);
void pj_exchange_inferencex(const pj_exchange *exchange, pj_json *json);

/* Shared texts. */
void pj_exchange_boundary(const pj_exchange_item *item, const pj_exchange_terms *terms, char *text,
                          size_t bytes);
void pj_exchange_task(const pj_exchange_item *item, char *text, size_t bytes);
/* Whether an earlier item is of the same model. */
bool pj_exchange_is_known_model(const pj_exchange *exchange, uint32_t item);
bool pj_exchange_same_model(const pj_exchange_item *a, const pj_exchange_item *b);
/* Name of the model; "unnamed model". */
const char *pj_exchange_model(const pj_exchange_item *item);
/* Energy of the facility, if the PUE is known. */
static inline double pj_exchange_kwh(double joules, const pj_exchange_terms *terms)
{
    return joules / 3.6e6 * (isnan(terms->pue) ? 1 : terms->pue);
}

#endif
