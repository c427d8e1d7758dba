/* The only encoder of rows. A row in memory becomes one value per column of its table, in the
 * database's column order, for a statement or for an engine's own way of inserting many rows, so
 * that the meaning of a column is defined once. */
#ifndef PJ_STORE_ROW_ENCODER_H
#define PJ_STORE_ROW_ENCODER_H

#include "base/buffer.h"
#include "store/packing.h"
#include "store/rows.h"
#include "store/saving.h"

enum { PJ_KNOWN_TEXTS = 64 };

/* Cache: row texts are mostly interned names, so UTF-8 validity is remembered by address. */
typedef struct pj_known_text {
    const char *text;
    pj_value value;
} pj_known_text;

typedef struct pj_row_encoder pj_row_encoder;

/* Computes a column that is not a member of the row: ids, ratios, ranges of other rows. */
typedef pj_value pj_derive_fn(pj_row_encoder *encoder, uint32_t row);

typedef struct pj_planned_column {
    const pj_column *column; /* NULL: see derive */
    pj_derive_fn *derive;    /* both NULL: a column unknown to us, stored as NULL */
} pj_planned_column;

struct pj_row_encoder {
    const pj_saving *saving;
    const pj_row_table *table;
    const char *stored_as; /* the table's name in this database */
    pj_packer packer;      /* of a packed table */
    pj_table_id id;        /* PJ_TABLE_COUNT: the row of the run itself */
    pj_planned_column plan[PJ_TABLE_COLUMNS];
    uint32_t column_count;
    pj_buffer text;    /* the one text of a row that is composed: its extras or tags */
    pj_buffer figures; /* of packed extras */
    pj_known_text known[PJ_KNOWN_TEXTS];
    char created[32]; /* the run's time as text */
    char scratch[PJ_ROW_SCRATCH_BYTES] __attribute__((aligned(16)));
    pj_value values[PJ_TABLE_COLUMNS];
};

/* Reads the table's columns in this database. Fails if one of ours is missing. Finish it in either
 * case. */
pj_status pj_row_encoder_init(pj_row_encoder *encoder, const pj_saving *saving, pj_table_id id,
                              pj_error *err);
void pj_row_encoder_fini(pj_row_encoder *encoder);
/* The values of a row, one per column, until the next call; NULL: out of memory, or the failure of
 * store->texts. Rows must come in storage order. */
const pj_value *pj_row_encode(void *encoder, uint32_t row);

#endif
