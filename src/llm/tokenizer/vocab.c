/*
 * The vocabulary and the merges as two open-addressed tables. Both hashes are seeded at random, so
 * that a file cannot be made to collide; both tables are at most half full.
 */
#include "llm/tokenizer/parts.h"

#include <string.h>

enum { MAX_TEXT_BYTES = 1 << 30 };

static uint64_t mix(uint64_t a, uint64_t b)
{
    __uint128_t product = (__uint128_t)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static uint64_t load(const char *p, size_t bytes)
{
    uint64_t value = 0;
    memcpy(&value, p, bytes);
    return value;
}

uint64_t pj_text_hash(const char *text, size_t bytes, uint64_t seed)
{
    uint64_t hash = seed ^ bytes * 0x9e3779b97f4a7c15u;
    for (; bytes > 8; text += 8, bytes -= 8) hash = mix(hash ^ load(text, 8), 0xe7037ed1a0b428dbu);
    return mix(hash ^ load(text, bytes), 0x8ebc6af09c88c6e3u);
}

void pj_vocab_init(pj_vocab *vocab)
{
    *vocab = (pj_vocab){0};
    /* Where the object lies and when it was made: unknown to whoever wrote the file. */
    vocab->seed =
        mix((uint64_t)pj_clock_ns() ^ 0xa0761d6478bd642fu, (uint64_t)(uintptr_t)vocab | 1);
}

void pj_vocab_fini(pj_vocab *vocab)
{
    pj_free(vocab->text);
    pj_free(vocab->entries);
    pj_free(vocab->slots);
    pj_free(vocab->by_id);
    pj_free(vocab->merges);
    *vocab = (pj_vocab){0};
}

static void place(pj_vocab *vocab, uint64_t hash, uint32_t entry)
{
    size_t slot = (size_t)hash & vocab->slot_mask;
    while (vocab->slots[slot]) slot = (slot + 1) & vocab->slot_mask;
    vocab->slots[slot] = (hash >> 32) << 32 | (entry + 1);
}

static bool grow_slots(pj_vocab *vocab)
{
    size_t size = vocab->slots ? 2 * (vocab->slot_mask + 1) : 1024;
    uint64_t *slots = pj_alloc(size, sizeof *slots);
    if (!slots) return false;
    pj_free(vocab->slots);
    vocab->slots = slots;
    vocab->slot_mask = size - 1;
    for (uint32_t i = 0; i < vocab->count; i++) {
        const pj_vocab_entry *e = &vocab->entries[i];
        place(vocab, pj_text_hash(vocab->text + e->offset, e->bytes, vocab->seed), i);
    }
    return true;
}

static bool grow_text(pj_vocab *vocab, size_t bytes)
{
    size_t need = vocab->text_bytes + bytes + 1;
    if (bytes > MAX_TEXT_BYTES || need > MAX_TEXT_BYTES) return false;
    if (need <= vocab->text_capacity) return true;
    size_t capacity = 2 * need < 65536 ? 65536 : 2 * need;
    char *grown = pj_resize(vocab->text, capacity, 1);
    if (!grown) return false;
    vocab->text = grown;
    vocab->text_capacity = capacity;
    return true;
}

static bool grow_entries(pj_vocab *vocab)
{
    if (vocab->count < vocab->capacity) return true;
    uint32_t capacity = vocab->capacity ? 2 * vocab->capacity : 512;
    pj_vocab_entry *grown = pj_resize(vocab->entries, capacity, sizeof *grown);
    if (!grown) return false;
    vocab->entries = grown;
    vocab->capacity = capacity;
    return true;
}

/* Entry + 1, or 0. */
static uint32_t find_entry(const pj_vocab *vocab, const char *text, size_t bytes, uint64_t hash)
{
    if (!vocab->slots) return 0;
    for (size_t slot = (size_t)hash & vocab->slot_mask;; slot = (slot + 1) & vocab->slot_mask) {
        uint64_t value = vocab->slots[slot];
        if (value == 0) return 0;
        if (value >> 32 != hash >> 32) continue;
        const pj_vocab_entry *e = &vocab->entries[(uint32_t)value - 1];
        if (e->bytes == bytes && memcmp(vocab->text + e->offset, text, bytes) == 0)
            return (uint32_t)value;
    }
}

int64_t pj_vocab_find(const pj_vocab *vocab, const char *text, size_t bytes)
{
    uint32_t entry = find_entry(vocab, text, bytes, pj_text_hash(text, bytes, vocab->seed));
    return entry ? (int64_t)vocab->entries[entry - 1].id : -1;
}

bool pj_vocab_add(pj_vocab *vocab, const char *text, size_t bytes, uint32_t id)
{
    uint64_t hash = pj_text_hash(text, bytes, vocab->seed);
    uint32_t known = find_entry(vocab, text, bytes, hash);
    if (known) {
        vocab->entries[known - 1].id = id; /* the last of equal keys counts */
        return true;
    }
    if (!grow_entries(vocab) || !grow_text(vocab, bytes)) return false;
    if ((!vocab->slots || vocab->count >= vocab->slot_mask / 2) && !grow_slots(vocab)) return false;
    vocab->entries[vocab->count] =
        (pj_vocab_entry){(uint32_t)vocab->text_bytes, (uint32_t)bytes, id};
    memcpy(vocab->text + vocab->text_bytes, text, bytes);
    vocab->text[vocab->text_bytes + bytes] = 0;
    vocab->text_bytes += bytes + 1;
    place(vocab, hash, vocab->count++);
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

bool pj_vocab_set_merges(pj_vocab *vocab, const pj_merge *list, uint32_t count)
{
    size_t size = 16;
    while (size < 2 * (size_t)count) size *= 2;
    vocab->merges = pj_alloc(size, sizeof *vocab->merges);
    if (!vocab->merges) return false;
    vocab->merge_mask = size - 1;
    vocab->merge_count = count;
    for (size_t i = 0; i < size; i++) vocab->merges[i].left = UINT32_MAX;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t key = ((uint64_t)list[i].left << 32 | list[i].right) * (vocab->seed | 1);
        size_t slot = (size_t)(key ^ key >> 32) & vocab->merge_mask;
        pj_merge *at = &vocab->merges[slot];
        while (at->left != UINT32_MAX && (at->left != list[i].left || at->right != list[i].right))
            at = &vocab->merges[slot = (slot + 1) & vocab->merge_mask];
        *at = (pj_merge){list[i].left, list[i].right, i, list[i].result};
    }
    return true;
}
