#include "net/live_json.h"

#include "base/json.h"
#include "base/memory.h"
#include "trace/statistics.h"
#include "trace/summary.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum {
    BATCH_NS = 33 * 1000 * 1000,
    BATCH_ROWS = 512,
    POWER_COLUMNS = 7,
    /* time, energy, statistics in the order of their table */
    LAYER_COLUMNS = 2 + PJ_STATISTIC_SHOWN,
    COMPONENTS_MAX = 64, /* of a heatmap */
    LAYERS_MAX = 1024,
    PROMPT_SHOWN = 4096, /* bytes of the prompt in hello and run_started */
    MESSAGE_MAX = 8 << 20,
    /* A thousand readers of parts as JSON would take a gigabyte per second and slow the run down:
     * above this rate they get fewer messages. */
    PARTS_BYTES_PER_S = 256 << 20
};

struct pj_live_json {
    pj_hub *hub;
    pj_live_sink sink;
    pthread_mutex_t mutex; /* guards all below */
    pj_buffer text;
    pj_json json; /* written into `text` */
    uint32_t waiting;
    /* the current run */
    char run_id[PJ_UUID_BYTES]; /* "": none */
    char *model_name, *prompt;
    pj_depth depth;
    uint32_t layer_count;
    pj_live_power batch[BATCH_ROWS];
    uint32_t batch_rows;
    pj_source_quality quality; /* last sent to readers */
    bool quality_reported;
    int64_t batch_ns;                    /* when the last batch was sent */
    char components[COMPONENTS_MAX][48]; /* columns of the heatmap, in order of execution */
    uint32_t component_count, layers_reported;
    bool layout_changed;
    bool map_is_time;     /* the heatmap shows time, because energy is unavailable */
    int64_t parts_due_ns; /* parts are sent as JSON again from then on */
};

/* ---- making messages ----------------------------------------------------------------------- */

/* Live figures are provisional: six digits are enough, in half the bytes of a full double. */
static void figure(pj_json *json, const char *key, double value)
{
    double shown = value;
    if (isfinite(value) && value != 0) {
        int places = 5 - (int)floor(log10(fabs(value)));
        double scale = pow(10, abs(places));
        shown = places >= 0 ? round(value * scale) / scale : round(value / scale) * scale;
        if (!isfinite(shown)) shown = value;
    }
    pj_json_kv_double(json, key, shown);
}

/* Where an energy comes from; a figure without a value states that instead of naming a sensor. */
static const char *source_of(double energy_mj, pj_source_quality quality)
{
    return pj_quality_name(isnan(energy_mj) ? PJ_UNAVAILABLE : quality);
}

static void energy_figure(pj_json *json, double energy_mj, pj_source_quality quality)
{
    figure(json, "energy_mj", energy_mj);
    pj_json_kv_string(json, "energy_source", source_of(energy_mj, quality));
}

static pj_json *live_json_begin(pj_live_json *live, const char *type, const char *run_id,
                                double t_ms)
{
    pj_json *json = &live->json;
    pj_buffer_clear(&live->text);
    pj_json_init(json, &live->text);
    pj_json_object_begin(json);
    pj_json_kv_string(json, "type", type);
    pj_json_kv_string(json, "run_id", run_id);
    pj_json_kv_double(json, "t_ms", round(t_ms * 1e3) / 1e3); /* to the microsecond */
    return json;
}

static void live_json_publish(pj_live_json *live, pj_publication publication)
{
    pj_json_object_end(&live->json);
    if (!pj_json_finish(&live->json)) return;
    publication.bytes = live->text.data;
    publication.count = live->text.length;
    if (publication.audience == 0) publication.audience = PJ_FOR_ALL;
    pj_hub_publish(live->hub, &publication);
}

/* The message of an event; live_json_close ends it. */
static pj_json *live_json_open(pj_live_json *live, const char *type, const char *run_id,
                               double t_ms)
{
    pthread_mutex_lock(&live->mutex);
    return live_json_begin(live, type, run_id, t_ms);
}

static void live_json_close(pj_live_json *live, pj_publication publication)
{
    live_json_publish(live, publication);
    pthread_mutex_unlock(&live->mutex);
}

static void live_json_write_run(pj_json *json, const pj_live_json *live)
{
    pj_json_kv_string(json, "model_name", live->model_name);
    pj_json_kv_string(json, "prompt", live->prompt);
    pj_json_kv_string(json, "profiling_depth", pj_depth_name(live->depth));
    pj_json_kv_optional(json, "layer_count", live->layer_count > 0, live->layer_count);
}

void pj_live_json_hello(void *context, pj_buffer *members)
{
    pj_live_json *live = context;
    pj_json json;
    pthread_mutex_lock(&live->mutex);
    pj_buffer_text(members, "\"running\":");
    pj_json_init(&json, members);
    if (live->run_id[0]) {
        pj_json_object_begin(&json);
        pj_json_kv_string(&json, "run_id", live->run_id);
        live_json_write_run(&json, live);
        pj_json_object_end(&json);
    } else
        pj_json_null(&json);
    pj_json_finish(&json);
    pj_buffer_printf(members, ",\"queue\":%u", live->waiting);
    pthread_mutex_unlock(&live->mutex);
}

/* ---- runs ---------------------------------------------------------------------------------- */

static void on_queued(void *context, const char *run_id, uint32_t position)
{
    pj_live_json *live = context;
    pj_json *json = live_json_open(live, "run_queued", run_id, 0);
    pj_json_kv_uint(json, "position", position);
    live_json_close(live, (pj_publication){.run_id = run_id});
}

/* At most PROMPT_SHOWN bytes; the JSON writer replaces a truncated character. */
static char *shown_prompt(const char *prompt)
{
    return prompt ? pj_strndup(prompt, strnlen(prompt, PROMPT_SHOWN)) : NULL;
}

static void live_json_take_run(pj_live_json *live, const pj_live_run *run)
{
    pj_free(live->model_name);
    pj_free(live->prompt);
    live->model_name = run->model_name ? pj_strdup(run->model_name) : NULL;
    live->prompt = shown_prompt(run->prompt);
    live->depth = run->depth;
    live->layer_count = run->layer_count;
}

static void live_json_on_begin(void *context, const pj_live_run *run)
{
    pj_live_json *live = context;
    pj_json *json = live_json_open(live, "run_started", run->run_id, 0);
    live_json_take_run(live, run);
    live->component_count = 0;
    live->layers_reported = 0;
    live->batch_rows = 0;
    live->quality_reported = false;
    live->parts_due_ns = 0;
    strncpy(live->run_id, run->run_id, sizeof live->run_id - 1);
    live_json_write_run(json, live);
    live_json_close(live, (pj_publication){.run_id = run->run_id, .begins_run = true});
}

static void live_json_on_model(void *context, const pj_live_run *run)
{
    pj_live_json *live = context;
    pj_json *json = live_json_open(live, "run_model", run->run_id, NAN);
    live_json_take_run(live, run);
    pj_json_kv_string(json, "model_name", live->model_name);
    pj_json_kv_optional(json, "layer_count", live->layer_count > 0, live->layer_count);
    live_json_close(live, (pj_publication){.run_id = run->run_id});
}

static void flush_power(pj_live_json *live, const char *run_id);

static void live_json_on_end(void *context, const char *run_id, const pj_live_end *end)
{
    pj_live_json *live = context;
    pthread_mutex_lock(&live->mutex);
    flush_power(live, live->run_id);
    bool failed = end->error != NULL;
    pj_json *json =
        live_json_begin(live, failed ? "run_failed" : "inference_complete", run_id, end->t_ms);
    pj_json_kv_string(json, "status", pj_run_status_name(end->status));
    if (failed) pj_json_kv_string(json, "error", end->error);
    pj_json_key(json, "summary");
    if (end->summary_json)
        pj_json_raw(json, end->summary_json, strlen(end->summary_json));
    else
        pj_json_null(json);
    /* A run cancelled while queued ends during another run. */
    bool present = strcmp(live->run_id, run_id) == 0;
    live_json_publish(live, (pj_publication){.run_id = run_id, .ends_run = present});
    if (present) live->run_id[0] = 0;
    pthread_mutex_unlock(&live->mutex);
}

static void on_warning(void *context, const char *run_id, const char *code, const char *text)
{
    pj_live_json *live = context;
    pj_json *json = live_json_open(live, "warning", run_id, NAN);
    pj_json_kv_string(json, "code", code);
    pj_json_kv_string(json, "text", text);
    live_json_close(live, (pj_publication){.run_id = run_id});
}

void pj_live_json_experiment(pj_live_json *live, const pj_live_experiment *e)
{
    pj_json *json = live_json_open(live, "experiment_progress", e->run_id, NAN);
    pj_json_kv_string(json, "experiment", e->name);
    pj_json_kv_string(json, "state", e->state);
    pj_json_kv_string(json, "error", e->error);
    pj_json_kv_uint(json, "done", e->done);
    pj_json_kv_uint(json, "total", e->total);
    pj_json_kv_uint(json, "block", e->block);
    pj_json_kv_uint(json, "cell", e->cell);
    pj_json_kv_string(json, "cell_name", e->cell_name);
    figure(json, "joules_per_token", e->joules_per_token);
    figure(json, "left_s", e->left_s);
    live_json_close(live, (pj_publication){.run_id = NULL});
}

/* ---- sections and tokens ------------------------------------------------------------------- */

static void live_json_tell_section(void *context, const char *run_id, const pj_live_section *s,
                                   bool ended)
{
    pj_live_json *live = context;
    pj_json *json = live_json_open(live, ended ? "section_end" : "section_start", run_id, s->t_ms);
    pj_json_kv_string(json, "phase", pj_phase_name(s->phase));
    pj_json_kv_string(json, "section_name", s->name);
    if (ended) {
        figure(json, "duration_ms", s->duration_ms);
        energy_figure(json, s->energy_mj, s->quality);
    }
    live_json_close(live, (pj_publication){.run_id = run_id});
}

static void live_json_on_section_start(void *context, const char *run_id,
                                       const pj_live_section *section)
{
    live_json_tell_section(context, run_id, section, false);
}

static void live_json_on_section_end(void *context, const char *run_id,
                                     const pj_live_section *section)
{
    live_json_tell_section(context, run_id, section, true);
}

static void on_layer_running(void *context, const char *run_id, const pj_live_layer *layer)
{
    pj_live_json *live = context;
    pj_json *json = live_json_open(live, "layer_running", run_id, layer->t_ms);
    pj_json_kv_string(json, "phase", pj_phase_name(layer->phase));
    pj_json_kv_optional(json, "position", layer->position >= 0, layer->position);
    pj_json_kv_uint(json, "layer_index", layer->layer);
    live_json_close(live, (pj_publication){.run_id = run_id, .state = true});
}

static void on_load_progress(void *context, const char *run_id, const pj_live_load *load)
{
    pj_live_json *live = context;
    pj_json *json = live_json_open(live, "load_progress", run_id, load->t_ms);
    pj_json_kv_uint(json, "layers_done", load->done);
    pj_json_kv_uint(json, "layers_total", load->total);
    live_json_close(live, (pj_publication){.run_id = run_id, .state = true});
}

static void live_json_on_token(void *context, const char *run_id, const pj_live_token *t)
{
    pj_live_json *live = context;
    pj_json *json = live_json_open(live, "token_complete", run_id, t->t_ms);
    pj_json_kv_uint(json, "position", t->position);
    pj_json_kv_uint(json, "sequence", t->sequence);
    pj_json_kv_optional(json, "token_id", t->token_id >= 0, t->token_id);
    pj_json_kv_string(json, "text", t->text);
    pj_json_kv_string(json, "phase", pj_phase_name(t->phase));
    figure(json, "duration_ms", t->duration_ms);
    energy_figure(json, t->energy_mj, t->quality);
    figure(json, "power_mw", t->power_mw);
    live_json_close(live, (pj_publication){.run_id = run_id});
}

/* ---- binary frames ------------------------------------------------------------------------- */

/* As sent: little-endian, like every supported machine. */
typedef struct frame {
    uint8_t kind, version;
    uint16_t columns;
    uint32_t sequence; /* set by the hub */
    double t_ms;
    uint32_t rows, token;
    float cells[];
} frame;

enum { FRAME_POWER = 1, FRAME_HEATMAP, FRAME_LAYERS };

/* All cells are NAN. NULL: out of memory. */
static frame *new_frame(uint8_t kind, uint32_t columns, uint32_t rows, double t_ms, uint32_t token)
{
    size_t cells = (size_t)rows * columns;
    frame *f = pj_alloc(1, sizeof *f + cells * sizeof *f->cells);
    if (!f) return NULL;
    *f = (frame){.kind = kind,
                 .version = 1,
                 .columns = (uint16_t)columns,
                 .t_ms = t_ms,
                 .rows = rows,
                 .token = token};
    for (size_t i = 0; i < cells; i++) f->cells[i] = NAN;
    return f;
}

static void publish_frame(pj_live_json *live, const char *run_id, frame *f)
{
    size_t cells = (size_t)f->rows * f->columns;
    pj_hub_publish(live->hub, &(pj_publication){.run_id = run_id,
                                                .audience = PJ_FOR_BINARY,
                                                .state = true,
                                                .binary = true,
                                                .bytes = f,
                                                .count = sizeof *f + cells * sizeof *f->cells});
    pj_free(f);
}

/* ---- power --------------------------------------------------------------------------------- */

static float live_json_power_value(const pj_live_power *first, const pj_live_power *s, int column)
{
    if (column == 0) return (float)(s->t_ms - first->t_ms);
    if (column == 1) return (float)s->phase;
    return (float)s->mw[column - 2];
}

static void power_frame(pj_live_json *live, const char *run_id)
{
    uint32_t rows = live->batch_rows;
    frame *f = new_frame(FRAME_POWER, POWER_COLUMNS, rows, live->batch[0].t_ms, 0);
    if (!f) return;
    for (int c = 0; c < POWER_COLUMNS; c++)
        for (uint32_t i = 0; i < rows; i++)
            f->cells[(uint32_t)c * rows + i] =
                live_json_power_value(&live->batch[0], &live->batch[i], c);
    publish_frame(live, run_id, f);
}

static void power_message(pj_live_json *live, const char *run_id, const pj_live_power *s,
                          pj_audience audience)
{
    pj_json *json = live_json_begin(live, "power_sample", run_id, s->t_ms);
    pj_json_kv_string(json, "phase", pj_phase_name(s->phase));
    for (int c = 0; c <= PJ_RAIL_TOTAL; c++)
        figure(json, pj_rail_class_column((pj_rail_class)c), s->mw[c]);
    pj_json_kv_string(json, "energy_source", pj_quality_name(s->quality));
    /* Binary readers must not miss the quality of figures. */
    bool state = audience == PJ_FOR_JSON;
    live_json_publish(live,
                      (pj_publication){.run_id = run_id, .audience = audience, .state = state});
}

/* JSON readers get the newest sample of a batch: fast sensors give a thousand per second; clients
 * that want all of them use binary frames. */
static void flush_power(pj_live_json *live, const char *run_id)
{
    if (live->batch_rows == 0) return;
    const pj_live_power *newest = &live->batch[live->batch_rows - 1];
    bool anew = !live->quality_reported || live->quality != newest->quality;
    live->quality_reported = true;
    live->quality = newest->quality;
    /* The frame goes first: a reader of both would take its rows, older than the message's, for
     * repeated ones. */
    power_frame(live, run_id);
    if (anew)
        power_message(live, run_id, newest, PJ_FOR_ALL);
    else if (pj_hub_readers(live->hub, false))
        power_message(live, run_id, newest, PJ_FOR_JSON);
    live->batch_rows = 0;
}

static void live_json_on_power(void *context, const char *run_id, const pj_live_power *samples,
                               uint32_t count)
{
    pj_live_json *live = context;
    pthread_mutex_lock(&live->mutex);
    int64_t now = pj_clock_ns();
    for (uint32_t i = 0; i < count; i++) {
        if (live->batch_rows == BATCH_ROWS) flush_power(live, run_id);
        live->batch[live->batch_rows++] = samples[i];
    }
    if (live->batch_rows > 0 && now - live->batch_ns >= BATCH_NS) {
        flush_power(live, run_id);
        live->batch_ns = now;
    }
    pthread_mutex_unlock(&live->mutex);
}

/* ---- parts of a token ---------------------------------------------------------------------- */

static void write_stats(pj_json *json, const pj_stats *stats)
{
    for (int s = 0; s < PJ_STATISTIC_SHOWN; s++)
        figure(json, pj_statistics[s].activation,
               stats ? pj_statistic_get(stats, (pj_statistic)s) : NAN);
}

/* Kind of a part: 0 a layer, 1 a component, 2 an operation. */
static int level_of(const pj_live_part *part)
{
    return part->operation ? 2 : part->component ? 1 : 0;
}

static void live_json_write_part(pj_json *json, const pj_live_part *part)
{
    int level = level_of(part);
    pj_json_object_begin(json);
    pj_json_kv_optional(json, "layer_index", part->layer >= 0, part->layer);
    if (level > 0) pj_json_kv_string(json, "component_name", part->component);
    if (level > 1) pj_json_kv_string(json, "operation_name", part->operation);
    figure(json, level == 0 ? "total_time_ms" : "time_ms", part->duration_ms);
    figure(json, "energy_mj", part->energy_mj);
    if (level < 2) write_stats(json, part->stats);
    pj_json_object_end(json);
}

/* Size of the message; 0: nothing to send. */
static size_t parts_message(pj_live_json *live, const char *run_id, const pj_live_part *parts,
                            uint32_t count, int level)
{
    static const char *const types[] = {"layer_metrics", "component_metrics", "operation_metrics"};
    static const char *const members[] = {"layers", "components", "operations"};
    bool any = false;
    for (uint32_t i = 0; i < count; i++) any |= level_of(&parts[i]) == level;
    if (!any) return 0;
    pj_json *json = live_json_begin(live, types[level], run_id, parts[0].t_ms);
    double known_mj = NAN;
    for (uint32_t i = 0; i < count; i++)
        if (!isnan(parts[i].energy_mj)) known_mj = parts[i].energy_mj;
    pj_json_kv_uint(json, "position", parts[0].position);
    pj_json_kv_string(json, "energy_source", source_of(known_mj, parts[0].quality));
    pj_json_kv_array_begin(json, members[level]);
    for (uint32_t i = 0; i < count; i++)
        if (level_of(&parts[i]) == level) live_json_write_part(json, &parts[i]);
    pj_json_array_end(json);
    /* Binary frames carry what layer_metrics and component_metrics do. */
    live_json_publish(live, (pj_publication){.run_id = run_id,
                                             .audience = level < 2 ? PJ_FOR_JSON : PJ_FOR_ALL,
                                             .state = true});
    return live->text.length;
}

static void report_parts(pj_live_json *live, const char *run_id, const pj_live_part *parts,
                         uint32_t count)
{
    int64_t now = pj_clock_ns();
    uint32_t json = pj_hub_readers(live->hub, false), all = json + pj_hub_readers(live->hub, true);
    if (now < live->parts_due_ns) return;
    double bytes = 0;
    for (int level = 0; level < 2 && json; level++)
        bytes += (double)parts_message(live, run_id, parts, count, level) * json;
    bytes += (double)parts_message(live, run_id, parts, count, 2) * all;
    live->parts_due_ns = now + (int64_t)(bytes * 1e9 / PARTS_BYTES_PER_S);
}

/* ---- heatmaps ------------------------------------------------------------------------------ */

static int column_of(pj_live_json *live, const char *component)
{
    for (uint32_t i = 0; i < live->component_count; i++)
        if (strcmp(live->components[i], component) == 0) return (int)i;
    if (live->component_count == COMPONENTS_MAX || strlen(component) >= sizeof live->components[0])
        return -1;
    memcpy(live->components[live->component_count], component, strlen(component) + 1);
    live->layout_changed = true;
    return (int)live->component_count++;
}

/* Whether a part goes into the frames of layers (level 0) or of the heatmap (level 1). */
static bool is_framed(const pj_live_part *part, int level)
{
    return level_of(part) == level && part->layer >= 0 && part->layer < LAYERS_MAX;
}

static void layout_message(pj_live_json *live, const char *run_id, double t_ms, uint32_t layers,
                           bool timed, pj_source_quality quality)
{
    pj_json *json = live_json_begin(live, "heatmap_layout", run_id, t_ms);
    pj_json_kv_uint(json, "layers", layers);
    pj_json_kv_array_begin(json, "components");
    for (uint32_t i = 0; i < live->component_count; i++) pj_json_string(json, live->components[i]);
    pj_json_array_end(json);
    pj_json_kv_string(json, "metric", timed ? "time" : "energy");
    pj_json_kv_string(json, "unit", timed ? "ms" : "mJ");
    pj_json_kv_string(json, "energy_source", source_of(timed ? NAN : 0, quality));
    live_json_publish(live, (pj_publication){.run_id = run_id});
    live->layers_reported = layers;
    live->map_is_time = timed;
    live->layout_changed = false;
}

static void heatmap_frame(pj_live_json *live, const char *run_id, const pj_live_part *parts,
                          uint32_t count)
{
    uint32_t layers = live->layers_reported;
    bool timed = true; /* while energy is unavailable */
    for (uint32_t i = 0; i < count; i++) {
        if (!is_framed(&parts[i], 1) || column_of(live, parts[i].component) < 0) continue;
        if ((uint32_t)parts[i].layer >= layers) layers = (uint32_t)parts[i].layer + 1;
        if (!isnan(parts[i].energy_mj)) timed = false;
    }
    if (layers == 0 || live->component_count == 0) return;
    if (live->layout_changed || layers != live->layers_reported || timed != live->map_is_time)
        layout_message(live, run_id, parts[0].t_ms, layers, timed, parts[0].quality);
    frame *f =
        new_frame(FRAME_HEATMAP, live->component_count, layers, parts[0].t_ms, parts[0].position);
    if (!f) return;
    for (uint32_t i = 0; i < count; i++) {
        int column = is_framed(&parts[i], 1) ? column_of(live, parts[i].component) : -1;
        if (column < 0) continue;
        double value = timed ? parts[i].duration_ms : parts[i].energy_mj;
        f->cells[(uint32_t)parts[i].layer * live->component_count + (uint32_t)column] =
            (float)value;
    }
    publish_frame(live, run_id, f);
}

/* ---- layers -------------------------------------------------------------------------------- */

static void put_layer(float *cells, const pj_live_part *layer)
{
    cells[0] = (float)layer->duration_ms;
    cells[1] = (float)layer->energy_mj;
    for (int s = 0; s < PJ_STATISTIC_SHOWN && layer->stats; s++)
        cells[2 + s] = (float)pj_statistic_get(layer->stats, (pj_statistic)s);
}

static void layers_frame(pj_live_json *live, const char *run_id, const pj_live_part *parts,
                         uint32_t count)
{
    uint32_t layers = 0;
    for (uint32_t i = 0; i < count; i++)
        if (is_framed(&parts[i], 0) && (uint32_t)parts[i].layer >= layers)
            layers = (uint32_t)parts[i].layer + 1;
    if (layers == 0) return;
    frame *f = new_frame(FRAME_LAYERS, LAYER_COLUMNS, layers, parts[0].t_ms, parts[0].position);
    if (!f) return;
    for (uint32_t i = 0; i < count; i++)
        if (is_framed(&parts[i], 0))
            put_layer(f->cells + parts[i].layer * LAYER_COLUMNS, &parts[i]);
    publish_frame(live, run_id, f);
}

static void live_json_on_parts(void *context, const char *run_id, const pj_live_part *parts,
                               uint32_t count)
{
    pj_live_json *live = context;
    bool binary = pj_hub_readers(live->hub, true) > 0;
    if (count == 0 || (!binary && !pj_hub_readers(live->hub, false))) return;
    pthread_mutex_lock(&live->mutex);
    report_parts(live, run_id, parts, count);
    if (binary) layers_frame(live, run_id, parts, count);
    if (binary) heatmap_frame(live, run_id, parts, count);
    pthread_mutex_unlock(&live->mutex);
}

/* ---- life ---------------------------------------------------------------------------------- */

pj_status pj_live_json_open(pj_live_json **out, pj_error *err)
{
    pj_live_json *live = pj_alloc(1, sizeof *live);
    *out = live;
    if (!live) return pj_fail_memory(err, "the live stream");
    pthread_mutex_init(&live->mutex, NULL);
    pj_buffer_init(&live->text, MESSAGE_MAX);
    live->sink = (pj_live_sink){.version = PJ_LIVE_SINK_VERSION,
                                .context = live,
                                .run_queued = on_queued,
                                .run_begin = live_json_on_begin,
                                .run_model = live_json_on_model,
                                .power = live_json_on_power,
                                .section_start = live_json_on_section_start,
                                .section_end = live_json_on_section_end,
                                .token = live_json_on_token,
                                .parts = live_json_on_parts,
                                .warning = on_warning,
                                .run_end = live_json_on_end,
                                .layer_running = on_layer_running,
                                .load_progress = on_load_progress};
    return PJ_OK;
}

void pj_live_json_attach(pj_live_json *live, pj_hub *hub)
{
    live->hub = hub;
}

void pj_live_json_close(pj_live_json *live)
{
    if (!live) return;
    pj_buffer_fini(&live->text);
    pthread_mutex_destroy(&live->mutex);
    pj_free(live->model_name);
    pj_free(live->prompt);
    pj_free(live);
}

const pj_live_sink *pj_live_json_sink(const pj_live_json *live)
{
    return &live->sink;
}

void pj_live_json_set_queue(pj_live_json *live, uint32_t waiting)
{
    pthread_mutex_lock(&live->mutex);
    live->waiting = waiting;
    pthread_mutex_unlock(&live->mutex);
}
