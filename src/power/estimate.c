/*
 * The source "estimate": a model of CPU power driven by utilisation. It is labelled as modelled
 * everywhere and used only on request.
 *
 * P = share of the package x (idle + (full - idle) x utilisation)
 *
 * `full` is the published thermal design power of the CPU model, `idle` a fixed fraction of it;
 * both can be given by hand (estimate:idle_w=12,full_w=95). A virtual machine with fewer CPUs than
 * the model has is charged its share. For an unknown model a few watts per hardware thread are
 * assumed, with a wider uncertainty.
 */
#include "power/source.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "power/busy.h"
#include "power/tdp.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef __APPLE__
#include <sys/sysctl.h>
#endif

typedef struct estimate_state {
    const pj_power_env *env;
    double idle_mw, full_mw, gain_sd;
    char model[64];
    pj_busy last;
    int64_t at_ns;
    bool armed;
} estimate_state;

static const int64_t PERIOD_NS = 100 * PJ_NS_PER_MS; /* clock ticks are 10 ms: finer is noise */
static const double IDLE_SHARE = 0.25;               /* of the thermal design power */
static const double WATTS_PER_THREAD = 4;
static const double KNOWN_SD = 0.25, UNKNOWN_SD = 0.5, BY_HAND_SD = 0.15;

/* ---- which CPU ---- */

#ifdef __APPLE__
static void estimate_read_model(const pj_power_env *env, char *model, size_t bytes, int *threads,
                                int *sockets)
{
    size_t size = bytes, count_size = sizeof *threads;
    *sockets = 1;
    if (sysctlbyname("machdep.cpu.brand_string", model, &size, NULL, 0) != 0) model[0] = 0;
    if (sysctlbyname("hw.logicalcpu", threads, &count_size, NULL, 0) != 0) *threads = 1;
}
#else
static void estimate_read_model(const pj_power_env *env, char *model, size_t bytes, int *threads,
                                int *sockets)
{
    char path[1024], *text = NULL;
    size_t length = 0;
    uint64_t seen = 0; /* numbers of sockets, a bit each */
    model[0] = 0;
    *threads = 0;
    if (pj_power_path(path, sizeof path, env->procfs_root, "/proc/cpuinfo") &&
        pj_file_read(path, 16 << 20, &text, &length, NULL) == PJ_OK) {
        for (char *line = text; line && *line; line = strchr(line, '\n'), line += line != NULL) {
            *threads += strncmp(line, "processor", 9) == 0;
            char *colon = strchr(line, ':');
            if (colon && strncmp(line, "physical id", 11) == 0)
                seen |= UINT64_C(1) << (strtoul(colon + 1, NULL, 10) & 63);
            if (model[0] || !colon || strncmp(line, "model name", 10) != 0) continue;
            colon += 1 + strspn(colon + 1, " \t");
            snprintf(model, bytes, "%.*s", (int)strcspn(colon, "\n"), colon);
        }
    }
    pj_free(text);
    for (*sockets = 0; seen; seen &= seen - 1) ++*sockets;
    if (*threads < 1) *threads = (int)sysconf(_SC_NPROCESSORS_ONLN);
    if (*threads < 1) *threads = 1;
}
#endif

static void model_power(const pj_power_env *env, estimate_state *s)
{
    int threads, sockets;
    estimate_read_model(env, s->model, sizeof s->model, &threads, &sockets);
    const pj_tdp *known = pj_tdp_find(s->model);
    double watts = threads * WATTS_PER_THREAD;
    if (known) {
        double packages = ceil((double)threads / known->threads);
        watts = known->watts * packages;
        if (threads < known->threads) watts = known->watts * threads / known->threads;
    }
    s->full_mw = watts * 1e3;
    s->idle_mw = s->full_mw * IDLE_SHARE;
    s->gain_sd = known ? KNOWN_SD : UNKNOWN_SD;
}

/* Without simultaneous multithreading two sockets have as many threads as one with it. Some virtual
 * machines show each thread as a socket, hence the bound by the number of threads. */
double pj_tdp_of_machine_mw(const pj_power_env *env)
{
    char model[64];
    int threads, sockets;
    estimate_read_model(env, model, sizeof model, &threads, &sockets);
    const pj_tdp *known = pj_tdp_find(model);
    if (!known) return NAN;
    double least = ceil((double)threads / known->threads);
    double most = ceil(2.0 * threads / known->threads);
    return known->watts * 1e3 * fmin(fmax(least, sockets), most);
}

static pj_status take_argument(estimate_state *s, const char *argument, pj_error *err)
{
    double idle_w = NAN, full_w = NAN;
    for (const char *p = argument; *p;) {
        char *end;
        double *target = strncmp(p, "idle_w=", 7) == 0   ? &idle_w
                         : strncmp(p, "full_w=", 7) == 0 ? &full_w
                                                         : NULL;
        if (target) *target = strtod(p + 7, &end);
        if (!target || end == p + 7 || (*end && *end != ',') || !(*target >= 0) || *target > 1e5)
            return pj_fail(err, PJ_E_INVALID,
                           "estimate: invalid setting %.60s; use estimate:idle_w=W,full_w=W", p);
        p = *end ? end + 1 : end;
    }
    if (!isnan(full_w)) {
        s->full_mw = full_w * 1e3;
        s->idle_mw = s->full_mw * IDLE_SHARE;
        s->gain_sd = BY_HAND_SD;
    }
    if (!isnan(idle_w)) s->idle_mw = idle_w * 1e3;
    if (s->idle_mw > s->full_mw)
        return pj_fail(err, PJ_E_INVALID, "estimate: idle power (%g W) is above full power (%g W)",
                       s->idle_mw * 1e-3, s->full_mw * 1e-3);
    return PJ_OK;
}

/* ---- the source ---- */

static pj_status estimate_open(void *state, const pj_power_env *env, const char *argument,
                               pj_source_report *report)
{
    estimate_state *s = state;
    pj_error err;
    pj_busy now;
    s->env = env;
    model_power(env, s);
    pj_status status = take_argument(s, argument, &err);
    if (status != PJ_OK) return pj_source_explain(report, status, "", "%s", err.text);
    pj_busy_get(env, &now);
    if (now.total > 0) return PJ_OK;
    return pj_source_explain(report, PJ_E_UNAVAILABLE, "mount procfs at /proc",
                             "%s/proc/stat cannot be read, so utilisation is unknown",
                             env->procfs_root);
}

static void estimate_describe(const pj_power_env *env, pj_source_report *report)
{
    estimate_state s;
    model_power(env, &s);
    pj_source_explain(report, PJ_OK, "--power estimate",
                      "a model (%s: %.3g W idle, %.3g W full), used only on request",
                      s.model[0] ? s.model : "unknown CPU", s.idle_mw * 1e-3, s.full_mw * 1e-3);
}

static uint32_t estimate_rails(const void *state, pj_rail *rails)
{
    const estimate_state *s = state;
    rails[0] = (pj_rail){.name = "cpu",
                         .source = "estimate",
                         .device = "cpu",
                         .rail_class = PJ_RAIL_CPU,
                         .kind = PJ_RAIL_INSTANT,
                         .scope = PJ_SCOPE_DOMAIN,
                         .quality = PJ_MODELLED,
                         .parent = -1,
                         .period_ns = PERIOD_NS,
                         .window_ns = PERIOD_NS,
                         .resolution = 1,
                         .max_mw = s->full_mw,
                         .gain_sd = s->gain_sd};
    snprintf(rails[0].field, sizeof rails[0].field, "utilisation x %.3g..%.3g W", s->idle_mw * 1e-3,
             s->full_mw * 1e-3);
    return 1;
}

static pj_status estimate_read(void *state, pj_reading *readings, uint32_t max, uint32_t *count)
{
    estimate_state *s = state;
    pj_busy now;
    *count = 0;
    int64_t before = pj_clock_ns();
    if (max == 0 || (s->armed && before - s->at_ns < PERIOD_NS)) return PJ_OK;
    pj_busy_get(s->env, &now);
    if (!(now.total > 0)) return PJ_E_IO;
    int64_t after = pj_clock_ns();
    double used = s->armed ? pj_busy_share(&s->last, &now) : NAN;
    if (s->armed && isnan(used)) return PJ_OK; /* no clock tick since */
    if (s->armed) {
        readings[0] = (pj_reading){.before_ns = before,
                                   .after_ns = after,
                                   .fresh_ns = after,
                                   .window_ns = after - s->at_ns,
                                   .value = s->idle_mw + (s->full_mw - s->idle_mw) * used};
        *count = 1;
    }
    s->last = now;
    s->at_ns = after;
    s->armed = true;
    return PJ_OK;
}

const pj_power_source pj_source_estimate = {
    .version = PJ_POWER_SOURCE_VERSION,
    .name = "estimate",
    .flags = PJ_SOURCE_STREAM | PJ_SOURCE_BY_NAME | PJ_SOURCE_MODEL,
    .state_bytes = sizeof(estimate_state),
    .open = estimate_open,
    .describe = estimate_describe,
    .rails = estimate_rails,
    .read = estimate_read,
};
