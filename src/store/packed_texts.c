/* The texts of packed rows, by number and by hash. */
#include "store/packed_texts.h"

#include "base/ids.h"
#include "store/rows.h"

#include <string.h>

enum { TWO_BYTES = 0x80, MOST_BYTES = 4096 };

/* ---- codes ---------------------------------------------------------------------------------- */

static size_t write_code(uint32_t number, char code[PJ_PACKED_CODE_BYTES])
{
    if (number < TWO_BYTES) {
        code[0] = (char)number;
        return 1;
    }
    code[0] = (char)(TWO_BYTES | number >> 8);
    code[1] = (char)(number & 255);
    return 2;
}

/* UINT32_MAX: no code. */
static uint32_t number_of(const char *code, size_t bytes)
{
    uint8_t first = bytes ? (uint8_t)code[0] : 0;
    if (bytes == 1 && first < TWO_BYTES) return first;
    if (bytes == 2 && first >= TWO_BYTES)
        return (uint32_t)(first & ~TWO_BYTES) << 8 | (uint8_t)code[1];
    return UINT32_MAX;
}

/* ---- what is known -------------------------------------------------------------------------- */

void pj_packed_texts_forget(pj_packed_texts *texts)
{
    pj_arena_fini(&texts->arena);
    *texts = (pj_packed_texts){.store = texts->store};
}

static bool is_same(const pj_value *a, const pj_value *b)
{
    return a->type == b->type && a->bytes == b->bytes && memcmp(a->text, b->text, a->bytes) == 0;
}

/* The slot of a text, or the free one where it belongs. */
static uint16_t *slot_of(pj_packed_texts *texts, const pj_value *text)
{
    uint64_t at = pj_hash64(text->type, text->text, text->bytes);
    for (;; at++) {
        uint16_t *slot = &texts->slots[at % PJ_PACKED_SLOTS];
        if (*slot == 0 || is_same(&texts->texts[*slot - 1], text)) return slot;
    }
}

/* Texts come in the order of their codes. */
static bool add_text(pj_packed_texts *texts, const pj_value *text)
{
    if (texts->count == PJ_PACKED_TEXTS) return false;
    char *copy = pj_arena_strndup(&texts->arena, text->text, text->bytes);
    texts->texts = pj_arena_more(&texts->arena, texts->texts, texts->count, sizeof *texts->texts);
    if (!copy || !texts->texts) return false;
    pj_value *added = &texts->texts[texts->count];
    *added = pj_value_bytes(text->type, copy, text->bytes);
    uint16_t *slot = slot_of(texts, added);
    if (*slot == 0) *slot = (uint16_t)(texts->count + 1);
    texts->count++;
    return true;
}

/* Adds what the table has beyond that. One with gaps, which another program made, gives no codes
 * from there on. */
static bool read_texts(pj_packed_texts *texts)
{
    pj_sql *sql =
        pj_sql_begin(texts->store, "SELECT code, text FROM packed_texts ORDER BY code", NULL);
    bool is_sound = true;
    for (uint32_t number = 0; is_sound && pj_sql_step(sql); number++) {
        pj_value code, text;
        pj_sql_get_value(sql, 0, &code);
        pj_sql_get_value(sql, 1, &text);
        is_sound = code.text && text.text && number_of(code.text, code.bytes) == number;
        pj_value_check_utf8(&text);
        if (is_sound && number >= texts->count) is_sound = add_text(texts, &text);
    }
    texts->is_read = pj_sql_end(sql, NULL) == PJ_OK;
    return texts->is_read;
}

/* ---- both ways ------------------------------------------------------------------------------ */

static bool insert_text(pj_packed_texts *texts, const pj_value *text)
{
    char code[PJ_PACKED_CODE_BYTES];
    size_t bytes = write_code(texts->count, code);
    if (texts->count == PJ_PACKED_TEXTS || text->bytes > MOST_BYTES) return false;
    return pj_sql_change(texts->store, "INSERT INTO packed_texts (code, text) VALUES (?, ?)",
                         PJ_VALUES(pj_value_bytes(PJ_VALUE_BLOB, code, bytes), *text),
                         NULL) == PJ_OK &&
           add_text(texts, text);
}

size_t pj_packed_texts_code(pj_packed_texts *texts, const pj_value *text,
                            char code[PJ_PACKED_CODE_BYTES])
{
    if (!texts->is_read && !read_texts(texts)) return 0;
    uint16_t slot = *slot_of(texts, text);
    if (slot) return write_code(slot - 1U, code);
    if (!insert_text(texts, text)) return 0;
    return write_code(texts->count - 1, code);
}

bool pj_packed_texts_find(pj_packed_texts *texts, const char *code, size_t bytes, pj_value *text)
{
    uint32_t number = number_of(code, bytes);
    if (number >= PJ_PACKED_TEXTS) return false;
    if (number >= texts->count && !read_texts(texts)) return false;
    if (number >= texts->count) return false;
    *text = texts->texts[number];
    return true;
}
