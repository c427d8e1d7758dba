#include "base/json_document.h"

#include "base/json_scan.h"
#include "base/utf8.h"

bool pj_json_is_valid(const char *text, size_t bytes)
{
    pj_json_scan scan;
    pj_json_scan_init(&scan, text, bytes);
    bool valid = pj_json_scan_skip(&scan, NULL) && pj_json_scan_end(&scan);
    pj_json_scan_fini(&scan);
    return valid;
}

/* In valid JSON such characters occur in strings alone. */
static void escape_controls(pj_buffer *out, const char *text, size_t bytes)
{
    size_t n, plain = 0; /* plain: start of what is copied as it is */
    for (size_t i = 0; i < bytes; i += n) {
        uint32_t c = (unsigned char)text[i];
        n = c < 0x7f ? 1 : pj_utf8_next(text + i, bytes - i, &c);
        if (c < 0x7f || !pj_utf8_is_control(c)) continue;
        pj_buffer_append(out, text + plain, i - plain);
        pj_buffer_printf(out, "\\u%04x", c);
        plain = i + n;
    }
    pj_buffer_append(out, text + plain, bytes - plain);
}

void pj_json_document(pj_json *json, const char *text, size_t bytes)
{
    pj_buffer clean;
    if (!text || !pj_json_is_valid(text, bytes)) {
        pj_json_null(json);
        return;
    }
    pj_buffer_init(&clean, 6 * bytes + 1);
    escape_controls(&clean, text, bytes);
    if (clean.failed)
        json->failed = true;
    else
        pj_json_raw(json, clean.data, clean.length);
    pj_buffer_fini(&clean);
}
