/* Maps the columns of every table to members of the rows in memory: one description per table, used
 * for saving, loading, exporting and importing. A reference to another row is an index in memory;
 * in the database it is the id of that table's first row in this run plus the index. */
#ifndef PJ_STORE_ROWS_H
#define PJ_STORE_ROWS_H

#include "base/error.h"
#include "base/json.h"
#include "store/extras.h"
#include "store/value.h"
#include "trace/run_data.h"

typedef enum pj_column_type {
    PJ_COLUMN_TEXT = 0, /* const char *; NULL */
    PJ_COLUMN_JSON,     /* const char * holding a JSON value; NULL */
    PJ_COLUMN_LIST,     /* const char *: names with commas between them; NULL */
    PJ_COLUMN_DOUBLE,   /* NAN: NULL */
    PJ_COLUMN_FLOAT,    /* NAN: NULL */
    PJ_COLUMN_NJ,       /* int64_t nanojoules, written as millijoules */
    PJ_COLUMN_SOME,     /* double; 0: NULL */
    PJ_COLUMN_SOME_NJ,  /* as PJ_COLUMN_NJ; 0: NULL */
    PJ_COLUMN_NS,       /* int64_t nanoseconds, written as milliseconds; -1: NULL */
    PJ_COLUMN_I64,
    PJ_COLUMN_U64,
    PJ_COLUMN_U32,
    PJ_COLUMN_U16,
    PJ_COLUMN_COUNT,   /* uint32_t; 0: NULL */
    PJ_COLUMN_COUNT64, /* uint64_t; 0: NULL */
    PJ_COLUMN_I32,     /* int32_t; -1: NULL */
    PJ_COLUMN_BOOL,
    PJ_COLUMN_NAME,       /* an enumeration by its name, see pj_names; kept as int or uint8_t */
    PJ_COLUMN_STAT_FLOAT, /* member of pj_stats; NULL where the row has none */
    PJ_COLUMN_STAT_U32,
    PJ_COLUMN_EXTRAS,    /* extra_begin and extra_count as a JSON object */
    PJ_COLUMN_REFERENCE, /* uint32_t index of a row of table `table`; PJ_NO_PARENT: NULL */
    PJ_COLUMN_ARRAY_NAME /* char[] */
} pj_column_type;

typedef enum pj_names {
    PJ_NAMES_PHASE, /* PJ_PHASE_COUNT is "run" */
    PJ_NAMES_METHOD,
    PJ_NAMES_ABSENCE, /* 0 is NULL */
    PJ_NAMES_STATUS,
    PJ_NAMES_DEPTH,
    PJ_NAMES_QUALITY,
    PJ_NAMES_RAIL_CLASS,
    PJ_NAMES_RAIL_KIND,
    PJ_NAMES_RAIL_SCOPE
} pj_names;

/* In saving order: parents before children. */
typedef enum pj_table_id {
    PJ_TABLE_RAILS = 0,
    PJ_TABLE_SAMPLES,
    PJ_TABLE_RAIL_ENERGY,
    PJ_TABLE_PHASES,
    PJ_TABLE_CLASSES,
    PJ_TABLE_TOKENS,
    PJ_TABLE_SECTIONS,
    PJ_TABLE_LAYERS,
    PJ_TABLE_COMPONENTS,
    PJ_TABLE_OPERATIONS,
    PJ_TABLE_WARNINGS,
    PJ_TABLE_CONDITIONS,
    PJ_TABLE_COUNT
} pj_table_id;

typedef struct pj_column {
    const char *name;
    uint8_t type; /* pj_column_type */
    uint8_t kind; /* pj_names, or pj_table_id of a reference */
    uint16_t offset;
    uint16_t bytes; /* of the member */
    bool required;  /* NOT NULL in the database */
    bool is_owner;  /* a reference to the row that this one is deleted with */
    /* In a run's summary: "OBJECT.NAME" in an object of it, "" nowhere; NULL: under its name. */
    const char *shown;
} pj_column;

typedef struct pj_row_table {
    const char *name;
    const char *packed; /* the name of its packed table (packing.h); NULL: it is never packed */
    const pj_column *columns;
    uint16_t column_count;
    uint16_t row_bytes;
    uint16_t stats_flag; /* offset of has_stats, 0: the row has none */
    uint16_t extras;     /* offset of extra_begin, followed by extra_count */
    bool has_run_id;     /* the table has a column run_id */
    /* In pj_run_data: the array of rows, their number, the bytes of each, with which a row of the
     * table begins. Rails and samples are kept otherwise. */
    uint32_t rows, count;
    uint16_t stored_bytes;
} pj_row_table;

extern const pj_row_table pj_tables[PJ_TABLE_COUNT];

/* Whether a long run's export has it by columns: what there is of each sample and each layer of a
 * token. */
static inline bool pj_table_is_exported_in_blocks(pj_table_id id)
{
    return id == PJ_TABLE_SAMPLES || id == PJ_TABLE_LAYERS || id == PJ_TABLE_COMPONENTS ||
           id == PJ_TABLE_OPERATIONS;
}
extern const pj_row_table pj_run_table; /* profiling_runs, based on pj_run_info */
/* Makes all figures unknown: of a run that has no row yet. */
void pj_run_info_unknown(pj_run_info *info);

/* Writes `before` ("id") and the names of the columns, with commas between them. */
size_t pj_table_list_columns(const pj_row_table *table, const char *before, char *text,
                             size_t bytes);

/* A rail with its baseline, and a sample, as rows: in pj_run_data they are separate arrays. */
typedef struct pj_rail_view {
    pj_rail rail;
    uint32_t index;
    double baseline_mw, baseline_sd_mw;
} pj_rail_view;

typedef struct pj_sample_view {
    double t_ms;
    double columns[PJ_RAIL_TOTAL + 1];
    uint8_t phase;
    float phase_confidence;
} pj_sample_view;

typedef struct pj_section_view {
    pj_section_row row;
    uint8_t phase;
    double end_ms;
} pj_section_view;

typedef struct pj_token_view {
    pj_token_row row;
    uint8_t phase;
} pj_token_view;

uint32_t pj_table_rows(const pj_run_data *data, pj_table_id table);
/* The row in the form of the table's columns; `scratch` holds at least PJ_ROW_SCRATCH_BYTES. */
enum { PJ_ROW_SCRATCH_BYTES = 512 };
const void *pj_table_row(const pj_run_data *data, pj_table_id table, uint32_t index, void *scratch);

/* For filling a run table by table: makes room for `count` rows, keeping existing ones; false when
 * out of memory or too many. */
bool pj_rows_make_room(pj_run_data *data, pj_table_id table, uint32_t count);
/* Sets the next row (index = number of rows so far); there must be room. False: a rail out of
 * order. */
bool pj_rows_put(pj_run_data *data, pj_table_id table, uint32_t index, const void *row);
/* Derives what columns do not contain, once all rows are set. */
void pj_rows_complete(pj_run_data *data);
/* Checks that all references and enumerations of the rows are valid; the error names the
 * offender. */
pj_status pj_rows_check(const pj_run_data *data, pj_error *err);

void pj_column_get(const pj_row_table *table, const pj_column *column, const void *row,
                   pj_value *value);
void pj_value_check_utf8(pj_value *value);        /* makes a text that is not valid UTF-8 a blob */
bool pj_column_is_float(const pj_column *column); /* float32 in memory, exports and files */
void pj_column_write(pj_json *json, const pj_column *column, const pj_value *value);
/* Sets a member of a zeroed row; texts are copied into the arena, extras appended to the list.
 * References are relative. False: the value does not fit the column, or out of memory. */
bool pj_column_set(const pj_row_table *table, const pj_column *column, void *row,
                   const pj_value *value, pj_arena *arena, pj_extra_list *extras);

#endif
