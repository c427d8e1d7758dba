/*
 * Dividing the machine's energy between the runs of a session that are open at the same time. No
 * sensor sees one of them alone, so the division is a rule (trace/share.h) and its result is
 * `allocated`.
 *
 * Runs are entries of a ledger (attribution/ledger.h) with declared weights: within one of its
 * cells every run has a constant share. Once the sensors have seen a cell, its energy is
 * determined, once and for all: the parts of all runs add up to it by construction, no matter
 * which of them ends first. Windows (energy between two moments, without a run) are
 * measured from the same curves.
 *
 * Pure data, no clock, no threads; one thread at a time, times never decrease.
 */
#ifndef PJ_ATTRIBUTION_DIVISION_H
#define PJ_ATTRIBUTION_DIVISION_H

#include "power/checks.h"
#include "trace/share.h"

typedef struct pj_division pj_division;
typedef struct pj_division_member pj_division_member; /* one run */
typedef struct pj_division_window pj_division_window;

/* NULL when out of memory. The rails are copied. */
pj_division *pj_division_new(const pj_rail *rails, uint32_t rail_count, pj_share_rule rule);
void pj_division_free(pj_division *division); /* frees its members and windows; NULL is allowed */

pj_status pj_division_read(pj_division *division, const pj_reading *reading, pj_error *err);

/* ---- runs ---- */

/* The run's time begins at `*at_ns`, which is raised if necessary. NULL when out of memory. */
pj_division_member *pj_division_enter(pj_division *division, int64_t *at_ns, double weight);
void pj_division_weigh(pj_division *division, pj_division_member *member, int64_t at_ns,
                       double weight);
void pj_division_leave(pj_division *division, pj_division_member *member, int64_t *at_ns);
/* A run that has left, once its time is settled. */
void pj_division_drop(pj_division *division, pj_division_member *member);
/* Whether it ever had less than all of the energy. */
bool pj_division_is_shared(const pj_division_member *member);
/* The next record for the run's spool; its energies, if any, are borrowed until the next call. A
 * run that was always alone has none. */
bool pj_division_next(pj_division_member *member, pj_share_record *record,
                      const pj_share_energy **energies);

/* The time up to which every rail that counts in the total is known (only those set in `rails` if
 * not NULL); INT64_MIN: unknown. */
int64_t pj_division_known_ns(const pj_division *division, const bool *rails);
/* Up to where no later reading changes what is known. */
int64_t pj_division_sure_ns(const pj_division *division);
/* Determines the energy of all cells that the sensors have seen, and of those that ended before
 * `force_ns` even if they have not. */
void pj_division_settle(pj_division *division, int64_t now_ns, int64_t force_ns);

/* ---- windows ---- */

pj_division_window *pj_division_window_open(pj_division *division, int64_t begin_ns);
void pj_division_window_stop(pj_division_window *window, int64_t end_ns);
/* Energy of one rail over a stopped window, from the readings so far. */
void pj_division_window_energy(const pj_division *division, const pj_division_window *window,
                               uint32_t rail, pj_curve_energy *energy);
/* What the rails contradict each other in over its last two seconds. */
uint32_t pj_division_window_check(const pj_division *division, const pj_division_window *window,
                                  pj_finding findings[PJ_FINDINGS_MAX]);
void pj_division_window_close(pj_division *division, pj_division_window *window);

#endif
