/* A safetensors file consists of an 8-byte little-endian length, that many bytes of JSON, then the
 * data. The header is accepted only if every tensor's size matches its shape and type exactly, and
 * the tensors cover the data without gaps, overlaps or trailing bytes. So every tensor returned is
 * inside the mapping. */
#include "engine/files/safetensors.h"
#include "base/json_scan.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_HEADER_BYTES = 100 * 1000 * 1000 };

static const struct {
    const char *name;
    pj_file_type type;
    size_t bytes;
} types[] = {
    {"F32", PJ_FILE_F32, 4},      {"F16", PJ_FILE_F16, 2},      {"BF16", PJ_FILE_BF16, 2},
    {"F64", PJ_FILE_F64, 8},      {"I64", PJ_FILE_I64, 8},      {"I32", PJ_FILE_I32, 4},
    {"I16", PJ_FILE_I16, 2},      {"I8", PJ_FILE_I8, 1},        {"U64", PJ_FILE_U64, 8},
    {"U32", PJ_FILE_U32, 4},      {"U16", PJ_FILE_U16, 2},      {"U8", PJ_FILE_U8, 1},
    {"BOOL", PJ_FILE_BOOL, 1},    {"F8_E4M3", PJ_FILE_E4M3, 1}, {"F8_E5M2", PJ_FILE_F8, 1},
    {"F8_E8M0", PJ_FILE_E8M0, 1},
};

/* A header entry before validation. */
typedef struct entry {
    bool has_type, has_shape, has_offsets;
    size_t element_bytes;
    uint64_t begin, end;
} entry;

typedef struct reader {
    pj_json_scan scan;
    const char *name; /* of the file */
    pj_arena *arena;
    pj_error *err;
    const unsigned char *data; /* after the header */
    size_t data_bytes;
    pj_tensor *tensors; /* grows with what was read, never with what the header claims */
    size_t count, capacity;
} reader;

static pj_status safetensors_read_type(reader *r, pj_tensor *tensor, entry *e)
{
    pj_json_text text;
    if (!pj_json_scan_string(&r->scan, &text)) return PJ_E_INVALID;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (!pj_json_text_is(text, types[i].name)) continue;
        tensor->type = types[i].type;
        e->element_bytes = types[i].bytes;
        e->has_type = true;
        return PJ_OK;
    }
    return pj_fail(r->err, PJ_E_INVALID, "%s: tensor %.200s has the unknown type %.*s", r->name,
                   tensor->name, (int)(text.bytes < 32 ? text.bytes : 32), text.text);
}

static pj_status safetensors_read_shape(reader *r, pj_tensor *tensor, entry *e)
{
    e->has_shape = pj_json_scan_enter(&r->scan, '[');
    tensor->rank = 0;
    while (pj_json_scan_next(&r->scan, '[')) {
        uint64_t size;
        if (!pj_json_scan_uint(&r->scan, &size)) return PJ_E_INVALID;
        if (tensor->rank == PJ_TENSOR_MAX_RANK)
            return pj_fail(r->err, PJ_E_INVALID, "%s: tensor %.200s has more than %d dimensions",
                           r->name, tensor->name, PJ_TENSOR_MAX_RANK);
        tensor->shape[tensor->rank++] = size;
    }
    return pj_json_scan_failed(&r->scan) ? PJ_E_INVALID : PJ_OK;
}

static pj_status read_offsets(reader *r, entry *e)
{
    uint64_t *const at[2] = {&e->begin, &e->end};
    int count = 0;
    pj_json_scan_enter(&r->scan, '[');
    while (pj_json_scan_next(&r->scan, '[')) {
        if (count == 2)
            pj_json_scan_fail(&r->scan, "data_offsets of more than two numbers");
        else
            pj_json_scan_uint(&r->scan, at[count++]);
    }
    if (count != 2) pj_json_scan_fail(&r->scan, "data_offsets of fewer than two numbers");
    e->has_offsets = !pj_json_scan_failed(&r->scan);
    return e->has_offsets ? PJ_OK : PJ_E_INVALID;
}

static pj_status check_entry(reader *r, pj_tensor *tensor, const entry *e)
{
    const char *missing = !e->has_type ? "dtype" : !e->has_shape ? "shape" : "data_offsets";
    if (!e->has_type || !e->has_shape || !e->has_offsets)
        return pj_fail(r->err, PJ_E_INVALID, "%s: tensor %.200s has no %s", r->name, tensor->name,
                       missing);
    size_t bytes = e->element_bytes;
    for (uint32_t i = 0; i < tensor->rank; i++)
        if (pj_mul_overflows(bytes, tensor->shape[i], &bytes))
            return pj_fail(r->err, PJ_E_INVALID, "%s: the size of tensor %.200s overflows 64 bits",
                           r->name, tensor->name);
    if (e->end < e->begin || e->end > r->data_bytes)
        return pj_fail(r->err, PJ_E_INVALID,
                       "%s: tensor %.200s is at bytes %llu to %llu of %zu bytes of data; the "
                       "file is truncated or corrupt",
                       r->name, tensor->name, (unsigned long long)e->begin,
                       (unsigned long long)e->end, r->data_bytes);
    if (e->end - e->begin != bytes)
        return pj_fail(r->err, PJ_E_INVALID,
                       "%s: tensor %.200s has %llu bytes where its shape needs %zu", r->name,
                       tensor->name, (unsigned long long)(e->end - e->begin), bytes);
    tensor->data = r->data + e->begin;
    tensor->bytes = bytes;
    return PJ_OK;
}

static pj_status safetensors_read_tensor(reader *r, pj_tensor *tensor)
{
    entry e = {0};
    pj_status status = PJ_OK;
    pj_json_scan_enter(&r->scan, '{');
    pj_json_text key;
    while (status == PJ_OK && pj_json_scan_member(&r->scan, &key)) {
        if (pj_json_text_is(key, "dtype"))
            status = safetensors_read_type(r, tensor, &e);
        else if (pj_json_text_is(key, "shape"))
            status = safetensors_read_shape(r, tensor, &e);
        else if (pj_json_text_is(key, "data_offsets"))
            status = read_offsets(r, &e);
        else
            pj_json_scan_skip(&r->scan, NULL);
    }
    if (pj_json_scan_failed(&r->scan)) return PJ_E_INVALID;
    return status == PJ_OK ? check_entry(r, tensor, &e) : status;
}

static void read_metadata(reader *r)
{
    pj_json_text text;
    pj_json_scan_enter(&r->scan, '{');
    while (pj_json_scan_member(&r->scan, &text)) pj_json_scan_string(&r->scan, &text);
}

static pj_status add_tensor(reader *r, pj_json_text name)
{
    pj_tensor *grown = pj_grow(r->tensors, r->count, &r->capacity, sizeof *grown);
    if (!grown) return pj_fail_memory(r->err, "a safetensors header");
    r->tensors = grown;
    pj_tensor *tensor = &r->tensors[r->count++];
    *tensor = (pj_tensor){.name = pj_arena_strndup(r->arena, name.text, name.bytes)};
    if (!tensor->name) return pj_fail_memory(r->err, "a safetensors header");
    if (strlen(tensor->name) != name.bytes)
        return pj_fail(r->err, PJ_E_INVALID, "%s: a tensor's name contains a NUL", r->name);
    return safetensors_read_tensor(r, tensor);
}

static pj_status safetensors_read_header(reader *r)
{
    pj_status status = PJ_OK;
    pj_json_scan_enter(&r->scan, '{');
    pj_json_text key;
    while (status == PJ_OK && pj_json_scan_member(&r->scan, &key)) {
        if (pj_json_text_is(key, "__metadata__"))
            read_metadata(r);
        else
            status = add_tensor(r, key);
    }
    if (status == PJ_OK) pj_json_scan_end(&r->scan);
    if (pj_json_scan_failed(&r->scan)) {
        pj_json_scan_error(&r->scan, r->name, r->err);
        pj_error_prefix(r->err, "safetensors header");
        return PJ_E_INVALID;
    }
    return status;
}

static pj_status check_whole(reader *r)
{
    const unsigned char *next = r->data;
    if (r->count > 0) qsort(r->tensors, r->count, sizeof *r->tensors, pj_tensor_by_offset);
    for (size_t i = 0; i < r->count; i++) {
        const pj_tensor *tensor = &r->tensors[i];
        if (tensor->data != next)
            return pj_fail(r->err, PJ_E_INVALID, "%s: tensor %.200s %s", r->name, tensor->name,
                           tensor->data < next ? "overlaps another" : "has a hole before it");
        next += tensor->bytes;
    }
    if (next != r->data + r->data_bytes)
        return pj_fail(r->err, PJ_E_INVALID, "%s has %zu bytes after its last tensor", r->name,
                       (size_t)(r->data + r->data_bytes - next));
    if (r->count > 0) qsort(r->tensors, r->count, sizeof *r->tensors, pj_tensor_by_name);
    for (size_t i = 1; i < r->count; i++)
        if (pj_tensor_by_name(&r->tensors[i - 1], &r->tensors[i]) == 0)
            return pj_fail(r->err, PJ_E_INVALID, "%s names tensor %.200s twice", r->name,
                           r->tensors[i].name);
    return PJ_OK;
}

static pj_status header_bytes(const unsigned char *file, size_t bytes, const char *name,
                              size_t *header, pj_error *err)
{
    static const char lfs[] = "version https://git-lfs";
    if (bytes >= sizeof lfs - 1 && memcmp(file, lfs, sizeof lfs - 1) == 0)
        return pj_fail(err, PJ_E_INVALID,
                       "%s is a Git LFS pointer, not the weights; fetch them with git lfs pull",
                       name);
    if (bytes < 8)
        return pj_fail(err, PJ_E_INVALID, "%s has %zu bytes, too few for a safetensors file", name,
                       bytes);
    uint64_t length = 0;
    for (int i = 7; i >= 0; i--) length = length << 8 | file[i];
    if (length > MAX_HEADER_BYTES || length > bytes - 8)
        return pj_fail(
            err, PJ_E_INVALID,
            "%s declares a header of %llu bytes in a file of %zu; it is truncated or not a "
            "safetensors file",
            name, (unsigned long long)length, bytes);
    if (length == 0 || file[8] != '{')
        return pj_fail(err, PJ_E_INVALID, "the header of %s is not a JSON object", name);
    *header = (size_t)length;
    return PJ_OK;
}

pj_status pj_safetensors_parse(const unsigned char *file, size_t bytes, const char *name,
                               pj_arena *arena, pj_tensor **tensors, uint32_t *count, pj_error *err)
{
    size_t header = 0;
    *tensors = NULL;
    *count = 0;
    pj_status status = header_bytes(file, bytes, name, &header, err);
    if (status != PJ_OK) return status;
    reader r = {.name = name,
                .arena = arena,
                .err = err,
                .data = file + 8 + header,
                .data_bytes = bytes - 8 - header};
    pj_json_scan_init(&r.scan, (const char *)file + 8, header);
    status = safetensors_read_header(&r);
    if (status == PJ_OK) status = check_whole(&r);
    if (status == PJ_OK && r.count > 0) {
        *tensors = pj_arena_alloc(arena, r.count, sizeof **tensors);
        if (*tensors)
            memcpy(*tensors, r.tensors, r.count * sizeof **tensors);
        else
            status = pj_fail_memory(err, "a safetensors header");
    }
    if (status == PJ_OK) *count = (uint32_t)r.count;
    pj_free(r.tensors);
    pj_json_scan_fini(&r.scan);
    return status;
}
