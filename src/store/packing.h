/*
 * How an engine that packs (pj_dialect.packs: SQLite) stores the rows of layers, components and
 * operations, which are nearly all of a run, in half of the bytes: in tables named *_packed. The
 * published tables are views over them, so that every program reads plain values under the
 * published names.
 *
 * A packed column of numbers has the published name and "_code". What a value is follows from its
 * type:
 *   an integer   a code: millionths (of millijoules, of milliseconds), or the bits of a float32
 * with the sign of the number; see pj_relation
 *   ''           is equal to its base
 *   another      the value itself, where no code would give back exactly that
 *
 * A text is a blob, its code (packed_texts.h). Extra figures are a blob: the code of their JSON, in
 * which PJ_PACKED_PLACE stands for a number, and the numbers (big-endian float32). A text without a
 * code is itself.
 */
#ifndef PJ_STORE_PACKING_H
#define PJ_STORE_PACKING_H

#include "base/buffer.h"
#include "store/packed_texts.h"
#include "store/rows.h"
#include "store/sql.h"

typedef enum pj_code {
    PJ_CODE_NONE,
    PJ_CODE_MILLIONTHS,
    PJ_CODE_FLOAT,
    PJ_CODE_TEXT,
    PJ_CODE_EXTRAS
} pj_code;

#define PJ_CODE_SUFFIX  "_code"
#define PJ_PACKED_PLACE "~"

/* How the column is stored in a packed table. NONE: as it is. */
pj_code pj_code_of(const pj_column *column);
/* Whether it is stored under another name. */
static inline bool pj_code_is_number(pj_code code)
{
    return code == PJ_CODE_MILLIONTHS || code == PJ_CODE_FLOAT;
}

enum { PJ_PACKED_COLUMNS = 64 };

/* Whether the views can turn the bits of a positive float32 into it: 1.8e-12 to 1.7e7, exponents
 * for which their shift is 0 to 62. */
static inline bool pj_code_has_float(uint32_t bits)
{
    enum { FRACTION_BITS = 23, LOWEST_EXPONENT = 88, HIGHEST_EXPONENT = 150 };
    uint32_t exponent = bits >> FRACTION_BITS;
    return exponent >= LOWEST_EXPONENT && exponent <= HIGHEST_EXPONENT;
}

/* A column that is stored with respect to another one of its row, its base. */
typedef struct pj_relation {
    const char *column, *base;
    bool is_equal; /* '' where both are equal; else an integer is the difference of their codes */
} pj_relation;

/* NULL: the column has none. */
const pj_relation *pj_relation_of(const char *column);

/* A column of the values that a packer is given. */
typedef struct pj_packer_column {
    const pj_column *column; /* NULL: not packed */
    pj_code code;
    const pj_relation *relation;
    uint8_t base;
} pj_packer_column;

/* Packs rows, value by value. */
typedef struct pj_packer {
    pj_packed_texts *texts;
    pj_packer_column columns[PJ_PACKED_COLUMNS];
    uint32_t count;
    char codes[PJ_PACKED_COLUMNS][PJ_PACKED_CODE_BYTES]; /* of the row's texts */
} pj_packer;

/* The columns of the rows to be packed, in the order of their values; NULL: not packed. False:
 * there are too many. */
bool pj_packer_add(pj_packer *packer, const pj_column *column);
/* After the last column. */
void pj_packer_begin(pj_packer *packer);
/* Packs a row in place, except extra figures, which extras.h packs. */
void pj_packer_pack(pj_packer *packer, pj_value *values);

/* The store's packer of a table of rows, whose columns alone are its values; NULL: out of memory.
 */
pj_packer *pj_packer_of(pj_store *store, int table);

/* A row as it is being read: `get` gives the stored value of a column of the packer. */
typedef struct pj_packed_row {
    const pj_packer *packer;
    void (*get)(void *context, int column, pj_value *value);
    void *context;
    pj_arena *made; /* where texts are put together that last as long as the row */
} pj_packed_row;

/* Turns the stored value of a column into the published one, as the view does, but faster. */
typedef pj_status pj_unpack_fn(const pj_packed_row *row, int column, pj_value *value,
                               pj_error *err);
pj_unpack_fn pj_unpack;

/* ---- the schema (packing_schema.c) ---- */

/* A dialect's write_packed: replaces the view of a packed table, whose columns may be more than
 * before, and its triggers. */
void pj_packing_write(pj_buffer *out, const struct pj_schema_table *table);
bool pj_packing_owns_trigger(const char *name);
/* Packs the rows of a database that stores them under their published names. */
pj_status pj_packing_move_rows(pj_store *store, pj_error *err);

#endif
