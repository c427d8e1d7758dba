/* The only encoder of rows. A row in memory becomes a record (record.h) with one value per column
 * of its table, in the database's column order. The record is then inserted either by a statement
 * or as part of a page (sqlite_bulk.c), so that the meaning of a column is defined once. */
#ifndef PJ_STORE_ROW_ENCODER_H
#define PJ_STORE_ROW_ENCODER_H

#include "store/record.h"
#include "store/rows.h"
#include "store/saving.h"

enum { PJ_KNOWN_TEXTS = 64 };

/* Cache: row texts are mostly interned names, so UTF-8 validity is remembered by address. */
typedef struct pj_known_text {
    const char *text;
    size_t bytes;
    bool valid;
} pj_known_text;

/* Computes a column that is not a member of the row: ids, ratios, ranges of other rows. */
typedef void pj_derive_fn(const pj_saving *saving, uint32_t row, pj_row_record *record);

typedef struct pj_planned_column {
    const pj_column *column; /* NULL: see derive */
    pj_derive_fn *derive;    /* both NULL: a column unknown to us, stored as NULL */
} pj_planned_column;

typedef struct pj_row_encoder {
    const pj_saving *saving;
    const pj_row_table *table;
    pj_table_id id; /* PJ_TABLE_COUNT: the row of the run itself */
    pj_planned_column plan[PJ_RECORD_COLUMNS];
    uint32_t column_count;
    bool has_id; /* column 0 is the row id, which a record leaves NULL */
    pj_known_text known[PJ_KNOWN_TEXTS];
    char scratch[PJ_ROW_SCRATCH_BYTES] __attribute__((aligned(16)));
} pj_row_encoder;

/* Reads the table's columns in this database. Fails if one of ours is missing. */
pj_status pj_row_encoder_init(pj_row_encoder *encoder, const pj_saving *saving, pj_table_id id,
                              pj_error *err);
/* Encodes into a record that was begun. Rows must come in storage order. */
void pj_row_encode(pj_row_encoder *encoder, uint32_t row, pj_row_record *record);

#endif
