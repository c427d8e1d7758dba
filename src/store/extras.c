/* Extra figures to and from JSON. A hand-written writer, because a deep run has millions of
 * them. */
#include "store/extras.h"

#include "base/decimal.h"
#include "base/utf8.h"
#include "store/packing.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

enum { MAX_ELEMENTS = 1 << 16, MAX_NAMES = 64 };

static const char place = PJ_PACKED_PLACE[0];

/* Where an object is written: all of it, or without the numbers, which follow apart. */
typedef struct extras_writer {
    pj_buffer *text;
    pj_buffer *figures; /* NULL: numbers are part of the text */
    bool has_no_form;   /* packed */
} extras_writer;

/* Views can unpack 0, -0 and the floats of pj_code_has_float. */
static void put_figure(extras_writer *w, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint32_t magnitude = bits & 0x7fffffff;
    if (magnitude && !pj_code_has_float(magnitude)) w->has_no_form = true;
    const char bytes[] = {(char)(bits >> 24), (char)(bits >> 16), (char)(bits >> 8), (char)bits};
    pj_buffer_append(w->figures, bytes, sizeof bytes);
    pj_buffer_append(w->text, &place, 1);
}

static void extras_put_number(extras_writer *w, double value)
{
    char text[PJ_DECIMAL_BYTES];
    float rounded = (float)value;
    if (!isfinite(rounded))
        pj_buffer_append(w->text, "null", 4);
    else if (w->figures)
        put_figure(w, rounded);
    else
        pj_buffer_append(w->text, text, pj_decimal_float(rounded, text));
}

static void extras_put_name(extras_writer *w, const char *name)
{
    pj_buffer_append(w->text, "\"", 1);
    size_t bytes = strlen(name), n;
    for (const char *c = name, *end = name + bytes; c < end; c += n) {
        uint32_t code_point;
        n = pj_utf8_next(c, (size_t)(end - c), &code_point);
        bool plain = n > 1 || (n && *c >= 0x20 && *c != '"' && *c != '\\' && *c != 0x7f);
        if (n == 0) n = 1;
        if (*c == place) w->has_no_form = true;
        pj_buffer_append(w->text, plain ? c : "_", plain ? n : 1);
    }
    pj_buffer_append(w->text, "\":", 2);
}

/* Names are interned by the recorder, so comparing pointers nearly always suffices. */
static bool same_name(const char *a, const char *b)
{
    return a == b || (*a == *b && strcmp(a, b) == 0);
}

/* Writes the elements of `name`, starting at extras[0]; gaps become null. */
static void extras_put_array(extras_writer *w, const char *name, const pj_extra_row *extras,
                             uint32_t count)
{
    uint32_t next = 0;
    pj_buffer_append(w->text, "[", 1);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t index = extras[i].index;
        if (!same_name(extras[i].name, name) || index < next || index >= MAX_ELEMENTS) continue;
        for (; next < index; next++)
            pj_buffer_append(w->text, next ? ",null" : "null", next ? 5 : 4);
        if (next++) pj_buffer_append(w->text, ",", 1);
        extras_put_number(w, extras[i].value);
    }
    pj_buffer_append(w->text, "]", 1);
}

static bool extras_is_known(const char *const *names, uint32_t count, const char *name)
{
    for (uint32_t i = 0; i < count; i++)
        if (same_name(names[i], name)) return true;
    return false;
}

/* Recorders interleave arrays (all figures of head 0, then of head 1): gathers them by name. */
static bool put_object(extras_writer *w, const pj_extra_row *extras, uint32_t count)
{
    const char *names[MAX_NAMES];
    uint32_t known = 0;
    pj_buffer_append(w->text, "{", 1);
    for (uint32_t i = 0; i < count && known < MAX_NAMES; i++) {
        const char *name = extras[i].name;
        if (extras_is_known(names, known, name)) continue;
        if (known) pj_buffer_append(w->text, ",", 1);
        names[known++] = name;
        extras_put_name(w, name);
        if (extras[i].index == PJ_EXTRA_SCALAR)
            extras_put_number(w, extras[i].value);
        else
            extras_put_array(w, name, extras + i, count - i);
    }
    return pj_buffer_append(w->text, "}", 1);
}

bool pj_extras_write(pj_buffer *buffer, const pj_extra_row *extras, uint32_t count)
{
    return put_object(&(extras_writer){.text = buffer}, extras, count);
}

/* ---- packed ---------------------------------------------------------------------------------- */

bool pj_extras_pack(pj_packed_texts *texts, const pj_extra_row *extras, uint32_t count,
                    pj_buffer *text, pj_buffer *out)
{
    static const char room[PJ_PACKED_CODE_BYTES] = {0};
    extras_writer w = {.text = text, .figures = out};
    char code[PJ_PACKED_CODE_BYTES];
    pj_buffer_clear(out);
    pj_buffer_append(out, room, sizeof room);
    if (!put_object(&w, extras, count) || out->failed || w.has_no_form) return false;
    const pj_value object = pj_value_bytes(PJ_VALUE_TEXT, text->data, text->length);
    size_t bytes = pj_packed_texts_code(texts, &object, PJ_PACKED_FORMS, code);
    if (bytes == 0) return false;
    memcpy(out->data, code, bytes);
    if (bytes < sizeof code) {
        memmove(out->data + bytes, out->data + sizeof code, out->length - sizeof code);
        out->length -= sizeof code - bytes;
    }
    return true;
}

static float read_figure(const char *at)
{
    uint32_t bits = 0;
    float value;
    for (int i = 0; i < 4; i++) bits = bits << 8 | (uint8_t)at[i];
    memcpy(&value, &bits, sizeof value);
    return value;
}

pj_status pj_extras_unpack(pj_packed_texts *texts, pj_arena *made, pj_value *value, pj_error *err)
{
    const char *packed = value->text;
    size_t code = value->bytes % sizeof(float), left = value->bytes - code, places = 0;
    pj_value object = {0};
    pj_status status = pj_packed_texts_find(texts, packed, code, &object, err);
    if (status != PJ_OK) return status;
    for (size_t i = 0; i < object.bytes; i++) places += object.text[i] == place;
    if (places * sizeof(float) != left) return pj_packed_texts_fail(texts, err);
    char *text = pj_arena_alloc(made, object.bytes + places * PJ_DECIMAL_BYTES + 1, 1), *to = text;
    if (!text) return pj_fail_memory(err, "extra figures");
    packed += code;
    for (size_t i = 0; i < object.bytes; i++) {
        if (object.text[i] != place) {
            *to++ = object.text[i];
            continue;
        }
        float figure = read_figure(packed);
        packed += sizeof(float);
        if (!isfinite(figure)) return pj_packed_texts_fail(texts, err);
        to += pj_decimal_float(figure, to);
    }
    *value = pj_value_bytes(PJ_VALUE_TEXT, text, (size_t)(to - text));
    return PJ_OK;
}

/* ---- reading ------------------------------------------------------------------------------- */

static pj_extra_row *extras_add(pj_extra_list *list)
{
    if (list->count == list->capacity) {
        uint32_t capacity = list->capacity ? list->capacity * 2 : 256;
        if (capacity < list->capacity) return NULL;
        pj_extra_row *rows = pj_resize(list->rows, capacity, sizeof *rows);
        if (!rows) return NULL;
        list->rows = rows;
        list->capacity = capacity;
    }
    return &list->rows[list->count++];
}

/* Names repeat from row to row: searches a few rows back before copying. */
static const char *extras_intern(const pj_extra_list *list, const char *name, pj_arena *arena)
{
    uint32_t back = list->count < 1024 ? list->count : 1024;
    const char *last = NULL;
    for (uint32_t i = 1; i <= back; i++) {
        const char *known = list->rows[list->count - i].name;
        if (known == last) continue;
        if (strcmp(known, name) == 0) return known;
        last = known;
    }
    return pj_arena_strndup(arena, name, strlen(name));
}

static bool add_value(pj_extra_list *list, const char *name, uint32_t index, const json_t *value)
{
    if (!json_is_number(value) && !json_is_null(value)) return false;
    pj_extra_row *row = extras_add(list);
    if (!row) return false;
    *row = (pj_extra_row){name, index, json_is_null(value) ? NAN : json_number_value(value)};
    return true;
}

static bool extras_read_member(const char *key, const json_t *value, pj_extra_list *list,
                               pj_arena *arena)
{
    const char *name = extras_intern(list, key, arena);
    if (!name) return false;
    if (!json_is_array(value)) return add_value(list, name, PJ_EXTRA_SCALAR, value);
    if (json_array_size(value) > MAX_ELEMENTS) return false;
    for (size_t i = 0; i < json_array_size(value); i++)
        if (!add_value(list, name, (uint32_t)i, json_array_get(value, i))) return false;
    return true;
}

bool pj_extras_read(const char *text, size_t bytes, pj_extra_list *list, pj_arena *arena)
{
    json_t *object = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, NULL);
    bool good = json_is_object(object);
    const char *key;
    json_t *value;
    if (good) json_object_foreach(object, key, value)
        {
            good = extras_read_member(key, value, list, arena);
            if (!good) break;
        }
    json_decref(object);
    return good;
}

bool pj_extras_set(pj_extra_list *list, const pj_value *value, void *row, size_t offset,
                   pj_arena *arena)
{
    uint32_t range[2] = {list->count, 0};
    if (value->type == PJ_VALUE_TEXT) {
        if (!pj_extras_read(value->text, value->bytes, list, arena)) return false;
        range[1] = list->count - range[0];
    }
    memcpy((unsigned char *)row + offset, range, sizeof range);
    return true;
}

pj_status pj_extras_take(pj_extra_list *list, pj_run_data *data, pj_error *err)
{
    if (list->count == 0) return PJ_OK;
    data->extras = pj_arena_alloc(&data->arena, list->count, sizeof *data->extras);
    if (!data->extras) return pj_fail_memory(err, "the figures of a run");
    memcpy(data->extras, list->rows, list->count * sizeof *data->extras);
    data->extra_count = list->count;
    return PJ_OK;
}
