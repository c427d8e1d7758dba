/*
 * Turns the records and readings of a run into live events (trace/live.h). Figures are provisional:
 * the energy of a token is read from curves that are still growing. Used only by the collector
 * thread.
 *
 * Stages and parts inside tokens are sent for at most 20 tokens per second; tokens are always sent.
 */
#ifndef PJ_RECORD_LIVE_FEED_H
#define PJ_RECORD_LIVE_FEED_H

#include "base/progress.h"
#include "power/meter.h"
#include "trace/live.h"
#include "trace/recorder.h"
#include "trace/spool.h"

typedef struct pj_live_feed pj_live_feed;

/* Borrows all arguments; `meter` may be NULL. */
pj_status pj_live_feed_open(const pj_live_sink *sink, const char *run_id, int64_t start_ns,
                            pj_meter *meter, pj_live_feed **feed, pj_error *err);
void pj_live_feed_close(pj_live_feed *feed); /* NULL is allowed */
void pj_live_feed_record(pj_live_feed *feed, const pj_record *record);
void pj_live_feed_readings(pj_live_feed *feed, const pj_reading *readings, size_t count);
/* Reports the running layer, at most every 50 ms: its span arrives only when it ends, in a large
 * model seconds later. */
void pj_live_feed_context(pj_live_feed *feed, const pj_context *context, int64_t now_ns);
/* Reports how much of the model has been loaded, at most every 50 ms and only when it has changed.
 */
void pj_live_feed_load(pj_live_feed *feed, const pj_progress *progress, int64_t now_ns);
void pj_live_feed_flush(pj_live_feed *feed); /* end of a round: sends power in one batch */

#endif
