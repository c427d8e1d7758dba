/* The list of compute backends, and opening one. Adding a backend is a file and a line here. */
#include "engine/forward/backend.h"

extern const pj_backend pj_backend_cpu;

const pj_backend *const pj_backends[] = {&pj_backend_cpu, NULL};

pj_status pj_compute_open(pj_compute *compute, const pj_backend *backend,
                          const pj_compute_host *host, const pj_state_options *options,
                          pj_error *err)
{
    if (!backend) backend = pj_backends[0];
    *compute = (pj_compute){.backend = backend, .options = *options};
    if (backend->version != PJ_BACKEND_VERSION)
        return pj_fail(err, PJ_E_INTERNAL,
                       "compute backend %s has version %u, but this engine expects %d",
                       backend->name, backend->version, PJ_BACKEND_VERSION);
    return backend->open(compute, host, options, err);
}

void pj_compute_close(pj_compute *compute)
{
    if (compute->own) compute->backend->close(compute);
    *compute = (pj_compute){0};
}
