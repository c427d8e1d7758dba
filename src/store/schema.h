/*
 * The tables and views of a database, the same in every engine. A table's columns are those of its
 * rows (rows.h) and a few that only the database has. An engine adds its names of types, its
 * primary keys and partitions, and its indices (driver.h).
 *
 * Published tables and columns never change their meaning.
 */
#ifndef PJ_STORE_SCHEMA_H
#define PJ_STORE_SCHEMA_H

#include "store/driver.h"
#include "store/packing.h"
#include "store/rows.h"

typedef struct pj_schema_column {
    const char *name;
    pj_sql_type type;
    bool required;     /* NOT NULL */
    const char *owner; /* the table whose row's deletion deletes this row; NULL: none */
    pj_code code;      /* in a packed table */
} pj_schema_column;

enum { PJ_SCHEMA_COLUMNS = 10 };

struct pj_schema_table {
    const char *name;
    const char *run;    /* the column with the run's id; NULL: the table belongs to no run */
    const char *key;    /* columns of the primary key; NULL: rows are numbered by a column `id` */
    const char *unique; /* columns of another key */
    const pj_row_table *rows;
    pj_schema_column columns[PJ_SCHEMA_COLUMNS]; /* besides those of the rows */
};

typedef struct pj_schema_view {
    const char *name, *select; /* in the common subset of SQL (driver.h) */
} pj_schema_view;

/* Both end with a name of NULL. The first table is profiling_runs; those of runs precede the
 * others. */
extern const pj_schema_table pj_schema_tables[];
extern const pj_schema_view pj_schema_views[];

bool pj_schema_is_packed(const pj_dialect *dialect, const pj_schema_table *table);
/* The table that holds the rows of a published one: itself, or its packed one. */
const char *pj_schema_stored_table(const pj_dialect *dialect, const char *name);
/* Its column's name, in `text`. */
const char *pj_schema_stored_column(const pj_dialect *dialect, const pj_schema_table *table,
                                    const pj_schema_column *column, char text[64]);
pj_sql_type pj_column_stored_as(const pj_column *column);
int pj_schema_own_columns(const pj_schema_table *table); /* besides those of the rows */
/* A column by its number, without `id` and `run_id`; false: there are no more. */
bool pj_schema_column_get(const pj_schema_table *table, int number, pj_schema_column *column);
void pj_schema_write_table(pj_buffer *out, const pj_dialect *dialect, const pj_schema_table *table);
/* Gives a packed table's columns back as the published ones; nothing for others. */
void pj_schema_write_packed_view(pj_buffer *out, const pj_dialect *dialect,
                                 const pj_schema_table *table);
/* What follows the tables: indices, the engine's own statements (write_after), views. */
void pj_schema_write_rest(pj_buffer *out, const pj_dialect *dialect, int64_t version);
/* All statements of a new database. */
void pj_schema_write(pj_buffer *out, const pj_dialect *dialect);

#endif
