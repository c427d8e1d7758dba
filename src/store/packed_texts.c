/* The texts of packed rows, by number and by hash. */
#include "store/packed_texts.h"

#include "base/ids.h"
#include "base/utf8.h"
#include "store/store_impl.h"

#include <string.h>

enum { TWO_BYTES = 0x80 };

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
    return a->type == b->type && a->bytes == b->bytes &&
           (a->bytes == 0 || memcmp(a->text, b->text, a->bytes) == 0);
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

/* Adds the next text, or a gap: NULL. */
static bool add_text(pj_packed_texts *texts, const pj_value *text)
{
    pj_value *all = pj_arena_more(&texts->arena, texts->texts, texts->count, sizeof *all);
    if (!all) return false;
    texts->texts = all;
    pj_value *added = &all[texts->count];
    *added = (pj_value){.type = PJ_VALUE_NULL};
    if (text) {
        char *copy = pj_arena_strndup(&texts->arena, text->text, text->bytes);
        if (!copy) return false;
        *added = pj_value_bytes(text->type, copy, text->bytes);
        uint16_t *slot = slot_of(texts, added);
        if (*slot == 0) *slot = (uint16_t)(texts->count + 1);
    }
    texts->count++;
    return true;
}

/* Texts have codes in ascending order; another program may have made gaps. */
static bool take_text(pj_packed_texts *texts, uint32_t number, const pj_value *text)
{
    bool is_sound = text->type == PJ_VALUE_TEXT || text->type == PJ_VALUE_BLOB;
    if (number < texts->count || number >= PJ_PACKED_TEXTS) return true;
    while (texts->count < number)
        if (!add_text(texts, NULL)) return false;
    return add_text(texts, is_sound && text->bytes <= PJ_PACKED_TEXT_BYTES ? text : NULL);
}

/* Adds the texts of the table that are not known yet. */
static pj_status read_texts(pj_packed_texts *texts, pj_error *err)
{
    bool has_memory = true;
    pj_sql *sql =
        pj_sql_begin(texts->store, "SELECT code, text FROM packed_texts ORDER BY code", err);
    while (has_memory && pj_sql_step(sql)) {
        pj_value code, text;
        if (pj_sql_get_type(sql, 0) != PJ_VALUE_BLOB) continue;
        pj_sql_get_value(sql, 0, &code);
        pj_sql_get_value(sql, 1, &text);
        if (text.type == PJ_VALUE_TEXT && !pj_utf8_valid(text.text, text.bytes))
            text.type = PJ_VALUE_BLOB;
        has_memory = code.text && take_text(texts, number_of(code.text, code.bytes), &text);
    }
    pj_status status = pj_sql_end(sql, err);
    if (status == PJ_OK && !has_memory) status = pj_fail_memory(err, "texts of the database");
    texts->is_read = status == PJ_OK;
    return status;
}

/* ---- both ways ------------------------------------------------------------------------------ */

static pj_status insert_text(pj_packed_texts *texts, const pj_value *text, pj_error *err)
{
    char code[PJ_PACKED_CODE_BYTES];
    size_t bytes = write_code(texts->count, code);
    pj_status status =
        pj_sql_change(texts->store, "INSERT INTO packed_texts (code, text) VALUES (?, ?)",
                      PJ_VALUES(pj_value_bytes(PJ_VALUE_BLOB, code, bytes), *text), err);
    if (status == PJ_OK && !add_text(texts, text))
        status = pj_fail_memory(err, "texts of the database");
    return status;
}

size_t pj_packed_texts_code(pj_packed_texts *texts, const pj_value *text, uint32_t most,
                            char code[PJ_PACKED_CODE_BYTES])
{
    pj_error *failure = &texts->failure;
    if (failure->status != PJ_OK) return 0;
    if (!texts->is_read && read_texts(texts, failure) != PJ_OK) return 0;
    uint16_t slot = *slot_of(texts, text);
    if (slot) return write_code(slot - 1U, code);
    if (texts->count >= most || text->bytes > PJ_PACKED_TEXT_BYTES) return 0;
    if (insert_text(texts, text, failure) != PJ_OK) return 0;
    return write_code(texts->count - 1, code);
}

pj_status pj_packed_texts_fail(const pj_packed_texts *texts, pj_error *err)
{
    return pj_fail(err, PJ_E_INVALID, "database %s is damaged: it lacks texts of packed rows",
                   texts->store->address);
}

pj_status pj_packed_texts_find(pj_packed_texts *texts, const char *code, size_t bytes,
                               pj_value *text, pj_error *err)
{
    uint32_t number = number_of(code, bytes);
    pj_status status = PJ_OK;
    if (number < PJ_PACKED_TEXTS && number >= texts->count) status = read_texts(texts, err);
    if (status != PJ_OK) return status;
    if (number >= texts->count || texts->texts[number].type == PJ_VALUE_NULL)
        return pj_packed_texts_fail(texts, err);
    *text = texts->texts[number];
    return PJ_OK;
}
