/* Tables for people, whose least important columns are left out where the terminal is narrow. */
#ifndef PJ_CLI_SHOW_TABLE_H
#define PJ_CLI_SHOW_TABLE_H

#include "base/buffer.h"

#include <stdint.h>

typedef struct pj_show_column {
    const char *heading; /* NULL ends the columns */
    int width;           /* negative: aligned to the left */
    int rank;            /* 0: always shown; the highest are the first to go */
} pj_show_column;

typedef struct pj_show_table {
    const pj_show_column *columns;
    uint32_t hidden, next; /* bit mask; the next cell's column */
    int at;                /* where the next cell begins */
    pj_buffer line;
} pj_show_table;

/* Prints the headings. */
void pj_show_table_begin(pj_show_table *table, const pj_show_column *columns);
/* Cells in the order of the columns; the last one prints the row. A long name takes what the cells
 * after it leave. */
void pj_show_cell(pj_show_table *table, const char *text);
void pj_show_number(pj_show_table *table, uint32_t number);
void pj_show_table_end(pj_show_table *table);

#endif
