/* Models and sensors of this machine, as the server tells of them. */
#ifndef PJ_SERVE_MACHINE_H
#define PJ_SERVE_MACHINE_H

#include "net/service.h"
#include "power/meter.h"
#include "serve/power_log.h"

/* The array of GET /api/profiling/models: those in `folder` (NULL: the default), in the Hugging
 * Face cache, and the demonstration model. */
pj_status pj_serve_write_models(const char *folder, pj_json *out, pj_error *err);
/* From a name of that array to a path. What comes over the network is a name, never a path: it
 * cannot lead out of the places where models are. "synthetic:SHAPE" is taken as it is. NULL: the
 * demonstration model. A model whose weights would not fit into this machine's memory is refused.
 */
pj_status pj_serve_find_model(const char *folder, const char *name, const char *dtype, char *path,
                              size_t bytes, pj_error *err);

typedef struct pj_serve_sensors {
    const char *power;     /* the --power list of the server; NULL: pj_power_default() */
    const pj_meter *meter; /* that runs are measured with; NULL: --power none */
    bool busy;             /* a run goes on */
} pj_serve_sensors;

/* The object of GET /api/profiling/sensors. The sensors are asked at most every few seconds; in
 * between, and while a run goes on, the last answer is given again. */
pj_status pj_serve_write_sensors(const pj_serve_sensors *sensors, pj_json *out, pj_error *err);
/* The object of GET /api/profiling/power/now: every rail with its power over the last `seconds`.
 * NULL, NULL: there are no rails. */
void pj_serve_write_power_now(const pj_meter *meter, pj_power_log *log, uint32_t seconds,
                              pj_json *out);

#endif
