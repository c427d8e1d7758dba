/* Devices of an open run, and their spans. */
#include "record/run_parts.h"

#include "base/sized.h"
#include "record/limits.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>

static double known(double value)
{
    return value > 0 ? value : NAN;
}

/* Its number; 0: the run does not have it yet. */
static uint32_t run_device_find(const pj_run *run, const pj_device_info *info)
{
    uint32_t count = atomic_load(&run->recorder.device_count);
    for (uint32_t d = 1; d < count; d++)
        if (pj_device_is(&run->devices[d], info)) return d;
    return 0;
}

static pj_status run_device_describe(pj_run *run, const pj_device_info *info, pj_device_row *row,
                                     pj_error *err)
{
    bool failed = false;
    char key[PJ_DEVICE_KEY_BYTES];
    pj_device_key(info->uuid, info->name, key);
    char *limits = pj_limits_kept(key);
    const struct {
        const char *from, **to;
    } texts[] = {{info->name, &row->name},     {info->kind ? info->kind : "gpu", &row->kind},
                 {info->uuid, &row->uuid},     {info->pci, &row->pci},
                 {info->driver, &row->driver}, {info->rail, &row->rail},
                 {limits, &row->limits}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        *texts[i].to = pj_run_keep_text(run, texts[i].from, &failed);
    free(limits);
    row->memory_bytes = known((double)info->memory_bytes);
    row->clock_mhz = known(info->clock_mhz);
    return failed ? pj_fail_memory(err, "a device of a run") : PJ_OK;
}

/* With the spool's mutex, which also keeps two threads from adding the same device twice. */
static pj_status run_device_add(pj_run *run, const pj_device_info *info, uint32_t *device,
                                pj_spool_writer *w)
{
    pj_device_row row = pj_device_row_make(0);
    pj_status status = run_device_describe(run, info, &row, w->err);
    if (status != PJ_OK) return status;
    uint32_t number = pj_recorder_add_device(&run->recorder);
    if (!number)
        return pj_fail(w->err, PJ_E_FULL,
                       "no room for the device %.60s: a run has at most %d devices", info->name,
                       PJ_MAX_DEVICES - 1);
    row.number = *device = number;
    run->devices[number] = row;
    pj_spool_put_device(w, &row);
    return w->status;
}

pj_status pj_device_declare(pj_run *run, const pj_device_info *from, uint32_t *device,
                            pj_error *err)
{
    enum { SIZE_0_1 = offsetof(pj_device_info, rail) + sizeof(const char *) };
    pj_device_info info;
    if (!run || !device)
        return pj_fail(err, PJ_E_INVALID, "pj_device_declare: run or device is NULL");
    *device = 0;
    pj_status status = PJ_SIZED_READ(pj_device_info, &info, from, SIZE_0_1, err);
    if (status == PJ_OK && (!info.name || !*info.name))
        status = pj_fail(err, PJ_E_INVALID, "pj_device_declare: the device has no name");
    if (status != PJ_OK) return status;
    pj_spool_writer w = pj_run_lock_spool(run, err);
    *device = run_device_find(run, &info);
    if (!*device) status = run_device_add(run, &info, device, &w);
    pj_run_unlock_spool(run, &w);
    return status;
}

pj_status pj_device_spans_add(pj_run *run, uint32_t device, const pj_device_batch *batch,
                              pj_error *err)
{
    if (!run) return pj_fail(err, PJ_E_INVALID, "pj_device_spans_add: run is NULL");
    return pj_recorder_add_device_spans(&run->recorder, device, batch, err);
}
