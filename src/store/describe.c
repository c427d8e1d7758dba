/* The name and the note that people give a stored run. */
#include "base/utf8.h"
#include "store/sql.h"

#include <string.h>

/* As searched, listed and printed: in one line. */
static pj_status check_line(const char *what, const char *text, size_t most, pj_error *err)
{
    if (!text) return PJ_OK;
    size_t bytes = strlen(text);
    if (bytes > most)
        return pj_fail(err, PJ_E_INVALID, "the %s of a run has at most %zu bytes, this has %zu",
                       what, most, bytes);
    if (!pj_utf8_valid(text, bytes))
        return pj_fail(err, PJ_E_INVALID, "the %s of a run must be UTF-8", what);
    uint32_t c;
    for (size_t at = 0; at < bytes;) {
        at += pj_utf8_step(text + at, bytes - at, &c);
        if (c < ' ' || pj_utf8_is_control(c))
            return pj_fail(err, PJ_E_INVALID,
                           "the %s of a run is one line, without control characters", what);
    }
    return PJ_OK;
}

static bool run_exists(pj_store *store, const char *id, pj_error *err)
{
    pj_sql *sql = pj_sql_begin(store, "SELECT 1 FROM profiling_runs WHERE id = ?", err);
    pj_sql_text(sql, 1, id);
    bool found = pj_sql_step(sql);
    return pj_sql_end(sql, err) == PJ_OK && found;
}

static pj_status set_text(pj_store *store, const char *id, const char *statement, const char *text,
                          pj_error *err)
{
    if (!text) return PJ_OK;
    return pj_sql_change(store, statement,
                         PJ_VALUES(pj_value_text(text[0] ? text : NULL), pj_value_text(id)), err);
}

pj_status pj_store_describe(pj_store *store, const char *id, const char *name, const char *note,
                            pj_error *err)
{
    pj_status status = check_line("name", name, PJ_RUN_NAME_BYTES, err);
    if (status == PJ_OK) status = check_line("note", note, PJ_RUN_NOTE_BYTES, err);
    if (status == PJ_OK) status = pj_sql_transaction(store, PJ_WRITE_RUN, err);
    if (status != PJ_OK) return status;
    if (!run_exists(store, id, err))
        status =
            err->text[0] ? err->status : pj_fail(err, PJ_E_NOT_FOUND, "there is no run %s", id);
    if (status == PJ_OK)
        status = set_text(store, id, "UPDATE profiling_runs SET name = ? WHERE id = ?", name, err);
    if (status == PJ_OK)
        status = set_text(store, id, "UPDATE profiling_runs SET note = ? WHERE id = ?", note, err);
    return pj_sql_finish(store, status, err);
}
