/* Exports: the list of formats and what is common to them. */
#include "store/exports.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name, *suffix;
} formats[PJ_EXPORT_COUNT] = {
    [PJ_EXPORT_JSON] = {"json", ".json"},
    [PJ_EXPORT_CSV] = {"csv", "-csv.zip"},
    [PJ_EXPORT_TRACE] = {"trace", ".trace.json"},
    [PJ_EXPORT_SPEEDSCOPE] = {"speedscope", ".speedscope.json"},
    [PJ_EXPORT_FOLDED] = {"folded", ".folded.txt"},
};

int pj_export_parse(const char *name)
{
    for (int i = 0; i < PJ_EXPORT_COUNT; i++)
        if (strcmp(formats[i].name, name) == 0) return i;
    return -1;
}

void pj_export_file_name(pj_export_format format, const char *run_id, char *text, size_t bytes)
{
    snprintf(text, bytes, "perjoule-%s%s", run_id, formats[format].suffix);
}

static pj_status export_as(pj_run_view *view, pj_export_format format, const pj_output *out,
                           pj_error *err)
{
    switch (format) {
    case PJ_EXPORT_JSON: return pj_export_json(view, err);
    case PJ_EXPORT_TRACE: return pj_export_trace(view, err);
    case PJ_EXPORT_SPEEDSCOPE: return pj_export_speedscope(view, err);
    case PJ_EXPORT_FOLDED: return pj_export_folded(view, out, err);
    case PJ_EXPORT_CSV: return pj_export_csv(view, out, err);
    case PJ_EXPORT_COUNT: break;
    }
    return pj_fail(err, PJ_E_INVALID, "unknown export format");
}

pj_status pj_store_export(pj_store *store, const char *id, pj_export_format format,
                          pj_json_write_fn *write, void *context, pj_error *err)
{
    pj_run_view view;
    pj_json json;
    pj_buffer block;
    pj_output out = {write, context};
    pj_buffer_init(&block, 1u << 28); /* flushed every 32 kB; one value may be larger */
    pj_json_init_stream(&json, &block, write, context);
    pj_status status = pj_sql_transaction(store, PJ_READ, err);
    if (status == PJ_OK) {
        status = pj_view_open(&view, store, id, &json, err);
        if (status == PJ_OK) status = export_as(&view, format, &out, err);
        pj_view_close(&view, status);
        pj_sql_rollback(store);
    }
    bool text = format != PJ_EXPORT_CSV && format != PJ_EXPORT_FOLDED;
    if (status == PJ_OK && text && !pj_json_finish(&json))
        status = pj_fail(err, PJ_E_IO, "the export could not be written completely");
    pj_buffer_fini(&block);
    return status;
}
