#include "net/page.h"

#include "net/coding.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char pj_page_encoding(const pj_asset *asset, const char *accept)
{
    int br = asset->brotli.bytes ? pj_coding_weight(accept, "br") : -1;
    int gz = asset->gzip.bytes ? pj_coding_weight(accept, "gzip") : -1;
    int identity = pj_coding_weight(accept, "identity");
    if (br <= 0 && gz <= 0) return 'i';
    if (identity > br && identity > gz && identity < 1000) return 'i';
    return br >= gz ? 'b' : 'g';
}

bool pj_page_tag_matches(const char *if_none_match, const char *tag)
{
    if (!if_none_match) return false;
    size_t length = strlen(tag);
    for (const char *p = if_none_match; *p;) {
        p += strspn(p, " \t,");
        if (*p == '*') return true;
        if (p[0] == 'W' && p[1] == '/') p += 2;
        size_t n = strcspn(p, ", \t");
        if (n == length && strncmp(p, tag, n) == 0) return true;
        p += n;
    }
    return false;
}

static const char plain_page[] =
    "<!doctype html>\n<html lang=\"en\"><head><meta "
    "charset=\"utf-8\"><title>perjoule</title></head>\n"
    "<body><h1>perjoule</h1>\n<p>The server runs. This binary was built without the "
    "dashboard.</p>\n"
    "<ul><li><a href=\"/api/profiling/runs\">runs</a></li>\n"
    "<li><a href=\"/api/profiling/sensors\">sensors</a></li>\n"
    "<li><a href=\"/api/profiling/devices\">devices</a></li>\n"
    "<li><a href=\"/api/profiling/models\">models</a></li>\n"
    "<li><a href=\"/metrics\">metrics</a></li>\n"
    "<li><a href=\"/api/openapi.json\">the API</a></li></ul></body></html>\n";

static struct MHD_Response *response_of(const void *bytes, size_t count)
{
    union { /* the library takes void *, but only reads */
        const void *constant;
        void *bytes;
    } content = {.constant = bytes};
    return MHD_create_response_from_buffer(count, content.bytes, MHD_RESPMEM_PERSISTENT);
}

static enum MHD_Result reply_plain_page(pj_http *http)
{
    struct MHD_Response *response = response_of(plain_page, sizeof plain_page - 1);
    if (response) MHD_add_response_header(response, "Content-Type", "text/html; charset=utf-8");
    return pj_http_queue(http, 200, response);
}

static enum MHD_Result reply_asset(pj_http *http, const pj_asset *asset)
{
    char encoding = pj_page_encoding(asset, pj_http_header(http, "Accept-Encoding")), tag[32];
    const pj_asset_body *body = encoding == 'b'   ? &asset->brotli
                                : encoding == 'g' ? &asset->gzip
                                                  : &asset->identity;
    /* A strong ETag belongs to one encoding. */
    snprintf(tag, sizeof tag, "\"%.20s%s\"", asset->hash,
             encoding == 'b'   ? "-br"
             : encoding == 'g' ? "-gz"
                               : "");
    bool same = pj_page_tag_matches(pj_http_header(http, "If-None-Match"), tag);
    struct MHD_Response *response = response_of(body->bytes, same ? 0 : body->size);
    if (!response) return MHD_NO;
    if (!same) MHD_add_response_header(response, "Content-Type", asset->content_type);
    if (!same && encoding != 'i')
        MHD_add_response_header(response, "Content-Encoding", encoding == 'b' ? "br" : "gzip");
    pj_http_add_header(http, "ETag", tag);
    pj_http_add_header(http, "Vary", "Accept-Encoding");
    pj_http_add_header(http, "Cache-Control",
                       asset->immutable ? "public, max-age=31536000, immutable" : "no-cache");
    return pj_http_queue(http, same ? 304 : 200, response);
}

/* The file for a request path; NULL: there is none. */
static const pj_asset *find_asset(const char *path)
{
    if (strcmp(path, "/") == 0) path = "/index.html";
    for (size_t i = 0; i < pj_asset_count; i++)
        if (strcmp(pj_asset_table[i].path, path) == 0) return &pj_asset_table[i];
    return NULL;
}

enum MHD_Result pj_page_reply(pj_http *http)
{
    const char *path = http->target.path;
    const pj_asset *asset = find_asset(path);
    if (asset) return reply_asset(http, asset);
    if (strcmp(path, "/") == 0) return reply_plain_page(http);
    return pj_http_problem(http, 404, "not found; see /api/openapi.json");
}
