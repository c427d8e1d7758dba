/* Any text of up to 256 bytes through generated tokenizers, selected by the first byte. (Words of
 * more than 32 symbols are merged by another algorithm than shorter ones; 256 bytes suffice for
 * both.) The ids must exist; encoding the text again, now from the word cache, must give the same
 * ids; and text decoded at once and streamed must be equal unless byte tokens are involved. */
#include "../tests/unit/engine/made_tokenizer.h"
#include "base/utf8.h"
#include "engine/text/tokenizer.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static pj_tokenizer *tokenizers[MADE_KIND_COUNT]; /* made once and kept for all inputs */

static const pj_tokenizer *get(unsigned kind)
{
    kind %= MADE_KIND_COUNT;
    if (tokenizers[kind]) return tokenizers[kind];
    pj_buffer text;
    pj_error err;
    pj_buffer_init(&text, 1 << 20);
    made_tokenizer((made_kind)kind, &text);
    if (pj_tokenizer_parse(pj_buffer_get(&text), text.length, "made", &tokenizers[kind], &err) !=
        PJ_OK)
        abort();
    pj_buffer_fini(&text);
    return tokenizers[kind];
}

static void check_text(const pj_tokenizer *tokenizer, const pj_ids *ids)
{
    pj_buffer whole, streamed;
    pj_token_stream *stream;
    pj_error err;
    pj_buffer_init(&whole, 64 << 20);
    pj_buffer_init(&streamed, 64 << 20);
    if (pj_tokenizer_decode(tokenizer, ids->ids, ids->count, false, &whole, &err) != PJ_OK) abort();
    if (!pj_utf8_valid(pj_buffer_get(&whole), whole.length)) abort();
    if (pj_token_stream_new(tokenizer, false, &stream, &err) != PJ_OK) abort();
    for (size_t i = 0; i < ids->count; i++) {
        size_t begin = streamed.length;
        if (pj_token_stream_push(stream, ids->ids[i], &streamed, &err) != PJ_OK) abort();
        if (!pj_utf8_valid(pj_buffer_get(&streamed) + begin, streamed.length - begin)) abort();
    }
    pj_token_stream_finish(stream, &streamed, &err);
    bool same = whole.length == streamed.length &&
                memcmp(pj_buffer_get(&whole), pj_buffer_get(&streamed), whole.length) == 0;
    if (!same && !strstr(pj_buffer_get(&whole), "\xef\xbf\xbd") &&
        strlen(pj_buffer_get(&whole)) == whole.length)
        abort();
    pj_token_stream_free(stream);
    pj_buffer_fini(&whole);
    pj_buffer_fini(&streamed);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0 || size > 257) return 0;
    const pj_tokenizer *tokenizer = get(data[0]);
    const char *text = (const char *)data + 1;
    pj_text_span span = {(size - 1) / 3, (size - 1) / 2};
    pj_encode_options options = {
        .no_special = data[0] & 0x80, .literals = &span, .literal_count = data[0] >> 6 & 1};
    pj_ids ids = {0}, again = {0};
    pj_error err;
    if (pj_tokenizer_encode(tokenizer, text, size - 1, &options, &ids, &err) != PJ_OK) abort();
    if (pj_tokenizer_encode(tokenizer, text, size - 1, &options, &again, &err) != PJ_OK) abort();
    if (ids.count != again.count ||
        (ids.count && memcmp(ids.ids, again.ids, ids.count * sizeof *ids.ids)))
        abort();
    for (size_t i = 0; i < ids.count; i++)
        if (!pj_tokenizer_token(tokenizer, ids.ids[i])) abort();
    check_text(tokenizer, &ids);
    pj_ids_fini(&ids);
    pj_ids_fini(&again);
    return 0;
}
