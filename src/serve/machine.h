/* Models and sensors of this machine for the server's routes. */
#ifndef PJ_SERVE_MACHINE_H
#define PJ_SERVE_MACHINE_H

#include "net/service.h"
#include "power/meter.h"
#include "serve/power_log.h"

/* The array of GET /api/profiling/models: those in `folder` (NULL: the default), in the Hugging
 * Face cache, and the demonstration model. */
pj_status pj_serve_write_models(const char *folder, pj_json *out, pj_error *err);
/* Resolves a model name to a path. Names from the network are never paths: they cannot leave the
 * directories of models. "synthetic:SHAPE" is accepted as it is. NULL: the demonstration model. A
 * model whose weights exceed this machine's memory is refused. */
pj_status pj_serve_find_model(const char *folder, const char *name, const char *dtype, char *path,
                              size_t bytes, pj_error *err);

typedef struct pj_serve_sensors {
    const char *power;     /* the --power list of the server; NULL: pj_power_default() */
    const pj_meter *meter; /* that runs are measured with; NULL: --power none */
    bool busy;             /* a run is in progress */
} pj_serve_sensors;

/* The object of GET /api/profiling/sensors. Sensors are surveyed at most every few seconds; in
 * between, and during a run, the last result is returned. */
pj_status pj_serve_write_sensors(const pj_serve_sensors *sensors, pj_json *out, pj_error *err);
/* The object of GET /api/profiling/devices, likewise. */
void pj_serve_write_devices(const pj_serve_sensors *sensors, pj_json *out);
/* The object of GET /api/profiling/power/now: every rail with its power over the last `seconds`.
 * NULL, NULL: no rails. */
void pj_serve_write_power_now(const pj_meter *meter, pj_power_log *log, uint32_t seconds,
                              pj_json *out);

#endif
