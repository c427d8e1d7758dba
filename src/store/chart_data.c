/* Deflates and inflates the data of charts. */
#include "store/chart_data.h"

#include "store/store_impl.h"

#include <string.h>
#include <zlib.h>

enum { LEVEL = 1, PIECE = 1 << 16, MOST_RATIO = 1032 /* of deflate */ };

/* Followed by the length of each deflated piece, as uint32, and the pieces. */
typedef struct deflated_header {
    char magic[8];
    uint64_t bytes; /* inflated */
} deflated_header;

static const char magic[8] = {0, 'P', 'J', 'F', 'L', 'A', 'T', 'E'};

static size_t pieces_of(size_t bytes)
{
    return bytes / PIECE + (bytes % PIECE != 0);
}

static size_t piece_bytes(size_t bytes, size_t piece)
{
    return bytes - piece * PIECE < PIECE ? bytes - piece * PIECE : PIECE;
}

/* ---- writing -------------------------------------------------------------------------------- */

static bool deflate_piece(const char *bytes, size_t count, size_t piece, pj_buffer *out)
{
    size_t length = piece_bytes(count, piece);
    uLong room = compressBound((uLong)length);
    if (!pj_buffer_reserve(out, room)) return false;
    Bytef *to = (Bytef *)out->data + out->length;
    const Bytef *from = (const Bytef *)bytes + piece * PIECE;
    if (compress2(to, &room, from, (uLong)length, LEVEL) != Z_OK) return false;
    const uint32_t made = (uint32_t)room;
    memcpy(out->data + sizeof(deflated_header) + piece * sizeof made, &made, sizeof made);
    out->length += room;
    return true;
}

static bool deflate_pieces(const char *bytes, size_t count, pj_buffer *out)
{
    deflated_header header = {.bytes = count};
    const uint32_t length = 0;
    memcpy(header.magic, magic, sizeof magic);
    pj_buffer_clear(out);
    pj_buffer_append(out, &header, sizeof header);
    for (size_t p = 0; p < pieces_of(count); p++) pj_buffer_append(out, &length, sizeof length);
    for (size_t p = 0; p < pieces_of(count); p++)
        if (!deflate_piece(bytes, count, p, out)) return false;
    return true;
}

static bool has_magic(const char *bytes, size_t count)
{
    return count >= sizeof magic && memcmp(bytes, magic, sizeof magic) == 0;
}

pj_value pj_chart_data_value(const pj_store *store, const void *bytes, size_t count,
                             pj_buffer *deflated)
{
    bool packs = store->driver->dialect->packs_since != 0;
    if (packs && deflate_pieces(bytes, count, deflated) &&
        (deflated->length < count || has_magic(bytes, count)))
        return pj_value_bytes(PJ_VALUE_BLOB, deflated->data, deflated->length);
    return pj_value_bytes(PJ_VALUE_BLOB, bytes, count);
}

/* ---- reading -------------------------------------------------------------------------------- */

pj_chart_data pj_chart_data_of(const pj_store *store, const void *stored, size_t stored_bytes)
{
    pj_chart_data data = {stored, stored ? stored_bytes : 0, stored ? stored_bytes : 0, false};
    data.is_deflated = store->driver->dialect->packs_since && has_magic(stored, data.stored_bytes);
    if (!data.is_deflated) return data;
    data.bytes = 0;
    if (stored_bytes < sizeof(deflated_header)) return data;
    deflated_header header;
    memcpy(&header, stored, sizeof header);
    size_t left = stored_bytes - sizeof header;
    bool is_sound =
        header.bytes / MOST_RATIO <= left && pieces_of(header.bytes) <= left / sizeof(uint32_t);
    if (is_sound) data.bytes = header.bytes;
    return data;
}

/* Inflates the pieces from `first` on that hold `bytes`. */
static bool inflate_pieces(const pj_chart_data *data, size_t first, char *to, size_t bytes)
{
    size_t pieces = pieces_of(data->bytes),
           at = sizeof(deflated_header) + pieces * sizeof(uint32_t);
    for (size_t p = 0; p < pieces && bytes; p++) {
        uint32_t length;
        uLong made = (uLong)piece_bytes(data->bytes, p);
        memcpy(&length, data->stored + sizeof(deflated_header) + p * sizeof length, sizeof length);
        if (length > data->stored_bytes - at) return false;
        const Bytef *from = (const Bytef *)data->stored + at;
        at += length;
        if (p < first) continue;
        if (uncompress((Bytef *)to, &made, from, length) != Z_OK ||
            made != piece_bytes(data->bytes, p))
            return false;
        to += made;
        bytes -= made;
    }
    return bytes == 0;
}

const char *pj_chart_data_part(const pj_chart_data *data, size_t from, size_t count,
                               pj_arena *arena)
{
    if (!data->stored || from > data->bytes || count > data->bytes - from) return NULL;
    if (!data->is_deflated) return pj_arena_strndup(arena, data->stored + from, count);
    size_t first = from / PIECE, end = from + count, last = end / PIECE + (end % PIECE != 0);
    size_t bytes = (last * PIECE < data->bytes ? last * PIECE : data->bytes) - first * PIECE;
    char *made = pj_arena_alloc(arena, bytes + 1, 1);
    if (!made || !inflate_pieces(data, first, made, count ? bytes : 0)) return NULL;
    return made + (from - first * PIECE);
}
