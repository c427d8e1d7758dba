/* The vocabulary and the merges: two lists in file order, each with an open-addressed hash table of
 * indices. A table is built once, when its list is complete: its size is then known, and walking
 * the list in order allows prefetching slots some steps ahead, where individual look-ups would each
 * wait. Hashes are randomly seeded, so that files cannot be crafted to collide. */
#include "engine/files/pages.h"
#include "engine/text/tokenizer/parts.h"

#include <string.h>

enum { MAX_TEXT_BYTES = 1 << 30, MAX_LIST = 1 << 30, AHEAD = 16 };

/* ---- texts ---- */

static uint64_t vocab_mix(uint64_t a, uint64_t b)
{
    __uint128_t product = (__uint128_t)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static uint64_t load8(const char *p)
{
    uint64_t value;
    memcpy(&value, p, 8);
    return value;
}

static uint64_t load4(const char *p)
{
    uint32_t value;
    memcpy(&value, p, 4);
    return value;
}

/* 0 to 8 bytes as a number; distinct texts of equal length give distinct numbers. */
static uint64_t load_short(const char *p, size_t bytes)
{
    if (bytes >= 4) return load4(p) | load4(p + bytes - 4) << 32;
    if (bytes == 0) return 0;
    const unsigned char *u = (const unsigned char *)p;
    return u[0] | (uint64_t)u[bytes / 2] << 8 | (uint64_t)u[bytes - 1] << 16;
}

uint64_t pj_text_hash(const char *text, size_t bytes, uint64_t seed)
{
    uint64_t hash = seed ^ bytes * 0x9e3779b97f4a7c15u;
    if (bytes <= 8) return vocab_mix(hash ^ load_short(text, bytes), 0x8ebc6af09c88c6e3u);
    const char *last = text + bytes - 8;
    for (; text < last; text += 8) hash = vocab_mix(hash ^ load8(text), 0xe7037ed1a0b428dbu);
    return vocab_mix(hash ^ load8(last), 0x8ebc6af09c88c6e3u);
}

/* Tokens are short: calling memcmp would cost more than comparing. */
static bool vocab_same_text(const char *a, const char *b, size_t bytes)
{
    if (bytes <= 8) return load_short(a, bytes) == load_short(b, bytes);
    if (bytes > 16) return memcmp(a, b, bytes) == 0;
    return load8(a) == load8(b) && load8(a + bytes - 8) == load8(b + bytes - 8);
}

static uint64_t pair_hash(uint64_t left, uint64_t right, uint64_t seed)
{
    uint64_t key = (left << 32 | right) * (seed | 1);
    return key ^ key >> 32;
}

/* ---- tables of list indices: tag << 32 | index + 1; 0: free ---- */

static void table_fini(pj_table *table)
{
    if (table->slots) pj_pages_free(table->slots, (table->mask + 1) * sizeof *table->slots);
    *table = (pj_table){0};
}

/* At most five eighths full. On huge pages if available: the whole table is written at once. */
static bool table_init(pj_table *table, size_t count)
{
    size_t size = 16;
    while (5 * size < 8 * count) size *= 2;
    table_fini(table);
    *table = (pj_table){.slots = pj_pages_alloc(size * sizeof *table->slots), .mask = size - 1};
    return table->slots != NULL;
}

static void table_fetch(const pj_table *table, uint64_t hash)
{
    __builtin_prefetch(&table->slots[hash & table->mask]);
}

static uint64_t slot_value(uint64_t hash, size_t index)
{
    return hash >> 32 << 32 | (index + 1);
}

/* ---- life ---- */

void pj_vocab_init(pj_vocab *vocab)
{
    *vocab = (pj_vocab){0};
    /* Address and time of creation: unknown to the author of a file. */
    vocab->seed =
        vocab_mix((uint64_t)pj_clock_ns() ^ 0xa0761d6478bd642fu, (uint64_t)(uintptr_t)vocab | 1);
}

void pj_vocab_fini(pj_vocab *vocab)
{
    pj_free(vocab->text);
    pj_free(vocab->entries);
    table_fini(&vocab->by_text);
    pj_free(vocab->by_id);
    pj_free(vocab->merges);
    pj_free(vocab->ranks);
    table_fini(&vocab->by_pair);
    *vocab = (pj_vocab){0};
}

/* ---- tokens ---- */

/* The slot of a text, or the free one where it belongs. */
static uint64_t *text_slot(const pj_vocab *vocab, const char *text, size_t bytes, uint64_t hash)
{
    const pj_table *table = &vocab->by_text;
    for (size_t i = (size_t)hash & table->mask;; i = (i + 1) & table->mask) {
        uint64_t value = table->slots[i];
        if (value == 0) return &table->slots[i];
        if (value >> 32 != hash >> 32) continue;
        const pj_vocab_entry *e = &vocab->entries[(uint32_t)value - 1];
        if (e->bytes == bytes && vocab_same_text(vocab->text + e->offset, text, bytes))
            return &table->slots[i];
    }
}

/* List index + 1; 0: missing. */
static uint32_t find_hashed(const pj_vocab *vocab, const char *text, size_t bytes, uint64_t hash)
{
    return vocab->by_text.slots ? (uint32_t)*text_slot(vocab, text, bytes, hash) : 0;
}

int64_t pj_vocab_number(const pj_vocab *vocab, const char *text, size_t bytes)
{
    uint64_t hash = pj_text_hash(text, bytes, vocab->seed);
    return (int64_t)find_hashed(vocab, text, bytes, hash) - 1;
}

int64_t pj_vocab_find(const pj_vocab *vocab, const char *text, size_t bytes)
{
    int64_t index = pj_vocab_number(vocab, text, bytes);
    return index < 0 ? -1 : (int64_t)vocab->entries[index].id;
}

/* The entry in a query's first slot if the upper half of its hash matches; NULL otherwise. */
static const pj_vocab_entry *likely_entry(const pj_vocab *vocab, uint64_t hash)
{
    uint64_t value = vocab->by_text.slots[hash & vocab->by_text.mask];
    return value && value >> 32 == hash >> 32 ? &vocab->entries[(uint32_t)value - 1] : NULL;
}

void pj_vocab_find_all(const pj_vocab *vocab, pj_vocab_query *queries, size_t count)
{
    const pj_vocab_query *end = queries + count;
    for (pj_vocab_query *q = queries; q < end; q++) {
        q->hash = pj_text_hash(q->text, q->bytes, vocab->seed);
        table_fetch(&vocab->by_text, q->hash);
    }
    for (pj_vocab_query *q = queries; q < end; q++) {
        const pj_vocab_entry *e = likely_entry(vocab, q->hash);
        if (e) __builtin_prefetch(e);
    }
    for (pj_vocab_query *q = queries; q < end; q++) {
        const pj_vocab_entry *e = likely_entry(vocab, q->hash);
        if (e) __builtin_prefetch(vocab->text + e->offset);
    }
    for (pj_vocab_query *q = queries; q < end; q++) {
        uint32_t index = find_hashed(vocab, q->text, q->bytes, q->hash);
        q->id = index ? (int64_t)vocab->entries[index - 1].id : -1;
    }
}

bool pj_vocab_is_at(const pj_vocab *vocab, uint32_t index, const char *text, size_t bytes)
{
    if (index >= vocab->count) return false;
    const pj_vocab_entry *e = &vocab->entries[index];
    return e->bytes == bytes && vocab_same_text(vocab->text + e->offset, text, bytes);
}

bool pj_vocab_reserve(pj_vocab *vocab, size_t tokens, size_t bytes)
{
    size_t capacity = vocab->count + tokens, text_capacity = vocab->text_bytes + bytes + tokens;
    if (capacity > MAX_LIST) capacity = MAX_LIST;
    if (text_capacity > MAX_TEXT_BYTES) text_capacity = MAX_TEXT_BYTES;
    pj_vocab_entry *entries = pj_resize(vocab->entries, capacity, sizeof *entries);
    if (!entries) return false;
    vocab->entries = entries;
    vocab->capacity = (uint32_t)capacity;
    char *text = pj_resize(vocab->text, text_capacity, 1);
    if (!text) return false;
    vocab->text = text;
    vocab->text_capacity = text_capacity;
    return true;
}

bool pj_vocab_add(pj_vocab *vocab, const char *text, size_t bytes, uint32_t id)
{
    if (vocab->count == vocab->capacity || bytes >= vocab->text_capacity - vocab->text_bytes)
        return false;
    char *copy = vocab->text + vocab->text_bytes;
    memcpy(copy, text, bytes);
    copy[bytes] = 0;
    vocab->entries[vocab->count++] =
        (pj_vocab_entry){(uint32_t)vocab->text_bytes, (uint32_t)bytes, id};
    vocab->text_bytes += bytes + 1;
    return true;
}

/* Of equal tokens the last one counts, at the index of the first. */
static bool index_texts(pj_vocab *vocab)
{
    uint64_t hashes[AHEAD];
    uint32_t kept = 0;
    if (!table_init(&vocab->by_text, vocab->count)) return false;
    for (size_t i = 0; i < (size_t)vocab->count + AHEAD; i++) {
        if (i >= AHEAD) {
            pj_vocab_entry e = vocab->entries[i - AHEAD];
            uint64_t hash = hashes[i % AHEAD];
            uint64_t *slot = text_slot(vocab, vocab->text + e.offset, e.bytes, hash);
            if (*slot) {
                vocab->entries[(uint32_t)*slot - 1].id = e.id;
            } else {
                *slot = slot_value(hash, kept);
                vocab->entries[kept++] = e;
            }
        }
        if (i >= vocab->count) continue;
        const pj_vocab_entry *next = &vocab->entries[i];
        hashes[i % AHEAD] = pj_text_hash(vocab->text + next->offset, next->bytes, vocab->seed);
        table_fetch(&vocab->by_text, hashes[i % AHEAD]);
    }
    vocab->count = kept;
    return true;
}

/* Shrinks lists, which were allocated for the most that the file could hold. */
static void vocab_shrink(pj_vocab *vocab)
{
    char *text = pj_resize(vocab->text, vocab->text_bytes, 1);
    pj_vocab_entry *entries = pj_resize(vocab->entries, vocab->count, sizeof *entries);
    if (text) vocab->text = text;
    if (entries) vocab->entries = entries;
    vocab->capacity = vocab->count;
    vocab->text_capacity = vocab->text_bytes;
}

bool pj_vocab_index(pj_vocab *vocab)
{
    if (!index_texts(vocab)) return false;
    vocab_shrink(vocab);
    return true;
}

bool pj_vocab_index_ids(pj_vocab *vocab)
{
    vocab->size = 0;
    for (uint32_t i = 0; i < vocab->count; i++)
        if (vocab->entries[i].id >= vocab->size) vocab->size = vocab->entries[i].id + 1;
    if (vocab->size == 0) return true;
    vocab->by_id = pj_alloc(vocab->size, sizeof *vocab->by_id);
    if (!vocab->by_id) return false;
    for (uint32_t i = 0; i < vocab->count; i++) vocab->by_id[vocab->entries[i].id] = i + 1;
    return true;
}

/* ---- merges ---- */

bool pj_vocab_reserve_merges(pj_vocab *vocab, size_t count)
{
    if (count > MAX_LIST) count = MAX_LIST;
    pj_merge *merges = pj_resize(vocab->merges, count, sizeof *merges);
    if (!merges) return false;
    vocab->merges = merges;
    vocab->merge_count = 0;
    vocab->crosses = false;
    return true;
}

void pj_vocab_note_parts(pj_vocab *vocab, const char *left, size_t left_bytes, const char *right,
                         size_t right_bytes)
{
    enum { N = PJ_SPACE_MARK_BYTES };
    bool begins = right_bytes >= N && memcmp(right, PJ_SPACE_MARK, N) == 0;
    bool ends = left_bytes >= N && memcmp(left + left_bytes - N, PJ_SPACE_MARK, N) == 0;
    if (begins && !ends) vocab->crosses = true;
}

/* The slot of a pair, or the free one where it belongs. */
static uint64_t *pair_slot(const pj_vocab *vocab, uint32_t left, uint32_t right, uint64_t hash)
{
    const pj_table *table = &vocab->by_pair;
    for (size_t i = (size_t)hash & table->mask;; i = (i + 1) & table->mask) {
        uint64_t value = table->slots[i];
        if (value == 0) return &table->slots[i];
        if (value >> 32 != hash >> 32) continue;
        const pj_merge *merge = &vocab->merges[(uint32_t)value - 1];
        if (merge->left == left && merge->right == right) return &table->slots[i];
    }
}

uint32_t pj_vocab_merge(const pj_vocab *vocab, uint32_t left, uint32_t right)
{
    /* 0 - 1 is PJ_NO_MERGE */
    return (uint32_t)*pair_slot(vocab, left, right, pair_hash(left, right, vocab->seed)) - 1;
}

bool pj_vocab_index_merges(pj_vocab *vocab)
{
    uint64_t hashes[AHEAD];
    uint32_t count = vocab->merge_count;
    if (!table_init(&vocab->by_pair, count)) return false;
    for (size_t i = 0; i < (size_t)count + AHEAD; i++) {
        if (i >= AHEAD) {
            const pj_merge *m = &vocab->merges[i - AHEAD];
            uint64_t hash = hashes[i % AHEAD];
            *pair_slot(vocab, m->left, m->right, hash) = slot_value(hash, i - AHEAD);
        }
        if (i >= count) continue;
        const pj_merge *next = &vocab->merges[i];
        hashes[i % AHEAD] = pair_hash(next->left, next->right, vocab->seed);
        table_fetch(&vocab->by_pair, hashes[i % AHEAD]);
    }
    pj_merge *merges = pj_resize(vocab->merges, count, sizeof *merges);
    if (merges) vocab->merges = merges;
    return true;
}
