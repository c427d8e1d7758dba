/* Spools of runs written by hand, with explicit times, and the runs built from them. */
#ifndef PJ_TEST_MADE_SPOOL_H
#define PJ_TEST_MADE_SPOOL_H

#include "attribution/build.h"

enum { LAYERS_NAME = 1, Q_PROJ, ATTENTION, DOWN_PROJ, SOFTMAX, QK_MATMUL, SAMPLING, ENTROPY };

extern const char *const names[]; /* by number */

typedef struct writer {
    pj_spool spool;
    uint32_t serial;
} writer;

/* An open spool with the facts of a deep run and the names. */
void open_spool(writer *w);
/* The end of a completed run. */
void put_end(writer *w, int64_t at_ns);
pj_span make(pj_span_kind kind, uint32_t id, pj_phase phase, int32_t token, int32_t layer,
             int64_t begin, int64_t end);
void put_span(writer *w, pj_span span, uint32_t serial);
void put_begin(writer *w, pj_span span, uint32_t serial);
void put_text(writer *w, uint32_t serial, uint32_t sequence, int32_t id, const char *text);
/* A run from 1 000 to 10 001 000 ns: prefill of one token, decode of `steps`, two layers each.
 * Like the recorder, serial numbers are assigned at the begin and records are written at the end of
 * a span. */
void put_run(writer *w, int steps, uint32_t sequences);
/* Finishes the run of the spool; `sim`: NULL, or what its rails read. */
pj_status build(writer *w, const pj_sim_spec *sim, pj_run_data *data);
pj_status build_with(writer *w, const pj_build_options *options, pj_run_data *data);
/* The run of `steps` by put_run, ended and built. */
void build_steps(writer *w, const pj_sim_spec *sim, int steps, pj_run_data *data);
/* The same in `ns` instead of 10 ms; without building it. */
void put_slow_steps(writer *w, int steps, int64_t ns);
void build_slow_steps(writer *w, const pj_sim_spec *sim, int steps, int64_t ns, pj_run_data *data);
/* children + self = parent, to the nanojoule, at every level. */
void assert_conserved(const pj_run_data *d);
void put_rails(writer *w, const pj_sim_spec *sim);
/* A spool with simulated rails described by `text`. */
void begin_run(writer *w, pj_sim_spec *sim, const char *text);
/* Frees the run and deletes the spool. */
void end_run(writer *w, pj_run_data *data);

#endif
