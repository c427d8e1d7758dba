/* Facts and rows. Rows of each kind are in the order in which their spans ended, which on one
 * thread is time order. */
#include "attribution/build.h"

#include "base/thread.h"
#include "trace/request.h"
#include "trace/run_json.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { LARGE_TREE_NODES = 20000, MOST_SIMULATED = 20000000 };

/* ---- facts ---- */

static pj_status take_fact(const pj_record *record, pj_run_data *data, int64_t *begin_ns,
                           uint32_t *warning_capacity, pj_error *err)
{
    const char *text = (const char *)record->payload;
    uint32_t bytes = pj_record_bytes(record);
    if (pj_record_kind(record) == PJ_RECORD_INFO)
        return pj_run_info_read(text, bytes, &data->arena, &data->info, begin_ns, err);
    if (pj_record_kind(record) == PJ_RECORD_RAIL) {
        uint32_t index;
        pj_rail rail;
        double mw, sd_mw;
        pj_status status = pj_rail_read(text, bytes, &index, &rail, &mw, &sd_mw, err);
        if (status != PJ_OK) return status;
        data->rails[index] = rail;
        data->baseline_mw[index] = mw;
        data->baseline_sd_mw[index] = sd_mw;
        if (data->rail_count <= index) data->rail_count = index + 1;
    }
    if (pj_record_kind(record) == PJ_RECORD_WARNING && data->warning_count < *warning_capacity) {
        pj_warning_row *row = &data->warnings[data->warning_count++];
        int64_t t_ns;
        pj_status status =
            pj_warning_read(text, bytes, &data->arena, &t_ns, &row->code, &row->text, err);
        row->t_ms = (double)t_ns;
        return status;
    }
    return PJ_OK;
}

static pj_status take_device(const pj_record *record, pj_tree *tree, pj_run_data *data,
                             pj_error *err)
{
    pj_device_row row;
    pj_status status = pj_device_read((const char *)record->payload, pj_record_bytes(record),
                                      &data->arena, &row, err);
    if (status != PJ_OK) return status;
    if (!data->devices) {
        data->devices = pj_arena_alloc(&data->arena, PJ_MAX_DEVICES, sizeof *data->devices);
        if (!data->devices) return pj_fail_memory(err, "the devices of a run");
        for (uint32_t i = 0; i < PJ_MAX_DEVICES; i++) data->devices[i] = pj_device_row_make(i);
    }
    data->devices[row.number] = row;
    if (data->device_count <= row.number) data->device_count = row.number + 1;
    pj_tree_add_device(tree, row.number);
    return PJ_OK;
}

static uint32_t count_notes(const pj_tree *tree, pj_record_type type)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < tree->note_count; i++) count += pj_record_kind(tree->notes[i]) == type;
    return count;
}

pj_status pj_build_facts(pj_tree *tree, pj_run_data *data, pj_error *err)
{
    pj_run_info *info = &data->info;
    pj_run_info_init(info);
    pj_request_clear(info);
    uint32_t warnings = count_notes(tree, PJ_RECORD_WARNING);
    int64_t begin_ns = tree->spool_ns;
    info->created_wall_ns = tree->spool_wall_ns;
    data->warnings = pj_arena_alloc(&data->arena, warnings + 2, sizeof *data->warnings);
    if (!data->warnings) return pj_fail_memory(err, "a run");
    for (uint32_t i = 0; i < tree->note_count; i++) {
        pj_status status = pj_record_kind(tree->notes[i]) == PJ_RECORD_DEVICE
                               ? take_device(tree->notes[i], tree, data, err)
                               : take_fact(tree->notes[i], data, &begin_ns, &warnings, err);
        if (status != PJ_OK) return status;
    }
    for (uint32_t i = 0; i < data->warning_count; i++)
        data->warnings[i].t_ms = (data->warnings[i].t_ms - (double)begin_ns) / 1e6;
    if (!info->id[0]) return pj_fail(err, PJ_E_INVALID, "the spool does not name its run");
    pj_tree_begin(tree, begin_ns);
    return PJ_OK;
}

/* ---- rows ---- */

typedef struct rows_state {
    pj_tree *tree;
    pj_run_data *data;
    /* the node whose row is filled */
    uint32_t index;
    const pj_node *node;
    pj_span_view view; /* empty: synthesised */
    double start_ms, duration_ms;
} rows_state;

static double ms_between(int64_t from_ns, int64_t to_ns)
{
    return (double)(to_ns - from_ns) / 1e6;
}

static uint32_t text_count(const pj_tree *tree, const pj_node *node)
{
    uint32_t count = 0;
    for (uint32_t t = node->text; t != UINT32_MAX; t = tree->texts[t].next) count++;
    return count ? count : 1;
}

/* The row of the nearest ancestor of that kind, or PJ_NO_PARENT. */
static uint32_t row_above(const pj_tree *tree, uint32_t node, pj_span_kind kind)
{
    uint32_t above = pj_tree_ancestor(tree, node, kind);
    return above == UINT32_MAX ? PJ_NO_PARENT : tree->nodes[above].row;
}

typedef struct token_position {
    uint32_t token, step;
} token_position;

/* The token that a node is in, or the step shared by several tokens. */
static token_position position_in_token(const pj_tree *tree, uint32_t index)
{
    uint32_t above = pj_tree_ancestor(tree, index, PJ_SPAN_TOKEN);
    if (above == UINT32_MAX) return (token_position){PJ_NO_PARENT, PJ_NO_PARENT};
    const pj_node *token = &tree->nodes[above];
    return text_count(tree, token) > 1 ? (token_position){PJ_NO_PARENT, token->row}
                                       : (token_position){token->row, PJ_NO_PARENT};
}

static bool count_rows(rows_state *s)
{
    pj_run_data *d = s->data;
    for (uint32_t i = 1; i < s->tree->node_count; i++) {
        pj_node *node = &s->tree->nodes[i];
        switch (node->kind) {
        case PJ_SPAN_PHASE: node->row = d->phase_count++; break;
        case PJ_SPAN_SECTION: node->row = d->section_count++; break;
        case PJ_SPAN_TOKEN:
            node->row = d->token_count;
            d->token_count += text_count(s->tree, node);
            break;
        case PJ_SPAN_LAYER: node->row = d->layer_count++; break;
        case PJ_SPAN_COMPONENT: node->row = d->component_count++; break;
        default: node->row = d->operation_count++; break;
        }
    }
    pj_arena *a = &d->arena;
    d->phases = pj_arena_alloc(a, d->phase_count, sizeof *d->phases);
    d->sections = pj_arena_alloc(a, d->section_count, sizeof *d->sections);
    d->tokens = pj_arena_alloc(a, d->token_count, sizeof *d->tokens);
    d->layers = pj_arena_alloc(a, d->layer_count, sizeof *d->layers);
    d->components = pj_arena_alloc(a, d->component_count, sizeof *d->components);
    d->operations = pj_arena_alloc(a, d->operation_count, sizeof *d->operations);
    d->extras = pj_arena_alloc(a, s->tree->extra_count, sizeof *d->extras);
    return d->phases && d->sections && d->tokens && d->layers && d->components && d->operations &&
           d->extras;
}

static void fill_extras(rows_state *s, uint32_t *begin, uint32_t *count)
{
    pj_run_data *d = s->data;
    *begin = d->extra_count;
    *count = s->view.extra_count;
    for (uint32_t i = 0; i < s->view.extra_count; i++) {
        pj_extra extra; /* copied although records are 8-byte aligned */
        memcpy(&extra, &s->view.extras[i], sizeof extra);
        d->extras[d->extra_count++] =
            (pj_extra_row){pj_tree_name(s->tree, extra.name), extra.index, extra.value};
    }
}

static bool fill_tokens(rows_state *s)
{
    const pj_node *node = s->node;
    uint32_t phase = row_above(s->tree, s->index, PJ_SPAN_PHASE);
    uint32_t t = node->text, row = node->row;
    uint32_t step = text_count(s->tree, node) > 1 ? row : PJ_NO_PARENT;
    do {
        const pj_tree_text *text = t == UINT32_MAX ? NULL : &s->tree->texts[t];
        uint32_t sequence = text ? text->head->sequence : 0;
        pj_token_row *token = &s->data->tokens[row++];
        /* several tokens of one sequence in a step follow one another */
        bool follows = row - 1 > node->row && token[-1].sequence == sequence;
        *token = (pj_token_row){.phase = phase,
                                .position = follows ? token[-1].position + 1 : node->id,
                                .sequence = sequence,
                                .step = step,
                                .token_id = text ? text->head->token_id : -1,
                                .start_ms = s->start_ms,
                                .duration_ms = s->duration_ms,
                                .power_mw = NAN,
                                .energy = PJ_ENERGY_UNKNOWN,
                                .context_share = NAN,
                                .share = NAN,
                                .disturbed = -1};
        if (!s->data->info.prompt_private) {
            token->text =
                pj_arena_strndup(&s->data->arena, text ? (const char *)(text->head + 1) : "",
                                 text ? text->bytes : 0);
            if (!token->text) return false;
        }
        t = text ? text->next : UINT32_MAX;
    } while (t != UINT32_MAX);
    return true;
}

static void fill_component(rows_state *s)
{
    const pj_tree *tree = s->tree;
    const pj_span *span = s->view.span;
    pj_component_row *row = &s->data->components[s->node->row];
    token_position position = position_in_token(tree, s->index);
    *row = (pj_component_row){.device = s->node->row_device,
                              .layer = row_above(tree, s->index, PJ_SPAN_LAYER),
                              .section = row_above(tree, s->index, PJ_SPAN_SECTION),
                              .token = position.token,
                              .step = position.step,
                              .class_ = PJ_NO_PARENT,
                              .name = pj_tree_name(s->tree, s->node->id),
                              .start_ms = s->start_ms,
                              .duration_ms = s->duration_ms,
                              .flops = span ? (double)span->flops : NAN,
                              .bytes = span ? (double)span->bytes : NAN,
                              .energy = PJ_ENERGY_UNKNOWN,
                              .has_stats = s->view.stats != NULL};
    if (s->view.stats) row->stats = *s->view.stats;
    fill_extras(s, &row->extra_begin, &row->extra_count);
    if (row->layer == PJ_NO_PARENT) return;
    pj_part part = pj_component_part(row->name);
    pj_layer_row *layer = &s->data->layers[row->layer];
    if (part == PJ_PART_ATTENTION) layer->attention_ms += s->duration_ms;
    if (part == PJ_PART_MLP) layer->mlp_ms += s->duration_ms;
}

static void fill_operation(rows_state *s)
{
    pj_operation_row *row = &s->data->operations[s->node->row];
    *row = (pj_operation_row){.device = s->node->row_device,
                              .component = row_above(s->tree, s->index, PJ_SPAN_COMPONENT),
                              .class_ = PJ_NO_PARENT,
                              .name = pj_tree_name(s->tree, s->node->id),
                              .start_ms = s->start_ms,
                              .duration_ms = s->duration_ms,
                              .flops = (double)s->view.span->flops,
                              .bytes = (double)s->view.span->bytes,
                              .energy = PJ_ENERGY_UNKNOWN,
                              .has_stats = s->view.stats != NULL};
    if (s->view.stats) row->stats = *s->view.stats;
    fill_extras(s, &row->extra_begin, &row->extra_count);
}

static void fill_layer(rows_state *s)
{
    pj_layer_row *row = &s->data->layers[s->node->row];
    token_position position = position_in_token(s->tree, s->index);
    row->token = position.token;
    row->step = position.step;
    row->device = s->node->row_device;
    row->layer_index = s->node->id;
    row->start_ms = s->start_ms;
    row->duration_ms = s->duration_ms;
    row->energy = PJ_ENERGY_UNKNOWN;
    row->has_stats = s->view.stats != NULL;
    if (s->view.stats) row->stats = *s->view.stats;
}

static void fill_section(rows_state *s)
{
    token_position position = position_in_token(s->tree, s->index);
    s->data->sections[s->node->row] =
        (pj_section_row){.phase = row_above(s->tree, s->index, PJ_SPAN_PHASE),
                         .token = position.token,
                         .step = position.step,
                         .name = pj_tree_name(s->tree, s->node->id),
                         .start_ms = s->start_ms,
                         .duration_ms = s->duration_ms,
                         .energy = PJ_ENERGY_UNKNOWN,
                         .device = s->node->row_device};
}

static bool fill_row(rows_state *s, uint32_t index)
{
    const pj_node *node = s->node = &s->tree->nodes[index];
    s->index = index;
    s->start_ms = ms_between(s->tree->begin_ns, node->begin_ns);
    s->duration_ms = ms_between(node->begin_ns, node->end_ns);
    s->view = (pj_span_view){0};
    if (node->record) pj_span_view_get(node->record, &s->view);
    switch (node->kind) {
    case PJ_SPAN_PHASE:
        s->data->phases[node->row] =
            (pj_phase_row){node->phase, s->start_ms, s->duration_ms, PJ_ENERGY_UNKNOWN};
        return true;
    case PJ_SPAN_SECTION: fill_section(s); return true;
    case PJ_SPAN_TOKEN: return fill_tokens(s);
    case PJ_SPAN_LAYER: fill_layer(s); return true;
    case PJ_SPAN_COMPONENT: fill_component(s); return true;
    default: fill_operation(s); return true;
    }
}

/* ---- facts computed from rows ---- */

static double phase_ms(const pj_run_data *d, pj_phase phase)
{
    double sum = NAN;
    for (uint32_t i = 0; i < d->phase_count; i++)
        if (d->phases[i].phase == phase) sum = pj_add_known(sum, d->phases[i].duration_ms);
    return sum;
}

static bool fill_text(pj_run_data *d)
{
    size_t bytes = 0;
    if (d->info.prompt_private) return true; /* there is no text */
    for (uint32_t i = 0; i < d->token_count; i++)
        if (d->tokens[i].sequence == 0) bytes += strlen(d->tokens[i].text);
    char *text = pj_arena_alloc(&d->arena, bytes + 1, 1), *at = text;
    if (!text) return false;
    for (uint32_t i = 0; i < d->token_count; i++)
        if (d->tokens[i].sequence == 0) at = stpcpy(at, d->tokens[i].text);
    d->info.output_text = text;
    return true;
}

pj_status pj_build_rows(pj_tree *tree, pj_run_data *d, pj_error *err)
{
    rows_state s = {.tree = tree, .data = d};
    if (!count_rows(&s)) return pj_fail_memory(err, "the rows of a run");
    for (uint32_t i = tree->node_count; i-- > 1;) /* layers before their components */
        if (tree->nodes[i].kind == PJ_SPAN_LAYER && !fill_row(&s, i))
            return pj_fail_memory(err, "the rows of a run");
    for (uint32_t i = 1; i < tree->node_count; i++)
        if (tree->nodes[i].kind != PJ_SPAN_LAYER && !fill_row(&s, i))
            return pj_fail_memory(err, "the rows of a run");
    if (!fill_text(d)) return pj_fail_memory(err, "the text of a run");
    pj_run_info *info = &d->info;
    info->status = tree->ended ? tree->status : PJ_RUN_INTERRUPTED;
    info->total_ms = ms_between(tree->begin_ns, tree->end_ns);
    info->prefill_ms = phase_ms(d, PJ_PHASE_PREFILL);
    info->decode_ms = phase_ms(d, PJ_PHASE_DECODE);
    if (!info->output_tokens) info->output_tokens = d->token_count;
    if (info->output_tokens == PJ_GENERATES_NO_TOKENS) info->output_tokens = 0;
    if (isnan(info->overhead_share) &&
        !isnan(info->overhead_ms)) /* a spool of an earlier version */
        info->overhead_share = fmin(info->overhead_ms / info->total_ms, 1);
    return PJ_OK;
}

static bool collect_readings(const pj_tree *tree, pj_readings *readings)
{
    size_t at[PJ_MAX_RAILS + 1] = {0}, count = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t k = 0; k < tree->note_count; k++) {
            const pj_record *record = tree->notes[k];
            if (pj_record_kind(record) != PJ_RECORD_READINGS) continue;
            const pj_reading *items = (const pj_reading *)record->payload;
            uint32_t n = pj_record_bytes(record) / (uint32_t)sizeof *items;
            for (uint32_t i = 0; i < n; i++) {
                if (!pj_reading_is_sound(&items[i])) continue;
                if (pass == 0)
                    readings->begin[items[i].rail + 1]++;
                else
                    readings->items[at[items[i].rail]++] = items[i];
            }
        }
        for (int r = 0; pass == 0 && r < PJ_MAX_RAILS; r++) {
            at[r] = readings->begin[r];
            readings->begin[r + 1] += readings->begin[r];
        }
        count = readings->begin[PJ_MAX_RAILS];
        if (pass == 0 && !(readings->items = pj_alloc(count, sizeof(pj_reading)))) return false;
    }
    return true;
}

/* ---- the whole build ---- */

/* Rows and energies of a large run are built in parallel and joined in pj_energy_fill. */
typedef struct rows_task {
    pj_tree *tree;
    pj_run_data *data;
    pj_status status;
    pj_error err;
} rows_task;

static void *make_rows(void *context)
{
    rows_task *task = context;
    task->status = pj_build_rows(task->tree, task->data, &task->err);
    return NULL;
}

static pj_status build_joules(pj_tree *tree, const pj_build_options *options, pj_run_data *data,
                              pj_energies **joules, pj_error *err)
{
    pj_readings readings = {0};
    pj_status status = pj_tree_cut(tree, err);
    if (status == PJ_OK && options->shares) status = pj_shares_cut(options->shares, tree, err);
    if (status == PJ_OK && !collect_readings(tree, &readings))
        status = pj_fail_memory(err, "the readings of a run");
    if (status == PJ_OK) status = pj_energy_new(tree, &readings, options, data, joules, err);
    pj_free(readings.items);
    return status;
}

static pj_status build_rows_and_joules(pj_tree *tree, const pj_build_options *options,
                                       pj_run_data *data, pj_error *err)
{
    rows_task rows = {.tree = tree, .data = data};
    pj_energies *joules = NULL;
    pthread_t thread;
    bool beside = tree->node_count >= LARGE_TREE_NODES &&
                  pj_thread_start(&thread, "pj-rows", make_rows, &rows, NULL) == PJ_OK;
    if (!beside) make_rows(&rows);
    pj_status status = build_joules(tree, options, data, &joules, err);
    if (beside) pthread_join(thread, NULL);
    if (rows.status != PJ_OK) {
        if (status == PJ_OK && err) *err = rows.err;
        status = rows.status;
    }
    if (status == PJ_OK) status = pj_energy_fill(joules, err);
    if (status == PJ_OK) status = pj_energy_request(joules, err);
    pj_energy_free(joules);
    return status;
}

static pj_status check_stop(const pj_build_options *options, pj_error *err)
{
    if (!options->stop || !atomic_load(options->stop)) return PJ_OK;
    return pj_fail(err, PJ_E_CANCELLED, "building the run was interrupted");
}

/* Damage is recorded as a warning, so that readers of the figures know that data is missing. */
static void warn_about_damage(const pj_spool_reader *reader, pj_run_data *data)
{
    char text[160];
    if (!reader->damaged_bytes) return;
    snprintf(text, sizeof text,
             "%llu bytes of the run's spool were damaged; their records are missing",
             (unsigned long long)reader->damaged_bytes);
    pj_warning_row *row = &data->warnings[data->warning_count];
    *row = (pj_warning_row){.t_ms = 0, .code = PJ_SPOOL_DAMAGED_CODE};
    row->text = pj_arena_strndup(&data->arena, text, strlen(text));
    if (row->text) data->warning_count++;
}

/* Energy is allocated where the run had less than the whole; without share records everywhere. */
static void set_allocated(const pj_shares *shares, int64_t run_begin_ns, double start_ms,
                          double duration_ms, pj_energy *e)
{
    int64_t begin_ns = run_begin_ns + llround(start_ms * 1e6);
    int64_t end_ns = begin_ns + llround(duration_ms * 1e6);
    if (e->method == PJ_METHOD_NONE) return;
    if (!shares || pj_shares_mean(shares, begin_ns, end_ns) < 1) e->method = PJ_METHOD_ALLOCATED;
}

#define SET_ALLOCATED(rows, count)            \
    for (uint32_t i_ = 0; i_ < (count); i_++) \
    set_allocated(shares, begin_ns, (rows)[i_].start_ms, (rows)[i_].duration_ms, &(rows)[i_].energy)

/* Energies of a request or a concurrent run are allocated, however they were divided further. */
static void mark_allocated(pj_run_data *d, const pj_shares *shares, int64_t begin_ns)
{
    SET_ALLOCATED(d->phases, d->phase_count);
    SET_ALLOCATED(d->sections, d->section_count);
    SET_ALLOCATED(d->tokens, d->token_count);
    SET_ALLOCATED(d->layers, d->layer_count);
    SET_ALLOCATED(d->components, d->component_count);
    SET_ALLOCATED(d->operations, d->operation_count);
    if (d->info.method != PJ_METHOD_NONE) d->info.method = PJ_METHOD_ALLOCATED;
}

/* Readings of simulated sensors are computed from the spans, of a killed run as of any other. In
 * concurrent runs they are the live ones. */
static bool read_simulation(const pj_tree *tree, const pj_run_data *data, pj_sim_spec *spec)
{
    const char *text = data->info.simulation;
    if (!text || pj_sim_parse(text, spec, NULL) != PJ_OK) return false;
    double readings = (double)(tree->end_ns - tree->begin_ns) / (double)spec->period_ns;
    return readings * spec->rail_count < MOST_SIMULATED;
}

pj_status pj_build_run(pj_spool_reader *reader, const pj_build_options *options, pj_run_data *data,
                       pj_error *err)
{
    pj_tree tree = {0};
    pj_shares shares = {0};
    pj_sim_spec simulated;
    pj_build_options with_shares = *options;
    *data = (pj_run_data){0};
    pj_arena_init(&data->arena, 0);
    pj_status status = pj_tree_init(&tree, reader, &data->arena, err);
    if (status == PJ_OK) status = pj_build_facts(&tree, data, err);
    if (status == PJ_OK) warn_about_damage(reader, data);
    if (status == PJ_OK) status = check_stop(options, err);
    if (status == PJ_OK) status = pj_shares_read(&tree, &shares, err);
    if (shares.count) {
        with_shares.shares = &shares;
        data->info.allocation = pj_share_rule_name(shares.rule);
    } else if (status == PJ_OK && !options->sim && read_simulation(&tree, data, &simulated)) {
        with_shares.sim = &simulated;
    }
    if (status == PJ_OK) status = build_rows_and_joules(&tree, &with_shares, data, err);
    if (status == PJ_OK && data->info.allocation)
        mark_allocated(data, with_shares.shares, tree.begin_ns);
    if (status == PJ_OK) status = pj_build_conditions(&tree, data, err);
    if (status == PJ_OK) status = pj_disturbances_explain(data, err);
    pj_shares_fini(&shares);
    pj_tree_fini(&tree);
    if (status != PJ_OK) pj_run_data_fini(data);
    return status;
}

pj_status pj_build_written(pj_spool_writer *w, pj_run_data *data)
{
    pj_spool_reader reader;
    if (w->status == PJ_OK) w->status = pj_spool_flush(w->spool, w->err);
    if (w->status == PJ_OK) w->status = pj_spool_reader_of(w->spool, &reader, w->err);
    if (w->status == PJ_OK) {
        w->status = pj_build_run(&reader, &(pj_build_options){0}, data, w->err);
        pj_spool_reader_close(&reader);
    }
    pj_spool_close(w->spool, true);
    return w->status;
}
