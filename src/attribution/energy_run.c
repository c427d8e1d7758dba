/* Figures of the run as a whole: classes of work, rails, totals, pJ per FLOP and byte. */
#include "attribution/energies.h"

#include "base/memory.h"
#include "power/source.h"

#include <math.h>
#include <string.h>

/* The most important rail of those that measure one of the devices. */
static const pj_rail_result *main_rail_of(const pj_energies *j, uint64_t devices)
{
    const pj_rail_result *best = NULL;
    for (uint32_t i = 0; i < j->result_count; i++)
        if (j->results[i].has_fit && j->results[i].devices & devices &&
            (!best || j->results[i].weight_mj > best->weight_mj))
            best = &j->results[i];
    return best;
}

static const pj_rail_result *main_rail(const pj_energies *j)
{
    return main_rail_of(j, UINT64_MAX);
}

/* ---- classes ---- */

static pj_status start_class(pj_energies *j, uint32_t c, pj_class_row *row, pj_error *err)
{
    const pj_tree_class *class_ = &j->tree->classes[c];
    const pj_rail_result *leading =
        j->below_resolution ? NULL : main_rail_of(j, 1ull << class_->device);
    uint32_t pool = j->pool_of[c];
    *row = (pj_class_row){.device = class_->device,
                          .phase = class_->phase,
                          .flops = class_->flops,
                          .bytes = class_->bytes,
                          .power_mw = leading ? 0 : NAN,
                          .power_sd_mw = NAN,
                          .energy_mj = NAN,
                          .energy_sd_mj = NAN,
                          .net_energy_mj = NAN,
                          .net_energy_sd_mj = NAN,
                          .energy_sd = PJ_SD_UNKNOWN,
                          .net_energy_sd = PJ_SD_UNKNOWN,
                          .data_share = leading ? leading->fit.data_share[pool] : NAN};
    row->name = pj_arena_strndup(&j->d->arena, j->class_names[c], strlen(j->class_names[c]));
    if (!row->name) return pj_fail_memory(err, "the classes of a run");
    double variance = 0;
    for (uint32_t i = 0; i < j->result_count; i++) {
        const pj_fit *fit = &j->results[i].fit;
        if (!leading || !j->results[i].has_fit || !pj_rail_sees(&j->results[i], class_->device))
            continue;
        row->power_mw += fit->power_mw[pool];
        variance += fit->covariance[(size_t)pool * fit->class_count + pool];
        row->truncated |= fit->truncated[pool];
    }
    if (leading) row->power_sd_mw = sqrt(variance > 0 ? variance : 0);
    return PJ_OK;
}

static pj_status sum_class(pj_energies *j, pj_class_row *row, const uint32_t *leaves, size_t count,
                           pj_error *err)
{
    for (size_t i = 0; i < count; i++) {
        const pj_leaf *leaf = &j->tree->leaves[leaves[i]];
        row->time_ms += (double)(leaf->end_ns - leaf->begin_ns) * 1e-6;
        if (j->run.gross_nj == PJ_NJ_UNKNOWN) continue;
        row->energy_mj = pj_add_known(row->energy_mj, pj_mj_of_nj(j->gross[leaves[i]]));
        row->net_energy_mj = pj_add_known(row->net_energy_mj, pj_mj_of_nj(j->net[leaves[i]]));
    }
    if (row->time_ms == 0) row->energy_mj = row->net_energy_mj = NAN;
    if (isnan(row->energy_mj)) return PJ_OK;
    pj_status status = pj_energy_check_leaves(j, leaves, count, PJ_ALL_RAILS, &row->energy_sd,
                                              &row->net_energy_sd, err);
    row->energy_sd_mj = pj_sd_total(&row->energy_sd);
    if (j->options->shares && row->time_ms > 0) { /* the fit's powers are those of all runs */
        row->power_mw = row->net_energy_mj / row->time_ms * 1e3;
        row->power_sd_mw = pj_sd_total(&row->net_energy_sd) / row->time_ms * 1e3;
    }
    if (!isnan(row->net_energy_mj)) row->net_energy_sd_mj = pj_sd_total(&row->net_energy_sd);
    return status;
}

static pj_status fill_classes(pj_energies *j, pj_error *err)
{
    const pj_tree *tree = j->tree;
    pj_run_data *d = j->d;
    pj_groups by_class;
    d->classes = pj_arena_alloc(&d->arena, tree->class_count, sizeof *d->classes);
    if (!d->classes || !pj_group(&tree->leaves->class_, sizeof *tree->leaves, 0, tree->leaf_count,
                                 tree->class_count, &j->arena, &by_class))
        return pj_fail_memory(err, "the classes of a run");
    d->class_count = tree->class_count;
    pj_status status = PJ_OK;
    for (uint32_t c = 0; c < d->class_count && status == PJ_OK; c++) {
        status = start_class(j, c, &d->classes[c], err);
        if (status == PJ_OK)
            status = sum_class(j, &d->classes[c], by_class.items + by_class.begin[c],
                               by_class.begin[c + 1] - by_class.begin[c], err);
    }
    return status;
}

/* ---- rails ---- */

static double mean_share(const pj_energies *j, const pj_node *node)
{
    const pj_shares *shares = j->options->shares;
    return shares ? pj_shares_mean(shares, node->begin_ns, node->end_ns) : 1;
}

/* The run's share of a rail over an interval, from its curve. */
static void query_share(const pj_energies *j, uint32_t rail, int64_t begin_ns, int64_t end_ns,
                        pj_curve_energy *e)
{
    const pj_shares *shares = j->options->shares;
    pj_curve_query(j->curves[rail], begin_ns, end_ns, e);
    if (!shares || !(e->energy_mj > 0)) return;
    double own_mj = 0;
    for (uint32_t k = 0; k < shares->count; k++) {
        const pj_share_part *p = &shares->parts[k];
        int64_t from = p->begin_ns > begin_ns ? p->begin_ns : begin_ns;
        int64_t to = p->end_ns < end_ns ? p->end_ns : end_ns;
        if (to > from) own_mj += p->share * pj_curve_energy_mj(j->curves[rail], from, to);
    }
    double factor = own_mj / e->energy_mj;
    e->energy_mj = own_mj;
    e->random_sd_mj *= factor;
    e->bias_sd_mj *= factor;
    e->gain_sd_mj *= factor;
}

/* For a rail that was not shared among leaves: from its curve, interval by interval. */
static void integrate_rail(const pj_energies *j, uint32_t rail, pj_rail_energy *row)
{
    const pj_tree *tree = j->tree;
    bool whole = row->phase == PJ_PHASE_COUNT; /* the whole run is one interval: the root node */
    pj_sd sd = {0, 0, 0};
    double ms = 0;
    for (uint32_t k = tree->child_begin[0]; k <= tree->child_begin[1]; k++) {
        if (k == tree->child_begin[1] && !whole) break;
        const pj_node *node = &tree->nodes[whole ? 0 : tree->children[k]];
        if (!whole && node->phase != row->phase) continue;
        pj_curve_energy e;
        query_share(j, rail, node->begin_ns, node->end_ns, &e);
        ms += (double)(node->end_ns - node->begin_ns) * 1e-6 * mean_share(j, node);
        row->gross_mj = pj_add_known(row->gross_mj, e.energy_mj);
        pj_sd part = {(float)e.random_sd_mj, (float)e.bias_sd_mj, (float)e.gain_sd_mj};
        if (!isnan(e.energy_mj)) sd = pj_sd_add(&sd, &part);
        if (whole) break;
    }
    double idle_sd = j->d->baseline_sd_mw[rail] * ms * 1e-3;
    if (isnan(row->gross_mj)) return;
    row->net_mj = row->gross_mj - j->d->baseline_mw[rail] * ms * 1e-3;
    row->sd = row->net_sd = sd;
    row->net_sd.bias_mj += isnan(idle_sd) ? 0 : (float)idle_sd;
    row->net_sd.gain_mj *= (float)fabs(row->net_mj / row->gross_mj);
}

/* For a rail that was shared among leaves: the sum of the rows. */
static pj_status sum_rail(pj_energies *j, uint32_t result, const pj_groups *by_phase,
                          pj_rail_energy *row, pj_error *err)
{
    const pj_rail_result *of = &j->results[result];
    bool whole = row->phase == PJ_PHASE_COUNT;
    uint32_t from = by_phase->begin[whole ? 0 : row->phase];
    uint32_t to = by_phase->begin[whole ? PJ_PHASE_COUNT : row->phase + 1];
    if (j->below_resolution) return PJ_OK;
    row->gross_mj = whole ? of->whole_mj : of->phase_mj[row->phase];
    row->net_mj = whole ? of->whole_net_mj : of->phase_net_mj[row->phase];
    if (isnan(row->gross_mj)) return PJ_OK;
    return pj_energy_check_leaves(j, by_phase->items + from, to - from, (int)result, &row->sd,
                                  &row->net_sd, err);
}

static pj_status rail_energy(pj_energies *j, uint32_t rail, uint8_t phase,
                             const pj_groups *by_phase, pj_rail_energy *row, pj_error *err)
{
    *row = (pj_rail_energy){phase, (uint16_t)rail, NAN,          NAN, NAN, NAN,
                            NAN,   PJ_SD_UNKNOWN,  PJ_SD_UNKNOWN};
    uint32_t result = 0;
    pj_status status = PJ_OK;
    while (result < j->result_count && j->results[result].rail != rail) result++;
    if (result < j->result_count)
        status = sum_rail(j, result, by_phase, row, err);
    else
        integrate_rail(j, rail, row);
    row->idle_mj = row->gross_mj - row->net_mj;
    row->sd_mj = pj_sd_total(&row->sd);
    if (j->idle_moved || pj_net_is_refuted(row->net_mj, pj_sd_total(&row->net_sd)))
        row->idle_mj = row->net_mj = NAN;
    if (isnan(row->net_mj)) row->net_sd = PJ_SD_UNKNOWN;
    row->net_sd_mj = pj_sd_total(&row->net_sd);
    return status;
}

static pj_status fill_rail_energy(pj_energies *j, pj_error *err)
{
    pj_run_data *d = j->d;
    const pj_tree *tree = j->tree;
    pj_groups by_phase;
    bool present[PJ_PHASE_COUNT + 1] = {[PJ_PHASE_COUNT] = true};
    for (uint32_t k = tree->child_begin[0]; k < tree->child_begin[1]; k++)
        present[tree->nodes[tree->children[k]].phase] = true;
    uint32_t *phases = pj_arena_alloc(&j->arena, tree->leaf_count, sizeof *phases);
    for (uint32_t i = 0; phases && i < tree->leaf_count; i++)
        phases[i] = tree->classes[tree->leaves[i].class_].phase;
    d->rail_energy = pj_arena_alloc(&d->arena, (size_t)(PJ_PHASE_COUNT + 1) * d->rail_count,
                                    sizeof *d->rail_energy);
    if (!d->rail_energy || !phases ||
        !pj_group(phases, sizeof *phases, 0, tree->leaf_count, PJ_PHASE_COUNT, &j->arena,
                  &by_phase))
        return pj_fail_memory(err, "the rails of a run");
    pj_status status = PJ_OK;
    for (int p = 0; p <= PJ_PHASE_COUNT && status == PJ_OK; p++)
        for (uint32_t r = 0; present[p] && r < d->rail_count && status == PJ_OK; r++)
            status = rail_energy(j, r, (uint8_t)p, &by_phase,
                                 &d->rail_energy[d->rail_energy_count++], err);
    return status;
}

/* ---- the run ---- */

/* The interval expected after `calibrate`: two seconds of one class are 2 s / period readings, each
 * with the estimated noise (at least 0.2 %). Never wider than the present interval; NAN where power
 * is modelled, since a model cannot be calibrated. */
static double calibrated_interval(const pj_energies *j, const pj_rail_result *leading, double now)
{
    const pj_rail *rail = &j->d->rails[leading->rail];
    if (pj_rail_is_model(rail)) return NAN;
    double period_s =
        (double)(rail->window_ns > rail->period_ns ? rail->window_ns : rail->period_ns) * 1e-9;
    double readings = period_s > 0 ? 2 / period_s : 20;
    double noise = leading->fit.noise > 0.002 ? leading->fit.noise : 0.002;
    double then = 1.96 * noise / sqrt(readings > 1 ? readings : 1);
    return then < 0.001 ? fmin(now, 0.001) : fmin(now, then);
}

/* Over the classes inside tokens only: model loading may dominate a short run's energy but is no
 * measure of how well components are separated. */
static double interval_now(const pj_energies *j, const pj_fit *fit)
{
    bool *counted = pj_alloc(j->pool_count, sizeof *counted);
    for (uint32_t c = 0; counted && c < j->tree->class_count; c++) {
        const pj_tree_class *class_ = &j->tree->classes[c];
        counted[j->pool_of[c]] |= class_->component && (class_->phase == PJ_PHASE_PREFILL ||
                                                        class_->phase == PJ_PHASE_DECODE);
    }
    double interval = counted ? pj_fit_interval(fit, counted) : NAN;
    pj_free(counted);
    return interval;
}

/* Relative difference between the run's energy and the calibration's prediction, over calibrated
 * classes only: the power of other classes is free and would absorb any difference. */
static double calibration_gap(const pj_energies *j, const pj_rail_result *leading)
{
    double seen = 0, expected = 0, mw, sd_mw;
    for (uint32_t c = 0; j->options->prior && c < j->tree->class_count; c++) {
        if (!j->options->prior(j->options->context, &j->d->rails[leading->rail], j->class_names[c],
                               (pj_phase)j->tree->classes[c].phase, &mw, &sd_mw))
            continue;
        if (j->pool_class[j->pool_of[c]] != c) continue; /* pooled: no power of its own */
        if (!pj_rail_sees(leading, j->tree->classes[c].device)) continue;
        seen += leading->fit.power_mw[j->pool_of[c]] * leading->fit.time_ms[j->pool_of[c]];
        expected += mw * leading->fit.time_ms[j->pool_of[c]];
    }
    return expected > 0 ? seen / expected - 1 : NAN;
}

/* pJ per FLOP and per byte, where the run identifies them. */
static void fill_unit_costs(const pj_energies *j, const pj_rail_result *leading, pj_run_info *info)
{
    double *flops = pj_alloc(j->pool_count, sizeof *flops);
    double *bytes = pj_alloc(j->pool_count, sizeof *bytes);
    for (uint32_t c = 0; flops && bytes && c < j->tree->class_count; c++) {
        const pj_tree_class *class_ = &j->tree->classes[c];
        if (!pj_rail_sees(leading, class_->device)) continue;
        if (isfinite(class_->flops)) flops[j->pool_of[c]] += class_->flops;
        if (isfinite(class_->bytes)) bytes[j->pool_of[c]] += class_->bytes;
    }
    if (flops && bytes) {
        pj_unit_costs costs;
        pj_unit_costs_fit(&leading->fit, flops, bytes, &costs);
        info->pj_per_flop = costs.pj_per_flop;
        info->pj_per_flop_sd = costs.pj_per_flop_sd;
        info->pj_per_byte = costs.pj_per_byte;
        info->pj_per_byte_sd = costs.pj_per_byte_sd;
    }
    pj_free(flops);
    pj_free(bytes);
}

static void fill_attribution(pj_energies *j, pj_run_info *info)
{
    const pj_rail_result *leading = main_rail(j);
    info->condition_number = info->pj_per_flop = info->pj_per_flop_sd = NAN;
    info->pj_per_byte = info->pj_per_byte_sd = info->attribution_interval = NAN;
    info->attribution_interval_calibrated = info->calibration_gap = NAN;
    info->method = PJ_METHOD_NONE;
    if (isnan(info->total_mj)) return; /* nothing was attributed */
    if (!leading) {
        if (j->by_time && j->result_count) info->method = PJ_METHOD_TIME;
        return;
    }
    if (j->options->shares) { /* what the fit saw was not this run's work alone */
        info->method = PJ_METHOD_ALLOCATED;
        return;
    }
    info->method = j->by_time ? PJ_METHOD_TIME : j->replayed ? PJ_METHOD_REPLAY : PJ_METHOD_FIT;
    info->condition_number =
        isfinite(leading->fit.condition_number) ? leading->fit.condition_number : NAN;
    if (j->tree->devices & ~j->measured & ~(1ull << PJ_HOST)) return; /* nothing sees its work */
    fill_unit_costs(j, leading, info);
    info->attribution_interval = interval_now(j, &leading->fit);
    info->attribution_interval_calibrated =
        j->replayed ? info->attribution_interval
                    : calibrated_interval(j, leading, info->attribution_interval);
    if (j->replayed) info->calibration_gap = calibration_gap(j, leading);
}

static void add_phase(const pj_energy *e, double *gross_mj, double *net_mj)
{
    double gross = pj_mj_of_nj(e->gross_nj), net = pj_mj_of_nj(e->net_nj);
    *gross_mj = isnan(*gross_mj) ? gross : *gross_mj + gross;
    *net_mj = isnan(*net_mj) ? net : *net_mj + net;
}

static void energy_run_fill_info(pj_energies *j)
{
    pj_run_info *info = &j->d->info;
    const pj_energy *run = &j->run;
    info->total_mj = pj_mj_of_nj(run->gross_nj);
    info->net_mj = pj_mj_of_nj(run->net_nj);
    info->idle_mj = info->total_mj - info->net_mj;
    info->total_sd_mj = (double)run->sd_mj;
    info->net_sd_mj = (double)run->net_sd_mj;
    info->total_sd = run->sd;
    info->net_sd = run->net_sd;
    info->upper_mj = (double)run->upper_mj;
    info->absence = (pj_absence)run->absence;
    info->prefill_mj = info->decode_mj = info->prefill_net_mj = info->decode_net_mj = NAN;
    for (uint32_t i = 0; i < j->d->phase_count; i++) {
        const pj_phase_row *row = &j->d->phases[i];
        if (row->phase == PJ_PHASE_PREFILL)
            add_phase(&row->energy, &info->prefill_mj, &info->prefill_net_mj);
        else if (row->phase == PJ_PHASE_DECODE)
            add_phase(&row->energy, &info->decode_mj, &info->decode_net_mj);
    }
    if (isnan(info->total_mj) && isnan(info->prefill_mj) && isnan(info->decode_mj))
        info->quality = PJ_UNAVAILABLE;
    fill_attribution(j, info);
}

pj_status pj_energy_of_run(pj_energies *j, pj_error *err)
{
    pj_status status = fill_classes(j, err);
    if (status == PJ_OK) status = fill_rail_energy(j, err);
    if (status == PJ_OK) energy_run_fill_info(j);
    return status;
}
