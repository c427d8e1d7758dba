/*
 * The one encoder of rows. A row in memory becomes a record (record.h) that holds one value per
 * column of its table in the database, in the database's order. A record is then inserted either by
 * a statement or as part of a page (sqlite_bulk.c): what a column means is written down once.
 */
#ifndef PJ_STORE_ROW_ENCODER_H
#define PJ_STORE_ROW_ENCODER_H

#include "store/record.h"
#include "store/rows.h"
#include "store/saving.h"

enum { PJ_KNOWN_TEXTS = 64 };

/* Texts of rows are mostly interned names: whether one is valid UTF-8 is remembered by address. */
typedef struct pj_known_text {
    const char *text;
    size_t bytes;
    bool valid;
} pj_known_text;

/* A column that does not lie in the row itself: ids, ratios, ranges of other rows. */
typedef void pj_derive_fn(const pj_saving *saving, uint32_t row, pj_row_record *record);

typedef struct pj_planned_column {
    const pj_column *column; /* NULL: see derive */
    pj_derive_fn *derive;    /* NULL beside a NULL column: the database's own, left NULL */
} pj_planned_column;

typedef struct pj_row_encoder {
    const pj_saving *saving;
    const pj_row_table *table;
    pj_table_id id; /* PJ_TABLE_COUNT: the run's own row */
    pj_planned_column plan[PJ_RECORD_COLUMNS];
    uint32_t column_count;
    bool has_id; /* column 0 is the row's id, which a record leaves NULL */
    pj_known_text known[PJ_KNOWN_TEXTS];
    char scratch[PJ_ROW_SCRATCH_BYTES] __attribute__((aligned(16)));
} pj_row_encoder;

/* Reads which columns the table has in this database. Fails where one of ours is missing. */
pj_status pj_row_encoder_init(pj_row_encoder *encoder, const pj_saving *saving, pj_table_id id,
                              pj_error *err);
/* Into a record that was begun. Rows come in the order in which they are stored. */
void pj_row_encode(pj_row_encoder *encoder, uint32_t row, pj_row_record *record);

#endif
