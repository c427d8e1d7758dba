/* What the run as a whole learned: classes of work, rails, totals, pJ per FLOP and byte. */
#include "attribution/joules.h"

#include <math.h>
#include <string.h>

static const pj_rail_result *main_rail(const pj_joules *j)
{
    const pj_rail_result *best = NULL;
    for (uint32_t i = 0; i < j->result_count; i++)
        if (j->results[i].has_fit && (!best || j->results[i].weight_mj > best->weight_mj))
            best = &j->results[i];
    return best;
}

static pj_status fill_classes(pj_joules *j, pj_error *err)
{
    const pj_tree *tree = j->tree;
    pj_run_data *d = j->d;
    const pj_rail_result *leading = main_rail(j);
    d->classes = pj_arena_alloc(&d->arena, tree->class_count, sizeof *d->classes);
    if (!d->classes) return pj_fail_memory(err, "the classes of a run");
    d->class_count = tree->class_count;
    for (uint32_t c = 0; c < tree->class_count; c++) {
        pj_class_row *row = &d->classes[c];
        *row = (pj_class_row){.phase = tree->classes[c].phase,
                              .flops = tree->classes[c].flops,
                              .bytes = tree->classes[c].bytes,
                              .power_mw = leading ? 0 : NAN,
                              .power_sd_mw = NAN,
                              .energy_mj = NAN,
                              .energy_sd_mj = NAN,
                              .net_energy_mj = NAN,
                              .net_energy_sd_mj = NAN,
                              .energy_sd = PJ_SD_UNKNOWN,
                              .net_energy_sd = PJ_SD_UNKNOWN,
                              .data_share = leading ? leading->fit.data_share[c] : NAN};
        row->name = pj_arena_strndup(&d->arena, j->class_names[c], strlen(j->class_names[c]));
        if (!row->name) return pj_fail_memory(err, "the classes of a run");
        double variance = 0;
        for (uint32_t i = 0; i < j->result_count; i++) {
            const pj_fit *fit = &j->results[i].fit;
            if (!j->results[i].has_fit) continue;
            row->power_mw += fit->power_mw[c];
            variance += fit->covariance[(size_t)c * fit->class_count + c];
            row->truncated |= fit->truncated[c];
        }
        if (leading) row->power_sd_mw = sqrt(variance > 0 ? variance : 0);
    }
    for (uint32_t i = 0; i < tree->leaf_count; i++) {
        pj_class_row *row = &d->classes[tree->leaves[i].class_];
        row->time_ms += (double)(tree->leaves[i].end_ns - tree->leaves[i].begin_ns) * 1e-6;
        if (j->gross[i] != PJ_NJ_UNKNOWN)
            row->energy_mj =
                (isnan(row->energy_mj) ? 0 : row->energy_mj) + (double)j->gross[i] * 1e-6;
    }
    for (uint32_t c = 0; c < d->class_count; c++)
        d->classes[c].energy_sd_mj = d->classes[c].power_sd_mw * d->classes[c].time_ms * 1e-3;
    return PJ_OK;
}

static double add_if_known(double sum, double value)
{
    return isnan(value) ? sum : (isnan(sum) ? 0 : sum) + value;
}

static pj_rail_energy rail_energy(const pj_joules *j, uint32_t rail, uint8_t phase)
{
    pj_rail_energy row = {phase, (uint16_t)rail, NAN, NAN, NAN, NAN, NAN,
                          PJ_SD_UNKNOWN, PJ_SD_UNKNOWN};
    const pj_tree *tree = j->tree;
    double baseline = j->d->baseline_mw[rail], ms = 0;
    for (uint32_t k = tree->child_begin[0]; k <= tree->child_begin[1]; k++) {
        bool whole = phase == PJ_PHASE_COUNT; /* the run: one interval, its own node */
        if (k == tree->child_begin[1] && !whole) break;
        const pj_node *node = &tree->nodes[whole ? 0 : tree->children[k]];
        if (!whole && node->phase != phase) continue;
        pj_curve_energy e;
        pj_curve_query(j->curves[rail], node->begin_ns, node->end_ns, &e);
        row.gross_mj = add_if_known(row.gross_mj, e.energy_mj);
        row.sd_mj = isnan(row.sd_mj) ? e.sd_mj : hypot(row.sd_mj, e.sd_mj);
        ms += (double)(node->end_ns - node->begin_ns) * 1e-6;
        if (whole) break;
    }
    for (uint32_t i = 0; i < j->result_count; i++) { /* as the rows have it, where it was shared */
        if (j->results[i].rail != rail) continue;
        double whole = 0;
        for (int p = 0; p < PJ_PHASE_COUNT; p++) whole += j->results[i].phase_mj[p];
        row.gross_mj = phase < PJ_PHASE_COUNT ? j->results[i].phase_mj[phase] : whole;
    }
    row.idle_mj = isnan(row.gross_mj) ? NAN : baseline * ms * 1e-3;
    row.net_mj = row.gross_mj - row.idle_mj;
    return row;
}

static pj_status fill_rail_energy(pj_joules *j, pj_error *err)
{
    pj_run_data *d = j->d;
    bool present[PJ_PHASE_COUNT + 1] = {[PJ_PHASE_COUNT] = true};
    for (uint32_t k = j->tree->child_begin[0]; k < j->tree->child_begin[1]; k++)
        present[j->tree->nodes[j->tree->children[k]].phase] = true;
    d->rail_energy = pj_arena_alloc(&d->arena, (size_t)(PJ_PHASE_COUNT + 1) * d->rail_count,
                                    sizeof *d->rail_energy);
    if (!d->rail_energy) return pj_fail_memory(err, "the rails of a run");
    for (int p = 0; p <= PJ_PHASE_COUNT; p++)
        for (uint32_t r = 0; present[p] && r < d->rail_count; r++)
            d->rail_energy[d->rail_energy_count++] = rail_energy(j, r, (uint8_t)p);
    return PJ_OK;
}

/* What `calibrate` would bring: two seconds of a class alone are 2 s / period readings, each with
 * the noise that the evidence found (at least 0.2 %). Never worse than what there is; NaN where
 * power is only estimated: a model of the machine has nothing to be calibrated on. */
static double calibrated_interval(const pj_joules *j, const pj_rail_result *leading, double now)
{
    const pj_rail *rail = &j->d->rails[leading->rail];
    if (strcmp(rail->source, "estimate") == 0) return NAN;
    double period_s =
        (double)(rail->window_ns > rail->period_ns ? rail->window_ns : rail->period_ns) * 1e-9;
    double readings = period_s > 0 ? 2 / period_s : 20;
    double noise = leading->fit.noise > 0.002 ? leading->fit.noise : 0.002;
    double then = 1.96 * noise / sqrt(readings > 1 ? readings : 1);
    return then < 0.001 ? fmin(now, 0.001) : fmin(now, then);
}

/* Of the tokens' classes alone: loading a model may take most of a short run's energy, and says
 * nothing of how well its components are told apart. */
static double interval_now(const pj_joules *j, const pj_fit *fit)
{
    bool *counted = pj_alloc(j->tree->class_count, sizeof *counted);
    for (uint32_t c = 0; counted && c < j->tree->class_count; c++) {
        const pj_tree_class *class_ = &j->tree->classes[c];
        counted[c] = class_->component &&
                     (class_->phase == PJ_PHASE_PREFILL || class_->phase == PJ_PHASE_DECODE);
    }
    double interval = counted ? pj_fit_interval(fit, counted) : NAN;
    pj_free(counted);
    return interval;
}

/* By how much the run's energy differs from what the calibration says of the classes it knows: the
 * rest of the run has no power of its own to be held against, and would take up any difference. */
static double calibration_gap(const pj_joules *j, const pj_rail_result *leading)
{
    double seen = 0, expected = 0, mw, sd_mw;
    for (uint32_t c = 0; j->options->prior && c < j->tree->class_count; c++) {
        if (!j->options->prior(j->options->context, &j->d->rails[leading->rail], j->class_names[c],
                               (pj_phase)j->tree->classes[c].phase, &mw, &sd_mw))
            continue;
        seen += leading->fit.power_mw[c] * leading->fit.time_ms[c];
        expected += mw * leading->fit.time_ms[c];
    }
    return expected > 0 ? seen / expected - 1 : NAN;
}

static void fill_attribution(pj_joules *j, pj_run_info *info)
{
    const pj_rail_result *leading = main_rail(j);
    info->condition_number = info->pj_per_flop = info->pj_per_flop_sd = NAN;
    info->pj_per_byte = info->pj_per_byte_sd = info->attribution_interval = NAN;
    info->attribution_interval_calibrated = info->calibration_gap = NAN;
    info->method = PJ_METHOD_NONE;
    if (!leading) return;
    double *flops = pj_alloc(j->tree->class_count, sizeof *flops);
    double *bytes = pj_alloc(j->tree->class_count, sizeof *bytes);
    for (uint32_t c = 0; flops && bytes && c < j->tree->class_count; c++) {
        flops[c] = j->tree->classes[c].flops;
        bytes[c] = j->tree->classes[c].bytes;
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
    info->method = j->replayed ? PJ_METHOD_REPLAY : PJ_METHOD_FIT;
    info->condition_number = leading->fit.condition_number;
    info->attribution_interval = interval_now(j, &leading->fit);
    info->attribution_interval_calibrated =
        j->replayed ? info->attribution_interval
                    : calibrated_interval(j, leading, info->attribution_interval);
    if (j->replayed) info->calibration_gap = calibration_gap(j, leading);
}

static void fill_info(pj_joules *j)
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
    info->absence = run->absence;
    info->prefill_mj = info->decode_mj = info->prefill_net_mj = info->decode_net_mj = NAN;
    for (uint32_t i = 0; i < j->d->phase_count; i++) {
        const pj_phase_row *row = &j->d->phases[i];
        bool prefill = row->phase == PJ_PHASE_PREFILL, decode = row->phase == PJ_PHASE_DECODE;
        double *gross = prefill ? &info->prefill_mj : &info->decode_mj;
        double *net = prefill ? &info->prefill_net_mj : &info->decode_net_mj;
        if (!prefill && !decode) continue;
        *gross = isnan(*gross) ? pj_mj_of_nj(row->energy.gross_nj)
                               : *gross + pj_mj_of_nj(row->energy.gross_nj);
        *net =
            isnan(*net) ? pj_mj_of_nj(row->energy.net_nj) : *net + pj_mj_of_nj(row->energy.net_nj);
    }
    if (isnan(info->total_mj) && isnan(info->prefill_mj) && isnan(info->decode_mj))
        info->quality = PJ_UNAVAILABLE;
    fill_attribution(j, info);
}

pj_status pj_joules_run(pj_joules *j, pj_error *err)
{
    pj_status status = fill_classes(j, err);
    if (status == PJ_OK) status = fill_rail_energy(j, err);
    if (status == PJ_OK) fill_info(j);
    return status;
}
