#include "http/gzip.h"

#include "base/buffer.h"
#include "base/memory.h"

#include <limits.h>
#include <zlib.h>

enum { CHUNK_BYTES = 32 << 10, GZIP_WINDOW = 15 + 16 /* zlib: with gzip's header and trailer */ };

struct pj_gzip {
    z_stream stream;
    pj_json_write_fn *write;
    void *context;
    bool failed;
    unsigned char chunk[CHUNK_BYTES];
};

pj_status pj_gzip_new(int level, pj_json_write_fn *write, void *context, pj_gzip **gzip,
                      pj_error *err)
{
    pj_gzip *z = pj_alloc(1, sizeof *z);
    *gzip = z;
    if (!z) return pj_fail_memory(err, "compression");
    z->write = write;
    z->context = context;
    if (deflateInit2(&z->stream, level, Z_DEFLATED, GZIP_WINDOW, 8, Z_DEFAULT_STRATEGY) == Z_OK)
        return PJ_OK;
    pj_free(z);
    *gzip = NULL;
    return pj_fail_memory(err, "compression");
}

static bool gzip_deflate(pj_gzip *z, int flush)
{
    int code = Z_OK;
    do {
        z->stream.next_out = z->chunk;
        z->stream.avail_out = CHUNK_BYTES;
        code = deflate(&z->stream, flush);
        size_t made = CHUNK_BYTES - z->stream.avail_out;
        if (made && !z->write(z->context, (const char *)z->chunk, made)) z->failed = true;
    } while (!z->failed && (z->stream.avail_out == 0 || (flush == Z_FINISH && code == Z_OK)));
    return !z->failed;
}

bool pj_gzip_write(void *gzip, const char *bytes, size_t count)
{
    pj_gzip *z = gzip;
    while (count > 0 && !z->failed) {
        uInt part = count > INT_MAX ? INT_MAX : (uInt)count;
        z->stream.next_in = (Bytef *)(uintptr_t)bytes;
        z->stream.avail_in = part;
        gzip_deflate(z, Z_NO_FLUSH);
        bytes += part;
        count -= part;
    }
    return !z->failed;
}

bool pj_gzip_finish(pj_gzip *z)
{
    return !z->failed && gzip_deflate(z, Z_FINISH);
}

void pj_gzip_free(pj_gzip *z)
{
    if (!z) return;
    deflateEnd(&z->stream);
    pj_free(z);
}

/* ---- whole texts ---- */

static bool gzip_append(void *context, const char *bytes, size_t count)
{
    pj_buffer *buffer = context;
    pj_buffer_append(buffer, bytes, count);
    return !buffer->failed;
}

pj_status pj_gzip_text(int level, const char *text, size_t bytes, char **out, size_t *out_bytes,
                       pj_error *err)
{
    pj_buffer buffer;
    pj_gzip *z;
    pj_buffer_init(&buffer, bytes + bytes / 100 + 1024);
    pj_status status = pj_gzip_new(level, gzip_append, &buffer, &z, err);
    if (status == PJ_OK && (!pj_gzip_write(z, text, bytes) || !pj_gzip_finish(z)))
        status = pj_fail_memory(err, "compression");
    pj_gzip_free(z);
    *out_bytes = buffer.length;
    *out = status == PJ_OK ? pj_buffer_take(&buffer) : NULL;
    pj_buffer_fini(&buffer);
    return status;
}

bool pj_is_gzip(const void *bytes, size_t count)
{
    const unsigned char *b = bytes;
    return count > 2 && b[0] == 0x1f && b[1] == 0x8b;
}

/* All members of the file, as gunzip does. */
static int gzip_inflate(z_stream *stream, pj_buffer *out)
{
    unsigned char chunk[CHUNK_BYTES];
    int code = Z_OK;
    while (code == Z_OK && !out->failed) {
        stream->next_out = chunk;
        stream->avail_out = sizeof chunk;
        code = inflate(stream, Z_NO_FLUSH);
        pj_buffer_append(out, chunk, sizeof chunk - stream->avail_out);
        if (code == Z_STREAM_END && pj_is_gzip(stream->next_in, stream->avail_in))
            code = inflateReset(stream);
    }
    return code;
}

pj_status pj_gunzip(const void *bytes, size_t count, size_t most, char **out, size_t *out_bytes,
                    pj_error *err)
{
    pj_buffer buffer;
    z_stream stream = {.next_in = (Bytef *)(uintptr_t)bytes, .avail_in = (uInt)count};
    *out = NULL;
    if (count > UINT_MAX) return pj_fail(err, PJ_E_INVALID, "it is too large: decompress it first");
    if (inflateInit2(&stream, GZIP_WINDOW) != Z_OK) return pj_fail_memory(err, "decompression");
    pj_buffer_init(&buffer, most);
    int code = gzip_inflate(&stream, &buffer);
    inflateEnd(&stream);
    pj_status status = PJ_OK;
    if (buffer.failed)
        status = pj_fail(err, PJ_E_INVALID, "it decompresses to more than %zu MB", most >> 20);
    else if (code != Z_STREAM_END)
        status = pj_fail(err, PJ_E_INVALID, "its gzip data is damaged or incomplete");
    *out_bytes = buffer.length;
    if (status == PJ_OK) *out = pj_buffer_take(&buffer);
    pj_buffer_fini(&buffer);
    return status;
}
