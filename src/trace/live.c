/* Dispatches live events to every sink of a list. */
#include "trace/live.h"

#include "base/error.h"

/* A sink that reports failure gets no further events; the others do. */
static void live_check(pj_live_sinks *list, uint32_t i)
{
    const pj_live_sink *sink = &list->sinks[i];
    if (!sink->has_failed || !sink->has_failed(sink->context)) return;
    if (!atomic_exchange(&list->disabled[i], true)) atomic_fetch_add(&list->failed, 1);
}

#define TO_ALL(hook, ...)                                                          \
    do {                                                                           \
        pj_live_sinks *list = context;                                             \
        for (uint32_t i = 0; i < list->count; i++) {                               \
            if (!list->sinks[i].hook || atomic_load(&list->disabled[i])) continue; \
            list->sinks[i].hook(list->sinks[i].context, __VA_ARGS__);              \
            live_check(list, i);                                                   \
        }                                                                          \
    } while (0)

static void run_queued(void *context, const char *run_id, uint32_t position)
{
    TO_ALL(run_queued, run_id, position);
}

static void run_begin(void *context, const pj_live_run *run)
{
    TO_ALL(run_begin, run);
}

static void run_model(void *context, const pj_live_run *run)
{
    TO_ALL(run_model, run);
}

static void power(void *context, const char *run_id, const pj_live_power *samples, uint32_t count)
{
    TO_ALL(power, run_id, samples, count);
}

static void section_start(void *context, const char *run_id, const pj_live_section *section)
{
    TO_ALL(section_start, run_id, section);
}

static void section_end(void *context, const char *run_id, const pj_live_section *section)
{
    TO_ALL(section_end, run_id, section);
}

static void token(void *context, const char *run_id, const pj_live_token *event)
{
    TO_ALL(token, run_id, event);
}

static void parts(void *context, const char *run_id, const pj_live_part *events, uint32_t count)
{
    TO_ALL(parts, run_id, events, count);
}

static void layer_running(void *context, const char *run_id, const pj_live_layer *layer)
{
    TO_ALL(layer_running, run_id, layer);
}

static void load_progress(void *context, const char *run_id, const pj_live_load *load)
{
    TO_ALL(load_progress, run_id, load);
}

static void warning(void *context, const char *run_id, const char *code, const char *text)
{
    TO_ALL(warning, run_id, code, text);
}

static void run_end(void *context, const char *run_id, const pj_live_end *end)
{
    TO_ALL(run_end, run_id, end);
}

#undef TO_ALL

/* Callbacks that no sink has stay NULL, so that unwanted events are not prepared. */
static void live_join(pj_live_sinks *list, const pj_live_sink *sink)
{
    pj_live_sink *all = &list->all;
    *all = (pj_live_sink){
        .version = PJ_LIVE_SINK_VERSION,
        .context = list,
        .run_queued = all->run_queued || sink->run_queued ? run_queued : NULL,
        .run_begin = all->run_begin || sink->run_begin ? run_begin : NULL,
        .run_model = all->run_model || sink->run_model ? run_model : NULL,
        .power = all->power || sink->power ? power : NULL,
        .section_start = all->section_start || sink->section_start ? section_start : NULL,
        .section_end = all->section_end || sink->section_end ? section_end : NULL,
        .token = all->token || sink->token ? token : NULL,
        .parts = all->parts || sink->parts ? parts : NULL,
        .warning = all->warning || sink->warning ? warning : NULL,
        .run_end = all->run_end || sink->run_end ? run_end : NULL,
        .layer_running = all->layer_running || sink->layer_running ? layer_running : NULL,
        .load_progress = all->load_progress || sink->load_progress ? load_progress : NULL};
}

pj_status pj_live_sinks_add(pj_live_sinks *list, const pj_live_sink *sink, pj_error *err)
{
    if (sink->version != PJ_LIVE_SINK_VERSION)
        return pj_fail(err, PJ_E_UNSUPPORTED, "live sink version %u is not supported (expected %d)",
                       sink->version, PJ_LIVE_SINK_VERSION);
    if (list->count == PJ_MAX_LIVE_SINKS)
        return pj_fail(err, PJ_E_FULL, "a session has at most %d live sinks", PJ_MAX_LIVE_SINKS);
    list->sinks[list->count] = *sink;
    atomic_store(&list->disabled[list->count], false);
    list->count++;
    live_join(list, sink);
    return PJ_OK;
}

void pj_live_sinks_clear(pj_live_sinks *list)
{
    list->count = 0;
    list->all = (pj_live_sink){0};
    atomic_store(&list->failed, 0);
}
