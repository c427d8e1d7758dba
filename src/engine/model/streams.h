/*
 * Alternating updates (Gemma 3n): a token's residual stream is several streams of the hidden size,
 * adjacent in a row. A layer predicts what all of them become, as a mixture of them; computes the
 * active one; and corrects the others by the difference between its result and its prediction.
 * Coefficients are products of a few values, the tanh of a router's output.
 *
 * Beside attention such layers have a residual of low rank (laurel).
 */
#ifndef PJ_MODEL_STREAMS_H
#define PJ_MODEL_STREAMS_H

#include "engine/model/model.h"

struct pj_streams {
    pj_norm router_norm;       /* [hidden] */
    pj_projection router;      /* [streams, hidden] */
    pj_projection predict;     /* [streams streams, streams] */
    pj_projection correct;     /* [streams, streams] */
    const float *scale;        /* [hidden] of the corrected active stream, or NULL */
    pj_projection left, right; /* [rank, hidden], [hidden, rank] */
    pj_norm residual_norm;     /* [hidden] */
};

#endif
