#include "store/chart_blob.h"

#include <zlib.h>

/* Deflate makes at most some 1,032 bytes of one. */
enum {
    LEAST_BYTES = 512,
    MOST_BYTES = (1 << 28) + 4096 /* of the largest plane */,
    MOST_RATIO = 1040,
    FASTEST = 1
};

typedef struct blob_header {
    char magic[4];
    uint32_t bytes; /* inflated */
} blob_header;

static const char blob_magic[4] = {'P', 'J', 'Z', '1'};

bool pj_chart_is_plane(const char *chart)
{
    return strncmp(chart, "cube_", 5) == 0;
}

static bool is_deflated(const void *blob, size_t count)
{
    return count >= sizeof(blob_header) && memcmp(blob, blob_magic, sizeof blob_magic) == 0;
}

const void *pj_chart_deflate(pj_arena *arena, const void *bytes, size_t *count)
{
    bool must = is_deflated(bytes, *count); /* or seems to be */
    if (*count > MOST_BYTES || (*count < LEAST_BYTES && !must)) return bytes;
    uLongf made = compressBound((uLong)*count);
    char *blob = pj_arena_alloc(arena, sizeof(blob_header) + made, 1);
    if (!blob) return NULL;
    blob_header header = {.bytes = (uint32_t)*count};
    memcpy(header.magic, blob_magic, sizeof header.magic);
    memcpy(blob, &header, sizeof header);
    if (compress2((Bytef *)blob + sizeof header, &made, bytes, (uLong)*count, FASTEST) != Z_OK)
        return NULL;
    if (sizeof header + made >= *count && !must) return bytes;
    *count = sizeof header + made;
    return blob;
}

const void *pj_chart_inflate(pj_arena *arena, const void *blob, size_t *count)
{
    blob_header header;
    if (!is_deflated(blob, *count)) return blob;
    memcpy(&header, blob, sizeof header);
    size_t deflated = *count - sizeof header;
    uLongf made = header.bytes;
    *count = 0;
    if (made > MOST_BYTES || made / MOST_RATIO > deflated) return NULL;
    char *bytes = pj_arena_alloc(arena, made + 1, 1);
    if (!bytes || uncompress((Bytef *)bytes, &made, (const Bytef *)blob + sizeof header,
                             (uLong)deflated) != Z_OK)
        return NULL;
    *count = made;
    return bytes;
}
