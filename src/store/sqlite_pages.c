/* B-tree pages: a header, then pointers to the cells, and the cells themselves from the end of the
 * page towards the front. */
#include "store/sqlite_pages.h"

#include "base/memory.h"

#include <stdlib.h>

enum {
    INDEX_INTERIOR = 2,
    TABLE_INTERIOR = 5,
    INDEX_LEAF = 10,
    TABLE_LEAF = 13,
    LEAF_HEADER = 8,
    INTERIOR_HEADER = 12,
    FILE_HEADER = 100,
    TREE_BITS = 26, /* pages of a tree */
    GROUP_BITS = 13 /* pages of a group */
};

/* A larger payload needs SQLite's overflow pages; here such a row is too long. */
#define MOST_PAYLOAD (PJ_PAGE_BYTES - 35)
/* A cell of the root: page number, key, cell pointer. */
#define MOST_GROUPS ((PJ_PAGE_BYTES - INTERIOR_HEADER) / (4 + PJ_VARINT_BYTES + 2))
/* A cell of an index: its length, a three-byte header, two numbers. */
#define ENTRY_BYTES  (1 + 3 + 8 + 8)
#define LEAF_ENTRIES 2900
#define MOST_LEAVES  ((PJ_PAGE_BYTES - INTERIOR_HEADER) / (4 + ENTRY_BYTES + 2))

_Static_assert(LEAF_HEADER + (LEAF_ENTRIES + 1) * (ENTRY_BYTES + 2) <= PJ_PAGE_BYTES, "leaves fit");
_Static_assert(MOST_GROUPS <= 1 << (TREE_BITS - GROUP_BITS), "numbers of groups fit");
/* SQLite's lock-byte page (at 1 GiB: number 16385) may hold no data; it lies before all B-trees. */
_Static_assert(16385 < 1 << TREE_BITS, "the lock-byte page is unused");

/* ---- numbers ------------------------------------------------------------------------------- */

static uint32_t page_of_root(uint32_t tree)
{
    return 2 + tree;
}

uint32_t pj_page_count(void)
{
    return (PJ_BULK_INDICES + 2u) << TREE_BITS;
}

static uint32_t page_of_group(uint32_t group, uint32_t page)
{
    return 1u << TREE_BITS | group << GROUP_BITS | page;
}

static uint32_t page_of_leaf(uint32_t tree, uint32_t leaf)
{
    return (tree + 1) << TREE_BITS | leaf;
}

pj_page_place pj_page_find(uint32_t number)
{
    uint32_t tree = number >> TREE_BITS, rest = number & ((1u << TREE_BITS) - 1);
    if (tree == 0 && rest >= 2 && rest < 2 + 1 + PJ_BULK_INDICES)
        return (pj_page_place){PJ_PAGE_ROOT, rest - 2, 0, 0};
    if (tree == 0 || tree > 1 + PJ_BULK_INDICES) return (pj_page_place){.kind = PJ_PAGE_NONE};
    if (tree > 1) return (pj_page_place){PJ_PAGE_INDEX_LEAF, tree - 1, 0, rest};
    return (pj_page_place){PJ_PAGE_GROUP, 0, rest >> GROUP_BITS, rest & ((1u << GROUP_BITS) - 1)};
}

/* ---- one page ------------------------------------------------------------------------------ */

typedef struct page_writer {
    unsigned char *page;
    uint32_t header; /* offset in the page: after the file header on page 1 */
    uint32_t pointers, cells, content;
    unsigned char kind;
} page_writer;

static void put16(unsigned char *out, uint32_t value)
{
    out[0] = (unsigned char)(value >> 8);
    out[1] = (unsigned char)value;
}

static void put32(unsigned char *out, uint32_t value)
{
    put16(out, value >> 16);
    put16(out + 2, value & 0xffff);
}

static page_writer page_begin(unsigned char *page, uint32_t header, unsigned char kind)
{
    bool leaf = kind == TABLE_LEAF || kind == INDEX_LEAF;
    uint32_t pointers = header + (leaf ? LEAF_HEADER : INTERIOR_HEADER);
    return (page_writer){page, header, pointers, 0, PJ_PAGE_BYTES, kind};
}

static bool has_room(const page_writer *w, uint32_t bytes)
{
    return w->pointers + 2 * (w->cells + 1) + bytes <= w->content;
}

/* Allocates the next cell, which must fit. */
static unsigned char *add_cell(page_writer *w, uint32_t bytes)
{
    w->content -= bytes;
    put16(w->page + w->pointers + 2 * (size_t)w->cells++, w->content);
    return w->page + w->content;
}

static void page_end(const page_writer *w, uint32_t last_child)
{
    unsigned char *at = w->page + w->header;
    at[0] = w->kind;
    put16(at + 1, 0); /* no freeblocks */
    put16(at + 3, w->cells);
    put16(at + 5, w->content); /* the page's length is written as 0 */
    at[7] = 0;
    if (w->pointers - w->header == INTERIOR_HEADER) put32(at + 8, last_child);
}

static void add_child(page_writer *w, uint32_t child, int64_t last_id)
{
    unsigned char cell[4 + PJ_VARINT_BYTES];
    put32(cell, child);
    uint32_t bytes = 4 + pj_varint_write(cell + 4, (uint64_t)last_id);
    memcpy(add_cell(w, bytes), cell, bytes);
}

/* ---- tables -------------------------------------------------------------------------------- */

static uint32_t group_count(const pj_bulk *bulk)
{
    return (bulk->source->rows + PJ_GROUP_ROWS - 1) / PJ_GROUP_ROWS;
}

static bool add_page(pj_page_group *g)
{
    if (g->count == 1u << GROUP_BITS) {
        g->too_long = true;
        return false;
    }
    if (g->count == g->capacity) {
        uint32_t capacity = g->capacity ? g->capacity * 2 : 16;
        unsigned char *pages = pj_resize(g->pages, capacity, PJ_PAGE_BYTES);
        if (!pages) {
            g->no_memory = true;
            return false;
        }
        g->pages = pages;
        g->capacity = capacity;
    }
    g->count++;
    return true;
}

static bool add_leaf(pj_page_group *g, page_writer *leaf)
{
    if (!add_page(g)) return false;
    *leaf = page_begin(g->pages + (size_t)(g->count - 1) * PJ_PAGE_BYTES, 0, TABLE_LEAF);
    return true;
}

static void put_payload(const pj_row_record *record, uint32_t header, unsigned char *out)
{
    out += pj_varint_write(out, header);
    memcpy(out, record->types, record->type_bytes);
    if (record->body.length)
        memcpy(out + record->type_bytes, record->body.data, record->body.length);
}

static bool add_row(const pj_row_record *record, int64_t id, uint32_t row, pj_page_group *g,
                    page_writer *leaf)
{
    unsigned char head[2 * PJ_VARINT_BYTES];
    uint32_t header = pj_row_record_header(record);
    g->no_memory |= record->body.failed;
    g->too_long |= header + record->body.length > MOST_PAYLOAD;
    if (g->no_memory || g->too_long) return false;
    uint32_t payload = header + (uint32_t)record->body.length;
    uint32_t head_bytes = pj_varint_write(head, payload);
    head_bytes += pj_varint_write(head + head_bytes, (uint64_t)id);
    if (!has_room(leaf, head_bytes + payload)) {
        page_end(leaf, 0);
        if (!add_leaf(g, leaf)) return false;
    }
    unsigned char *cell = add_cell(leaf, head_bytes + payload);
    memcpy(cell, head, head_bytes);
    put_payload(record, header, cell + head_bytes);
    g->last_row[g->count - 2] = row; /* page 0 is not a leaf */
    return true;
}

/* Page 0 of the group: its interior page, or the leaf itself if there is only one. */
static void top_off(const pj_bulk *bulk, uint32_t group, pj_page_group *g)
{
    if (g->count == 2) {
        memcpy(g->pages, g->pages + PJ_PAGE_BYTES, PJ_PAGE_BYTES);
        return;
    }
    page_writer top = page_begin(g->pages, 0, TABLE_INTERIOR);
    for (uint32_t leaf = 0; leaf + 2 < g->count; leaf++)
        add_child(&top, page_of_group(group, leaf + 1), bulk->source->first_id + g->last_row[leaf]);
    page_end(&top, page_of_group(group, g->count - 1));
}

bool pj_page_group_make(const pj_bulk *bulk, uint32_t group, pj_row_record *record,
                        pj_page_group *g)
{
    uint32_t row = group * PJ_GROUP_ROWS, end = row + PJ_GROUP_ROWS;
    page_writer leaf;
    if (end > bulk->source->rows) end = bulk->source->rows;
    g->count = 0;
    if (!add_page(g) || !add_leaf(g, &leaf)) return false;
    for (; row < end; row++) {
        pj_row_record_begin(record);
        bulk->source->write(bulk->source->context, row, record);
        if (!add_row(record, bulk->source->first_id + row, row, g, &leaf)) return false;
    }
    page_end(&leaf, 0);
    top_off(bulk, group, g);
    return true;
}

static void make_table_root(const pj_bulk *bulk, unsigned char *page)
{
    page_writer root = page_begin(page, 0, TABLE_INTERIOR);
    uint32_t last = group_count(bulk) - 1;
    for (uint32_t g = 0; g < last; g++)
        add_child(&root, page_of_group(g, 0),
                  bulk->source->first_id + (int64_t)(g + 1) * PJ_GROUP_ROWS - 1);
    page_end(&root, page_of_group(last, 0));
}

/* ---- indices ------------------------------------------------------------------------------- */

/* The key after each leaf but the last goes into the root. The last leaf takes one entry more where
 * an empty leaf would follow. */
static uint32_t leaf_count(const pj_bulk_index *index)
{
    uint32_t leaves = (uint32_t)(((uint64_t)index->count + LEAF_ENTRIES - 1) / (LEAF_ENTRIES + 1));
    return leaves ? leaves : 1;
}

static uint32_t put_number(int64_t value, unsigned char *type, unsigned char *out)
{
    unsigned char bytes[8];
    uint32_t width = pj_integer_width(value, type);
    if (!width) return 0;
    pj_big_endian_write(bytes, (uint64_t)value << (64 - 8 * width));
    memcpy(out, bytes, width);
    return width;
}

/* Payload length, then the record: key and row id. */
static uint32_t make_entry(const pj_bulk *bulk, const pj_bulk_index *index, uint32_t at,
                           unsigned char *out)
{
    const pj_bulk_entry *entry = &index->entries[at];
    uint32_t bytes = 4;
    out[1] = 3;
    out[2] = 0; /* NULL */
    if (entry->key != PJ_NO_KEY)
        bytes += put_number(index->first_key + entry->key, &out[2], out + bytes);
    bytes += put_number(bulk->source->first_id + entry->row, &out[3], out + bytes);
    out[0] = (unsigned char)(bytes - 1);
    return bytes;
}

static void add_entries(const pj_bulk *bulk, const pj_bulk_index *index, uint32_t leaf,
                        page_writer *w)
{
    uint32_t at = leaf * (LEAF_ENTRIES + 1), end = at + LEAF_ENTRIES;
    if (leaf + 1 == leaf_count(index)) end = index->count;
    for (; at < end; at++) {
        unsigned char cell[ENTRY_BYTES];
        uint32_t bytes = make_entry(bulk, index, at, cell);
        memcpy(add_cell(w, bytes), cell, bytes);
    }
}

void pj_page_make_index_leaf(const pj_bulk *bulk, uint32_t tree, uint32_t leaf, unsigned char *page)
{
    page_writer w = page_begin(page, 0, INDEX_LEAF);
    add_entries(bulk, &bulk->indices[tree - 1], leaf, &w);
    page_end(&w, 0);
}

static void make_index_root(const pj_bulk *bulk, uint32_t tree, unsigned char *page)
{
    const pj_bulk_index *index = &bulk->indices[tree - 1];
    uint32_t last = leaf_count(index) - 1;
    if (last == 0) {
        pj_page_make_index_leaf(bulk, tree, 0, page);
        return;
    }
    page_writer root = page_begin(page, 0, INDEX_INTERIOR);
    for (uint32_t leaf = 0; leaf < last; leaf++) {
        unsigned char cell[4 + ENTRY_BYTES];
        put32(cell, page_of_leaf(tree, leaf));
        uint32_t at = leaf * (LEAF_ENTRIES + 1) + LEAF_ENTRIES;
        uint32_t bytes = 4 + make_entry(bulk, index, at, cell + 4);
        memcpy(add_cell(&root, bytes), cell, bytes);
    }
    page_end(&root, page_of_leaf(tree, last));
}

void pj_page_make_root(const pj_bulk *bulk, uint32_t tree, unsigned char *page)
{
    if (tree == 0)
        make_table_root(bulk, page);
    else
        make_index_root(bulk, tree, page);
}

static int by_key(const void *a, const void *b)
{
    const pj_bulk_entry *x = a, *y = b;
    uint32_t key_x = x->key + 1, key_y = y->key + 1; /* NULL first */
    if (key_x != key_y) return key_x < key_y ? -1 : 1;
    return x->row < y->row ? -1 : x->row > y->row;
}

void pj_bulk_sort(pj_bulk_entry *entries, uint32_t count)
{
    bool sorted = true;
    for (uint32_t i = 1; i < count && sorted; i++)
        sorted = by_key(&entries[i - 1], &entries[i]) < 0;
    if (!sorted) qsort(entries, count, sizeof *entries, by_key);
}

bool pj_bulk_fits(const pj_bulk *bulk)
{
    uint32_t groups = group_count(bulk);
    bool fits = groups > 1 && groups <= MOST_GROUPS && bulk->index_count <= PJ_BULK_INDICES;
    for (uint32_t i = 0; i < bulk->index_count && fits; i++)
        fits = leaf_count(&bulk->indices[i]) <= MOST_LEAVES;
    return fits;
}

/* ---- the first page ------------------------------------------------------------------------ */

static void make_file_header(unsigned char *page)
{
    memset(page, 0, FILE_HEADER);
    memcpy(page, "SQLite format 3", 16);
    put16(page + 16, 1); /* page size 65536 */
    page[18] = page[19] = 1;
    page[21] = 64;
    page[22] = page[23] = 32;
    put32(page + 24, 1); /* change counter, repeated at 92 */
    put32(page + 28, pj_page_count());
    put32(page + 40, 1);
    put32(page + 44, 4); /* format of the schema */
    put32(page + 56, 1); /* UTF-8 */
    put32(page + 92, 1);
    put32(page + 96, 3040000);
}

static void write_schema_row(const pj_page_schema *s, pj_row_record *record)
{
    pj_row_record_begin(record);
    pj_row_record_text(record, s->type, strlen(s->type), false);
    pj_row_record_text(record, s->name, strlen(s->name), false);
    pj_row_record_text(record, s->table, strlen(s->table), false);
    pj_row_record_int(record, page_of_root(s->tree));
    pj_row_record_text(record, s->sql, strlen(s->sql), false);
}

bool pj_page_make_first(const pj_page_schema *schema, uint32_t count, unsigned char *page)
{
    pj_row_record record = {0};
    page_writer w = page_begin(page, FILE_HEADER, TABLE_LEAF);
    bool good = true;
    pj_buffer_init(&record.body, PJ_PAGE_BYTES);
    make_file_header(page);
    for (uint32_t i = 0; i < count && good; i++) {
        unsigned char head[PJ_VARINT_BYTES];
        write_schema_row(&schema[i], &record);
        uint32_t header = pj_row_record_header(&record);
        uint32_t payload = header + (uint32_t)record.body.length;
        uint32_t bytes = pj_varint_write(head, payload);
        good = !record.body.failed && has_room(&w, bytes + 1 + payload);
        if (!good) break;
        unsigned char *cell = add_cell(&w, bytes + 1 + payload);
        memcpy(cell, head, bytes);
        cell[bytes] = (unsigned char)(i + 1); /* its row id */
        put_payload(&record, header, cell + bytes + 1);
    }
    page_end(&w, 0);
    pj_buffer_fini(&record.body);
    return good;
}
