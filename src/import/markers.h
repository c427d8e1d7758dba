/*
 * Markers: phases and spans that a program reports while `perjoule exec` measures it. The program
 * (or a library loaded into it) writes one line per event to an inherited descriptor; this turns
 * the lines into spans. docs/formats.md has the grammar:
 *
 *     [@NS | @BEGIN-END] [#LANE] begin KIND NAME | end | span KIND NAME | tokens INPUT OUTPUT
 *                                | fact NAME VALUE | lost N
 *
 * or the same as one JSON object per line. Lines are untrusted: their length, depth and the numbers
 * of lanes, names and events are bounded; invalid lines are counted and ignored.
 *
 * Until the first phase begins the program is in `pre_inference`; after the last one has ended it
 * is in `post_inference`. One thread at a time.
 */
#ifndef PJ_IMPORT_MARKERS_H
#define PJ_IMPORT_MARKERS_H

#include "record/run.h"

enum { PJ_MARKER_LINE_BYTES = 4096, PJ_MARKER_LANES = 32, PJ_MARKER_NAMES = 4096 };

typedef struct pj_markers pj_markers;

typedef struct pj_markers_counts {
    uint64_t events, malformed;
    uint64_t input_tokens, output_tokens; /* from a `tokens` line, else the number of token spans */
    bool has_tokens;                      /* there was a `tokens` line */
    uint64_t lost;                        /* spans that the program reported as lost */
    bool has_times; /* some lines had explicit times, so they may have been reported late */
} pj_markers_counts;

/* Facts reported by the program; "" and 0: not reported. */
typedef struct pj_markers_facts {
    char engine[64], level[8], model[256], architecture[64];
    uint64_t layers, parameters;
} pj_markers_facts;

/* Owned by the calling thread, which must record nothing else in the run. */
pj_status pj_markers_new(pj_run *run, pj_markers **markers, pj_error *err);
/* Takes bytes read from the descriptor at `now_ns`; lines may be split anywhere. */
void pj_markers_feed(pj_markers *markers, const char *bytes, size_t count, int64_t now_ns);
/* Where a thread of the program launched work at a time: in the innermost span that it had open,
 * else in that of lane 0, else in the phase of that time. `thread` 0: unknown. False: later marker
 * lines may still tell. */
bool pj_markers_launch(const pj_markers *markers, uint32_t thread, int64_t at_ns,
                       pj_launch *launch);
/* Whether the program has reported a span in which work may be launched. */
bool pj_markers_has_spans(const pj_markers *markers);
/* The program has ended: closes open spans, warns about ignored lines, and hands the token counts
 * to the run. Do not call pj_markers_feed afterwards. */
void pj_markers_finish(pj_markers *markers, int64_t now_ns);
pj_markers_counts pj_markers_count(const pj_markers *markers);
const pj_markers_facts *pj_markers_fact(const pj_markers *markers);
void pj_markers_free(pj_markers *markers); /* NULL is allowed */

#endif
