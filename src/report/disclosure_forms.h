/* Private to disclosure*.c: measurements, and who writes them. */
#ifndef PJ_REPORT_DISCLOSURE_FORMS_H
#define PJ_REPORT_DISCLOSURE_FORMS_H

#include "insight/sides.h"
#include "report/disclosure.h"

/* Runs of one model with equal settings. Energies are gross, of the request: without loading the
 * model and idle time. */
typedef struct pj_disclosure_item {
    const pj_run_info *first; /* stands for all in what they have in common */
    uint32_t runs;
    pj_mean joules;           /* of a request (of all sequences of a batch), with its interval */
    pj_mean joules_per_token; /* output token */
    double seconds;           /* of a request, mean */
    double input_tokens, output_tokens;                            /* of a request, mean */
    double total_joules, total_seconds, total_input, total_output; /* of all requests */
    double flops; /* of a request; NAN: not counted */
    /* in prefill and decode of all requests; joules NAN: no measured rail of a GPU */
    double gpu_joules, gpu_seconds;
    uint32_t gpus;
    bool gpu_modelled;
} pj_disclosure_item;

typedef struct pj_disclosure {
    const pj_disclosure_item *items;
    uint32_t count; /* at least 1, each with an energy */
    const pj_disclosure_terms *terms;
    char now[32]; /* ISO 8601, UTC, whole seconds */
    char id[PJ_UUID_BYTES];
} pj_disclosure;

void pj_disclosure_cyclonedx(const pj_disclosure *disclosure, pj_json *json);
void pj_disclosure_spdx(const pj_disclosure *disclosure, pj_json *json);
void pj_disclosure_sci(const pj_disclosure *disclosure, pj_json *json);
void pj_disclosure_eu(const pj_disclosure *disclosure, pj_json *json);
void pj_disclosure_inferencex(const pj_disclosure *disclosure, pj_json *json);

/* Shared texts. */
void pj_disclosure_boundary(const pj_disclosure_item *item, const pj_disclosure_terms *terms,
                            char *text, size_t bytes);
void pj_disclosure_task(const pj_disclosure_item *item, char *text, size_t bytes);
/* Whether an earlier item is of the same model. */
bool pj_disclosure_is_known_model(const pj_disclosure *disclosure, uint32_t item);
bool pj_disclosure_same_model(const pj_disclosure_item *a, const pj_disclosure_item *b);
/* Name of the model; "unnamed model". */
const char *pj_disclosure_model(const pj_disclosure_item *item);
/* Energy of the facility, if the PUE is known. */
static inline double pj_disclosure_kwh(double joules, const pj_disclosure_terms *terms)
{
    return joules / 3.6e6 * (isnan(terms->pue) ? 1 : terms->pue);
}

#endif
