/*
 * Divides a machine's energy between what is in flight at the same time: requests that a server is
 * processing, or runs of a session (attribution/division.h). No sensor can separate them, so the
 * division is a convention and its result is `allocated`:
 *   equal   at every moment the same for all
 *   tokens  in proportion to declared weights, if there are any; equally while all of them are 0.
 *           For requests in proportion to their token rates: uncached prompt tokens over the
 *           duration of prefill, output tokens over the time between them
 *   bytes   the same between prefill and decode; within decode, the energy of reading the KV cache
 *           is divided by context length, that of reading the weights, which are read once for all,
 *           by the number of steps that each request took part in; idle power equally
 *
 * Time is cut into cells at every begin, first token, change of weight and end, and at least every
 * 20 ms (with declared weights, 5 s). Once the sensors have covered a cell, it is divided once and
 * for all (pj_ledger_settle), so that parts add up to the whole by construction, in whatever order
 * they are read. Until then figures are estimates and are marked as such.
 *
 * A request in flight without a token, streamed or not, has an unknown rate: until it has ended it
 * is taken to have the mean rate of the others, and every share of the time is that much less
 * certain. Time is therefore settled only when all requests in it have ended or have later tokens.
 *
 * Averages over a long window are deconvolved as they come in, so that shared time has the energy
 * that a run has which was alone. What has been settled is never changed.
 *
 * Time with nothing in flight is attributed to none. Pure data, no clock, no thread; not
 * thread-safe.
 */
#ifndef PJ_ATTRIBUTION_LEDGER_H
#define PJ_ATTRIBUTION_LEDGER_H

#include "power/checks.h"
#include "trace/run_data.h"

typedef struct pj_ledger pj_ledger;
typedef struct pj_ledger_entry pj_ledger_entry; /* one request or run */

typedef struct pj_ledger_cell {
    int64_t begin_ns, end_ns;
    uint32_t live;
    double weights, decoding; /* sums of weights: of all entries, of those in decode */
    double level; /* the same of all, with answers that came as a whole at a level rate */
    double context_part,
        context_weights; /* fraction of decode's energy spent on reading contexts */
    uint32_t unknown;    /* entries of unknown rate */
    double guessed; /* weights of entries that go on at their own rate after their last token */
    double late;    /* of that, what is not in `weights`, since a token is late */
} pj_ledger_cell;

typedef void pj_ledger_take(void *context, const pj_ledger_cell *cell);

typedef struct pj_ledger_options {
    const pj_rail *rails; /* every rail whose energy is divided */
    uint32_t rail_count;
    const double *idle_mw; /* [rail_count], NAN: unknown; NULL: all unknown */
    pj_batch_rule rule;    /* PJ_BATCH_BYTES needs both figures below */
    double weight_bytes;   /* read by one step */
    double context_bytes;  /* keys and values of one token of context */
    bool keeps_all;        /* pj_ledger_machine may later be called for any interval */
    /* With declared weights: is given every settled cell, also those with nothing in flight. What
     * entries receive is then up to it (pj_ledger_part), and they have no figures. */
    pj_ledger_take *take;
    void *context;
} pj_ledger_options;

pj_ledger *pj_ledger_new(const pj_ledger_options *options); /* NULL when memory is out */
void pj_ledger_free(pj_ledger *ledger);                     /* frees the entries left in it */
pj_batch_rule pj_ledger_rule(const pj_ledger *ledger);      /* that is applied */

/* A reading of a rail (index into the options' rails). */
pj_status pj_ledger_read(pj_ledger *ledger, const pj_reading *reading, pj_error *err);
/* The time up to which every rail that counts in the total is known (only those set in `rails` if
 * not NULL); INT64_MIN: unknown. */
int64_t pj_ledger_known_ns(const pj_ledger *ledger, const bool *rails);
/* The same of one rail. */
int64_t pj_ledger_rail_known_ns(const pj_ledger *ledger, uint32_t rail);
/* Up to where no later reading changes what is known. */
int64_t pj_ledger_sure_ns(const pj_ledger *ledger);
/* Energy of the machine over an interval, as far as it is known. */
void pj_ledger_machine(const pj_ledger *ledger, int64_t begin_ns, int64_t end_ns,
                       pj_curve_energy *energy);
void pj_ledger_rail(const pj_ledger *ledger, uint32_t rail, int64_t begin_ns, int64_t end_ns,
                    pj_curve_energy *energy);
/* The rail whose log a counter follows, or -1; and its energy joined with that (power/curve.h). */
int pj_ledger_log_of(const pj_ledger *ledger, uint32_t rail);
void pj_ledger_join_log(const pj_ledger *ledger, uint32_t rail, double ns,
                        const pj_curve_energy *log, pj_curve_energy *energy);
/* What the rails contradict each other in over an interval (power/checks.h). */
uint32_t pj_ledger_check(const pj_ledger *ledger, int64_t begin_ns, int64_t end_ns,
                         pj_finding findings[PJ_FINDINGS_MAX]);

/* ---- requests and runs, in order of time ---- */

/* `prompt_guess`: prompt tokens estimated from the length of the text. NULL when out of memory. */
pj_ledger_entry *pj_ledger_enter(pj_ledger *ledger, int64_t begin_ns, double prompt_guess);
/* Corrects the guess: prompt tokens that were processed, and those that were cached. */
void pj_ledger_prompt(pj_ledger_entry *entry, double worked_on, double cached);
/* Nothing was done for it until then: it waited in the server's queue. Before the first token. */
void pj_ledger_waited(pj_ledger_entry *entry, int64_t until_ns);
/* Adds output tokens; the first call ends the prefill. */
void pj_ledger_tokens(pj_ledger_entry *entry, int64_t at_ns, double tokens);
/* For an answer that came as a whole, without its server's timings: output tokens of unknown times.
 * Its phases are then taken to be in proportion to those of other requests. */
void pj_ledger_whole(pj_ledger_entry *entry, double tokens);
void pj_ledger_leave(pj_ledger_entry *entry, int64_t end_ns);
/* Declares the weight from `at_ns` on, in place of a prompt and tokens. */
void pj_ledger_weigh(pj_ledger_entry *entry, int64_t at_ns, double weight);
/* Releases an entry that has ended, is settled, and whose figures have been read. */
void pj_ledger_drop(pj_ledger *ledger, pj_ledger_entry *entry);

/* ---- dividing ---- */

/* While nothing is in flight: begins to divide at `at_ns`; readings long before are forgotten. */
void pj_ledger_start(pj_ledger *ledger, int64_t at_ns);
/* Divides all time up to `until_ns`; what the sensors have not covered by then stays unknown in
 * every share. With declared weights, all cells that end by then. */
pj_status pj_ledger_settle(pj_ledger *ledger, int64_t until_ns, pj_error *err);
/* The entry's fraction of a cell that is being taken; NAN: it is not in flight. */
double pj_ledger_part(const pj_ledger *ledger, const pj_ledger_entry *entry,
                      const pj_ledger_cell *cell);
/* The time up to which shares are final: every rail and the work of every request in flight are
 * known. Settling up to it from time to time changes no share and leaves less to estimate.
 * INT64_MIN: unknown. */
int64_t pj_ledger_certain_ns(const pj_ledger *ledger);
/* The time up to which the work of all requests in flight is known; INT64_MAX: none is in flight.
 */
int64_t pj_ledger_work_ns(const pj_ledger *ledger);
/* Estimates for all entries as of now, from known energy and the rates of the last second. */
void pj_ledger_estimate(pj_ledger *ledger, int64_t now_ns);

/* mJ; NAN: unavailable. */
typedef struct pj_ledger_figure {
    double input_mj, output_mj; /* before and after the first token; output NAN before it */
    double total_mj, sd_mj;
    double rate_mw; /* at which it grows */
    double rate_sd_mw;
    int64_t at_ns;    /* as of when */
    int64_t first_ns; /* first token; 0: not yet */
    bool provisional; /* some of it is estimated */
    bool shared;      /* other requests were in flight at the same time */
} pj_ledger_figure;
pj_ledger_figure pj_ledger_of(const pj_ledger *ledger, const pj_ledger_entry *entry);
/* Extrapolates an estimate at its rate; until the first token the growth counts as input. */
pj_ledger_figure pj_ledger_at(const pj_ledger_figure *figure, int64_t now_ns);
/* The same of an entry, less certain where others have come or gone since. */
pj_ledger_figure pj_ledger_now(const pj_ledger *ledger, const pj_ledger_entry *entry,
                               int64_t now_ns);

/* The energy of a settled entry per rail, cumulative from its begin: points in order of time, the
 * first at its begin with 0 everywhere, the last at its end. mj[point * rail_count + rail], NAN
 * where it is unknown since the previous point. */
typedef struct pj_ledger_series {
    const int64_t *t_ns;
    const double *mj;
    size_t count;
    uint32_t rail_count;
} pj_ledger_series;
pj_ledger_series pj_ledger_series_of(const pj_ledger *ledger, const pj_ledger_entry *entry);
/* 1 sigma of a settled entry's energy on a rail without that of the gain, and its idle energy. */
double pj_ledger_sd_mj(const pj_ledger *ledger, const pj_ledger_entry *entry, uint32_t rail);
double pj_ledger_idle_mj(const pj_ledger *ledger, const pj_ledger_entry *entry, uint32_t rail);
/* Energy divided so far among all entries, over the rails that count in the total; without the time
 * in which one of these was silent. */
double pj_ledger_divided_mj(const pj_ledger *ledger, int64_t *unknown_ns);

#endif
