/*
 * How many bytes ahead of their use products of few tokens prefetch weights. Which distance is best
 * differs from processor to processor, by up to a third of the reading speed: some follow four
 * streams well by themselves and are only kept busy. So it is chosen by measurement, for each
 * weight type, from products that are computed anyway: while a choice is open, products of one
 * token over the same number of bytes take the distances in turn and are timed. Results do not
 * depend on it.
 *
 * Choices are made only while the weights in use are beyond the caches (pj_ahead_begin), and are
 * kept per machine in the user's cache folder. One thread at a time.
 */
#ifndef PJ_KERNELS_AHEAD_H
#define PJ_KERNELS_AHEAD_H

#include "base/error.h"
#include "engine/files/dtype.h"

enum { PJ_AHEAD_DISTANCES = 3, PJ_AHEAD_SAMPLES = 16 };

extern const unsigned pj_ahead_distances[PJ_AHEAD_DISTANCES]; /* bytes; the first is the default */

typedef struct pj_ahead_choice {
    unsigned chosen, next; /* indices of distances */
    unsigned samples;      /* taken, of all distances in turn */
    size_t bytes;          /* of the products that are compared; 0: none yet */
    int64_t measured_s;    /* when it was made, since 1970; 0: open */
    int64_t ns[PJ_AHEAD_DISTANCES][PJ_AHEAD_SAMPLES];
} pj_ahead_choice;

/* Zeroed: every distance is the default, nothing is tried. */
typedef struct pj_ahead {
    bool active, changed; /* choices may be made; some are not kept yet */
    pj_ahead_choice types[PJ_DTYPE_COUNT];
} pj_ahead;

size_t pj_ahead_bytes(const pj_ahead *a, pj_dtype type);
/* Whether a product over `bytes` of this type's weights (0: none that can be compared) should be
 * timed, and pj_ahead_took called. Selects the distance. */
bool pj_ahead_try(pj_ahead *a, pj_dtype type, size_t bytes);
void pj_ahead_took(pj_ahead *a, pj_dtype type, int64_t ns);

/* Starts making choices if this many bytes of weights cannot stay in the processor's caches. */
void pj_ahead_begin(pj_ahead *a, uint64_t weight_bytes);
/* Reads the choices kept for a kernel set and number of threads on this machine, and writes those
 * made since; best effort. Choices that are old or are not understood are made again. `path` NULL:
 * prefetch.json in the user's cache folder. */
void pj_ahead_read(pj_ahead *a, const char *path, const char *set, unsigned threads);
void pj_ahead_write(pj_ahead *a, const char *path, const char *set, unsigned threads);

#endif
