/*
 * Which parts of two sides are one thing. Programs cut the same work differently: one has qkv_proj,
 * the other q_proj, k_proj and v_proj. A component's name stands for one or several units of work;
 * components that share a unit are one group. What is then left on both sides is matched by its
 * values, and after that by its role in the model.
 */
#include "analysis/why_impl.h"

#include <string.h>

enum { MOST_UNITS = 12, UNIT_BYTES = 48 };

/* What a name stands for, if not for itself alone. */
static const struct {
    const char *name, *units;
} composed[] = {
    {"qkv_proj", "q_proj k_proj v_proj"},
    {"c_attn", "q_proj k_proj v_proj"},
    {"query_key_value", "q_proj k_proj v_proj"},
    {"in_proj_qkv", "q_proj k_proj v_proj"},
    {"gate_up_proj", "gate_proj up_proj"},
    {"dense", "o_proj"},
    {"fc1", "up_proj"},
    {"c_fc", "up_proj"},
    {"fc2", "down_proj"},
    {"act_fn", "act"},
    {"final_norm", "norm"},
    {"final_layernorm", "norm"},
    {"ln_f", "norm"},
    {"ln_1", "input_layernorm"},
    {"ln_2", "post_attention_layernorm"},
    {"attn_norm", "input_layernorm"},
    {"ffn_norm", "post_attention_layernorm"},
    {"pre_feedforward_layernorm", "post_attention_layernorm"},
    {"logits", "lm_head"},
    {"embedding", "embed_tokens"},
    {"wte", "embed_tokens"},
    {"tok_embeddings", "embed_tokens"},
};

/* What a name contains on a side that has no part of such a name. */
static const struct {
    const char *name, *units;
} containers[] = {
    {"attention", "input_layernorm q_proj k_proj v_proj q_norm k_norm"},
    {"self_attn", "attention q_proj k_proj v_proj q_norm k_norm o_proj"},
    {"mlp", "post_attention_layernorm gate_proj up_proj act down_proj"},
};

typedef struct units {
    uint32_t count;
    char names[MOST_UNITS][UNIT_BYTES];
} units;

static bool has_unit(const units *u, const char *name, size_t bytes)
{
    for (uint32_t i = 0; i < u->count; i++)
        if (strncmp(u->names[i], name, bytes) == 0 && !u->names[i][bytes]) return true;
    return false;
}

static void add_unit(units *u, const char *name, size_t bytes)
{
    if (bytes >= UNIT_BYTES) bytes = UNIT_BYTES - 1;
    if (u->count == MOST_UNITS || has_unit(u, name, bytes)) return;
    memcpy(u->names[u->count], name, bytes);
    u->names[u->count++][bytes] = 0;
}

/* Each word of a text that ends at `separator`. */
static const char *next_word(const char **at, char separator, size_t *bytes)
{
    const char *word = *at, *end = strchr(word, separator);
    if (!*word) return NULL;
    *bytes = end ? (size_t)(end - word) : strlen(word);
    *at = word + *bytes + (end != NULL);
    return word;
}

static void add_name(units *u, const char *name, size_t bytes)
{
    size_t n;
    for (size_t i = 0; i < sizeof composed / sizeof *composed; i++) {
        if (strncmp(composed[i].name, name, bytes) != 0 || composed[i].name[bytes]) continue;
        const char *at = composed[i].units;
        for (const char *word; (word = next_word(&at, ' ', &n));) add_unit(u, word, n);
        return;
    }
    add_unit(u, name, bytes);
}

static void units_of(const char *component, units *u)
{
    size_t n;
    *u = (units){0};
    for (const char *word, *at = component; (word = next_word(&at, '+', &n));) add_name(u, word, n);
}

/* ---- components of both sides --------------------------------------------------------------- */

typedef struct component {
    const pj_why_part *first; /* its first part; more follow in the side's list */
    uint32_t side, group;
    const char *whole; /* what its group is called, if that is compared as one thing */
    units units;
} component;

typedef struct matching {
    const pj_why_side *sides[2];
    component *items;
    uint32_t count;
    pj_arena *arena;
    pj_why_pair *pairs;
    uint32_t pair_count;
} matching;

/* Time between parts is its own thing: of the host, or of the devices. */
static bool is_same_component(const pj_why_part *a, const pj_why_part *b)
{
    return a->phase == b->phase && strcmp(a->component, b->component) == 0 &&
           (*a->component || a->on_device == b->on_device);
}

static bool add_component(matching *m, uint32_t side, const pj_why_part *part)
{
    for (uint32_t i = 0; i < m->count; i++)
        if (m->items[i].side == side && is_same_component(m->items[i].first, part)) return true;
    m->items = pj_arena_more(m->arena, m->items, m->count, sizeof *m->items);
    if (!m->items) return false;
    component *c = &m->items[m->count];
    *c = (component){.first = part, .side = side, .group = m->count};
    units_of(part->component, &c->units);
    m->count++;
    return true;
}

static bool side_has(const matching *m, const component *of, const char *unit, size_t bytes)
{
    for (uint32_t i = 0; i < m->count; i++)
        if (m->items[i].side == of->side && m->items[i].first->phase == of->first->phase &&
            has_unit(&m->items[i].units, unit, bytes))
            return true;
    return false;
}

/* A coarse part stands for the finer ones that its side lacks. */
static void widen(const matching *m, component *c)
{
    size_t n;
    for (size_t i = 0; i < sizeof containers / sizeof *containers; i++) {
        if (strcmp(containers[i].name, c->first->component) != 0) continue;
        const char *at = containers[i].units;
        for (const char *word; (word = next_word(&at, ' ', &n));)
            if (!side_has(m, c, word, n)) add_unit(&c->units, word, n);
    }
}

static bool share_a_unit(const component *a, const component *b)
{
    if (a->first->phase != b->first->phase) return false;
    if (!*a->first->component || !*b->first->component)
        return is_same_component(a->first, b->first);
    for (uint32_t i = 0; i < a->units.count; i++)
        if (has_unit(&b->units, a->units.names[i], strlen(a->units.names[i]))) return true;
    return false;
}

static void unite(matching *m, uint32_t from, uint32_t to)
{
    if (from == to) return;
    for (uint32_t i = 0; i < m->count; i++)
        if (m->items[i].group == from) m->items[i].group = to;
}

static void form_groups(matching *m)
{
    for (uint32_t i = 0; i < m->count; i++)
        for (uint32_t k = 0; k < i; k++)
            if (m->items[i].side != m->items[k].side && share_a_unit(&m->items[i], &m->items[k]))
                unite(m, m->items[i].group, m->items[k].group);
}

static bool is_of_layer(const component *c)
{
    static const char *const names[] = {"input_layernorm", "post_attention_layernorm",
                                        "q_proj",          "k_proj",
                                        "v_proj",          "attention",
                                        "o_proj",          "gate_proj",
                                        "up_proj",         "act",
                                        "down_proj",       "mlp"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (has_unit(&c->units, names[i], strlen(names[i]))) return true;
    return false;
}

static bool is_grouped(const matching *m, const component *c)
{
    for (uint32_t i = 0; i < m->count; i++)
        if (m->items[i].side != c->side && m->items[i].group == c->group) return true;
    return false;
}

/* Parts of a layer, or of unknown names, which may be such. */
static bool side_may_have_layers(const matching *m, uint32_t side, uint8_t phase)
{
    for (uint32_t i = 0; i < m->count; i++) {
        const component *c = &m->items[i];
        if (c->side == side && c->first->phase == phase && *c->first->component &&
            (is_of_layer(c) || !is_grouped(m, c)))
            return true;
    }
    return false;
}

/* A side whose layers are blocks without parts, as compiled ones are, spends their time between the
 * parts that it does have. */
static void join_blocks(matching *m)
{
    for (uint32_t i = 0; i < m->count; i++) {
        const component *gap = &m->items[i];
        uint8_t phase = gap->first->phase;
        if (*gap->first->component || gap->first->on_device ||
            side_may_have_layers(m, gap->side, phase))
            continue;
        for (uint32_t k = 0; k < m->count; k++)
            if (m->items[k].side != gap->side && m->items[k].first->phase == phase &&
                is_of_layer(&m->items[k]))
                unite(m, m->items[k].group, gap->group);
    }
}

/* ---- what is compared as a whole ------------------------------------------------------------ */

/* Whether a side knows parts of a phase; of any, with PJ_PHASE_COUNT. */
static bool side_divides(const matching *m, uint32_t side, uint8_t phase)
{
    for (uint32_t i = 0; i < m->count; i++) {
        const component *c = &m->items[i];
        if (c->side == side && *c->first->component &&
            (phase == PJ_PHASE_COUNT || c->first->phase == phase))
            return true;
    }
    return false;
}

/* Whether it spends time in a phase, in parts or between them. */
static bool side_has_phase(const matching *m, uint32_t side, uint8_t phase)
{
    for (uint32_t i = 0; i < m->count; i++)
        if (m->items[i].side == side && m->items[i].first->phase == phase) return true;
    return false;
}

/* All of a phase is one thing. */
static void join_phase(matching *m, uint8_t phase, uint8_t to)
{
    const component *first = NULL;
    for (uint32_t i = 0; i < m->count && !first; i++)
        if (m->items[i].first->phase == to) first = &m->items[i];
    for (uint32_t i = 0; i < m->count; i++) {
        component *c = &m->items[i];
        if (c->first->phase != phase) continue;
        c->group = first->group;
        c->whole = "all parts";
    }
}

/* As servers are: how they spend a phase is not known. A phase that one side does not have, as
 * decode after a single token, is no part of this; but what surrounds the steps of one, as
 * tokenizing, is in the steps of a server. */
static void join_phases(matching *m, bool same_model)
{
    bool divided[2], both[PJ_PHASE_COUNT];
    for (uint32_t side = 0; side < 2; side++) divided[side] = side_divides(m, side, PJ_PHASE_COUNT);
    bool all = !same_model || !divided[0] || !divided[1];
    for (int i = 0; i < PJ_PHASE_COUNT; i++) {
        uint8_t phase = (uint8_t)i;
        bool a = side_divides(m, 0, phase), b = side_divides(m, 1, phase);
        bool steps = phase == PJ_PHASE_PREFILL || phase == PJ_PHASE_DECODE;
        both[phase] = side_has_phase(m, 0, phase) && side_has_phase(m, 1, phase);
        if (both[phase] && (steps ? all || a != b : all && (a || b))) join_phase(m, phase, phase);
    }
    if (!all || (same_model && divided[0] == divided[1])) return;
    if (!both[PJ_PHASE_PRE_INFERENCE] && both[PJ_PHASE_PREFILL])
        join_phase(m, PJ_PHASE_PRE_INFERENCE, PJ_PHASE_PREFILL);
    if (!both[PJ_PHASE_POST_INFERENCE] && both[PJ_PHASE_DECODE])
        join_phase(m, PJ_PHASE_POST_INFERENCE, PJ_PHASE_DECODE);
}

static bool is_in_layers(const matching *m, const component *layers, const component *c)
{
    if (c->first->phase != layers->first->phase || c->first->on_device) return false;
    if (c == layers || !*c->first->component) return true;
    return c->side != layers->side && (is_of_layer(c) || !is_grouped(m, c));
}

/* "layers" stands for all parts of them, and for the time between, which its side does not tell. */
static void join_layers(matching *m)
{
    for (uint32_t i = 0; i < m->count; i++) {
        const component *layers = &m->items[i];
        if (strcmp(layers->first->component, "layers") != 0 || is_grouped(m, layers)) continue;
        for (uint32_t k = 0; k < m->count; k++) {
            component *c = &m->items[k];
            if (!is_in_layers(m, layers, c)) continue;
            unite(m, c->group, layers->group);
            c->whole = "layers";
        }
    }
}

/* ---- pairs ---------------------------------------------------------------------------------- */

static pj_why_pair *add_pair(matching *m, pj_why_match match)
{
    m->pairs = pj_arena_more(m->arena, m->pairs, m->pair_count, sizeof *m->pairs);
    if (!m->pairs) return NULL;
    m->pairs[m->pair_count] = (pj_why_pair){.match = match};
    return &m->pairs[m->pair_count++];
}

static bool put_part(matching *m, pj_why_pair *pair, int side, const pj_why_part *part)
{
    pair->parts[side] =
        pj_arena_more(m->arena, pair->parts[side], pair->count[side], sizeof(void *));
    if (!pair->parts[side]) return false;
    pair->parts[side][pair->count[side]++] = part;
    return true;
}

static bool put_component(matching *m, pj_why_pair *pair, const component *c)
{
    const pj_why_side *s = m->sides[c->side];
    for (uint32_t i = 0; i < s->count; i++)
        if (is_same_component(&s->parts[i], c->first) &&
            !put_part(m, pair, (int)c->side, &s->parts[i]))
            return false;
    return true;
}

static const pj_why_part *operation_of(const pj_why_side *s, const pj_why_part *wanted)
{
    for (uint32_t i = 0; i < s->count; i++) {
        const pj_why_part *p = &s->parts[i];
        if (!is_same_component(p, wanted)) continue;
        if (p->operation && wanted->operation ? strcmp(p->operation, wanted->operation) == 0
                                              : !p->operation && !wanted->operation)
            return p;
    }
    return NULL;
}

/* The share of a component's time in operations that the other side has, too. */
static double shared_operations(const matching *m, const component *c)
{
    const pj_why_side *s = m->sides[c->side], *other = m->sides[!c->side];
    double all = 0, shared = 0;
    for (uint32_t i = 0; i < s->count; i++) {
        const pj_why_part *p = &s->parts[i];
        if (!is_same_component(p, c->first)) continue;
        all += p->ms.mean;
        if (p->operation && operation_of(other, p)) shared += p->ms.mean;
    }
    return all > 0 ? shared / all : 0;
}

/* Operations are compared where both sides name most of them alike. */
static bool put_operations(matching *m, const component *a, const component *b)
{
    for (uint32_t side = 0; side < 2; side++) {
        const pj_why_side *s = m->sides[side];
        const component *c = side ? b : a;
        for (uint32_t i = 0; i < s->count; i++) {
            const pj_why_part *p = &s->parts[i];
            if (!is_same_component(p, c->first)) continue;
            const pj_why_part *other = operation_of(m->sides[!side], p);
            if (other && side) continue; /* is with A's */
            pj_why_pair *pair = add_pair(m, other ? PJ_WHY_BY_NAME : PJ_WHY_ALONE);
            if (!pair || !put_part(m, pair, (int)side, p) ||
                (other && !put_part(m, pair, !side, other)))
                return false;
        }
    }
    return true;
}

static bool pair_group(matching *m, uint32_t group)
{
    const component *of[2] = {NULL, NULL};
    uint32_t count[2] = {0, 0};
    const char *whole = NULL;
    for (uint32_t i = 0; i < m->count; i++) {
        if (m->items[i].group != group) continue;
        if (m->items[i].whole) whole = m->items[i].whole;
        of[m->items[i].side] = &m->items[i];
        count[m->items[i].side]++;
    }
    if (!count[0] && !count[1]) return true;
    if (count[0] == 1 && count[1] == 1 && !whole && shared_operations(m, of[0]) > 0.5 &&
        shared_operations(m, of[1]) > 0.5)
        return put_operations(m, of[0], of[1]);
    pj_why_pair *pair = add_pair(m, count[0] && count[1] ? PJ_WHY_BY_NAME : PJ_WHY_ALONE);
    if (pair && count[0] && count[1]) pair->whole = whole;
    for (uint32_t i = 0; i < m->count && pair; i++)
        if (m->items[i].group == group && !put_component(m, pair, &m->items[i])) return false;
    return pair != NULL;
}

/* ---- what is left on both sides ------------------------------------------------------------- */

static bool is_left(const pj_why_pair *p, int side)
{
    return p->match == PJ_WHY_ALONE && p->count[side] && !p->count[!side] &&
           *p->parts[side][0]->component;
}

static bool same_values(const pj_why_pair *a, const pj_why_pair *b)
{
    pj_why_likeness l = pj_why_parts_compare(a->parts[0][0], b->parts[1][0]);
    return a->count[0] == 1 && b->count[1] == 1 && pj_why_likeness_same(&l);
}

static bool same_role(const pj_why_pair *a, const pj_why_pair *b)
{
    pj_part role = pj_component_part(a->parts[0][0]->component);
    return role != PJ_PART_OTHER && role == pj_component_part(b->parts[1][0]->component);
}

static bool move_all(matching *m, pj_why_pair *from, pj_why_pair *to, int side)
{
    for (uint32_t i = 0; i < from->count[side]; i++)
        if (!put_part(m, to, side, from->parts[side][i])) return false;
    from->count[side] = 0;
    return true;
}

static bool match_left(matching *m, pj_why_match by,
                       bool (*is_match)(const pj_why_pair *a, const pj_why_pair *b))
{
    for (uint32_t i = 0; i < m->pair_count; i++) {
        pj_why_pair *a = &m->pairs[i];
        if (!is_left(a, 0)) continue;
        for (uint32_t k = 0; k < m->pair_count; k++) {
            pj_why_pair *b = &m->pairs[k];
            if (!is_left(b, 1) || b->parts[1][0]->phase != a->parts[0][0]->phase || !is_match(a, b))
                continue;
            if (!move_all(m, b, a, 1)) return false;
            if (by == PJ_WHY_BY_VALUES) break;
        }
        if (a->count[1]) a->match = by;
    }
    return true;
}

/* Further parts of A with a role that is matched already. */
static bool join_roles(matching *m)
{
    for (uint32_t i = 0; i < m->pair_count; i++)
        for (uint32_t k = 0; k < m->pair_count; k++) {
            pj_why_pair *to = &m->pairs[i], *from = &m->pairs[k];
            if (to->match != PJ_WHY_BY_ROLE || !is_left(from, 0) ||
                from->parts[0][0]->phase != to->parts[0][0]->phase || !same_role(from, to))
                continue;
            if (!move_all(m, from, to, 0)) return false;
        }
    return true;
}

pj_status pj_why_pairs(const pj_why_side *a, const pj_why_side *b, bool same_model, pj_arena *arena,
                       pj_why_pair **pairs, uint32_t *count, pj_error *err)
{
    matching m = {.sides = {a, b}, .arena = arena};
    bool room = true;
    for (uint32_t side = 0; side < 2; side++)
        for (uint32_t i = 0; i < m.sides[side]->count && room; i++)
            room = add_component(&m, side, &m.sides[side]->parts[i]);
    for (uint32_t i = 0; i < m.count && room; i++) widen(&m, &m.items[i]);
    if (room) form_groups(&m);
    join_blocks(&m);
    join_layers(&m);
    join_phases(&m, same_model);
    for (uint32_t i = 0; i < m.count && room; i++) room = pair_group(&m, i);
    room = room && match_left(&m, PJ_WHY_BY_VALUES, same_values) &&
           match_left(&m, PJ_WHY_BY_ROLE, same_role) && join_roles(&m);
    *pairs = m.pairs;
    *count = m.pair_count;
    return room ? PJ_OK : pj_fail_memory(err, "an explanation");
}
