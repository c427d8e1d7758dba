/* The list of disturbances as JSON, their causes, and figures without them. */
#include "trace/disturbance_parts.h"

#include "base/median.h"
#include "trace/json_member.h"
#include "trace/phases.h"

#include <string.h>

static const char *const kinds[PJ_DISTURBED_KINDS] = {"step", "prompt", "load", "gap"};
static const char *const causes[PJ_DISTURBED_CAUSES] = {"unknown", "busy", "waited", "throttled"};
static const char *const texts[PJ_DISTURBED_CAUSES] = {
    "no power was read during it", "other work ran on the machine",
    "the run waited while the machine drew little power", "a device lowered its clock"};

const char *pj_disturbance_kind_name(pj_disturbance_kind kind)
{
    return kinds[kind];
}

const char *pj_disturbance_cause_text(pj_disturbance_cause cause)
{
    return texts[cause];
}

void pj_disturbances_clear(pj_run_info *info)
{
    info->disturbances_json = NULL;
    info->disturbed = info->request_disturbed = PJ_DISTURBED_UNKNOWN;
    info->prefill_disturbed = info->decode_disturbed = PJ_DISTURBED_UNKNOWN;
    info->model_load_disturbed_mj = info->disturbed_share = NAN;
    info->disturbed_tokens = -1;
}

/* ---- as JSON ---- */

static void disturbance_write(const pj_disturbance *d, pj_json *json)
{
    pj_json_object_begin(json);
    pj_json_kv_string(json, "kind", kinds[d->kind]);
    pj_json_kv_string(json, "phase", pj_phase_name(d->phase));
    pj_json_kv_optional(json, "token", d->tokens > 0, d->token);
    pj_json_kv_uint(json, "tokens", d->tokens);
    pj_json_kv_double(json, "start_ms", d->start_ms);
    pj_json_kv_double(json, "duration_ms", d->ms);
    pj_json_kv_double(json, "expected_ms", d->expected_ms);
    pj_json_kv_double(json, "energy_mj", d->mj);
    pj_json_kv_double(json, "extra_energy_mj", d->extra_mj);
    pj_json_kv_double(json, "extra_energy_sd_mj", d->extra_sd_mj);
    pj_json_kv_double(json, "extra_net_energy_mj", d->extra_net_mj);
    pj_json_kv_string(json, "cause", causes[d->cause]);
    pj_json_object_end(json);
}

static void disturbances_write(const pj_disturbances *list, pj_json *json)
{
    pj_json_object_begin(json);
    pj_json_kv_array_begin(json, "events");
    for (uint32_t i = 0; i < list->count; i++) disturbance_write(&list->items[i], json);
    pj_json_array_end(json);
    pj_json_object_end(json);
}

static int disturbance_index_of(const json_t *object, const char *member, const char *const *names,
                                int count)
{
    const char *name = pj_member_text(object, member);
    for (int i = 0; i < count; i++)
        if (strcmp(names[i], name) == 0) return i;
    return 0;
}

static void disturbance_read(const json_t *object, pj_disturbance *d)
{
    double token = pj_member_number(object, "token"), tokens = pj_member_number(object, "tokens");
    int phase = pj_phase_parse(pj_member_text(object, "phase"));
    bool in_tokens = token >= 0 && token < PJ_NO_PARENT && tokens >= 1 && tokens < PJ_NO_PARENT;
    *d = (pj_disturbance){.kind = (pj_disturbance_kind)disturbance_index_of(object, "kind", kinds,
                                                                            PJ_DISTURBED_KINDS),
                          .cause = (pj_disturbance_cause)disturbance_index_of(
                              object, "cause", causes, PJ_DISTURBED_CAUSES),
                          .phase = phase < 0 ? PJ_PHASE_IDLE : (pj_phase)phase,
                          .token = in_tokens ? (uint32_t)token : PJ_NO_PARENT,
                          .tokens = in_tokens ? (uint32_t)tokens : 0,
                          .start_ms = pj_member_number(object, "start_ms"),
                          .ms = pj_member_number(object, "duration_ms"),
                          .expected_ms = pj_member_number(object, "expected_ms"),
                          .mj = pj_member_number(object, "energy_mj"),
                          .extra_mj = pj_member_number(object, "extra_energy_mj"),
                          .extra_sd_mj = pj_member_number(object, "extra_energy_sd_mj"),
                          .extra_net_mj = pj_member_number(object, "extra_net_energy_mj")};
}

pj_status pj_disturbances_read(const char *json, pj_arena *arena, pj_disturbances *list,
                               pj_error *err)
{
    json_t *root = json ? json_loads(json, 0, NULL) : NULL;
    const json_t *events = json_object_get(root, "events");
    size_t count = json_array_size(events);
    *list = (pj_disturbances){.items = pj_arena_alloc(arena, count + 1, sizeof *list->items)};
    for (size_t i = 0; list->items && i < count; i++)
        disturbance_read(json_array_get(events, i), &list->items[list->count++]);
    json_decref(root);
    return list->items ? PJ_OK : pj_fail_memory(err, "the disturbances of a run");
}

/* ---- causes ---- */

/* Power below this share of the phase's median: the processor was waiting. */
static const double waiting_share = 0.7;
/* Clock below this share of its median: the device was throttled. */
static const double slow_clock = 0.9;

static double disturbance_median_clock(const pj_run_data *d, const char *device, double *work)
{
    size_t n = 0;
    for (uint32_t i = 0; i < d->condition_count; i++)
        if (strcmp(d->conditions[i].device, device) == 0 && d->conditions[i].clock_mhz > 0)
            work[n++] = d->conditions[i].clock_mhz;
    return pj_median(work, n);
}

/* The last report before the event tells of its begin. */
static bool disturbance_is_throttled(const pj_run_data *d, const pj_disturbance *e, double *work)
{
    for (uint32_t i = 0; i < d->condition_count; i++) {
        const pj_condition_row *c = &d->conditions[i];
        if (c->t_ms < e->start_ms || c->t_ms > e->start_ms + e->ms) continue;
        if (c->throttle && *c->throttle) return true;
        if (c->clock_mhz < slow_clock * disturbance_median_clock(d, c->device, work)) return true;
    }
    return false;
}

/* The median power of the samples inside an interval, or of those of the phase outside of it. */
static double disturbance_power(const pj_run_data *d, const pj_disturbance *e, bool inside,
                                double *work)
{
    const double *mw = d->samples.columns[PJ_RAIL_TOTAL];
    size_t n = 0;
    for (uint32_t i = 0; mw && i < d->samples.count; i++) {
        double t = d->samples.t_ms[i];
        bool in = t >= e->start_ms && t <= e->start_ms + e->ms;
        if (in != inside || isnan(mw[i])) continue;
        bool computes =
            d->samples.phase[i] == PJ_PHASE_PREFILL || d->samples.phase[i] == PJ_PHASE_DECODE;
        if (inside || computes) work[n++] = mw[i];
    }
    return pj_median(work, n);
}

static pj_disturbance_cause disturbance_cause(const pj_run_data *d, const pj_disturbance *e,
                                              double *work)
{
    if (disturbance_is_throttled(d, e, work)) return PJ_DISTURBED_THROTTLED;
    double here = disturbance_power(d, e, true, work), usual = disturbance_power(d, e, false, work);
    if (isnan(here) || isnan(usual)) return PJ_DISTURBED_UNKNOWN_CAUSE;
    return here < waiting_share * usual ? PJ_DISTURBED_WAITED : PJ_DISTURBED_BUSY;
}

pj_status pj_disturbances_explain(pj_run_data *d, pj_error *err)
{
    pj_disturbances list;
    if (!d->info.disturbances_json) return PJ_OK;
    pj_status status = pj_disturbances_read(d->info.disturbances_json, &d->arena, &list, err);
    if (status != PJ_OK || list.count == 0) return status;
    size_t most = (size_t)d->samples.count + d->condition_count + 1;
    double *work = pj_alloc(most, sizeof *work);
    if (!work) return pj_fail_memory(err, "the disturbances of a run");
    for (uint32_t i = 0; i < list.count; i++)
        list.items[i].cause = disturbance_cause(d, &list.items[i], work);
    pj_free(work);
    return pj_disturbances_keep(d, &list, err);
}

pj_status pj_disturbances_keep(pj_run_data *d, const pj_disturbances *list, pj_error *err)
{
    pj_buffer text;
    pj_json json;
    pj_buffer_init(&text, 1 << 26);
    pj_json_init(&json, &text);
    disturbances_write(list, &json);
    if (pj_json_finish(&json))
        d->info.disturbances_json = pj_arena_strndup(&d->arena, text.data, text.length);
    else
        d->info.disturbances_json = NULL;
    pj_buffer_fini(&text);
    return d->info.disturbances_json ? PJ_OK : pj_fail_memory(err, "the disturbances of a run");
}

/* ---- figures without disturbances ---- */

static int64_t disturbance_less(int64_t nj, int64_t part)
{
    return nj == PJ_NJ_UNKNOWN ? nj : nj - part;
}

static pj_energy disturbance_less_energy(const pj_energy *energy, const pj_disturbed *part)
{
    pj_energy e = *energy;
    double remains = e.gross_nj > 0 ? 1 - (double)part->gross_nj / (double)e.gross_nj : 1;
    e.gross_nj = disturbance_less(e.gross_nj, part->gross_nj);
    e.net_nj = disturbance_less(e.net_nj, part->net_nj);
    e.self_nj = disturbance_less(e.self_nj, part->self_nj);
    if (e.planted_nj != PJ_NJ_UNKNOWN) e.planted_nj = llround((double)e.planted_nj * remains);
    pj_energy_scale_sd(&e, remains);
    return e;
}

pj_energy pj_energy_without(const pj_energy *energy, const pj_disturbed *part)
{
    return part->ms > 0 ? disturbance_less_energy(energy, part) : *energy;
}

static int64_t disturbance_share_of(int64_t nj, double share)
{
    return nj == PJ_NJ_UNKNOWN ? 0 : llround((double)nj * share);
}

pj_energy pj_energy_without_share(const pj_energy *e, double share)
{
    if (!(share > 0)) return *e;
    pj_disturbed part = {0, disturbance_share_of(e->gross_nj, share),
                         disturbance_share_of(e->net_nj, share),
                         disturbance_share_of(e->self_nj, share)};
    return disturbance_less_energy(e, &part);
}

void pj_component_disturbed_parts(const pj_run_data *d, pj_disturbed *parts)
{
    for (uint32_t i = 0; i < d->component_count; i++) {
        const pj_component_row *c = &d->components[i];
        double share = pj_component_disturbed_share(c);
        int64_t self = disturbance_share_of(c->energy.self_nj, share);
        parts[i] = (pj_disturbed){c->disturbed_ms, self,
                                  disturbance_share_of(c->energy.net_nj, share), self};
    }
    for (uint32_t i = 0; i < d->operation_count; i++) {
        const pj_operation_row *o = &d->operations[i];
        if (o->component >= d->component_count || !(parts[o->component].ms > 0)) continue;
        parts[o->component].gross_nj += disturbance_share_of(
            o->energy.gross_nj, pj_component_disturbed_share(&d->components[o->component]));
    }
}

static void disturbance_less_mj(double *mj, double *sd_mj, pj_sd *sd, double part)
{
    double remains = *mj != 0 && part > 0 ? 1 - part / *mj : 1;
    if (!(part > 0)) return;
    *mj -= part;
    *sd_mj *= fabs(remains);
    *sd = pj_sd_scaled(sd, remains);
}

static double disturbance_known(double value)
{
    return isnan(value) ? 0 : value;
}

void pj_run_info_leave_out_disturbances(pj_run_info *i)
{
    double net = disturbance_known(i->disturbed.net_mj), mj = disturbance_known(i->disturbed.mj);
    disturbance_less_mj(&i->total_mj, &i->total_sd_mj, &i->total_sd, mj);
    i->net_mj -= net;
    i->idle_mj -= net != 0 ? mj - net : 0;
    i->total_ms -= disturbance_known(i->disturbed.ms);
    disturbance_less_mj(&i->request_mj, &i->request_sd_mj, &i->request_sd, i->request_disturbed.mj);
    i->request_net_mj -= disturbance_known(i->request_disturbed.net_mj);
    i->request_ms -= disturbance_known(i->request_disturbed.ms);
    i->prefill_mj -= disturbance_known(i->prefill_disturbed.mj);
    i->prefill_net_mj -= disturbance_known(i->prefill_disturbed.net_mj);
    i->prefill_ms -= disturbance_known(i->prefill_disturbed.ms);
    i->decode_mj -= disturbance_known(i->decode_disturbed.mj);
    i->decode_net_mj -= disturbance_known(i->decode_disturbed.net_mj);
    i->decode_ms -= disturbance_known(i->decode_disturbed.ms);
    disturbance_less_mj(&i->model_load_mj, &i->model_load_sd_mj, &i->model_load_sd,
                        i->model_load_disturbed_mj);
    if (!i->disturbances_json) return;
    static const pj_disturbed_sum none = {0, 0, 0};
    i->disturbed = i->request_disturbed = i->prefill_disturbed = i->decode_disturbed = none;
    i->model_load_disturbed_mj = isnan(i->model_load_mj) ? NAN : 0;
    i->disturbed_share = isnan(i->disturbed_share) ? NAN : 0;
}
