/* Parses a GGUF header: magic, version, two counts, then key-value pairs, then tensor descriptions,
 * all of variable length. A cursor walks the file once and stops at the first invalid entry; tables
 * grow with what has been read, never with what the counts claim. */
#include "engine/files/gguf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_KEY_BYTES = 65535,
    MAX_NAME_BYTES = 64, /* of a tensor */
    MAX_RANK = 4,
    MAX_NESTING = 8,
    DEFAULT_ALIGNMENT = 32
};

/* ---- types -------------------------------------------------------------------------------- */

/* Size of a scalar; 0 for strings and arrays. */
static const uint8_t scalar_bytes[PJ_GGUF_TYPE_COUNT] = {
    [PJ_GGUF_U8] = 1,  [PJ_GGUF_I8] = 1,  [PJ_GGUF_U16] = 2, [PJ_GGUF_I16] = 2,
    [PJ_GGUF_U32] = 4, [PJ_GGUF_I32] = 4, [PJ_GGUF_F32] = 4, [PJ_GGUF_BOOL] = 1,
    [PJ_GGUF_U64] = 8, [PJ_GGUF_I64] = 8, [PJ_GGUF_F64] = 8,
};

/* Tensor types by their number in the file. Unsupported types are listed too, so that the error can
 * name them. */
static const struct {
    const char *name;
    pj_file_type type;
    uint32_t values, bytes; /* of a block; bytes 0: not supported */
} tensor_types[] = {
    [0] = {"F32", PJ_FILE_F32, 1, 4},
    [1] = {"F16", PJ_FILE_F16, 1, 2},
    [2] = {"Q4_0", PJ_FILE_Q4_0, 32, 18},
    [3] = {"Q4_1", PJ_FILE_Q4_1, 32, 20},
    [6] = {"Q5_0", PJ_FILE_Q5_0, 32, 22},
    [7] = {"Q5_1", PJ_FILE_Q5_1, 32, 24},
    [8] = {"Q8_0", PJ_FILE_Q8_0, 32, 34},
    [9] = {"Q8_1"},
    [10] = {"Q2_K", PJ_FILE_Q2_K, 256, 84},
    [11] = {"Q3_K", PJ_FILE_Q3_K, 256, 110},
    [12] = {"Q4_K", PJ_FILE_Q4_K, 256, 144},
    [13] = {"Q5_K", PJ_FILE_Q5_K, 256, 176},
    [14] = {"Q6_K", PJ_FILE_Q6_K, 256, 210},
    [15] = {"Q8_K"},
    [16] = {"IQ2_XXS", PJ_FILE_IQ2_XXS, 256, 66},
    [17] = {"IQ2_XS", PJ_FILE_IQ2_XS, 256, 74},
    [18] = {"IQ3_XXS", PJ_FILE_IQ3_XXS, 256, 98},
    [19] = {"IQ1_S", PJ_FILE_IQ1_S, 256, 50},
    [20] = {"IQ4_NL", PJ_FILE_IQ4_NL, 32, 18},
    [21] = {"IQ3_S", PJ_FILE_IQ3_S, 256, 110},
    [22] = {"IQ2_S", PJ_FILE_IQ2_S, 256, 82},
    [23] = {"IQ4_XS", PJ_FILE_IQ4_XS, 256, 136},
    [24] = {"I8", PJ_FILE_I8, 1, 1},
    [25] = {"I16", PJ_FILE_I16, 1, 2},
    [26] = {"I32", PJ_FILE_I32, 1, 4},
    [27] = {"I64", PJ_FILE_I64, 1, 8},
    [28] = {"F64", PJ_FILE_F64, 1, 8},
    [29] = {"IQ1_M", PJ_FILE_IQ1_M, 256, 56},
    [30] = {"BF16", PJ_FILE_BF16, 1, 2},
    [31] = {"Q4_0_4_4"},
    [32] = {"Q4_0_4_8"},
    [33] = {"Q4_0_8_8"},
    [34] = {"TQ1_0", PJ_FILE_TQ1_0, 256, 54},
    [35] = {"TQ2_0", PJ_FILE_TQ2_0, 256, 66},
    [36] = {"IQ4_NL_4_4"},
    [37] = {"IQ4_NL_4_8"},
    [38] = {"IQ4_NL_8_8"},
    [39] = {"MXFP4", PJ_FILE_MXFP4, 32, 17},
    [40] = {"NVFP4", PJ_FILE_NVFP4, 64, 36},
    [41] = {"Q1_0", PJ_FILE_Q1_0, 128, 18},
    [42] = {"Q2_0", PJ_FILE_Q2_0, 64, 18},
};

/* ---- the cursor --------------------------------------------------------------------------- */

typedef struct reader {
    const unsigned char *file, *at, *end;
    const char *name;
    pj_arena *arena;
    pj_error *err;
    pj_gguf_entry *entries;
    pj_tensor *tensors; /* `data` is an offset until the start of the data is known */
    uint64_t *offsets;
    size_t entry_count, entry_capacity, tensor_count, tensor_capacity, offset_capacity;
} reader;

static pj_status cut_off(const reader *r, const char *what)
{
    return pj_fail(r->err, PJ_E_INVALID, "%s ends within %s; it is truncated or corrupt", r->name,
                   what);
}

/* The next `bytes` bytes, or NULL if fewer are left. */
static const unsigned char *gguf_take(reader *r, uint64_t bytes)
{
    const unsigned char *block = r->at;
    if (bytes > (uint64_t)(r->end - r->at)) return NULL;
    r->at += bytes;
    return block;
}

static uint64_t gguf_load(const unsigned char *at, size_t bytes)
{
    uint64_t value = 0;
    for (size_t i = bytes; i-- > 0;) value = value << 8 | at[i];
    return value;
}

static bool take_u32(reader *r, uint32_t *value)
{
    const unsigned char *at = gguf_take(r, 4);
    if (at) *value = (uint32_t)gguf_load(at, 4);
    return at != NULL;
}

static bool take_u64(reader *r, uint64_t *value)
{
    const unsigned char *at = gguf_take(r, 8);
    if (at) *value = gguf_load(at, 8);
    return at != NULL;
}

static bool gguf_take_text(reader *r, pj_gguf_text *text)
{
    uint64_t bytes;
    if (!take_u64(r, &bytes)) return false;
    text->text = (const char *)gguf_take(r, bytes);
    text->bytes = (size_t)bytes;
    return text->text != NULL;
}

/* Copies a name; an error if it contains a NUL or is longer than `max`. */
static pj_status copy_name(reader *r, pj_gguf_text text, size_t max, const char *what,
                           const char **copy)
{
    if (text.bytes == 0 || text.bytes > max || memchr(text.text, 0, text.bytes))
        return pj_fail(r->err, PJ_E_INVALID,
                       "%s: the name of a %s is %zu bytes long or contains a NUL", r->name, what,
                       text.bytes);
    *copy = pj_arena_strndup(r->arena, text.text, text.bytes);
    return *copy ? PJ_OK : pj_fail_memory(r->err, "a GGUF header");
}

/* ---- metadata ----------------------------------------------------------------------------- */

static bool is_type(uint32_t type)
{
    return type < PJ_GGUF_TYPE_COUNT;
}

/* Skips `count` values of a type; false when they exceed the file. Nested arrays have their own
 * type and count. */
static bool skip_values(reader *r, uint32_t type, uint64_t count, int depth)
{
    size_t bytes;
    pj_gguf_text text;
    if (!is_type(type) || depth > MAX_NESTING) return false;
    if (scalar_bytes[type])
        return !pj_mul_overflows(count, scalar_bytes[type], &bytes) && gguf_take(r, bytes);
    for (uint64_t i = 0; i < count; i++) {
        uint32_t inner;
        uint64_t items;
        if (type == PJ_GGUF_STRING ? !gguf_take_text(r, &text)
                                   : !take_u32(r, &inner) || !take_u64(r, &items) ||
                                         !skip_values(r, inner, items, depth + 1))
            return false;
    }
    return true;
}

static pj_status gguf_read_value(reader *r, const char *key, pj_gguf_value *value)
{
    uint32_t type;
    value->count = 1;
    if (!take_u32(r, &type)) return cut_off(r, "its metadata");
    value->is_array = type == PJ_GGUF_ARRAY;
    if (value->is_array && (!take_u32(r, &type) || !take_u64(r, &value->count)))
        return cut_off(r, "its metadata");
    if (!is_type(type))
        return pj_fail(r->err, PJ_E_INVALID, "%s: %.200s has the unknown value type %u", r->name,
                       key, type);
    value->type = (pj_gguf_type)type;
    value->data = r->at;
    if (!skip_values(r, type, value->count, 0))
        return pj_fail(r->err, PJ_E_INVALID,
                       "%s: the value of %.200s does not lie within the file; it is truncated "
                       "or corrupt",
                       r->name, key);
    if (type == PJ_GGUF_BOOL && !value->is_array && value->data[0] > 1)
        return pj_fail(r->err, PJ_E_INVALID, "%s: %.200s must be true or false", r->name, key);
    return PJ_OK;
}

static pj_status read_entry(reader *r)
{
    pj_gguf_text key;
    if (!gguf_take_text(r, &key)) return cut_off(r, "its metadata");
    pj_gguf_entry *entries =
        pj_grow(r->entries, r->entry_count, &r->entry_capacity, sizeof *entries);
    if (!entries) return pj_fail_memory(r->err, "a GGUF header");
    r->entries = entries;
    pj_gguf_entry *entry = &r->entries[r->entry_count++];
    *entry = (pj_gguf_entry){0};
    pj_status status = copy_name(r, key, MAX_KEY_BYTES, "key", &entry->key);
    return status == PJ_OK ? gguf_read_value(r, entry->key, &entry->value) : status;
}

static int gguf_by_key(const void *a, const void *b)
{
    return strcmp(((const pj_gguf_entry *)a)->key, ((const pj_gguf_entry *)b)->key);
}

static pj_status gguf_read_entries(reader *r, uint64_t count)
{
    pj_status status = PJ_OK;
    for (uint64_t i = 0; status == PJ_OK && i < count; i++) status = read_entry(r);
    if (status != PJ_OK) return status;
    if (r->entry_count > 0) qsort(r->entries, r->entry_count, sizeof *r->entries, gguf_by_key);
    for (size_t i = 1; i < r->entry_count; i++)
        if (gguf_by_key(&r->entries[i - 1], &r->entries[i]) == 0)
            return pj_fail(r->err, PJ_E_INVALID, "%s has the key %.200s twice", r->name,
                           r->entries[i].key);
    return PJ_OK;
}

/* ---- tensors ------------------------------------------------------------------------------ */

static pj_status set_type(reader *r, pj_tensor *tensor, uint32_t type, uint64_t *row)
{
    bool known = type < sizeof tensor_types / sizeof *tensor_types && tensor_types[type].name;
    if (!known)
        return pj_fail(r->err, PJ_E_INVALID, "%s: tensor %s has the unknown type %u", r->name,
                       tensor->name, type);
    if (tensor_types[type].bytes == 0)
        return pj_fail(r->err, PJ_E_UNSUPPORTED,
                       "%s: tensor %s is %s, which is not supported; use a file of another "
                       "quantisation, such as Q4_K_M or IQ4_XS",
                       r->name, tensor->name, tensor_types[type].name);
    if (*row % tensor_types[type].values != 0)
        return pj_fail(
            r->err, PJ_E_INVALID,
            "%s: tensor %s has rows of %llu values, which is not a multiple of the block of %s",
            r->name, tensor->name, (unsigned long long)*row, tensor_types[type].name);
    tensor->type = tensor_types[type].type;
    *row /= tensor_types[type].values;
    tensor->bytes = tensor_types[type].bytes;
    return PJ_OK;
}

/* The file stores the fastest dimension first; our shapes have it last. */
static pj_status gguf_read_shape(reader *r, pj_tensor *tensor, uint64_t sizes[MAX_RANK])
{
    if (!take_u32(r, &tensor->rank)) return cut_off(r, "its list of tensors");
    if (tensor->rank > MAX_RANK)
        return pj_fail(r->err, PJ_E_INVALID, "%s: tensor %s has %u dimensions, more than %d",
                       r->name, tensor->name, tensor->rank, MAX_RANK);
    for (uint32_t i = 0; i < MAX_RANK; i++) sizes[i] = 1;
    for (uint32_t i = 0; i < tensor->rank; i++) {
        if (!take_u64(r, &sizes[i])) return cut_off(r, "its list of tensors");
        tensor->shape[tensor->rank - 1 - i] = sizes[i];
    }
    return PJ_OK;
}

static pj_status gguf_read_tensor(reader *r)
{
    pj_gguf_text name;
    uint64_t sizes[MAX_RANK], offset;
    uint32_t type;
    if (!gguf_take_text(r, &name)) return cut_off(r, "its list of tensors");
    pj_tensor *tensors = pj_grow(r->tensors, r->tensor_count, &r->tensor_capacity, sizeof *tensors);
    if (tensors) r->tensors = tensors;
    uint64_t *offsets = pj_grow(r->offsets, r->tensor_count, &r->offset_capacity, sizeof *offsets);
    if (offsets) r->offsets = offsets;
    if (!tensors || !offsets) return pj_fail_memory(r->err, "a GGUF header");
    pj_tensor *tensor = &r->tensors[r->tensor_count];
    *tensor = (pj_tensor){0};
    pj_status status = copy_name(r, name, MAX_NAME_BYTES, "tensor", &tensor->name);
    if (status == PJ_OK) status = gguf_read_shape(r, tensor, sizes);
    if (status != PJ_OK) return status;
    if (!take_u32(r, &type) || !take_u64(r, &offset)) return cut_off(r, "its list of tensors");
    status = set_type(r, tensor, type, &sizes[0]);
    for (int i = 0; status == PJ_OK && i < MAX_RANK; i++)
        if (pj_mul_overflows(tensor->bytes, sizes[i], &tensor->bytes))
            status = pj_fail(r->err, PJ_E_INVALID, "%s: the size of tensor %s overflows 64 bits",
                             r->name, tensor->name);
    r->offsets[r->tensor_count++] = offset;
    return status;
}

/* ---- the data ----------------------------------------------------------------------------- */

static pj_status read_alignment(const reader *r, const pj_gguf *gguf, uint64_t *alignment)
{
    const pj_gguf_value *value = pj_gguf_find(gguf, "general.alignment");
    int64_t number = DEFAULT_ALIGNMENT;
    bool right = !value || (!value->is_array && pj_gguf_integer(value, 0, &number));
    if (!right || number <= 0 || number % 8 != 0 || number > 1 << 30)
        return pj_fail(r->err, PJ_E_INVALID,
                       "%s: general.alignment must be a multiple of 8 between 8 and 2^30", r->name);
    *alignment = (uint64_t)number;
    return PJ_OK;
}

static pj_status gguf_place(reader *r, uint64_t alignment)
{
    size_t header = (size_t)(r->at - r->file), bytes = (size_t)(r->end - r->file);
    size_t padding = (size_t)((alignment - header % alignment) % alignment);
    size_t room = padding < bytes - header ? bytes - header - padding : 0;
    for (size_t i = 0; i < r->tensor_count; i++) {
        pj_tensor *tensor = &r->tensors[i];
        uint64_t offset = r->offsets[i];
        if (offset > room || tensor->bytes > room - offset)
            return pj_fail(r->err, PJ_E_INVALID,
                           "%s: tensor %s is at %llu with %zu bytes, beyond the %zu bytes of "
                           "data; the file is truncated or corrupt",
                           r->name, tensor->name, (unsigned long long)offset, tensor->bytes, room);
        if (offset % alignment != 0)
            return pj_fail(
                r->err, PJ_E_INVALID,
                "%s: tensor %s is at %llu, which is not a multiple of the alignment %llu", r->name,
                tensor->name, (unsigned long long)offset, (unsigned long long)alignment);
        /* empty tensors of a file without data point to its end */
        tensor->data = room > 0 ? r->at + padding + offset : r->end;
    }
    return PJ_OK;
}

/* Checks that tensors share no bytes and no names; sorts them by name. */
static pj_status check_tensors(reader *r)
{
    pj_tensor *t = r->tensors;
    if (r->tensor_count == 0) return PJ_OK;
    qsort(t, r->tensor_count, sizeof *t, pj_tensor_by_offset);
    for (size_t i = 1; i < r->tensor_count; i++)
        if (t[i - 1].data + t[i - 1].bytes > t[i].data)
            return pj_fail(r->err, PJ_E_INVALID, "%s: tensor %s overlaps %s", r->name, t[i].name,
                           t[i - 1].name);
    qsort(t, r->tensor_count, sizeof *t, pj_tensor_by_name);
    for (size_t i = 1; i < r->tensor_count; i++)
        if (pj_tensor_by_name(&t[i - 1], &t[i]) == 0)
            return pj_fail(r->err, PJ_E_INVALID, "%s names tensor %s twice", r->name, t[i].name);
    return PJ_OK;
}

/* ---- the whole header --------------------------------------------------------------------- */

bool pj_gguf_has_magic(const unsigned char *file, size_t bytes)
{
    return bytes >= 4 && memcmp(file, "GGUF", 4) == 0;
}

bool pj_gguf_is_later_part(const char *file)
{
    size_t length = strlen(file);
    unsigned part, parts;
    int end = 0;
    if (length < 20) return false;
    const char *tail = file + length - 20; /* "-00002-of-00003.gguf" */
    bool is_part = sscanf(tail, "-%5u-of-%5u.gguf%n", &part, &parts, &end) == 2 && end == 20;
    return is_part && part > 1 && part <= parts;
}

static pj_status read_start(reader *r, uint32_t *version, uint64_t *tensors, uint64_t *entries)
{
    static const char lfs[] = "version https://git-lfs";
    size_t bytes = (size_t)(r->end - r->file);
    if (bytes >= sizeof lfs - 1 && memcmp(r->file, lfs, sizeof lfs - 1) == 0)
        return pj_fail(r->err, PJ_E_INVALID,
                       "%s is a Git LFS pointer, not the weights; fetch them with git lfs pull",
                       r->name);
    if (!pj_gguf_has_magic(r->file, bytes))
        return pj_fail(r->err, PJ_E_INVALID, "%s is not a GGUF file (bad magic)", r->name);
    r->at += 4;
    if (!take_u32(r, version)) return cut_off(r, "its first bytes");
    if (*version != 0 && (*version & 0xffff) == 0)
        return pj_fail(r->err, PJ_E_UNSUPPORTED,
                       "%s is a big-endian GGUF file, which is not supported", r->name);
    if (*version != 2 && *version != 3)
        return pj_fail(r->err, *version == 1 ? PJ_E_UNSUPPORTED : PJ_E_INVALID,
                       "%s is of GGUF version %u; 2 and 3 are supported", r->name, *version);
    if (!take_u64(r, tensors) || !take_u64(r, entries)) return cut_off(r, "its first bytes");
    return PJ_OK;
}

static pj_status gguf_read_file(reader *r, pj_gguf *gguf)
{
    uint64_t tensors = 0, entries = 0, alignment = DEFAULT_ALIGNMENT;
    pj_status status = read_start(r, &gguf->version, &tensors, &entries);
    if (status == PJ_OK) status = gguf_read_entries(r, entries);
    if (status != PJ_OK) return status;
    pj_gguf so_far = {.entries = r->entries, .entry_count = (uint32_t)r->entry_count};
    status = read_alignment(r, &so_far, &alignment);
    for (uint64_t i = 0; status == PJ_OK && i < tensors; i++) status = gguf_read_tensor(r);
    if (status == PJ_OK) status = gguf_place(r, alignment);
    return status == PJ_OK ? check_tensors(r) : status;
}

static pj_status gguf_keep(reader *r, pj_gguf *gguf)
{
    gguf->entries = pj_arena_alloc(r->arena, r->entry_count + 1, sizeof *gguf->entries);
    gguf->tensors = pj_arena_alloc(r->arena, r->tensor_count + 1, sizeof *gguf->tensors);
    if (!gguf->entries || !gguf->tensors) return pj_fail_memory(r->err, "a GGUF header");
    if (r->entry_count) memcpy(gguf->entries, r->entries, r->entry_count * sizeof *r->entries);
    if (r->tensor_count) memcpy(gguf->tensors, r->tensors, r->tensor_count * sizeof *r->tensors);
    gguf->entry_count = (uint32_t)r->entry_count;
    gguf->tensor_count = (uint32_t)r->tensor_count;
    return PJ_OK;
}

pj_status pj_gguf_parse(const unsigned char *file, size_t bytes, const char *name, pj_arena *arena,
                        pj_gguf *gguf, pj_error *err)
{
    *gguf = (pj_gguf){0};
    if (bytes == 0) return pj_fail(err, PJ_E_INVALID, "%s is empty, not a GGUF file", name);
    reader r = {
        .file = file, .at = file, .end = file + bytes, .name = name, .arena = arena, .err = err};
    pj_status status = gguf_read_file(&r, gguf);
    if (status == PJ_OK) status = gguf_keep(&r, gguf);
    pj_free(r.entries);
    pj_free(r.tensors);
    pj_free(r.offsets);
    return status;
}

/* ---- values ------------------------------------------------------------------------------- */

const pj_gguf_value *pj_gguf_find(const pj_gguf *gguf, const char *key)
{
    pj_gguf_entry wanted = {.key = key};
    if (gguf->entry_count == 0) return NULL;
    const pj_gguf_entry *found =
        bsearch(&wanted, gguf->entries, gguf->entry_count, sizeof wanted, gguf_by_key);
    return found ? &found->value : NULL;
}

bool pj_gguf_integer(const pj_gguf_value *value, uint64_t index, int64_t *number)
{
    if (index >= value->count) return false;
    size_t bytes = scalar_bytes[value->type];
    const unsigned char *at = value->data + index * bytes;
    switch (value->type) {
    case PJ_GGUF_U8:
    case PJ_GGUF_U16:
    case PJ_GGUF_U32:
    case PJ_GGUF_U64: *number = (int64_t)gguf_load(at, bytes); return *number >= 0;
    case PJ_GGUF_I8: *number = (int64_t)(gguf_load(at, 1) ^ 0x80) - 0x80; return true;
    case PJ_GGUF_I16: *number = (int16_t)gguf_load(at, 2); return true;
    case PJ_GGUF_I32: *number = (int32_t)gguf_load(at, 4); return true;
    case PJ_GGUF_I64: *number = (int64_t)gguf_load(at, 8); return true;
    default: return false;
    }
}

bool pj_gguf_number(const pj_gguf_value *value, uint64_t index, double *number)
{
    int64_t whole;
    float single;
    if (index >= value->count) return false;
    if (value->type == PJ_GGUF_F32) {
        memcpy(&single, value->data + 4 * index, 4);
        *number = single;
        return true;
    }
    if (value->type == PJ_GGUF_F64) {
        memcpy(number, value->data + 8 * index, 8);
        return true;
    }
    if (!pj_gguf_integer(value, index, &whole)) return false;
    *number = (double)whole;
    return true;
}

bool pj_gguf_bool(const pj_gguf_value *value, bool *flag)
{
    if (value->is_array || value->type != PJ_GGUF_BOOL) return false;
    *flag = value->data[0] != 0;
    return true;
}

bool pj_gguf_string(const pj_gguf_value *value, pj_gguf_text *text)
{
    const unsigned char *at = value->data;
    if (value->is_array || value->type != PJ_GGUF_STRING) return false;
    *text = pj_gguf_next_string(&at);
    return true;
}

pj_gguf_text pj_gguf_next_string(const unsigned char **at)
{
    pj_gguf_text text = {(const char *)*at + 8, (size_t)gguf_load(*at, 8)};
    *at += 8 + text.bytes;
    return text;
}

bool pj_gguf_text_is(pj_gguf_text text, const char *word)
{
    return strlen(word) == text.bytes && memcmp(text.text, word, text.bytes) == 0;
}
