/*
 * NVML: power and energy of NVIDIA GPUs. The library is loaded at run time (libnvidia-ml.so.1).
 *
 * Each GPU's rail uses the best reading that works, tried once at the start: the total-energy
 * counter (Volta and newer), else instant power (field 186), else average power (field 185 or
 * nvmlDeviceGetPowerUsage). Besides a counter, the driver's log of power (nvml_log.h) is kept as a
 * platform rail inside the GPU's, to distribute the counter's energy and for comparison; without a
 * log, instant power for comparison; and the memory's average power where the card reports it.
 * Periods and windows were measured on cards of each architecture (docs/power-sources.md) and are
 * checked again by the meter.
 *
 * Devices are keyed by UUID: CUDA's device order is not NVML's. Numbers in CUDA_VISIBLE_DEVICES are
 * taken in NVML's order, which is CUDA's under CUDA_DEVICE_ORDER=PCI_BUS_ID. With MIG the power is
 * that of the whole board.
 */
#include "power/nvml_log.h"
#include "power/source.h"

#include "base/memory.h"
#include "power/nvml_watch.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_GPUS = 16, MAX_RAILS = 48, MS = 1000000 };

typedef enum reading_kind { COUNTER, COUNTER_FIELD, FIELD, USAGE, LOG } reading_kind;

typedef struct gpu {
    nvml_device device;
    char uuid[NVML_TEXT_BYTES], name[NVML_TEXT_BYTES];
    unsigned architecture;
    bool mig;
    double limit_mw;
    bool lost;
    nvml_log log;
} gpu;

typedef struct gpu_rail {
    uint32_t gpu;
    reading_kind how;
    unsigned field, scope;
    bool primary; /* the GPU's own rail, which contains the others */
} gpu_rail;

typedef struct pj_nvml_watch {
    nvml_api api;
    char driver[NVML_TEXT_BYTES];
    gpu gpus[MAX_GPUS];
    uint32_t gpu_count;
    gpu_rail rails[MAX_RAILS];
    uint32_t rail_count;
    uint64_t selected; /* rails that a read is for */
} nvml;

/* ---- the library ---- */

static bool load_symbols(nvml_api *a)
{
    const struct {
        void **slot;
        const char *newest, *older;
        bool needed;
    } symbols[] = {
        {(void **)&a->init, "nvmlInit_v2", "nvmlInit", true},
        {(void **)&a->shutdown, "nvmlShutdown", NULL, true},
        {(void **)&a->error_string, "nvmlErrorString", NULL, true},
        {(void **)&a->device_count, "nvmlDeviceGetCount_v2", "nvmlDeviceGetCount", true},
        {(void **)&a->device_by_index, "nvmlDeviceGetHandleByIndex_v2",
         "nvmlDeviceGetHandleByIndex", true},
        {(void **)&a->device_by_uuid, "nvmlDeviceGetHandleByUUID", NULL, false},
        {(void **)&a->device_of_mig, "nvmlDeviceGetDeviceHandleFromMigDeviceHandle", NULL, false},
        {(void **)&a->uuid, "nvmlDeviceGetUUID", NULL, true},
        {(void **)&a->name, "nvmlDeviceGetName", NULL, false},
        {(void **)&a->architecture, "nvmlDeviceGetArchitecture", NULL, false},
        {(void **)&a->mig_mode, "nvmlDeviceGetMigMode", NULL, false},
        {(void **)&a->power_limits, "nvmlDeviceGetPowerManagementLimitConstraints", NULL, false},
        {(void **)&a->enforced_limit, "nvmlDeviceGetEnforcedPowerLimit", NULL, false},
        {(void **)&a->total_energy, "nvmlDeviceGetTotalEnergyConsumption", NULL, false},
        {(void **)&a->power_usage, "nvmlDeviceGetPowerUsage", NULL, false},
        {(void **)&a->field_values, "nvmlDeviceGetFieldValues", NULL, false},
        {(void **)&a->samples, "nvmlDeviceGetSamples", NULL, false},
        {(void **)&a->driver_version, "nvmlSystemGetDriverVersion", NULL, false},
        {(void **)&a->temperature, "nvmlDeviceGetTemperature", NULL, false},
        {(void **)&a->clock, "nvmlDeviceGetClockInfo", NULL, false},
        {(void **)&a->utilisation, "nvmlDeviceGetUtilizationRates", NULL, false},
        {(void **)&a->default_limit, "nvmlDeviceGetPowerManagementDefaultLimit", NULL, false},
        {(void **)&a->clock_reasons, "nvmlDeviceGetCurrentClocksEventReasons",
         "nvmlDeviceGetCurrentClocksThrottleReasons", false},
        {(void **)&a->power_limit, "nvmlDeviceGetPowerManagementLimit", NULL, false},
        {(void **)&a->max_clock, "nvmlDeviceGetMaxClockInfo", NULL, false},
        {(void **)&a->set_power_limit, "nvmlDeviceSetPowerManagementLimit", NULL, false},
        {(void **)&a->lock_clocks, "nvmlDeviceSetGpuLockedClocks", NULL, false},
        {(void **)&a->reset_clocks, "nvmlDeviceResetGpuLockedClocks", NULL, false},
    };
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        *symbols[i].slot = dlsym(a->library, symbols[i].newest);
        if (!*symbols[i].slot && symbols[i].older)
            *symbols[i].slot = dlsym(a->library, symbols[i].older);
        if (!*symbols[i].slot && symbols[i].needed) return false;
    }
    return true;
}

static void unload(nvml_api *a)
{
    if (!a->library) return;
    if (a->shutdown) a->shutdown();
    dlclose(a->library);
    *a = (nvml_api){0};
}

static bool nvml_load(nvml_api *a, const pj_power_env *env, pj_source_report *report)
{
    const char *name = env->nvml_library ? env->nvml_library : "libnvidia-ml.so.1";
    *a = (nvml_api){.library = dlopen(name, RTLD_NOW | RTLD_LOCAL)};
    if (!a->library) {
        pj_source_explain(report, PJ_E_UNAVAILABLE,
                          "install the NVIDIA driver; in a container start it with --gpus all and "
                          "NVIDIA_DRIVER_CAPABILITIES including utility",
                          "there is no %s", name);
        return false;
    }
    if (!load_symbols(a)) {
        pj_source_explain(report, PJ_E_UNAVAILABLE, "install a current NVIDIA driver",
                          "%s lacks calls that power readings need", name);
        a->shutdown = NULL; /* there was no nvmlInit */
        unload(a);
        return false;
    }
    nvml_return status = a->init();
    if (status == NVML_OK) return true;
    pj_source_explain(report, PJ_E_UNAVAILABLE,
                      status == NVML_DRIVER_NOT_LOADED ? "sudo modprobe nvidia"
                                                       : "run nvidia-smi to find the cause",
                      "NVML cannot be initialised: %s", a->error_string(status));
    a->shutdown = NULL; /* nvmlInit failed */
    unload(a);
    return false;
}

/* ---- which devices ---- */

static bool same_uuid(const char *wanted, size_t length, const char *uuid)
{
    /* CUDA accepts an unambiguous prefix of "GPU-xxxxxxxx-...". */
    return length >= 8 && strncmp(wanted, uuid, length) == 0;
}

static gpu *find_gpu_by_uuid(nvml *n, const char *word, size_t length)
{
    for (uint32_t i = 0; i < n->gpu_count; i++)
        if (same_uuid(word, length, n->gpus[i].uuid)) return &n->gpus[i];
    return NULL;
}

/* The board that holds a MIG instance: "MIG-<uuid>", or formerly "MIG-GPU-<uuid>/gi/ci". */
static gpu *find_gpu_of_mig(nvml *n, const char *word, size_t length)
{
    char text[NVML_TEXT_BYTES];
    nvml_device instance, board;
    if (length > 8 && strncmp(word, "MIG-GPU-", 8) == 0)
        return find_gpu_by_uuid(n, word + 4, strcspn(word + 4, "/,"));
    if (length >= sizeof text || !n->api.device_by_uuid || !n->api.device_of_mig) return NULL;
    memcpy(text, word, length);
    text[length] = 0;
    if (n->api.device_by_uuid(text, &instance) != NVML_OK ||
        n->api.device_of_mig(instance, &board) != NVML_OK)
        return NULL;
    for (uint32_t i = 0; i < n->gpu_count; i++)
        if (n->gpus[i].device == board) return &n->gpus[i];
    return NULL;
}

/* Keeps the devices visible to CUDA, in its order. As in CUDA, an unmatched entry ends the list. */
static void keep_visible(nvml *n, const char *visible)
{
    gpu kept[MAX_GPUS];
    uint32_t count = 0;
    if (!visible) return;
    for (const char *word = visible; *word;) {
        size_t length = strcspn(word, ",");
        char *end;
        unsigned long index = strtoul(word, &end, 10);
        gpu *found = NULL;
        if (end > word && (size_t)(end - word) == length)
            found = index < n->gpu_count ? &n->gpus[index] : NULL;
        else if (strncmp(word, "MIG-", 4) == 0)
            found = find_gpu_of_mig(n, word, length);
        else
            found = find_gpu_by_uuid(n, word, length);
        if (!found) break;
        bool twice = false;
        for (uint32_t i = 0; i < count; i++) twice |= kept[i].device == found->device;
        if (!twice && count < MAX_GPUS) kept[count++] = *found;
        word += length + (word[length] == ',');
    }
    memcpy(n->gpus, kept, count * sizeof *kept);
    n->gpu_count = count;
}

static void find_gpus(nvml *n, const char *visible)
{
    unsigned count = 0;
    if (n->api.device_count(&count) != NVML_OK) return;
    for (unsigned i = 0; i < count && n->gpu_count < MAX_GPUS; i++) {
        gpu *g = &n->gpus[n->gpu_count];
        unsigned least = 0, most = 0, mig_now = 0, mig_pending = 0;
        *g = (gpu){0};
        if (n->api.device_by_index(i, &g->device) != NVML_OK ||
            n->api.uuid(g->device, g->uuid, sizeof g->uuid) != NVML_OK)
            continue;
        if (n->api.name) n->api.name(g->device, g->name, sizeof g->name);
        if (n->api.architecture) n->api.architecture(g->device, &g->architecture);
        if (n->api.mig_mode && n->api.mig_mode(g->device, &mig_now, &mig_pending) == NVML_OK)
            g->mig = mig_now == 1;
        if (n->api.power_limits && n->api.power_limits(g->device, &least, &most) == NVML_OK)
            g->limit_mw = most;
        n->gpu_count++;
    }
    keep_visible(n, visible);
}

/* ---- which readings ---- */

static double field_number(const nvml_field *f)
{
    switch (f->value_type) {
    case 0: return f->value.d;
    case 1: return f->value.ui;
    case 2: return (double)f->value.ul;
    case 3: return (double)f->value.ull;
    case 4: return (double)f->value.sll;
    case 5: return (double)(int)f->value.ui;
    default: return NAN;
    }
}

static nvml_return nvml_read_field(const nvml *n, const gpu *g, unsigned field, unsigned scope,
                                   double *value)
{
    nvml_field f = {.field = field, .scope = scope, .status = NVML_NOT_SUPPORTED};
    *value = NAN;
    if (!n->api.field_values) return NVML_NOT_SUPPORTED;
    nvml_return status = n->api.field_values(g->device, 1, &f);
    if (status != NVML_OK) return status;
    if (f.status == NVML_OK) *value = field_number(&f);
    return f.status;
}

static nvml_return read_rail(const nvml *n, const gpu_rail *r, double *value)
{
    const gpu *g = &n->gpus[r->gpu];
    unsigned long long energy_mj;
    unsigned power_mw;
    nvml_return status = NVML_NOT_SUPPORTED;
    *value = NAN;
    switch (r->how) {
    case COUNTER:
        if (n->api.total_energy) status = n->api.total_energy(g->device, &energy_mj);
        if (status == NVML_OK) *value = (double)energy_mj * 1e3;
        return status;
    case COUNTER_FIELD:
        status = nvml_read_field(n, g, r->field, r->scope, value);
        *value *= 1e3;
        return status;
    case FIELD: return nvml_read_field(n, g, r->field, r->scope, value);
    default:
        if (n->api.power_usage) status = n->api.power_usage(g->device, &power_mw);
        if (status == NVML_OK) *value = power_mw;
        return status;
    }
}

/* Adds the rail if it works now; some cards report a power of 0 for "not supported". */
static bool try_rail(nvml *n, gpu_rail rail)
{
    double value;
    if (n->rail_count == MAX_RAILS || read_rail(n, &rail, &value) != NVML_OK || !(value > 0))
        return false;
    n->rails[n->rail_count++] = rail;
    return true;
}

/* A counter that cannot be read leaves its place to the log, whose windows are known of this card.
 */
static bool try_log(nvml *n, gpu_rail rail)
{
    const gpu *g = &n->gpus[rail.gpu];
    if (g->architecture != NVML_HOPPER || n->rail_count == MAX_RAILS ||
        nvml_log_capacity(&n->api, g->device) == 0)
        return false;
    n->rails[n->rail_count++] = rail;
    return true;
}

/* An unreadable GPU keeps a rail without readings, so that totals are marked incomplete. */
static void keep_unreadable(nvml *n, uint32_t g)
{
    if (n->rail_count == MAX_RAILS) return;
    n->gpus[g].lost = true;
    n->rails[n->rail_count++] = (gpu_rail){g, USAGE, 0, NVML_SCOPE_GPU, true};
}

/* False: nothing of this GPU can be read. */
static bool nvml_choose_rails(nvml *n, uint32_t g)
{
    const gpu_rail own[] = {
        {g, COUNTER, 0, NVML_SCOPE_GPU, true},
        {g, COUNTER_FIELD, NVML_FIELD_TOTAL_ENERGY, NVML_SCOPE_GPU, true},
        {g, LOG, 0, NVML_SCOPE_GPU, true},
        {g, FIELD, NVML_FIELD_POWER_INSTANT, NVML_SCOPE_GPU, true},
        {g, FIELD, NVML_FIELD_POWER_AVERAGE, NVML_SCOPE_GPU, true},
        {g, USAGE, 0, NVML_SCOPE_GPU, true},
        /* GH200 may refuse the GPU scope; the module scope includes the CPU and is labelled so. */
        {g, FIELD, NVML_FIELD_POWER_INSTANT, NVML_SCOPE_MODULE, true},
        {g, FIELD, NVML_FIELD_POWER_AVERAGE, NVML_SCOPE_MODULE, true},
    };
    size_t i = 0, ways = sizeof own / sizeof *own;
    while (i < ways && !(own[i].how == LOG ? try_log(n, own[i]) : try_rail(n, own[i]))) i++;
    if (i == ways) {
        keep_unreadable(n, g);
        return false;
    }
    if (own[i].how == COUNTER || own[i].how == COUNTER_FIELD) {
        /* The log is five times finer than the instant power; where there is none, that is kept. */
        if (nvml_log_capacity(&n->api, n->gpus[g].device) > 0 && n->rail_count < MAX_RAILS)
            n->rails[n->rail_count++] = (gpu_rail){g, LOG, 0, NVML_SCOPE_GPU, false};
        else
            try_rail(n, (gpu_rail){g, FIELD, NVML_FIELD_POWER_INSTANT, NVML_SCOPE_GPU, false});
    }
    try_rail(n, (gpu_rail){g, FIELD, NVML_FIELD_POWER_AVERAGE, NVML_SCOPE_MEMORY, false});
    return true;
}

/* ---- the source ---- */

static pj_status nvml_open(void *state, const pj_power_env *env, const char *argument,
                           pj_source_report *report)
{
    nvml *n = state;
    const char *visible = env->visible_devices;
    if (!nvml_load(&n->api, env, report)) return PJ_E_UNAVAILABLE;
    if (n->api.driver_version) n->api.driver_version(n->driver, sizeof n->driver);
    find_gpus(n, visible);
    uint32_t readable = 0;
    n->selected = UINT64_MAX;
    for (uint32_t g = 0; g < n->gpu_count; g++) readable += nvml_choose_rails(n, g);
    if (readable > 0) return PJ_OK;
    unload(&n->api);
    report->unread = n->gpu_count > 0;
    if (n->gpu_count > 0)
        return pj_source_explain(report, PJ_E_UNAVAILABLE,
                                 "vGPUs and cards before Fermi have none: measure on the host",
                                 "%s gives neither energy nor power", n->gpus[0].name);
    if (visible)
        return pj_source_explain(report, PJ_E_UNAVAILABLE, "unset CUDA_VISIBLE_DEVICES",
                                 "CUDA_VISIBLE_DEVICES=%s hides every GPU", visible);
    return pj_source_explain(report, PJ_E_UNAVAILABLE, "see nvidia-smi -L", "NVML found no GPU");
}

enum { BLIND_WINDOW_NS = 25 * MS, HALF_WINDOW_NS = 10 * MS };
enum { LOG_PERIOD_NS = 20 * MS, LOG_WINDOW_NS = 25 * MS, LOG_DELAY_NS = 5 * MS / 2 };

static bool is_ga100(const gpu *g)
{
    return g->architecture == NVML_AMPERE &&
           (strstr(g->name, "A100") || strstr(g->name, "A800") || strstr(g->name, "A30"));
}

/* Milliseconds between updates, and the length of the averaging window. */
static void instant_timing(const gpu *g, int64_t *period_ns, int64_t *window_ns)
{
    *period_ns = *window_ns = 100 * MS;
    if (g->architecture == NVML_HOPPER || is_ga100(g)) *window_ns = BLIND_WINDOW_NS;
    if (g->architecture == NVML_VOLTA || g->architecture == NVML_PASCAL)
        *period_ns = 20 * MS, *window_ns = HALF_WINDOW_NS;
}

static bool usage_is_average(const gpu *g)
{
    return g->architecture >= NVML_AMPERE && !is_ga100(g);
}

static void nvml_describe(const nvml *n, const gpu_rail *r, pj_rail *rail)
{
    const gpu *g = &n->gpus[r->gpu];
    bool counter = r->how == COUNTER || r->how == COUNTER_FIELD;
    bool average = (r->how == FIELD && r->field == NVML_FIELD_POWER_AVERAGE) ||
                   (r->how == USAGE && usage_is_average(g));
    *rail = (pj_rail){.source = "nvml",
                      .rail_class = r->primary ? PJ_RAIL_GPU : PJ_RAIL_PLATFORM,
                      .kind = counter   ? PJ_RAIL_COUNTER
                              : average ? PJ_RAIL_AVERAGE
                                        : PJ_RAIL_INSTANT,
                      .scope = r->scope == NVML_SCOPE_MODULE   ? PJ_SCOPE_MODULE
                               : r->scope == NVML_SCOPE_MEMORY ? PJ_SCOPE_DOMAIN
                                                               : PJ_SCOPE_BOARD,
                      .quality = PJ_MEASURED,
                      .parent = -1,
                      .resolution = counter ? 1000 : 1,
                      .max_mw = g->limit_mw};
    instant_timing(g, &rail->period_ns, &rail->window_ns);
    if (average) rail->window_ns = 1000 * (int64_t)MS, rail->delay_ns = 0;
    if (r->how == LOG) {
        rail->period_ns = LOG_PERIOD_NS;
        rail->window_ns = LOG_WINDOW_NS;
        rail->delay_ns = LOG_DELAY_NS;
        rail->log_ns = (int64_t)nvml_log_capacity(&n->api, g->device) * LOG_PERIOD_NS;
    }
    /* Measured on an H200 and assumed of its siblings: the counter adds up all of the time. */
    if (counter && g->architecture == NVML_HOPPER) {
        rail->window_ns = rail->period_ns;
        rail->delay_ns = 6 * MS;
    }
    /* Whether the counter of a GA100 board, whose sensor sees 25 of 100 ms, adds up more than that
     * is not documented; assuming it does would make intervals surer than they may be. Of boards
     * that see half of 20 ms, and of later ones, even less is known. */
    if (counter && (rail->window_ns == HALF_WINDOW_NS || g->architecture > NVML_HOPPER))
        rail->window_ns = PJ_WINDOW_UNKNOWN;
    snprintf(rail->name, sizeof rail->name, "gpu%u%s", r->gpu,
             r->primary                      ? ""
             : r->scope == NVML_SCOPE_MEMORY ? "-memory"
             : r->how == LOG                 ? "-log"
                                             : "-instant");
    snprintf(rail->device, sizeof rail->device, "%.42s %.18s", g->uuid, n->driver);
    char field[40];
    snprintf(field, sizeof field, "field %u scope %u", r->field, r->scope);
    snprintf(rail->field, sizeof rail->field, "%s%s",
             r->how == COUNTER ? "total energy"
             : r->how == USAGE ? "power usage"
             : r->how == LOG   ? "power samples"
                               : field,
             g->mig ? ", whole board (MIG)" : "");
}

static uint32_t nvml_rails(const void *state, pj_rail *rails)
{
    const nvml *n = state;
    for (uint32_t i = 0; i < n->rail_count; i++) {
        nvml_describe(n, &n->rails[i], &rails[i]);
        for (uint32_t k = 0; k < i && !n->rails[i].primary; k++)
            if (n->rails[k].primary && n->rails[k].gpu == n->rails[i].gpu) rails[i].parent = (int)k;
    }
    return n->rail_count;
}

static pj_status nvml_status(gpu *g, nvml_return status)
{
    switch (status) {
    case NVML_OK: return PJ_OK;
    case NVML_GPU_IS_LOST:
    case NVML_NOT_FOUND: g->lost = true; return PJ_E_NOT_FOUND;
    case NVML_NOT_SUPPORTED: return PJ_E_UNSUPPORTED;
    case NVML_NO_PERMISSION: return PJ_E_DENIED;
    default: return PJ_E_IO;
    }
}

/* Appends what one rail gives now. */
static uint32_t nvml_read_one(nvml *n, uint32_t rail, pj_reading *readings, uint32_t max)
{
    const gpu_rail *r = &n->rails[rail];
    gpu *g = &n->gpus[r->gpu];
    pj_reading *one = readings;
    uint32_t count = 0;
    *one = (pj_reading){.rail = (uint16_t)rail, .before_ns = pj_clock_ns()};
    if (r->how == LOG && !g->lost) {
        nvml_return status =
            nvml_log_read(&n->api, g->device, &g->log, (uint16_t)rail, readings, max, &count);
        if (status == NVML_OK) return count;
        *one = (pj_reading){.rail = (uint16_t)rail, .before_ns = pj_clock_ns()};
        one->after_ns = one->before_ns;
        pj_source_fail_reading(one, nvml_status(g, status));
        return 1;
    }
    pj_status status = nvml_status(g, g->lost ? NVML_GPU_IS_LOST : read_rail(n, r, &one->value));
    one->after_ns = pj_clock_ns();
    if (status == PJ_OK && isnan(one->value)) status = PJ_E_INVALID;
    if (status != PJ_OK) pj_source_fail_reading(one, status);
    return 1;
}

static void nvml_select(void *state, uint64_t rails)
{
    ((nvml *)state)->selected = rails;
}

/* Logs first: they show how the energy up to a counter's value was distributed. */
static pj_status nvml_read(void *state, pj_reading *readings, uint32_t max, uint32_t *count)
{
    nvml *n = state;
    *count = 0;
    for (int logs = 1; logs >= 0; logs--)
        for (uint32_t i = 0; i < n->rail_count && *count < max; i++)
            if ((n->selected >> i & 1) && (n->rails[i].how == LOG) == (logs == 1))
                *count += nvml_read_one(n, i, readings + *count, max - *count);
    for (uint32_t g = 0; g < n->gpu_count; g++)
        if (!n->gpus[g].lost) return PJ_OK;
    return PJ_E_LOST;
}

static uint32_t nvml_limits(const void *state, double *limits_mw)
{
    const nvml *n = state;
    for (uint32_t i = 0; i < n->rail_count; i++) {
        const gpu *g = &n->gpus[n->rails[i].gpu];
        unsigned mw = 0;
        bool known = n->rails[i].primary && n->api.enforced_limit && !g->lost &&
                     n->api.enforced_limit(g->device, &mw) == NVML_OK && mw > 0;
        limits_mw[i] = known ? mw : NAN;
    }
    return n->rail_count;
}

static void nvml_close(void *state)
{
    nvml *n = state;
    unload(&n->api);
    n->rail_count = n->gpu_count = 0;
}

const pj_power_source pj_source_nvml = {
    .version = PJ_POWER_SOURCE_VERSION,
    .name = "nvml",
    .state_bytes = sizeof(nvml),
    .open = nvml_open,
    .rails = nvml_rails,
    .select = nvml_select,
    .read = nvml_read,
    .close = nvml_close,
    .limits = nvml_limits,
    .counts_for = 1u << PJ_RAIL_GPU,
};

/* ---- conditions ---- */

pj_nvml_watch *pj_nvml_watch_open(const pj_power_env *env)
{
    pj_source_report report;
    pj_nvml_watch *w = pj_alloc(1, sizeof *w);
    if (!w) return NULL;
    if (nvml_load(&w->api, env, &report)) find_gpus(w, env->visible_devices);
    if (w->gpu_count > 0) return w;
    pj_nvml_watch_close(w);
    return NULL;
}

void pj_nvml_watch_close(pj_nvml_watch *w)
{
    if (!w) return;
    unload(&w->api);
    pj_free(w);
}

static uint32_t throttle_of(unsigned long long reasons)
{
    uint32_t throttle = 0;
    if (reasons & NVML_REASON_POWER_CAP) throttle |= PJ_THROTTLE_POWER;
    if (reasons & (NVML_REASON_SOFTWARE_THERMAL | NVML_REASON_HARDWARE_THERMAL))
        throttle |= PJ_THROTTLE_THERMAL;
    if (reasons & (NVML_REASON_HARDWARE | NVML_REASON_POWER_BRAKE))
        throttle |= PJ_THROTTLE_HARDWARE;
    return throttle;
}

static double milliwatts(nvml_return (*request)(nvml_device, unsigned *), nvml_device device)
{
    unsigned mw = 0;
    return request && request(device, &mw) == NVML_OK && mw > 0 ? mw : NAN;
}

static double megahertz(const nvml_api *a, nvml_device device, int which)
{
    unsigned mhz = 0;
    return a->clock && a->clock(device, which, &mhz) == NVML_OK ? mhz : NAN;
}

uint32_t pj_nvml_watch_read(const pj_nvml_watch *w, pj_condition *rows, uint32_t max)
{
    const nvml_api *a = &w->api;
    uint32_t count = w->gpu_count < max ? w->gpu_count : max;
    for (uint32_t i = 0; i < count; i++) {
        nvml_device device = w->gpus[i].device;
        unsigned celsius = 0;
        unsigned long long reasons = 0;
        nvml_utilisation use = {0, 0};
        pj_condition *row = &rows[i];
        *row = (pj_condition){.at_ns = pj_clock_ns(),
                              .temperature_c = NAN,
                              .utilisation = NAN,
                              .clock_mhz = megahertz(a, device, NVML_CLOCK_SM),
                              .memory_clock_mhz = megahertz(a, device, NVML_CLOCK_MEMORY),
                              .power_limit_mw = milliwatts(a->enforced_limit, device),
                              .tdp_mw = milliwatts(a->default_limit, device)};
        snprintf(row->device, sizeof row->device, "gpu%u", i);
        if (a->temperature && a->temperature(device, NVML_TEMPERATURE_GPU, &celsius) == NVML_OK)
            row->temperature_c = celsius;
        if (a->utilisation && a->utilisation(device, &use) == NVML_OK && use.gpu <= 100)
            row->utilisation = use.gpu / 100.0;
        row->throttle_known = a->clock_reasons && a->clock_reasons(device, &reasons) == NVML_OK;
        row->throttle = throttle_of(reasons);
    }
    return count;
}

/* ---- limits ---- */

uint32_t pj_nvml_watch_count(const pj_nvml_watch *w)
{
    return w->gpu_count;
}

static void name_limit(const gpu *g, pj_nvml_limit *limit)
{
    *limit = (pj_nvml_limit){.now = NAN, .usual = NAN, .least = NAN, .most = NAN};
    memcpy(limit->name, g->name, sizeof limit->name);
    memcpy(limit->uuid, g->uuid, sizeof limit->uuid);
}

bool pj_nvml_power_limit(const pj_nvml_watch *w, uint32_t index, pj_nvml_limit *limit)
{
    const gpu *g = &w->gpus[index];
    unsigned least = 0, most = 0;
    name_limit(g, limit);
    limit->now = milliwatts(w->api.power_limit, g->device);
    limit->usual = milliwatts(w->api.default_limit, g->device);
    limit->settable = w->api.set_power_limit != NULL;
    if (w->api.power_limits && w->api.power_limits(g->device, &least, &most) == NVML_OK)
        limit->least = least, limit->most = most;
    return !isnan(limit->now);
}

bool pj_nvml_clock_limit(const pj_nvml_watch *w, uint32_t index, pj_nvml_limit *limit)
{
    const gpu *g = &w->gpus[index];
    unsigned most = 0;
    name_limit(g, limit);
    limit->settable = w->api.lock_clocks && w->api.reset_clocks;
    if (!w->api.max_clock || w->api.max_clock(g->device, NVML_CLOCK_SM, &most) != NVML_OK || !most)
        return false;
    limit->usual = limit->most = most;
    return true;
}

static const gpu *gpu_of_uuid(const pj_nvml_watch *w, const char *uuid)
{
    for (uint32_t i = 0; w && i < w->gpu_count; i++)
        if (strcmp(w->gpus[i].uuid, uuid) == 0) return &w->gpus[i];
    return NULL;
}

double pj_nvml_power_now(const pj_nvml_watch *w, const char *uuid)
{
    const gpu *g = gpu_of_uuid(w, uuid);
    return g ? milliwatts(w->api.power_limit, g->device) : NAN;
}

static pj_status limit_status(const pj_nvml_watch *w, const char *uuid, nvml_return status,
                              pj_error *err)
{
    if (status == NVML_OK) return PJ_OK;
    return pj_fail(err, status == NVML_NO_PERMISSION ? PJ_E_DENIED : PJ_E_UNAVAILABLE,
                   "cannot set a limit of %s: %s", uuid,
                   status == NVML_NO_PERMISSION ? "it takes root" : w->api.error_string(status));
}

pj_status pj_nvml_power_set(const pj_nvml_watch *w, const char *uuid, double mw, pj_error *err)
{
    const gpu *g = gpu_of_uuid(w, uuid);
    if (!g || !w->api.set_power_limit)
        return pj_fail(err, PJ_E_UNAVAILABLE, "cannot set a limit of %s: it is gone", uuid);
    return limit_status(w, uuid, w->api.set_power_limit(g->device, (unsigned)llround(mw)), err);
}

pj_status pj_nvml_clock_set(const pj_nvml_watch *w, const char *uuid, double mhz, pj_error *err)
{
    const gpu *g = gpu_of_uuid(w, uuid);
    if (!g || !w->api.lock_clocks || !w->api.reset_clocks)
        return pj_fail(err, PJ_E_UNAVAILABLE, "cannot set a clock of %s: it is gone", uuid);
    nvml_return status = isnan(mhz) ? w->api.reset_clocks(g->device)
                                    : w->api.lock_clocks(g->device, 0, (unsigned)llround(mhz));
    return limit_status(w, uuid, status, err);
}
