/* Zip as in the PKWARE application note: local headers, deflated data, data descriptors,
 * directory. */
#include "store/zip.h"

#include "base/memory.h"

#include <string.h>
#include <zlib.h>

enum { MAX_ENTRIES = 64, NAME_BYTES = 64, CHUNK_BYTES = 64 * 1024, STREAMED_UTF8 = 0x0808 };

typedef struct zip_entry {
    char name[NAME_BYTES];
    uint64_t offset, packed, plain;
    uint32_t crc;
} zip_entry;

struct pj_zip {
    pj_json_write_fn *write;
    void *context;
    z_stream stream;
    bool open, failed;
    uint64_t offset;
    int count;
    zip_entry entries[MAX_ENTRIES];
    unsigned char chunk[CHUNK_BYTES];
};

pj_status pj_zip_new(pj_json_write_fn *write, void *context, pj_zip **out, pj_error *err)
{
    pj_zip *zip = *out = pj_alloc(1, sizeof *zip);
    if (!zip) return pj_fail_memory(err, "a zip archive");
    zip->write = write;
    zip->context = context;
    if (deflateInit2(&zip->stream, 3, Z_DEFLATED, -15, 8, Z_DEFAULT_STRATEGY) == Z_OK) return PJ_OK;
    pj_free(zip);
    *out = NULL;
    return pj_fail_memory(err, "a zip archive");
}

static void zip_put(pj_zip *zip, const void *bytes, size_t count)
{
    if (zip->failed) return;
    if (!zip->write(zip->context, bytes, count)) zip->failed = true;
    zip->offset += count;
    if (zip->offset > UINT32_MAX) zip->failed = true;
}

/* Little-endian fields: pairs of width in bytes and value, ended by width 0. */
static size_t zip_pack(unsigned char *out, const uint64_t *fields)
{
    size_t n = 0;
    for (; fields[0]; fields += 2)
        for (uint64_t i = 0; i < fields[0]; i++) out[n++] = (unsigned char)(fields[1] >> 8 * i);
    return n;
}

/* Fields common to local headers and directory entries; time: 1980-01-01. */
#define SHARED(e, crc, packed, plain) \
    2, 20, 2, STREAMED_UTF8, 2, 8, 2, 0, 2, 0x21, 4, crc, 4, packed, 4, plain, 2, strlen((e)->name)

static void deflate_all(pj_zip *zip, int flush)
{
    zip_entry *e = &zip->entries[zip->count - 1];
    int code;
    do {
        zip->stream.next_out = zip->chunk;
        zip->stream.avail_out = CHUNK_BYTES;
        code = deflate(&zip->stream, flush);
        size_t made = CHUNK_BYTES - zip->stream.avail_out;
        e->packed += made;
        zip_put(zip, zip->chunk, made);
    } while (!zip->failed && (zip->stream.avail_out == 0 || (flush == Z_FINISH && code == Z_OK)));
}

static void zip_end_entry(pj_zip *zip)
{
    unsigned char out[32];
    if (!zip->open) return;
    zip_entry *e = &zip->entries[zip->count - 1];
    deflate_all(zip, Z_FINISH);
    deflateReset(&zip->stream);
    uint64_t fields[] = {4, 0x08074b50, 4, e->crc, 4, e->packed, 4, e->plain, 0};
    zip_put(zip, out, zip_pack(out, fields));
    zip->open = false;
}

static pj_status zip_status(const pj_zip *zip, pj_error *err)
{
    if (!zip->failed) return PJ_OK;
    return pj_fail(err, PJ_E_IO, "the zip archive could not be written completely%s",
                   zip->offset > UINT32_MAX ? ": it would exceed 4 GiB, export JSON instead" : "");
}

pj_status pj_zip_entry(pj_zip *zip, const char *name, pj_error *err)
{
    unsigned char out[64];
    zip_end_entry(zip);
    if (zip->count == MAX_ENTRIES || strlen(name) >= NAME_BYTES)
        return pj_fail(err, PJ_E_INTERNAL, "the zip archive has no room for %s", name);
    zip_entry *e = &zip->entries[zip->count++];
    *e = (zip_entry){.offset = zip->offset, .crc = (uint32_t)crc32(0, NULL, 0)};
    memcpy(e->name, name, strlen(name));
    uint64_t fields[] = {4, 0x04034b50, SHARED(e, 0, 0, 0), 2, 0, 0};
    zip_put(zip, out, zip_pack(out, fields));
    zip_put(zip, e->name, strlen(e->name));
    zip->open = true;
    return zip_status(zip, err);
}

bool pj_zip_write(void *context, const char *bytes, size_t count)
{
    pj_zip *zip = context;
    if (!zip->open || zip->failed) return false;
    zip_entry *e = &zip->entries[zip->count - 1];
    while (count > 0) {
        uInt part = count > 1 << 30 ? 1 << 30 : (uInt)count;
        e->crc = (uint32_t)crc32(e->crc, (const Bytef *)bytes, part);
        e->plain += part;
        zip->stream.next_in = (z_const Bytef *)(uintptr_t)bytes;
        zip->stream.avail_in = part;
        deflate_all(zip, Z_NO_FLUSH);
        bytes += part;
        count -= part;
    }
    if (e->plain > UINT32_MAX) zip->failed = true;
    return !zip->failed;
}

pj_status pj_zip_finish(pj_zip *zip, pj_error *err)
{
    unsigned char out[64];
    if (zip->count) zip_end_entry(zip);
    uint64_t directory = zip->offset;
    for (int i = 0; i < zip->count; i++) {
        const zip_entry *e = &zip->entries[i];
        uint64_t fields[] = {4, 0x02014b50, 2, 20, SHARED(e, e->crc, e->packed, e->plain),
                             2, 0,          2, 0,  2,
                             0, 2,          0, 4,  0,
                             4, e->offset,  0};
        zip_put(zip, out, zip_pack(out, fields));
        zip_put(zip, e->name, strlen(e->name));
    }
    uint64_t end[] = {4, 0x06054b50,
                      2, 0,
                      2, 0,
                      2, (uint64_t)zip->count,
                      2, (uint64_t)zip->count,
                      4, zip->offset - directory,
                      4, directory,
                      2, 0,
                      0};
    zip_put(zip, out, zip_pack(out, end));
    return zip_status(zip, err);
}

void pj_zip_free(pj_zip *zip)
{
    if (!zip) return;
    deflateEnd(&zip->stream);
    pj_free(zip);
}
