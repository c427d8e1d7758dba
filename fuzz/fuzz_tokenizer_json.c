/* Any text as tokenizer.json; an accepted tokenizer must encode, decode and stream text without
 * errors. */
#include "engine/text/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void use(const pj_tokenizer *tokenizer)
{
    static const char text[] =
        "Hello, WORLD! 12345  it's \t\r\n\xc3\xa9\xe2\x96\x81\xf0\x9f\x99\x82 <s> \xff\xe2\x82";
    pj_error err;
    pj_ids ids = {0};
    pj_buffer out;
    pj_token_stream *stream;
    pj_buffer_init(&out, 16 << 20);
    if (pj_tokenizer_encode(tokenizer, text, sizeof text - 1, NULL, &ids, &err) == PJ_OK) {
        pj_tokenizer_decode(tokenizer, ids.ids, ids.count, false, &out, &err);
        if (pj_token_stream_new(tokenizer, true, &stream, &err) == PJ_OK) {
            for (size_t i = 0; i < ids.count; i++)
                if (pj_token_stream_push(stream, ids.ids[i], &out, &err) != PJ_OK) break;
            pj_token_stream_finish(stream, &out, &err);
            pj_token_stream_free(stream);
        }
    }
    pj_ids_fini(&ids);
    pj_buffer_fini(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    pj_tokenizer *tokenizer;
    pj_error err;
    const char *text = size ? (const char *)data : "";
    if (pj_tokenizer_parse(text, size, "fuzz", &tokenizer, &err) == PJ_OK) use(tokenizer);
    pj_tokenizer_close(tokenizer);
    return 0;
}
