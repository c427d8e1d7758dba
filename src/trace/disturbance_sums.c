/* What of rails, classes and the run is disturbance: sums of the disturbed parts of rows. */
#include "trace/disturbance_parts.h"

#include <string.h>

/* ---- rails ---- */

static double share_of_mj(int64_t part, double whole)
{
    return whole != 0 && !isnan(whole) ? (double)part / 1e6 / whole : 0;
}

/* Rails share a phase's disturbance as they share its energy. */
static void sums_set_rails(pj_run_data *d)
{
    pj_disturbed parts[PJ_PHASE_COUNT] = {0};
    double mj[PJ_PHASE_COUNT] = {0}, net[PJ_PHASE_COUNT] = {0};
    for (uint32_t i = 0; i < d->phase_count; i++) {
        const pj_phase_row *p = &d->phases[i];
        pj_disturbed_add(&parts[p->phase], &p->disturbed_part);
        mj[p->phase] += pj_mj_of_nj(p->energy.gross_nj);
        net[p->phase] += pj_mj_of_nj(p->energy.net_nj);
    }
    for (uint32_t i = 0; i < d->rail_energy_count; i++) {
        pj_rail_energy *r = &d->rail_energy[i];
        if (r->phase >= PJ_PHASE_COUNT) continue;
        double gross_mj = r->gross_mj * share_of_mj(parts[r->phase].gross_nj, mj[r->phase]);
        double net_mj = r->net_mj * share_of_mj(parts[r->phase].net_nj, net[r->phase]);
        r->disturbed_mj = isnan(gross_mj) ? 0 : gross_mj;
        r->disturbed_net_mj = isnan(net_mj) ? 0 : net_mj;
        for (uint32_t k = 0; k < d->rail_energy_count; k++) {
            pj_rail_energy *all = &d->rail_energy[k];
            if (all->rail != r->rail || all->phase != PJ_PHASE_COUNT) continue;
            all->disturbed_mj += r->disturbed_mj;
            all->disturbed_net_mj += r->disturbed_net_mj;
        }
    }
}

static void sum_add(pj_disturbed_sum *sum, const pj_disturbed *part)
{
    sum->mj += (double)part->gross_nj / 1e6;
    sum->net_mj += (double)part->net_nj / 1e6;
    sum->ms += part->ms;
}

/* ---- classes ---- */

static void class_add(pj_run_data *d, uint32_t class_, const pj_energy *e, double ms, double share)
{
    if (class_ >= d->class_count || !(share > 0)) return;
    pj_class_row *c = &d->classes[class_];
    c->disturbed_ms += ms * share;
    c->disturbed_mj += (double)pj_disturbed_share_of(e->gross_nj, share) / 1e6;
    c->disturbed_net_mj += (double)pj_disturbed_share_of(e->net_nj, share) / 1e6;
}

/* Work of a component with operations is their work. */
static void classes_add_work(pj_run_data *d, bool *has_operations)
{
    for (uint32_t i = 0; i < d->operation_count; i++) {
        const pj_operation_row *o = &d->operations[i];
        if (o->component >= d->component_count) continue;
        has_operations[o->component] = true;
        class_add(d, o->class_, &o->energy, o->duration_ms,
                  pj_component_disturbed_share(&d->components[o->component]));
    }
    for (uint32_t i = 0; i < d->component_count; i++) {
        const pj_component_row *c = &d->components[i];
        if (!has_operations[i])
            class_add(d, c->class_, &c->energy, c->duration_ms, pj_component_disturbed_share(c));
    }
}

/* Moves a share of the rest to a class: at most what the class has. */
static void class_take(pj_class_row *c, pj_disturbed_sum *rest, double ms, double mj)
{
    double all = rest->mj;
    ms = fmax(0, fmin(ms, c->time_ms - c->disturbed_ms));
    mj = isnan(c->energy_mj) ? 0 : fmax(0, fmin(mj, c->energy_mj - c->disturbed_mj));
    double net = all > 0 ? rest->net_mj * mj / all : 0;
    c->disturbed_ms += ms;
    c->disturbed_mj += mj;
    c->disturbed_net_mj += net;
    *rest = (pj_disturbed_sum){rest->mj - mj, rest->net_mj - net, rest->ms - ms};
}

static pj_class_row *class_named(pj_run_data *d, uint8_t phase, const char *name)
{
    for (uint32_t i = 0; i < d->class_count; i++) {
        pj_class_row *c = &d->classes[i];
        if (c->phase == phase && c->device == PJ_HOST && strcmp(c->name, name) == 0) return c;
    }
    return NULL;
}

/* Sections without components are classes of their own. */
static void classes_take_sections(pj_run_data *d, uint8_t phase, const bool *has_components,
                                  pj_disturbed_sum *rest)
{
    for (uint32_t i = 0; i < d->section_count; i++) {
        const pj_section_row *r = &d->sections[i];
        if (!(r->disturbed_part.ms > 0) || !r->name || has_components[i] ||
            r->phase >= d->phase_count || d->phases[r->phase].phase != phase)
            continue;
        pj_class_row *c = class_named(d, phase, r->name);
        if (!c) continue;
        class_take(c, rest, fmin(r->disturbed_part.ms, rest->ms),
                   fmin((double)r->disturbed_part.gross_nj / 1e6, rest->mj));
    }
}

/* What is left: of time between spans and, as far as a span took that time, of all alike. */
static void classes_take_rest(pj_run_data *d, uint8_t phase, pj_disturbed_sum *rest)
{
    pj_class_row *between = class_named(d, phase, "(between)");
    double ms = 0, mj = 0;
    if (between) class_take(between, rest, rest->ms, rest->mj);
    for (uint32_t i = 0; i < d->class_count; i++) {
        const pj_class_row *c = &d->classes[i];
        if (c->phase != phase || c->device != PJ_HOST) continue;
        ms += c->time_ms - c->disturbed_ms;
        mj += isnan(c->energy_mj) ? 0 : c->energy_mj - c->disturbed_mj;
    }
    double ms_share = ms > 0 ? rest->ms / ms : 0, mj_share = mj > 0 ? rest->mj / mj : 0;
    for (uint32_t i = 0; i < d->class_count; i++) {
        pj_class_row *c = &d->classes[i];
        if (c->phase != phase || c->device != PJ_HOST) continue;
        class_take(c, rest, (c->time_ms - c->disturbed_ms) * ms_share,
                   (c->energy_mj - c->disturbed_mj) * mj_share);
    }
}

/* Classes of a phase lose what the phase does. */
static pj_disturbed_sum classes_rest(const pj_run_data *d, uint8_t phase)
{
    pj_disturbed_sum rest = {0, 0, 0};
    for (uint32_t i = 0; i < d->phase_count; i++)
        if (d->phases[i].phase == phase) sum_add(&rest, &d->phases[i].disturbed_part);
    for (uint32_t i = 0; i < d->class_count; i++) {
        const pj_class_row *c = &d->classes[i];
        if (c->phase != phase) continue;
        rest.mj -= c->disturbed_mj;
        rest.net_mj -= c->disturbed_net_mj;
        if (c->device == PJ_HOST) rest.ms -= c->disturbed_ms;
    }
    return rest;
}

static pj_status sums_set_classes(pj_run_data *d, pj_error *err)
{
    bool *has_operations = pj_alloc((size_t)d->component_count + 1, sizeof *has_operations);
    bool *has_components = pj_alloc((size_t)d->section_count + 1, sizeof *has_components);
    bool good = has_operations && has_components;
    if (good) classes_add_work(d, has_operations);
    for (uint32_t i = 0; good && i < d->component_count; i++)
        if (d->components[i].section < d->section_count)
            has_components[d->components[i].section] = true;
    for (uint8_t phase = 0; good && phase < PJ_PHASE_COUNT; phase++) {
        pj_disturbed_sum rest = classes_rest(d, phase);
        if (!(rest.ms > 0) && !(rest.mj > 0)) continue;
        classes_take_sections(d, phase, has_components, &rest);
        classes_take_rest(d, phase, &rest);
    }
    pj_free(has_operations);
    pj_free(has_components);
    return good ? PJ_OK : pj_fail_memory(err, "the disturbances of a run");
}

/* ---- the run ---- */

static void sum_forget(pj_disturbed_sum *sum, bool has_gross, bool has_net)
{
    if (!has_gross) sum->mj = NAN;
    if (!has_gross || !has_net) sum->net_mj = NAN;
}

static void sums_set_run(pj_run_data *d, const pj_disturbed_units *u)
{
    pj_run_info *info = &d->info;
    pj_disturbed load = {0}, idle = {0};
    bool gross = !isnan(info->total_mj), net = !isnan(info->net_mj);
    info->disturbed = info->request_disturbed = (pj_disturbed_sum){0, 0, 0};
    info->prefill_disturbed = info->decode_disturbed = (pj_disturbed_sum){0, 0, 0};
    for (uint32_t i = 0; i < d->phase_count; i++) {
        const pj_phase_row *p = &d->phases[i];
        sum_add(&info->disturbed, &p->disturbed_part);
        if (p->phase == PJ_PHASE_PREFILL) sum_add(&info->prefill_disturbed, &p->disturbed_part);
        if (p->phase == PJ_PHASE_DECODE) sum_add(&info->decode_disturbed, &p->disturbed_part);
        if (p->phase == PJ_PHASE_IDLE) pj_disturbed_add(&idle, &p->disturbed_part);
    }
    for (uint32_t i = u->step_count; i < u->count; i++)
        if (u->items[i].kind == PJ_DISTURBED_LOAD) pj_disturbed_add(&load, &u->items[i].part);
    info->request_disturbed =
        (pj_disturbed_sum){info->disturbed.mj - (double)(load.gross_nj + idle.gross_nj) / 1e6,
                           info->disturbed.net_mj - (double)(load.net_nj + idle.net_nj) / 1e6,
                           info->disturbed.ms - load.ms - idle.ms};
    info->model_load_disturbed_mj = isnan(info->model_load_mj) ? NAN : (double)load.gross_nj / 1e6;
    sum_forget(&info->disturbed, gross, net);
    sum_forget(&info->request_disturbed, gross, net);
    sum_forget(&info->prefill_disturbed, gross && !isnan(info->prefill_ms), net);
    sum_forget(&info->decode_disturbed, gross && !isnan(info->decode_ms), net);
    info->disturbed_share =
        info->request_mj > 0 ? info->request_disturbed.mj / info->request_mj : NAN;
}

pj_status pj_disturbances_sum(pj_run_data *d, const pj_disturbed_units *u, pj_error *err)
{
    sums_set_rails(d);
    sums_set_run(d, u);
    return sums_set_classes(d, err);
}
