/*
 * Turns the records and readings of a run into events for a listener (trace/live.h). Figures are
 * provisional: the energy of a token is read from curves that still grow. Used by the collector
 * thread alone.
 *
 * Stages and parts inside tokens are told for 20 tokens a second at most; tokens are all told.
 */
#ifndef PJ_PROFILE_LIVE_FEED_H
#define PJ_PROFILE_LIVE_FEED_H

#include "power/meter.h"
#include "trace/live.h"
#include "trace/spool.h"

typedef struct pj_live_feed pj_live_feed;

/* Borrows all of it; `meter` may be NULL. */
pj_status pj_live_feed_open(const pj_live_sink *sink, const char *run_id, int64_t start_ns,
                            pj_meter *meter, const pj_power_env *env, pj_live_feed **feed,
                            pj_error *err);
void pj_live_feed_close(pj_live_feed *feed); /* NULL is allowed */
void pj_live_feed_record(pj_live_feed *feed, const pj_record *record);
void pj_live_feed_readings(pj_live_feed *feed, const pj_reading *readings, size_t count);
void pj_live_feed_flush(pj_live_feed *feed); /* end of a round: power goes out in one batch */

#endif
