/* The machine's power now, read within a deadline: for prompts and status lines. Each source is
 * read on a thread of its own; one that has not answered in time is named instead of awaited. */
#ifndef PJ_POWER_NOW_H
#define PJ_POWER_NOW_H

#include "power/source.h"

typedef struct pj_power_now {
    pj_rail rails[PJ_MAX_RAILS];
    double mw[PJ_MAX_RAILS]; /* NAN: no reading */
    uint32_t count;
    double total_mw; /* NAN: one that counts has no reading, or was late */
    bool modelled;
    char late[64]; /* names of sources, "nvml"; "": none. Their threads go on: exit without cleaning
                      up */
} pj_power_now;

/* Reads the sources of a --power list that read sensors of this machine at any moment. Streams and
 * models are left out unless the list names them; recordings and other machines are refused there,
 * and left out of the usual list (NULL). */
pj_status pj_power_now_read(const pj_power_env *env, const char *list, int64_t within_ns,
                            pj_power_now *now, pj_error *err);

#endif
