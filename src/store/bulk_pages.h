/*
 * Rows of one table and of its indices as pages of a database file, in SQLite's published format.
 * They are made to be read once, from front to back, by SQLite itself (sqlite_bulk.c), so that they
 * need no more memory than a group of rows.
 *
 * A tree of pages is found by its number: the table is 0, its indices follow. A table of more than
 * one group has three levels: a root that knows the groups, for ids are consecutive; a page that
 * knows the leaves of its group; and the leaves. Page numbers say where a page belongs, so that
 * they run far apart, and nothing is known of a group before it is made.
 */
#ifndef PJ_STORE_BULK_PAGES_H
#define PJ_STORE_BULK_PAGES_H

#include "store/record.h"

enum { PJ_PAGE_BYTES = 1 << 16, PJ_GROUP_ROWS = 4096, PJ_BULK_INDICES = 4 };

/* Which row an entry of an index names, and the index of the row that its key names; PJ_NO_KEY is
 * NULL and comes first. */
typedef struct pj_bulk_entry {
    uint32_t key, row;
} pj_bulk_entry;
#define PJ_NO_KEY UINT32_MAX

typedef struct pj_bulk_index {
    const char *name;
    int64_t first_key; /* id that key 0 means */
    pj_bulk_entry *entries;
    uint32_t count;
} pj_bulk_index;

typedef struct pj_bulk {
    const char *table;
    uint32_t rows;
    int64_t first_id; /* of row 0; the others follow */
    /* One value a column of the table, the id's NULL; rows come in order, on another thread. */
    void (*write)(void *context, uint32_t row, pj_row_record *record);
    void *context;
    pj_bulk_index indices[PJ_BULK_INDICES];
    uint32_t index_count;
} pj_bulk;

/* Whether the table is large enough to have groups, and every tree small enough for its root. */
bool pj_bulk_fits(const pj_bulk *bulk);
/* Sorts entries as an index has them; those of a recorded run are sorted already. */
void pj_bulk_sort(pj_bulk_entry *entries, uint32_t count);

typedef struct pj_page_group {
    unsigned char *pages; /* on the heap: pj_free */
    uint32_t count, capacity;
    uint32_t last_row[PJ_GROUP_ROWS]; /* of each leaf */
    bool no_memory, too_long;         /* too long: a row does not fit a page */
} pj_page_group;

/* The pages of a group: false with the reason in the group. */
bool pj_page_group_make(const pj_bulk *bulk, uint32_t group, pj_row_record *record,
                        pj_page_group *pages);
/* A page that is not a group's. */
typedef enum pj_page_kind {
    PJ_PAGE_ROOT,
    PJ_PAGE_GROUP,
    PJ_PAGE_INDEX_LEAF,
    PJ_PAGE_NONE
} pj_page_kind;
typedef struct pj_page_place {
    pj_page_kind kind;
    uint32_t tree, group, page; /* page: of a group, or of an index's leaves */
} pj_page_place;
pj_page_place pj_page_find(uint32_t number);
uint32_t pj_page_of_root(uint32_t tree);
uint32_t pj_page_count(void); /* numbers run from 1 to this */
void pj_page_make_root(const pj_bulk *bulk, uint32_t tree, unsigned char *page);
void pj_page_make_index_leaf(const pj_bulk *bulk, uint32_t tree, uint32_t leaf,
                             unsigned char *page);

/* Page 1: the header of a database file and its schema. `sql` is as the other database has it. */
typedef struct pj_page_schema {
    const char *type, *name, *table, *sql;
    uint32_t tree;
} pj_page_schema;
bool pj_page_make_first(const pj_page_schema *schema, uint32_t count, unsigned char *page);

#endif
