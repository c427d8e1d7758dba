/* Tells the formats of recorded traces apart. */
#include "power/trace_file.h"

#include <string.h>

enum { HEAD_BYTES = 4096 }; /* within which powermetrics names its first sample */

static bool begins_with(const char *text, size_t bytes, const char *word)
{
    return bytes >= strlen(word) && memcmp(text, word, strlen(word)) == 0;
}

static bool looks_like_plist(const char *text, size_t bytes)
{
    while (bytes > 0 && (*text == 0 || *text == '\n')) text++, bytes--;
    return begins_with(text, bytes, "<?xml");
}

static bool looks_like_powermetrics(const char *text, size_t bytes)
{
    size_t head = bytes < HEAD_BYTES ? bytes : HEAD_BYTES;
    static const char mark[] = "*** Sampled system activity";
    for (size_t i = 0; i + sizeof mark <= head; i++)
        if (memcmp(text + i, mark, sizeof mark - 1) == 0) return true;
    return false;
}

pj_status pj_trace_read(const char *text, size_t bytes, const char *name, pj_trace *trace,
                        pj_error *err)
{
    if (looks_like_plist(text, bytes)) return pj_trace_read_plist(text, bytes, name, trace, err);
    if (looks_like_powermetrics(text, bytes))
        return pj_trace_read_powermetrics(text, bytes, name, trace, err);
    return pj_trace_read_csv(text, bytes, name, trace, err);
}
