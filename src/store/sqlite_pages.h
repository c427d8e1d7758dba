/*
 * Rows of one table and its indices as pages of a database file, in SQLite's published file format
 * (sections 1.3 to 1.6). SQLite reads them once, in order (sqlite_bulk.c), so that only one group
 * of rows is in memory at a time.
 *
 * B-trees are numbered: the table is 0, its indices follow. A table of more than one group has
 * three levels: a root that points to the groups, which is possible beforehand because row ids are
 * consecutive; one interior page per group; and the leaves. The page number alone tells tree, group
 * and page, so the numbers are sparse and a page can be generated without knowing the others.
 */
#ifndef PJ_STORE_SQLITE_PAGES_H
#define PJ_STORE_SQLITE_PAGES_H

#include "store/driver.h"

enum { PJ_PAGE_BYTES = 1 << 16, PJ_GROUP_ROWS = 4096, PJ_BULK_INDICES = 4 };

/* An index entry: the row it points to, and the row number that its key denotes. PJ_NO_KEY is NULL
 * and sorts first. */
typedef struct pj_bulk_entry {
    uint32_t key, row;
} pj_bulk_entry;
#define PJ_NO_KEY UINT32_MAX

typedef struct pj_bulk_index {
    const char *name;
    int64_t first_key; /* id that key 0 denotes */
    pj_bulk_entry *entries;
    uint32_t count;
} pj_bulk_index;

typedef struct pj_bulk {
    const pj_bulk_rows *source;
    pj_bulk_index indices[PJ_BULK_INDICES];
    uint32_t index_count;
} pj_bulk;

/* ---- entries of indices (sqlite_indices.c) ---- */

/* Whether this program knows how to fill the indices of the table (a pj_table_id). */
bool pj_bulk_has_indices(int table);
bool pj_bulk_fill_indices(pj_bulk *bulk); /* false: no memory; free them all the same */
void pj_bulk_free_indices(pj_bulk *bulk);

/* ---- pages (sqlite_pages.c) ---- */

/* Whether the table is large enough to have groups, and every tree small enough for one root. */
bool pj_bulk_fits(const pj_bulk *bulk);
/* Sorts entries into index order; a recorded run's are already sorted. */
void pj_bulk_sort(pj_bulk_entry *entries, uint32_t count);

typedef struct pj_page_group {
    unsigned char *pages; /* on the heap: pj_free */
    uint32_t count, capacity;
    uint32_t last_row[PJ_GROUP_ROWS]; /* of each leaf */
    bool no_memory, too_long;         /* too long: a row does not fit a page */
} pj_page_group;

/* Generates the pages of a group: false with the reason in the group. */
bool pj_page_group_make(const pj_bulk *bulk, uint32_t group, pj_row_record *record,
                        pj_page_group *pages);
/* A page that belongs to no group. */
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
uint32_t pj_page_count(void); /* page numbers run from 1 to this */
void pj_page_make_root(const pj_bulk *bulk, uint32_t tree, unsigned char *page);
void pj_page_make_index_leaf(const pj_bulk *bulk, uint32_t tree, uint32_t leaf,
                             unsigned char *page);

/* Page 1: the header of a database file and its schema. `sql` is that of the target database. */
typedef struct pj_page_schema {
    const char *type, *name, *table, *sql;
    uint32_t tree;
} pj_page_schema;
bool pj_page_make_first(const pj_page_schema *schema, uint32_t count, unsigned char *page);

#endif
