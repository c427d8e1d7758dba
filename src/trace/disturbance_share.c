/* Leaves of steps and prompts, what each usually takes, and how extra time is shared among them. */
#include "trace/disturbance_parts.h"

#include <stdlib.h>
#include <string.h>

enum { LEAST_LEAVES = 4, MOST_NAMES = 4096, NO_GROUP = UINT16_MAX };

/* ---- leaves ---- */

/* Groups of leaves: by name in prompts, by name in steps. */
typedef struct group_names {
    const char *names[MOST_NAMES];
    uint32_t count;
} group_names;

static const char layer_name[] = "(layer)", step_name[] = "(step)";

static uint16_t leaf_group(group_names *g, const char *name, bool in_prompt)
{
    uint32_t i = 0;
    while (i < g->count && g->names[i] != name && strcmp(g->names[i], name) != 0) i++;
    if (i == MOST_NAMES) return NO_GROUP;
    if (i == g->count) g->names[g->count++] = name;
    return (uint16_t)(2 * i + in_prompt);
}

typedef struct leaf_search {
    const pj_run_data *d;
    pj_disturbed_units *units;
    pj_unit_leaves *leaves;
    group_names *names;
    double *layer_ms, *section_ms, *step_ms; /* time that no part covers */
    uint32_t *section_of_layer;
    bool with_steps; /* leaves of steps are needed */
} leaf_search;

static uint32_t leaf_unit(const leaf_search *s, uint32_t token, uint32_t step)
{
    uint32_t first = pj_step_of(token, step);
    return first < s->d->token_count ? s->units->of_token[first] : 0;
}

static void leaf_cover_components(leaf_search *s)
{
    const pj_run_data *d = s->d;
    for (uint32_t i = 0; i < d->component_count; i++) {
        const pj_component_row *c = &d->components[i];
        if (c->layer < d->layer_count) {
            s->layer_ms[c->layer] -= c->duration_ms;
            s->section_of_layer[c->layer] = c->section;
        } else if (c->section < d->section_count) {
            s->section_ms[c->section] -= c->duration_ms;
        } else {
            uint32_t unit = leaf_unit(s, c->token, c->step);
            if (unit) s->step_ms[unit - 1] -= c->duration_ms;
        }
    }
}

/* What each layer, section and step took besides its parts. */
static void leaf_cover(leaf_search *s)
{
    const pj_run_data *d = s->d;
    for (uint32_t i = 0; i < d->layer_count; i++) {
        s->layer_ms[i] = d->layers[i].duration_ms;
        s->section_of_layer[i] = PJ_NO_PARENT;
    }
    for (uint32_t i = 0; i < d->section_count; i++) s->section_ms[i] = d->sections[i].duration_ms;
    for (uint32_t i = 0; i < s->units->step_count; i++) s->step_ms[i] = s->units->items[i].ms;
    leaf_cover_components(s);
    for (uint32_t i = 0; i < d->layer_count; i++) {
        uint32_t unit = leaf_unit(s, d->layers[i].token, d->layers[i].step);
        if (s->section_of_layer[i] < d->section_count)
            s->section_ms[s->section_of_layer[i]] -= d->layers[i].duration_ms;
        else if (unit)
            s->step_ms[unit - 1] -= d->layers[i].duration_ms;
    }
    for (uint32_t i = 0; i < d->section_count; i++) {
        uint32_t unit = leaf_unit(s, d->sections[i].token, d->sections[i].step);
        if (unit) s->step_ms[unit - 1] -= d->sections[i].duration_ms;
    }
}

static void leaf_add(leaf_search *s, uint32_t unit, pj_leaf_kind kind, uint32_t row,
                     const char *name, double ms, double work)
{
    if (!unit || !(ms > 0)) return;
    bool in_prompt = s->units->items[unit - 1].kind == PJ_DISTURBED_PROMPT;
    if (!in_prompt && !s->with_steps) return;
    s->leaves->items[s->leaves->count++] =
        (pj_unit_leaf){.unit = unit - 1,
                       .row = row,
                       .group = leaf_group(s->names, name, in_prompt),
                       .kind = (uint8_t)kind,
                       .ms = ms,
                       .work = work > 0 ? work : 1,
                       .usual_ms = NAN};
}

static void leaf_list(leaf_search *s)
{
    const pj_run_data *d = s->d;
    for (uint32_t i = 0; i < d->component_count; i++) {
        const pj_component_row *c = &d->components[i];
        uint32_t first = pj_step_of_component(d, c);
        uint32_t unit = first < d->token_count ? s->units->of_token[first] : 0;
        leaf_add(s, unit, PJ_LEAF_COMPONENT, i, c->name, c->duration_ms, c->flops);
    }
    for (uint32_t i = 0; i < d->layer_count; i++)
        leaf_add(s, leaf_unit(s, d->layers[i].token, d->layers[i].step), PJ_LEAF_LAYER, i,
                 layer_name, s->layer_ms[i], 1);
    for (uint32_t i = 0; i < d->section_count; i++)
        leaf_add(s, leaf_unit(s, d->sections[i].token, d->sections[i].step), PJ_LEAF_SECTION, i,
                 d->sections[i].name ? d->sections[i].name : "", s->section_ms[i], 1);
    for (uint32_t i = 0; i < s->units->step_count; i++)
        leaf_add(s, i + 1, PJ_LEAF_STEP, PJ_NO_PARENT, step_name, s->step_ms[i], 1);
}

/* ---- what is usual ---- */

typedef struct leaf_rate {
    uint16_t group;
    double rate; /* time per work */
} leaf_rate;

static int leaf_by_rate(const void *x, const void *y)
{
    const leaf_rate *a = x, *b = y;
    if (a->group != b->group) return a->group < b->group ? -1 : 1;
    return (a->rate > b->rate) - (a->rate < b->rate);
}

/* Medians of the groups, over leaves of steps that are not disturbed. */
static bool leaf_find_usual(const leaf_search *s)
{
    pj_unit_leaves *l = s->leaves;
    double *usual = pj_alloc(2 * MOST_NAMES, sizeof *usual);
    leaf_rate *rates = pj_alloc((size_t)l->count + 1, sizeof *rates);
    uint32_t n = 0;
    for (uint32_t i = 0; usual && rates && i < l->count; i++)
        if (!s->units->items[l->items[i].unit].disturbed && l->items[i].group != NO_GROUP)
            rates[n++] = (leaf_rate){l->items[i].group, l->items[i].ms / l->items[i].work};
    for (uint32_t i = 0; usual && i < 2 * MOST_NAMES; i++) usual[i] = NAN;
    if (n) qsort(rates, n, sizeof *rates, leaf_by_rate);
    for (uint32_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && rates[end].group == rates[i].group;) end++;
        if (end - i < LEAST_LEAVES) continue;
        usual[rates[i].group] = (rates[(i + end - 1) / 2].rate + rates[(i + end) / 2].rate) / 2;
    }
    for (uint32_t i = 0; usual && rates && i < l->count; i++)
        if (l->items[i].group != NO_GROUP)
            l->items[i].usual_ms = usual[l->items[i].group] * l->items[i].work;
    bool good = usual && rates;
    pj_free(usual);
    pj_free(rates);
    return good;
}

/* A prompt's own explanation: what its leaves usually took, or what they took where that is not
 * known; none if that is most of the prompt. */
static void leaf_explain_prompts(const leaf_search *s)
{
    for (uint32_t u = 0; u < s->units->step_count; u++)
        if (s->units->items[u].kind == PJ_DISTURBED_PROMPT) s->step_ms[u] = 0;
    for (uint32_t i = 0; i < s->leaves->count; i++) {
        const pj_unit_leaf *leaf = &s->leaves->items[i];
        pj_disturbed_unit *unit = &s->units->items[leaf->unit];
        if (unit->kind != PJ_DISTURBED_PROMPT) continue;
        double usual = isnan(leaf->usual_ms) ? leaf->ms : leaf->usual_ms;
        unit->own_ms = isnan(unit->own_ms) ? usual : unit->own_ms + usual;
        if (isnan(leaf->usual_ms)) s->step_ms[leaf->unit] += leaf->ms;
    }
    for (uint32_t u = 0; u < s->units->step_count; u++) {
        pj_disturbed_unit *unit = &s->units->items[u];
        if (unit->kind == PJ_DISTURBED_PROMPT && s->step_ms[u] > unit->ms / 2) unit->own_ms = NAN;
    }
}

static bool leaf_any_disturbed(const pj_disturbed_units *u)
{
    for (uint32_t i = 0; i < u->step_count; i++)
        if (u->items[i].disturbed) return true;
    return false;
}

pj_status pj_unit_leaves_find(const pj_run_data *d, pj_disturbed_units *u, pj_unit_leaves *leaves,
                              pj_error *err)
{
    size_t most = (size_t)d->component_count + d->layer_count + d->section_count + u->step_count;
    leaf_search s = {.d = d, .units = u, .leaves = leaves, .with_steps = leaf_any_disturbed(u)};
    leaves->items = pj_alloc(most + 1, sizeof *leaves->items);
    s.names = pj_alloc(1, sizeof *s.names);
    s.layer_ms = pj_alloc((size_t)d->layer_count + 1, sizeof *s.layer_ms);
    s.section_ms = pj_alloc((size_t)d->section_count + 1, sizeof *s.section_ms);
    s.step_ms = pj_alloc((size_t)u->step_count + 1, sizeof *s.step_ms);
    s.section_of_layer = pj_alloc((size_t)d->layer_count + 1, sizeof *s.section_of_layer);
    bool good =
        leaves->items && s.names && s.layer_ms && s.section_ms && s.step_ms && s.section_of_layer;
    if (good) {
        leaf_cover(&s);
        leaf_list(&s);
        good = leaf_find_usual(&s);
    }
    if (good) leaf_explain_prompts(&s);
    pj_free(s.names);
    pj_free(s.layer_ms);
    pj_free(s.section_ms);
    pj_free(s.step_ms);
    pj_free(s.section_of_layer);
    return good ? PJ_OK : pj_fail_memory(err, "the disturbances of a run");
}

/* ---- sharing a unit's extra time ---- */

typedef struct unit_sums {
    double ms, beyond_ms; /* of the leaves; beyond what is usual */
} unit_sums;

static double leaf_beyond(const pj_unit_leaf *leaf)
{
    return isnan(leaf->usual_ms) ? 0 : fmax(0, leaf->ms - leaf->usual_ms);
}

/* Leaves that took longer than usual take the extra time first, up to what is beyond; the rest goes
 * to all of them alike. Parallel leaves may be longer than their step: it is a share of them. */
static void leaf_set_share(pj_unit_leaf *leaf, const pj_disturbed_unit *unit, const unit_sums *sum)
{
    double extra_ms = pj_unit_extra_ms(unit) * sum->ms / unit->ms;
    double beyond = leaf_beyond(leaf), own = beyond;
    if (sum->beyond_ms > extra_ms)
        own *= extra_ms / sum->beyond_ms;
    else if (sum->ms > sum->beyond_ms)
        own += (leaf->ms - beyond) * (extra_ms - sum->beyond_ms) / (sum->ms - sum->beyond_ms);
    leaf->share = fmin(own / leaf->ms, 1);
}

static bool leaf_share_all(const pj_disturbed_units *u, pj_unit_leaves *l)
{
    unit_sums *sums = pj_alloc((size_t)u->count + 1, sizeof *sums);
    for (uint32_t i = 0; sums && i < l->count; i++) {
        sums[l->items[i].unit].ms += l->items[i].ms;
        sums[l->items[i].unit].beyond_ms += leaf_beyond(&l->items[i]);
    }
    for (uint32_t i = 0; sums && i < l->count; i++) {
        const pj_disturbed_unit *unit = &u->items[l->items[i].unit];
        if (unit->disturbed) leaf_set_share(&l->items[i], unit, &sums[l->items[i].unit]);
    }
    bool good = sums != NULL;
    pj_free(sums);
    return good;
}

/* ---- parts of rows ---- */

/* A share of the energy of time that no part covers. Its net energy is what the parts' leave. */
typedef struct self_energy {
    int64_t gross_nj, net_nj;
} self_energy;

static pj_disturbed part_of_self(const self_energy *self, double ms, double share)
{
    int64_t nj = pj_disturbed_share_of(self->gross_nj, share);
    return (pj_disturbed){ms * share, nj, pj_disturbed_share_of(self->net_nj, share), nj};
}

/* Net energy of time without parts: the row's less that of its parts. */
typedef struct sharing {
    pj_run_data *d;
    pj_disturbed_units *units;
    pj_unit_leaves *leaves;
    int64_t *layer_net, *section_net, *step_net; /* of time that no part covers */
    pj_disturbed *step_part, *component_part;
    uint32_t *section_of_layer;
} sharing;

static void net_less(int64_t *net, int64_t part)
{
    if (*net != PJ_NJ_UNKNOWN) *net = part == PJ_NJ_UNKNOWN ? PJ_NJ_UNKNOWN : *net - part;
}

static uint32_t sharing_unit(const sharing *s, uint32_t token, uint32_t step)
{
    uint32_t first = pj_step_of(token, step);
    return first < s->d->token_count ? s->units->of_token[first] : 0;
}

static void sharing_find_net(sharing *s)
{
    pj_run_data *d = s->d;
    for (uint32_t i = 0; i < d->layer_count; i++) {
        s->layer_net[i] = d->layers[i].energy.net_nj;
        s->section_of_layer[i] = PJ_NO_PARENT;
    }
    for (uint32_t i = 0; i < d->section_count; i++)
        s->section_net[i] = d->sections[i].energy.net_nj;
    for (uint32_t u = 0; u < s->units->step_count; u++)
        for (uint32_t t = s->units->items[u].first; t < s->units->items[u].end; t++) {
            int64_t nj = d->tokens[t].energy.net_nj;
            net_less(&s->step_net[u], nj == PJ_NJ_UNKNOWN ? nj : -nj);
        }
    for (uint32_t i = 0; i < d->component_count; i++) {
        const pj_component_row *c = &d->components[i];
        if (c->layer < d->layer_count) {
            net_less(&s->layer_net[c->layer], c->energy.net_nj);
            s->section_of_layer[c->layer] = c->section;
        } else if (c->section < d->section_count) {
            net_less(&s->section_net[c->section], c->energy.net_nj);
        } else {
            uint32_t unit = sharing_unit(s, c->token, c->step);
            if (unit) net_less(&s->step_net[unit - 1], c->energy.net_nj);
        }
    }
    for (uint32_t i = 0; i < d->layer_count; i++) {
        uint32_t unit = sharing_unit(s, d->layers[i].token, d->layers[i].step);
        if (s->section_of_layer[i] < d->section_count)
            net_less(&s->section_net[s->section_of_layer[i]], d->layers[i].energy.net_nj);
        else if (unit)
            net_less(&s->step_net[unit - 1], d->layers[i].energy.net_nj);
    }
    for (uint32_t i = 0; i < d->section_count; i++) {
        uint32_t unit = sharing_unit(s, d->sections[i].token, d->sections[i].step);
        if (unit) net_less(&s->step_net[unit - 1], d->sections[i].energy.net_nj);
    }
}

static void sharing_add_component(sharing *s, const pj_unit_leaf *leaf)
{
    pj_run_data *d = s->d;
    const pj_component_row *c = &d->components[leaf->row];
    pj_disturbed part = s->component_part[leaf->row];
    pj_disturbed_add(&s->step_part[leaf->unit], &part);
    if (c->layer < d->layer_count) pj_disturbed_add(&d->layers[c->layer].disturbed_part, &part);
    if (c->section < d->section_count)
        pj_disturbed_add(&d->sections[c->section].disturbed_part, &part);
}

static void sharing_add_layer(sharing *s, const pj_unit_leaf *leaf)
{
    pj_layer_row *l = &s->d->layers[leaf->row];
    const self_energy self = {l->energy.self_nj, s->layer_net[leaf->row]};
    pj_disturbed part = part_of_self(&self, leaf->ms, leaf->share);
    pj_disturbed_add(&l->disturbed_part, &part);
    l->disturbed_part.self_nj = part.self_nj;
    pj_disturbed_add(&s->step_part[leaf->unit], &part);
    uint32_t section = s->section_of_layer[leaf->row];
    if (section < s->d->section_count)
        pj_disturbed_add(&s->d->sections[section].disturbed_part, &part);
}

static void sharing_add_section(sharing *s, const pj_unit_leaf *leaf)
{
    pj_section_row *r = &s->d->sections[leaf->row];
    const self_energy self = {r->energy.self_nj, s->section_net[leaf->row]};
    pj_disturbed part = part_of_self(&self, leaf->ms, leaf->share);
    pj_disturbed_add(&r->disturbed_part, &part);
    r->disturbed_part.self_nj = part.self_nj;
    pj_disturbed_add(&s->step_part[leaf->unit], &part);
}

/* Self energy of a step; all of it where its parts are unknown. */
static int64_t sharing_self(const sharing *s, uint32_t unit)
{
    int64_t sum = 0;
    for (uint32_t t = s->units->items[unit].first; t < s->units->items[unit].end; t++)
        if (sum != PJ_NJ_UNKNOWN) {
            const pj_energy *e = &s->d->tokens[t].energy;
            int64_t nj = e->self_nj == PJ_NJ_UNKNOWN ? e->gross_nj : e->self_nj;
            sum = nj == PJ_NJ_UNKNOWN ? nj : sum + nj;
        }
    return sum;
}

static void sharing_add_step(sharing *s, const pj_unit_leaf *leaf)
{
    const self_energy self = {sharing_self(s, leaf->unit), s->step_net[leaf->unit]};
    pj_disturbed part = part_of_self(&self, leaf->ms, leaf->share);
    pj_disturbed_add(&s->step_part[leaf->unit], &part);
    s->step_part[leaf->unit].self_nj = part.self_nj;
}

/* A step's part is divided between its tokens as its energy is; the last has what is left. */
static int64_t sharing_cut(int64_t nj, int64_t of, int64_t whole, int64_t *left, bool is_last)
{
    bool known = of != PJ_NJ_UNKNOWN && whole != PJ_NJ_UNKNOWN && whole != 0;
    int64_t part = is_last ? *left : known ? llround((double)nj * (double)of / (double)whole) : 0;
    *left -= part;
    return part;
}

static void sharing_set_tokens(sharing *s, uint32_t unit)
{
    const pj_disturbed_unit *u = &s->units->items[unit];
    const pj_disturbed *part = &s->step_part[unit];
    pj_disturbed left = *part;
    pj_energy whole = {0};
    for (uint32_t t = u->first; t < u->end; t++) {
        const pj_energy *e = &s->d->tokens[t].energy;
        net_less(&whole.gross_nj, e->gross_nj == PJ_NJ_UNKNOWN ? e->gross_nj : -e->gross_nj);
        net_less(&whole.net_nj, e->net_nj == PJ_NJ_UNKNOWN ? e->net_nj : -e->net_nj);
        net_less(&whole.self_nj, e->self_nj == PJ_NJ_UNKNOWN ? e->self_nj : -e->self_nj);
    }
    for (uint32_t t = u->first; t < u->end; t++) {
        pj_token_row *row = &s->d->tokens[t];
        bool is_last = t + 1 == u->end;
        row->disturbed_part = (pj_disturbed){
            pj_unit_extra_ms(u),
            sharing_cut(part->gross_nj, row->energy.gross_nj, whole.gross_nj, &left.gross_nj,
                        is_last),
            sharing_cut(part->net_nj, row->energy.net_nj, whole.net_nj, &left.net_nj, is_last),
            sharing_cut(part->self_nj, row->energy.self_nj, whole.self_nj, &left.self_nj, is_last)};
    }
}

/* ---- loading and gaps ---- */

/* Loading: every section and component inside is slowed alike. */
static pj_disturbed sharing_set_load(sharing *s, const pj_disturbed_unit *u)
{
    pj_run_data *d = s->d;
    double share = pj_unit_extra_ms(u) / u->ms, end_ms = u->start_ms + u->ms;
    for (uint32_t i = 0; i < d->section_count; i++) {
        pj_section_row *r = &d->sections[i];
        if (r->phase != u->phase || pj_step_of(r->token, r->step) != PJ_NO_PARENT ||
            r->start_ms < u->start_ms || r->start_ms + r->duration_ms > end_ms)
            continue;
        int64_t self = pj_disturbed_share_of(r->energy.self_nj, share);
        r->disturbed_part = (pj_disturbed){r->duration_ms * share, 0,
                                           pj_disturbed_share_of(r->energy.net_nj, share), self};
        r->disturbed_part.gross_nj = pj_disturbed_share_of(r->energy.gross_nj, share);
    }
    for (uint32_t i = 0; i < d->component_count; i++) {
        pj_component_row *c = &d->components[i];
        if (c->section < d->section_count && d->sections[c->section].disturbed_part.ms > 0 &&
            pj_step_of_component(d, c) == PJ_NO_PARENT)
            c->disturbed_ms = c->duration_ms * share;
    }
    return d->sections[u->section].disturbed_part;
}

/* Energy of a phase per millisecond that no step of it covers. */
static pj_disturbed sharing_gap(const sharing *s, const pj_disturbed_unit *u)
{
    const pj_phase_row *p = &s->d->phases[u->phase];
    double ms = p->duration_ms, extra_ms = pj_unit_extra_ms(u);
    bool is_idle = p->phase == PJ_PHASE_IDLE;
    int64_t net = p->energy.net_nj;
    for (uint32_t i = 0; !is_idle && i < s->units->step_count; i++) {
        if (s->units->items[i].phase != u->phase) continue;
        ms -= s->units->items[i].ms;
        for (uint32_t t = s->units->items[i].first; t < s->units->items[i].end; t++)
            net_less(&net, s->d->tokens[t].energy.net_nj);
    }
    for (uint32_t i = 0; !is_idle && i < s->d->section_count; i++) {
        const pj_section_row *r = &s->d->sections[i];
        if (r->phase != u->phase || pj_step_of(r->token, r->step) != PJ_NO_PARENT) continue;
        ms -= r->duration_ms;
        net_less(&net, r->energy.net_nj);
    }
    double share = ms > 0 ? fmin(extra_ms / ms, 1) : 0;
    int64_t self = pj_disturbed_share_of(p->energy.self_nj, share);
    return (pj_disturbed){extra_ms, self, pj_disturbed_share_of(net, share), self};
}

/* ---- all of it ---- */

static void sharing_set_units(sharing *s)
{
    pj_disturbed_units *u = s->units;
    for (uint32_t i = 0; i < u->count; i++) {
        pj_disturbed_unit *unit = &u->items[i];
        if (!unit->disturbed) continue;
        if (i < u->step_count) {
            sharing_set_tokens(s, i);
            unit->part = s->step_part[i];
            unit->part.ms = pj_unit_extra_ms(unit);
        } else {
            unit->part =
                unit->kind == PJ_DISTURBED_LOAD ? sharing_set_load(s, unit) : sharing_gap(s, unit);
        }
        pj_phase_row *phase = unit->phase < s->d->phase_count ? &s->d->phases[unit->phase] : NULL;
        if (!phase) continue;
        pj_disturbed_add(&phase->disturbed_part, &unit->part);
        if (unit->kind == PJ_DISTURBED_GAP) phase->disturbed_part.self_nj += unit->part.self_nj;
    }
}

/* A phase without an energy has no part of it. */
static void sharing_bound_phases(pj_run_data *d)
{
    for (uint32_t i = 0; i < d->phase_count; i++) {
        pj_phase_row *p = &d->phases[i];
        if (p->energy.gross_nj == PJ_NJ_UNKNOWN)
            p->disturbed_part = (pj_disturbed){.ms = p->disturbed_part.ms};
    }
}

static void sharing_set_rows(sharing *s)
{
    static void (*const add[])(sharing *,
                               const pj_unit_leaf *) = {[PJ_LEAF_COMPONENT] = sharing_add_component,
                                                        [PJ_LEAF_LAYER] = sharing_add_layer,
                                                        [PJ_LEAF_SECTION] = sharing_add_section,
                                                        [PJ_LEAF_STEP] = sharing_add_step};
    sharing_find_net(s);
    for (uint32_t i = 0; i < s->leaves->count; i++) {
        const pj_unit_leaf *leaf = &s->leaves->items[i];
        if (leaf->kind == PJ_LEAF_COMPONENT)
            s->d->components[leaf->row].disturbed_ms = leaf->ms * leaf->share;
    }
    pj_component_disturbed_parts(s->d, s->component_part);
    for (uint32_t i = 0; i < s->leaves->count; i++)
        if (s->leaves->items[i].share > 0) add[s->leaves->items[i].kind](s, &s->leaves->items[i]);
    sharing_set_units(s);
}

static void sharing_forget_earlier(pj_run_data *d)
{
    for (uint32_t i = 0; i < d->phase_count; i++) d->phases[i].disturbed_part = (pj_disturbed){0};
    for (uint32_t i = 0; i < d->section_count; i++)
        d->sections[i].disturbed_part = (pj_disturbed){0};
    for (uint32_t i = 0; i < d->token_count; i++) d->tokens[i].disturbed_part = (pj_disturbed){0};
    for (uint32_t i = 0; i < d->layer_count; i++) d->layers[i].disturbed_part = (pj_disturbed){0};
    for (uint32_t i = 0; i < d->component_count; i++) d->components[i].disturbed_ms = 0;
}

pj_status pj_disturbances_share(pj_run_data *d, pj_disturbed_units *u, pj_unit_leaves *leaves,
                                pj_error *err)
{
    sharing s = {.d = d, .units = u, .leaves = leaves};
    s.layer_net = pj_alloc((size_t)d->layer_count + 1, sizeof *s.layer_net);
    s.section_net = pj_alloc((size_t)d->section_count + 1, sizeof *s.section_net);
    s.step_net = pj_alloc((size_t)u->step_count + 1, sizeof *s.step_net);
    s.step_part = pj_alloc((size_t)u->step_count + 1, sizeof *s.step_part);
    s.section_of_layer = pj_alloc((size_t)d->layer_count + 1, sizeof *s.section_of_layer);
    s.component_part = pj_alloc((size_t)d->component_count + 1, sizeof *s.component_part);
    bool good = s.layer_net && s.section_net && s.step_net && s.step_part && s.section_of_layer &&
                s.component_part && leaf_share_all(u, leaves);
    pj_status status = good ? PJ_OK : pj_fail_memory(err, "the disturbances of a run");
    if (good) {
        sharing_forget_earlier(d);
        sharing_set_rows(&s);
        sharing_bound_phases(d);
        status = pj_disturbances_sum(d, u, err);
    }
    pj_free(s.layer_net);
    pj_free(s.section_net);
    pj_free(s.step_net);
    pj_free(s.step_part);
    pj_free(s.section_of_layer);
    pj_free(s.component_part);
    return status;
}
