/* Sums for charts, in two passes over the rows: nodes in a hash table, and planes filled by index.
 * Energies are added as integers, so that, as for rows, parts add up exactly to the whole. */
#include "store/aggregate.h"

#include "base/buffer.h"
#include "trace/disturbance.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum {
    MAX_NODES = 1 << 20,
    MAX_NAMES = 4096,
    MAX_LAYERS = 4096,
    MAX_COMPONENTS = 256,
    MAX_STATISTICS = 256,
    MAX_PLANE_CELLS = 1 << 26,
    NONE = UINT32_MAX
};

/* ---- names ---------------------------------------------------------------------------------- */

/* Interned names, compared by pointer first: equal names nearly always share storage. */
typedef struct name_table {
    const char *names[MAX_NAMES];
    uint32_t count;
    struct {
        const char *pointer;
        uint32_t index;
    } recent[256];
} name_table;

static uint32_t name_index(name_table *table, const char *name)
{
    size_t slot = ((uintptr_t)name >> 3 ^ (uintptr_t)name >> 11) & 255;
    if (table->recent[slot].pointer == name) return table->recent[slot].index;
    uint32_t i = 0;
    while (i < table->count && strcmp(table->names[i], name) != 0) i++;
    if (i == MAX_NAMES) return PJ_NO_NAME;
    if (i == table->count) table->names[table->count++] = name;
    table->recent[slot].pointer = name;
    table->recent[slot].index = i;
    return i;
}

/* ---- nodes ---------------------------------------------------------------------------------- */

typedef struct builder {
    const pj_run_data *data;
    pj_disturbed *component_parts; /* left out of the sums */
    name_table *names;
    pj_sum_node *nodes;
    pj_buffer extras; /* of pj_extra_sum */
    uint32_t *slots;  /* hash table: index of a node + 1; size a power of two */
    uint32_t slot_mask;
    uint32_t node_count, node_capacity;
    uint32_t layer_count;
    bool failed;
} builder;

static uint64_t key_of(const pj_sum_node *n)
{
    return (uint64_t)(uint32_t)(n->layer + 1) << 40 | (uint64_t)n->component << 24 |
           (uint64_t)n->operation << 8 | n->phase;
}

static uint32_t aggregate_slot_of(const builder *b, uint64_t key)
{
    return (uint32_t)((key * 0x9e3779b97f4a7c15u) >> 32) & b->slot_mask;
}

static bool aggregate_grow(builder *b)
{
    uint32_t capacity = b->node_capacity ? b->node_capacity * 2 : 512;
    if (capacity > MAX_NODES) return false;
    pj_sum_node *nodes = pj_resize(b->nodes, capacity, sizeof *nodes);
    if (!nodes) return false;
    b->nodes = nodes;
    b->node_capacity = capacity;
    pj_free(b->slots);
    b->slots = pj_alloc((size_t)capacity * 2, sizeof *b->slots);
    if (!b->slots) return false;
    b->slot_mask = capacity * 2 - 1;
    for (uint32_t i = 0; i < b->node_count; i++) {
        uint32_t s = aggregate_slot_of(b, key_of(&b->nodes[i]));
        while (b->slots[s]) s = (s + 1) & b->slot_mask;
        b->slots[s] = i + 1;
    }
    return true;
}

static const pj_sum_node empty_node = {.flops = NAN, .bytes = NAN};

/* The node's index; NONE when out of memory or over the limit. */
static uint32_t node_at(builder *b, uint8_t phase, int32_t layer, uint32_t component,
                        uint32_t operation)
{
    pj_sum_node wanted = empty_node;
    wanted.phase = phase;
    wanted.layer = layer;
    wanted.component = (uint16_t)component;
    wanted.operation = (uint16_t)operation;
    uint64_t key = key_of(&wanted);
    if (b->node_count == b->node_capacity && !aggregate_grow(b)) {
        b->failed = true;
        return NONE;
    }
    uint32_t s = aggregate_slot_of(b, key);
    for (; b->slots[s]; s = (s + 1) & b->slot_mask)
        if (key_of(&b->nodes[b->slots[s] - 1]) == key) return b->slots[s] - 1;
    b->nodes[b->node_count] = wanted;
    b->slots[s] = ++b->node_count;
    return b->node_count - 1;
}

static void aggregate_add_known(double *sum, double value)
{
    if (!isnan(value)) *sum = isnan(*sum) ? value : *sum + value;
}

/* Adds statistics already aggregated over `count` rows. */
static void aggregate_add_statistics(pj_sum_node *n, const double *statistics, uint32_t count)
{
    bool first = n->stats_count == 0;
    n->stats_count += count;
    for (int s = 0; s < PJ_STATISTIC_SHOWN; s++) {
        double *into = &n->statistics[s];
        if (first)
            *into = statistics[s];
        else if (pj_statistics[s].aggregate != PJ_AGGREGATE_MAX)
            *into += statistics[s];
        else if (isnan(*into) || statistics[s] > *into)
            *into = statistics[s];
    }
}

void pj_node_merge(pj_sum_node *to, const pj_sum_node *n)
{
    if (to->count == 0) {
        *to = *n;
        return;
    }
    to->count += n->count;
    if (n->stats_count) aggregate_add_statistics(to, n->statistics, n->stats_count);
    to->entropy_count += n->entropy_count;
    to->time_ms += n->time_ms;
    to->attention_ms += n->attention_ms;
    to->mlp_ms += n->mlp_ms;
    aggregate_add_known(&to->flops, n->flops);
    aggregate_add_known(&to->bytes, n->bytes);
    pj_nj_add(&to->gross_nj, n->gross_nj);
    pj_nj_add(&to->net_nj, n->net_nj);
    pj_nj_add(&to->self_nj, n->self_nj);
    pj_nj_add(&to->planted_nj, n->planted_nj);
    to->sd_mj += n->sd_mj;
    to->entropy_sum += n->entropy_sum;
}

static void add_extra(builder *b, uint32_t node, uint32_t name, double value)
{
    pj_extra_sum *extras = (pj_extra_sum *)(void *)b->extras.data;
    uint32_t at = b->nodes[node].first_extra;
    while (at && extras[at - 1].name != name) at = extras[at - 1].next;
    if (!at) {
        const pj_extra_sum e = {.name = (uint16_t)name, .next = b->nodes[node].first_extra};
        if (!pj_buffer_append(&b->extras, &e, sizeof e)) {
            b->failed = true;
            return;
        }
        extras = (pj_extra_sum *)(void *)b->extras.data;
        at = b->nodes[node].first_extra = (uint32_t)(b->extras.length / sizeof e);
    }
    extras[at - 1].count++;
    extras[at - 1].sum += value;
}

static bool is_entropy(const pj_extra_row *extra)
{
    return extra->index == PJ_EXTRA_SCALAR && strcmp(extra->name, "attention_entropy") == 0;
}

/* Extras are found by number: a run without any has no array, into which not even an empty range
 * may point. */
static void aggregate_add_extras(builder *b, uint32_t node, uint32_t begin, uint32_t count)
{
    const pj_run_data *data = b->data;
    if (begin > data->extra_count || count > data->extra_count - begin) return;
    for (uint32_t i = begin; i < begin + count; i++) {
        const pj_extra_row *e = &data->extras[i];
        if (e->index != PJ_EXTRA_SCALAR || isnan(e->value)) continue;
        uint32_t name = name_index(b->names, e->name);
        if (name != PJ_NO_NAME) add_extra(b, node, name, e->value);
        if (!is_entropy(e)) continue;
        b->nodes[node].entropy_count++;
        b->nodes[node].entropy_sum += e->value;
    }
}

/* ---- where rows belong ----------------------------------------------------------------------- */

typedef struct cell_key {
    uint8_t phase;
    int32_t layer;
    uint32_t token; /* the first token of its step; NONE: in no token */
} cell_key;

static uint8_t phase_of_token(const pj_run_data *data, uint32_t token)
{
    if (token >= data->token_count || data->tokens[token].phase >= data->phase_count)
        return PJ_PHASE_COUNT;
    return data->phases[data->tokens[token].phase].phase;
}

static cell_key key_of_layer(const pj_run_data *data, const pj_layer_row *layer)
{
    uint32_t step = pj_step_of(layer->token, layer->step);
    return (cell_key){phase_of_token(data, step), (int32_t)layer->layer_index, step};
}

static cell_key key_of_component(const pj_run_data *data, const pj_component_row *c)
{
    if (c->layer < data->layer_count) return key_of_layer(data, &data->layers[c->layer]);
    uint32_t step = pj_step_of(c->token, c->step);
    cell_key p = {phase_of_token(data, step), PJ_OUTSIDE, step};
    if (p.phase == PJ_PHASE_COUNT && c->section < data->section_count &&
        data->sections[c->section].phase < data->phase_count)
        p.phase = data->phases[data->sections[c->section].phase].phase;
    return p;
}

/* ---- the pass over the rows ------------------------------------------------------------------ */

/* What rows of all levels have. */
typedef struct part {
    double ms, flops, bytes;
    const pj_energy *energy;
    const pj_stats *stats; /* NULL: none */
    uint32_t extra_begin, extra_count;
} part;

static void aggregate_add_row(pj_sum_node *n, const part *row)
{
    if (n->count++ == 0) n->method = row->energy->method;
    n->time_ms += row->ms;
    pj_nj_add(&n->gross_nj, row->energy->gross_nj);
    pj_nj_add(&n->net_nj, row->energy->net_nj);
    pj_nj_add(&n->self_nj, row->energy->self_nj);
    pj_nj_add(&n->planted_nj, row->energy->planted_nj);
    n->sd_mj += (double)row->energy->sd_mj;
    aggregate_add_known(&n->flops, row->flops);
    aggregate_add_known(&n->bytes, row->bytes);
    if (!row->stats || isnan(row->stats->mean_abs)) return;
    double values[PJ_STATISTIC_SHOWN];
    for (int s = 0; s < PJ_STATISTIC_SHOWN; s++)
        values[s] = pj_statistic_get(row->stats, (pj_statistic)s);
    aggregate_add_statistics(n, values, 1);
}

/* The node that a row belongs to; names are NULL at levels above. NULL: there is no room. */
static pj_sum_node *add_part(builder *b, cell_key key, const char *component, const char *operation,
                             const part *row)
{
    uint32_t first = component ? name_index(b->names, component) : PJ_NO_NAME;
    uint32_t second = operation ? name_index(b->names, operation) : PJ_NO_NAME;
    if ((component && first == PJ_NO_NAME) || (operation && second == PJ_NO_NAME) ||
        (uint32_t)(key.layer + 1) > MAX_LAYERS)
        return NULL;
    uint32_t at = node_at(b, key.phase, key.layer, first, second);
    if (at == NONE) return NULL;
    aggregate_add_row(&b->nodes[at], row);
    if (row->extra_count) aggregate_add_extras(b, at, row->extra_begin, row->extra_count);
    return &b->nodes[at];
}

static void add_layers(builder *b)
{
    for (uint32_t i = 0; i < b->data->layer_count && !b->failed; i++) {
        const pj_layer_row *row = &b->data->layers[i];
        const pj_energy energy = pj_energy_without(&row->energy, &row->disturbed_part);
        const double ms = row->duration_ms - row->disturbed_part.ms;
        const double remains = row->duration_ms > 0 ? ms / row->duration_ms : 1;
        const part layer = {.ms = ms,
                            .flops = NAN,
                            .bytes = NAN,
                            .energy = &energy,
                            .stats = row->has_stats ? &row->stats : NULL};
        pj_sum_node *n = add_part(b, key_of_layer(b->data, row), NULL, NULL, &layer);
        if (!n) continue;
        n->attention_ms += isnan(row->attention_ms) ? 0 : row->attention_ms * remains;
        n->mlp_ms += isnan(row->mlp_ms) ? 0 : row->mlp_ms * remains;
        if (row->layer_index >= b->layer_count) b->layer_count = row->layer_index + 1;
    }
}

static void add_components(builder *b)
{
    for (uint32_t i = 0; i < b->data->component_count && !b->failed; i++) {
        const pj_component_row *row = &b->data->components[i];
        const double share = pj_component_disturbed_share(row);
        const pj_energy energy = pj_energy_without_share(&row->energy, share);
        const part component = {
            row->duration_ms * (1 - share),      row->flops,       row->bytes,      &energy,
            row->has_stats ? &row->stats : NULL, row->extra_begin, row->extra_count};
        add_part(b, key_of_component(b->data, row), row->name, NULL, &component);
    }
}

static void add_operations(builder *b)
{
    const pj_run_data *data = b->data;
    for (uint32_t i = 0; i < data->operation_count && !b->failed; i++) {
        const pj_operation_row *row = &data->operations[i];
        if (row->component >= data->component_count) continue;
        const pj_component_row *component = &data->components[row->component];
        const double share = pj_component_disturbed_share(component);
        const pj_energy energy = pj_energy_without_share(&row->energy, share);
        const part operation = {
            row->duration_ms * (1 - share),      row->flops,       row->bytes,      &energy,
            row->has_stats ? &row->stats : NULL, row->extra_begin, row->extra_count};
        add_part(b, key_of_component(data, component), component->name, row->name, &operation);
    }
}

/* ---- the stored form of the nodes ------------------------------------------------------------ */

/* Followed by the nodes, the extras and the names (each with its NUL). A node has as many
 * statistics as existed when it was stored, in the order of the table. */
typedef struct nodes_header {
    char magic[8]; /* "PJNODE2" */
    uint32_t nodes, names, extras, layers;
    uint32_t statistics, reserved;
} nodes_header;

enum { NODE_BYTES = offsetof(pj_sum_node, statistics), HEADER_1_BYTES = 24, STATISTICS_1 = 4 };

_Static_assert(sizeof(pj_sum_node) == NODE_BYTES + PJ_STATISTIC_SHOWN * sizeof(double),
               "no padding");

/* "PJNODE1", the earlier format: no count of statistics; the entropy sum follows four
 * statistics. */
static void read_node_1(const char *from, pj_sum_node *node)
{
    size_t entropy = offsetof(pj_sum_node, entropy_sum), bytes = STATISTICS_1 * sizeof(double);
    memcpy(node, from, entropy);
    memcpy(node->statistics, from + entropy, bytes);
    memcpy(&node->entropy_sum, from + entropy + bytes, sizeof(double));
}

/* Statistics that the stored node lacks are unavailable. */
static void read_node(const nodes_header *header, const char *from, pj_sum_node *node)
{
    uint32_t known =
        header->statistics < PJ_STATISTIC_SHOWN ? header->statistics : PJ_STATISTIC_SHOWN;
    for (int s = 0; s < PJ_STATISTIC_SHOWN; s++) node->statistics[s] = NAN;
    if (header->magic[6] == '1')
        read_node_1(from, node);
    else
        memcpy(node, from, NODE_BYTES + known * sizeof(double));
}

static pj_status save_nodes(builder *b, pj_chart_fn *save, void *context, pj_error *err)
{
    nodes_header header = {"PJNODE2",
                           b->node_count,
                           b->names->count,
                           (uint32_t)(b->extras.length / sizeof(pj_extra_sum)),
                           b->layer_count,
                           PJ_STATISTIC_SHOWN,
                           0};
    pj_buffer out;
    pj_buffer_init(&out, 1u << 30);
    pj_buffer_append(&out, &header, sizeof header);
    pj_buffer_append(&out, b->nodes, b->node_count * sizeof *b->nodes);
    pj_buffer_append(&out, b->extras.data, b->extras.length);
    for (uint32_t i = 0; i < b->names->count; i++)
        pj_buffer_append(&out, b->names->names[i], strlen(b->names->names[i]) + 1);
    pj_status status = pj_buffer_status(&out, "the sums of a run", err);
    if (status == PJ_OK) status = save(context, "nodes", out.data, out.length, err);
    pj_buffer_fini(&out);
    return status;
}

static bool nodes_are_sound(const pj_sum_nodes *nodes)
{
    for (uint32_t i = 0; i < nodes->node_count; i++) {
        const pj_sum_node *n = &nodes->nodes[i];
        if ((n->component != PJ_NO_NAME && n->component >= nodes->name_count) ||
            (n->operation != PJ_NO_NAME && n->operation >= nodes->name_count) ||
            n->phase > PJ_PHASE_COUNT || n->layer < PJ_OUTSIDE ||
            n->layer >= (int32_t)nodes->layer_count || n->first_extra > nodes->extra_count)
            return false;
    }
    /* links point backwards only, so lists are finite */
    for (uint32_t i = 0; i < nodes->extra_count; i++)
        if (nodes->extras[i].name >= nodes->name_count || nodes->extras[i].next > i) return false;
    return nodes->layer_count <= MAX_LAYERS;
}

static bool find_names(const char *at, const char *end, uint32_t count, const char **names)
{
    for (uint32_t i = 0; i < count; i++) {
        const char *nul = memchr(at, 0, (size_t)(end - at));
        if (!nul) return false;
        names[i] = at;
        at = nul + 1;
    }
    return at == end;
}

static bool aggregate_read_header(const void *bytes, size_t count, nodes_header *header,
                                  size_t *header_bytes)
{
    *header = (nodes_header){0};
    if (count < HEADER_1_BYTES) return false;
    memcpy(header, bytes, HEADER_1_BYTES);
    *header_bytes = HEADER_1_BYTES;
    header->statistics = STATISTICS_1;
    if (memcmp(header->magic, "PJNODE2", 8) == 0) {
        *header_bytes = sizeof *header;
        if (count < sizeof *header) return false;
        memcpy(header, bytes, sizeof *header);
    } else if (memcmp(header->magic, "PJNODE1", 8) != 0) {
        return false;
    }
    return header->nodes <= MAX_NODES && header->names <= MAX_NAMES &&
           header->extras <= MAX_NODES && header->statistics <= MAX_STATISTICS;
}

pj_status pj_nodes_read(const void *bytes, size_t count, pj_arena *arena, pj_sum_nodes *nodes,
                        pj_error *err)
{
    nodes_header header;
    size_t header_bytes;
    *nodes = (pj_sum_nodes){0};
    if (!aggregate_read_header(bytes, count, &header, &header_bytes)) goto damaged;
    size_t stride = NODE_BYTES + header.statistics * sizeof(double);
    size_t node_bytes = header.nodes * stride;
    size_t extra_bytes = header.extras * sizeof(pj_extra_sum);
    if (count - header_bytes < node_bytes + extra_bytes) goto damaged;
    pj_sum_node *read = pj_arena_alloc(arena, (size_t)header.nodes + 1, sizeof *read);
    char *copy = pj_arena_alloc(arena, count + 1, 1); /* outlives the statement */
    const char **names = pj_arena_alloc(arena, header.names + 1, sizeof *names);
    if (!read || !copy || !names) return pj_fail_memory(err, "the sums of a run");
    const char *from = (const char *)bytes + header_bytes;
    for (uint32_t i = 0; i < header.nodes; i++) read_node(&header, from + i * stride, &read[i]);
    memcpy(copy, from + node_bytes, count - header_bytes - node_bytes);
    const char *end = copy + (count - header_bytes - node_bytes);
    *nodes = (pj_sum_nodes){header.nodes,  header.names, header.extras,
                            header.layers, read,         (const pj_extra_sum *)(void *)copy,
                            names};
    if (find_names(copy + extra_bytes, end, header.names, names) && nodes_are_sound(nodes))
        return PJ_OK;
damaged:
    return pj_fail(err, PJ_E_INVALID,
                   "the stored sums of a run are damaged: export and import it "
                   "to recreate them");
}

/* ---- planes ---------------------------------------------------------------------------------- */

typedef struct planes {
    const pj_run_data *data;
    const char *components[MAX_COMPONENTS];
    uint32_t component_count;
    uint16_t *of_row; /* plane column of each component row; PJ_NO_NAME: not shown */
    uint32_t layers;  /* including the one outside the layers */
    size_t cells;
    float *values;
    bool without; /* disturbances */
} planes;

static float entropy_of(const pj_run_data *data, uint32_t begin, uint32_t count)
{
    if (begin > data->extra_count || count > data->extra_count - begin) return NAN;
    for (uint32_t i = begin; i < begin + count; i++)
        if (is_entropy(&data->extras[i])) return (float)data->extras[i].value;
    return NAN;
}

/* What the plane shows of a component's time and energy. */
static double plane_remains(const planes *p, const pj_component_row *c)
{
    return p->without ? 1 - pj_component_disturbed_share(c) : 1;
}

static float plane_value(const planes *p, const pj_component_row *c, pj_metric metric)
{
    const pj_run_data *data = p->data;
    pj_statistic statistic = pj_metric_statistic(metric);
    if (metric == PJ_METRIC_TIME) return (float)(c->duration_ms * plane_remains(p, c));
    if (metric == PJ_METRIC_ENERGY) return (float)pj_mj_of_nj(c->energy.gross_nj);
    if (statistic < PJ_STATISTIC_SHOWN)
        return c->has_stats ? (float)pj_statistic_get(&c->stats, statistic) : NAN;
    return entropy_of(data, c->extra_begin, c->extra_count);
}

static uint32_t end_of_step(const pj_run_data *data, uint32_t first)
{
    return data->tokens[first].step == first ? pj_shared_step_end(data, first) : first + 1;
}

/* The cell of a component row in the first token of its step, or SIZE_MAX. */
static size_t cell_of(const planes *p, uint32_t row)
{
    const pj_component_row *c = &p->data->components[row];
    cell_key at = key_of_component(p->data, c);
    if (p->of_row[row] == PJ_NO_NAME || at.token >= p->data->token_count || at.layer >= MAX_LAYERS)
        return SIZE_MAX;
    uint32_t layer = at.layer == PJ_OUTSIDE ? p->layers - 1 : (uint32_t)at.layer;
    return ((size_t)at.token * p->layers + layer) * p->component_count + p->of_row[row];
}

/* Every token of a shared step shows the step's figures, but its own share of the energy. Several
 * rows in one cell (a component that ran twice) add up in time and energy; of statistics the last
 * one is kept. False: the value is unknown, or the component is not shown. */
static bool fill_cells(planes *p, pj_metric metric, uint32_t component, float value)
{
    const pj_component_row *row = &p->data->components[component];
    size_t cell = isnan(value) ? SIZE_MAX : cell_of(p, component);
    if (cell == SIZE_MAX) return false;
    uint32_t first = pj_step_of_component(p->data, row), end = end_of_step(p->data, first);
    for (uint32_t t = first; t < end; t++, cell += (size_t)p->layers * p->component_count) {
        if (metric == PJ_METRIC_ENERGY)
            value = (float)(pj_token_part_mj(&p->data->tokens[t], row) * plane_remains(p, row));
        bool adds = metric == PJ_METRIC_TIME || metric == PJ_METRIC_ENERGY;
        p->values[cell] = adds && !isnan(p->values[cell]) ? p->values[cell] + value : value;
    }
    return true;
}

/* Whether any cell holds a figure. Entropy recorded on operations counts for their component. */
static bool fill_plane(planes *p, pj_metric metric)
{
    const pj_run_data *data = p->data;
    bool any = false;
    for (size_t i = 0; i < p->cells; i++) p->values[i] = NAN;
    for (uint32_t i = 0; i < data->component_count; i++)
        any |= fill_cells(p, metric, i, plane_value(p, &data->components[i], metric));
    for (uint32_t i = 0; i < data->operation_count && metric == PJ_METRIC_ENTROPY; i++) {
        const pj_operation_row *o = &data->operations[i];
        if (o->component < data->component_count)
            any |= fill_cells(p, metric, o->component,
                              entropy_of(data, o->extra_begin, o->extra_count));
    }
    return any;
}

static bool lay_out_planes(planes *p, name_table *names, uint32_t layer_count)
{
    const pj_run_data *data = p->data;
    uint16_t column[MAX_NAMES];
    memset(column, 0xff, sizeof column);
    p->layers = layer_count + 1;
    for (uint32_t i = 0; i < data->component_count; i++) {
        uint32_t name = name_index(names, data->components[i].name);
        if (name != PJ_NO_NAME && column[name] == PJ_NO_NAME &&
            p->component_count < MAX_COMPONENTS) {
            column[name] = (uint16_t)p->component_count;
            p->components[p->component_count++] = names->names[name];
        }
        p->of_row[i] = name == PJ_NO_NAME ? PJ_NO_NAME : column[name];
    }
    size_t matrix = (size_t)p->layers * p->component_count;
    if (matrix == 0 || data->token_count > MAX_PLANE_CELLS / matrix) return false;
    p->cells = matrix * data->token_count;
    return p->cells > 0;
}

static pj_status save_component_names(const planes *p, pj_chart_fn *save, void *context,
                                      pj_error *err)
{
    pj_buffer out;
    pj_buffer_init(&out, 1u << 24);
    for (uint32_t i = 0; i < p->component_count; i++)
        pj_buffer_append(&out, p->components[i], strlen(p->components[i]) + 1);
    pj_status status = pj_buffer_status(&out, "the names of components", err);
    if (status == PJ_OK) status = save(context, "components", out.data, out.length, err);
    pj_buffer_fini(&out);
    return status;
}

static bool has_disturbances(const pj_run_data *data)
{
    for (uint32_t i = 0; i < data->component_count; i++)
        if (data->components[i].disturbed_ms > 0) return true;
    return false;
}

static pj_status save_planes(const pj_run_data *data, name_table *names, uint32_t layer_count,
                             pj_chart_fn *save, void *context, pj_error *err)
{
    planes p = {.data = data};
    pj_status status = PJ_OK;
    unsigned char *blob = NULL;
    if (data->component_count == 0) return PJ_OK;
    p.of_row = pj_alloc(data->component_count, sizeof *p.of_row);
    if (!p.of_row) return pj_fail_memory(err, "the heatmaps of a run");
    if (!lay_out_planes(&p, names, layer_count)) goto done;
    size_t bytes = sizeof(pj_plane_header) + p.cells * sizeof(float);
    blob = pj_alloc(bytes, 1);
    if (!blob) {
        status = pj_fail_memory(err, "the heatmaps of a run");
        goto done;
    }
    pj_plane_header header = {"PJCUBE1", data->token_count, p.layers, p.component_count, 0};
    memcpy(blob, &header, sizeof header);
    p.values = (float *)(void *)(blob + sizeof header);
    status = save_component_names(&p, save, context, err);
    for (pj_metric metric = 0; metric < PJ_METRIC_COUNT && status == PJ_OK; metric++) {
        const char *chart = pj_metric_table[metric].plane;
        if (chart && fill_plane(&p, metric)) status = save(context, chart, blob, bytes, err);
    }
    p.without = true;
    for (pj_metric metric = 0; metric < PJ_METRIC_COUNT && status == PJ_OK; metric++) {
        char chart[64];
        if (!has_disturbances(data) || (metric != PJ_METRIC_TIME && metric != PJ_METRIC_ENERGY))
            continue;
        snprintf(chart, sizeof chart, "%s" PJ_WITHOUT_DISTURBANCES, pj_metric_table[metric].plane);
        if (fill_plane(&p, metric)) status = save(context, chart, blob, bytes, err);
    }
done:
    pj_free(blob);
    pj_free(p.of_row);
    return status;
}

pj_status pj_aggregate_each_chart(const pj_run_data *data, pj_chart_fn *save, void *context,
                                  pj_error *err)
{
    name_table *names = pj_alloc(1, sizeof *names);
    if (!names) return pj_fail_memory(err, "the sums of a run");
    builder b = {.data = data, .names = names};
    pj_buffer_init(&b.extras, MAX_NODES * sizeof(pj_extra_sum));
    b.component_parts = pj_alloc((size_t)data->component_count + 1, sizeof *b.component_parts);
    b.failed = !b.component_parts;
    if (!b.failed) pj_component_disturbed_parts(data, b.component_parts);
    add_layers(&b);
    add_components(&b);
    add_operations(&b);
    pj_status status = b.failed ? pj_fail_memory(err, "the sums of a run") : PJ_OK;
    if (status == PJ_OK) status = save_nodes(&b, save, context, err);
    if (status == PJ_OK) status = save_planes(data, names, b.layer_count, save, context, err);
    pj_free(b.nodes);
    pj_free(b.component_parts);
    pj_buffer_fini(&b.extras);
    pj_free(b.slots);
    pj_free(names);
    return status;
}
