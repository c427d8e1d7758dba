/* Energy flame graphs: every stack phase > layer > component > operation with its self energy in
 * microjoules, or for a run without energy its time in microseconds. Speedscope has no unit for
 * energy, so the profile's name states the unit. */
#include "base/utf8.h"
#include "store/exports.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Frame numbers: phases 0..4, layers from 5, then names, then disturbances. Sums of work are
 * without them, so that they are a stack of their own in their phase. */
typedef struct flame {
    pj_run_view *view;
    pj_sum_nodes nodes;
    double phase_own[PJ_PHASE_COUNT]; /* time or energy in no layer or component */
    double disturbed[PJ_PHASE_COUNT];
    bool joules;
    pj_buffer stacks; /* of `stack` */
} flame;

typedef struct stack {
    uint32_t frames[4];
    int depth;
    double weight;
} stack;

static uint32_t frame_of_layer(int32_t layer)
{
    return PJ_PHASE_COUNT + (uint32_t)layer;
}

static uint32_t frame_of_name(const flame *f, uint32_t name)
{
    return PJ_PHASE_COUNT + f->nodes.layer_count + name;
}

static uint32_t frame_of_disturbances(const flame *f)
{
    return frame_of_name(f, f->nodes.name_count);
}

static void frame_text(const flame *f, uint32_t frame, char *text, size_t bytes)
{
    uint32_t names = PJ_PHASE_COUNT + f->nodes.layer_count;
    if (frame < PJ_PHASE_COUNT)
        snprintf(text, bytes, "%s", pj_phase_name((pj_phase)frame));
    else if (frame < names)
        snprintf(text, bytes, "layer %u", frame - PJ_PHASE_COUNT);
    else if (frame == frame_of_disturbances(f))
        snprintf(text, bytes, "disturbed");
    else
        snprintf(text, bytes, "%s", f->nodes.names[frame - names]);
}

/* Total and self weight of a node in micro units; unknown counts as nothing. */
static double whole_weight(const flame *f, const pj_sum_node *n)
{
    if (!f->joules) return n->time_ms * 1e3;
    return n->gross_nj == PJ_NJ_UNKNOWN ? 0 : (double)n->gross_nj / 1e3;
}

static bool is_part_of(const pj_sum_node *part, const pj_sum_node *whole)
{
    if (part->phase != whole->phase || part->layer != whole->layer) return false;
    if (whole->component == PJ_NO_NAME)
        return part->component != PJ_NO_NAME && part->operation == PJ_NO_NAME;
    return whole->operation == PJ_NO_NAME && part->component == whole->component &&
           part->operation != PJ_NO_NAME;
}

static double own_weight(const flame *f, const pj_sum_node *n)
{
    if (f->joules) return n->self_nj == PJ_NJ_UNKNOWN ? 0 : (double)n->self_nj / 1e3;
    double own = n->time_ms * 1e3;
    for (uint32_t i = 0; i < f->nodes.node_count; i++)
        if (is_part_of(&f->nodes.nodes[i], n)) own -= f->nodes.nodes[i].time_ms * 1e3;
    return own > 0 ? own : 0;
}

static pj_status read_phases(flame *f, pj_error *err)
{
    pj_sql *sql =
        pj_view_select(f->view, PJ_TABLE_PHASES,
                       "phase, duration_ms, energy_mj, disturbed_ms, disturbed_energy_mj", "", err);
    while (pj_sql_step(sql)) {
        const char *name = pj_sql_get_text(sql, 0, NULL);
        int phase = name ? pj_phase_parse(name) : -1;
        double own = pj_sql_get_double(sql, f->joules ? 2 : 1) * 1e3;
        double disturbed = pj_sql_get_double(sql, f->joules ? 4 : 3) * 1e3;
        if (phase < 0 || isnan(own)) continue;
        f->phase_own[phase] += own;
        if (!(disturbed > 0)) continue;
        f->phase_own[phase] -= disturbed;
        f->disturbed[phase] += disturbed;
    }
    for (uint32_t i = 0; i < f->nodes.node_count; i++) {
        const pj_sum_node *n = &f->nodes.nodes[i];
        bool top = n->operation == PJ_NO_NAME && (n->layer < 0) == (n->component != PJ_NO_NAME);
        if (top && n->phase < PJ_PHASE_COUNT) f->phase_own[n->phase] -= whole_weight(f, n);
    }
    return pj_sql_end(sql, err);
}

static void gather_stacks(flame *f)
{
    for (uint32_t p = 0; p < PJ_PHASE_COUNT; p++) {
        const stack own = {{p}, 1, f->phase_own[p]};
        const stack disturbed = {{p, frame_of_disturbances(f)}, 2, f->disturbed[p]};
        if (own.weight > 0) pj_buffer_append(&f->stacks, &own, sizeof own);
        if (disturbed.weight > 0) pj_buffer_append(&f->stacks, &disturbed, sizeof disturbed);
        for (uint32_t i = 0; i < f->nodes.node_count; i++) {
            const pj_sum_node *n = &f->nodes.nodes[i];
            stack s = {{p}, 1, n->phase == p ? own_weight(f, n) : 0};
            if (!(s.weight > 0)) continue;
            if (n->layer >= 0) s.frames[s.depth++] = frame_of_layer(n->layer);
            if (n->component != PJ_NO_NAME) s.frames[s.depth++] = frame_of_name(f, n->component);
            if (n->operation != PJ_NO_NAME) s.frames[s.depth++] = frame_of_name(f, n->operation);
            pj_buffer_append(&f->stacks, &s, sizeof s);
        }
    }
}

static pj_status open_flame(flame *f, pj_run_view *view, pj_error *err)
{
    *f = (flame){.view = view};
    f->joules = view->info->quality != PJ_UNAVAILABLE && !isnan(view->info->total_mj);
    pj_buffer_init(&f->stacks, 1u << 30);
    pj_status status = pj_view_load_nodes(view, &f->nodes, err);
    if (status == PJ_OK) status = read_phases(f, err);
    if (status == PJ_OK) gather_stacks(f);
    return status == PJ_OK ? pj_buffer_status(&f->stacks, "the stacks of a run", err) : status;
}

static const stack *stacks_of(const flame *f, size_t *count)
{
    *count = f->stacks.length / sizeof(stack);
    return (const stack *)(const void *)f->stacks.data;
}

/* ---- speedscope ------------------------------------------------------------------------------ */

static void write_frames(flame *f)
{
    pj_json *json = f->view->json;
    pj_json_kv_object_begin(json, "shared");
    pj_json_kv_array_begin(json, "frames");
    for (uint32_t i = 0; i <= frame_of_disturbances(f); i++) {
        char text[256];
        frame_text(f, i, text, sizeof text);
        pj_json_object_begin(json);
        pj_json_kv_string(json, "name", text);
        pj_json_object_end(json);
    }
    pj_json_array_end(json);
    pj_json_object_end(json);
}

static void write_profile(flame *f)
{
    pj_json *json = f->view->json;
    char name[320];
    size_t count;
    const char *model = f->view->info->model_name;
    const stack *stacks = stacks_of(f, &count);
    double total = 0;
    snprintf(name, sizeof name, "%.200s: %s", model ? model : "run",
             f->joules ? "energy in uJ" : "time in us (energy unavailable)");
    for (size_t i = 0; i < count; i++) total += stacks[i].weight;
    pj_json_object_begin(json);
    pj_json_kv_string(json, "type", "sampled");
    pj_json_kv_string(json, "name", name);
    pj_json_kv_string(json, "unit", f->joules ? "none" : "microseconds");
    pj_json_kv_int(json, "startValue", 0);
    pj_json_kv_double(json, "endValue", total);
    pj_json_kv_array_begin(json, "samples");
    for (size_t i = 0; i < count; i++) {
        pj_json_array_begin(json);
        for (int d = 0; d < stacks[i].depth; d++) pj_json_uint(json, stacks[i].frames[d]);
        pj_json_array_end(json);
    }
    pj_json_array_end(json);
    pj_json_kv_array_begin(json, "weights");
    for (size_t i = 0; i < count; i++) pj_json_double(json, stacks[i].weight);
    pj_json_array_end(json);
    pj_json_object_end(json);
}

pj_status pj_export_speedscope(pj_run_view *view, pj_error *err)
{
    flame f;
    pj_json *json = view->json;
    pj_status status = open_flame(&f, view, err);
    if (status == PJ_OK) {
        pj_json_object_begin(json);
        pj_json_kv_string(json, "$schema", "https://www.speedscope.app/file-format-schema.json");
        pj_json_kv_string(json, "exporter", "perjoule " PJ_VERSION_TEXT);
        pj_json_kv_string(json, "name", view->info->id);
        pj_json_kv_int(json, "activeProfileIndex", 0);
        write_frames(&f);
        pj_json_kv_array_begin(json, "profiles");
        write_profile(&f);
        pj_json_array_end(json);
        pj_json_object_end(json);
    }
    pj_buffer_fini(&f.stacks);
    return status;
}

/* ---- folded stacks --------------------------------------------------------------------------- */

/* "decode;layer 0;q_proj 123" in integer micro units. Semicolons in names would split a frame, and
 * the list is looked at in terminals. */
static void write_line(const flame *f, const stack *s, pj_buffer *line)
{
    char name[256], text[3 * sizeof name];
    pj_buffer_clear(line);
    for (int i = 0; i < s->depth; i++) {
        frame_text(f, s->frames[i], name, sizeof name);
        pj_utf8_safe(name, strlen(name), text, sizeof text);
        for (char *c = text; *c; c++)
            if (*c == ';' || *c == '\n') *c = '_';
        pj_buffer_printf(line, "%s%s", i ? ";" : "", text);
    }
    pj_buffer_printf(line, " %.0f\n", s->weight);
}

pj_status pj_export_folded(pj_run_view *view, const pj_output *out, pj_error *err)
{
    flame f;
    pj_buffer line;
    size_t count;
    pj_status status = open_flame(&f, view, err);
    const stack *stacks = stacks_of(&f, &count);
    pj_buffer_init(&line, 1 << 16);
    for (size_t i = 0; i < count && status == PJ_OK; i++) {
        write_line(&f, &stacks[i], &line);
        if (!out->write(out->context, line.data, line.length))
            status = pj_fail(err, PJ_E_IO, "the export could not be written completely");
    }
    pj_buffer_fini(&line);
    pj_buffer_fini(&f.stacks);
    return status;
}
