/* Exports of a stored run, written incrementally in constant memory: JSON (complete; perjoule can
 * import it), CSV (a zip of one file per table), a Chrome/Perfetto trace with power counters, and
 * energy flame graphs for speedscope and folded-stack tools. docs/formats.md. */
#ifndef PJ_STORE_EXPORT_H
#define PJ_STORE_EXPORT_H

#include "base/json.h"
#include "store/store.h"

typedef enum pj_export_format {
    PJ_EXPORT_JSON = 0,
    PJ_EXPORT_CSV,
    PJ_EXPORT_TRACE,
    PJ_EXPORT_SPEEDSCOPE,
    PJ_EXPORT_FOLDED,
    PJ_EXPORT_COUNT
} pj_export_format;

int pj_export_parse(const char *name); /* "json", ...; -1: none of them */
/* "<id>.json", "<id>-csv.zip", ...; a file name without folders. */
void pj_export_file_name(pj_export_format format, const char *run_id, char *text, size_t bytes);

/* `write` gets blocks of some tens of kB; if it returns false the export ends with PJ_E_IO.
 * Everything is read in one transaction, from a single state of the database. */
pj_status pj_store_export(pj_store *store, const char *id, pj_export_format format,
                          pj_json_write_fn *write, void *context, pj_error *err);

/* Reads an exported JSON file into a run (to be saved with pj_store_save). The text is untrusted:
 * references are checked, names must be known, and memory is proportional to the text. */
pj_status pj_import_json(const char *text, size_t bytes, pj_run_data *data, pj_error *err);

#endif
