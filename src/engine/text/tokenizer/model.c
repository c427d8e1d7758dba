/* The "model" of a tokenizer.json: a vocabulary and merges of megabytes, read in one pass over the
 * text, because building a parse tree takes longer than the first token of a small model. Every
 * merge is checked: both parts and the result must be in the vocabulary. */
#include "engine/text/tokenizer/parts.h"

#include "base/utf8.h"

#include <stdio.h>
#include <string.h>

enum { LEAST_TOKEN_BYTES = 5 /* "":0, */ };

typedef struct model_reader {
    pj_tokenizer *t;
    pj_json_scan *scan;
    const char *name;
    pj_error *err;
    bool has_vocab, has_merges;
    pj_json_text merges_text; /* read again if the prefix comes after them */
    pj_buffer unk;
} model_reader;

/* A string, or null for none. */
static bool read_affix(model_reader *r, const char **text, size_t *bytes)
{
    pj_json_text value;
    *text = "";
    *bytes = 0;
    if (!pj_json_scan_text(r->scan, &value)) return false;
    if (!value.text) return true;
    if (value.bytes > 256)
        return pj_json_scan_fail(r->scan, "a prefix or suffix of over 256 bytes");
    *text = pj_arena_strndup(&r->t->arena, value.text, value.bytes);
    if (!*text) return pj_json_scan_fail(r->scan, "out of memory for a prefix or suffix");
    *bytes = value.bytes;
    return true;
}

static bool read_flag(model_reader *r, bool *value)
{
    char first = pj_json_scan_peek(r->scan);
    *value = first == 't';
    if (first != 't' && first != 'f' && first != 'n')
        return pj_json_scan_fail(r->scan, "true or false is missing");
    return pj_json_scan_skip(r->scan, NULL);
}

static pj_status model_read_type(model_reader *r)
{
    pj_json_text type;
    if (!pj_json_scan_string(r->scan, &type)) return PJ_E_INVALID;
    if (!pj_json_text_is(type, "BPE"))
        return pj_fail(r->err, PJ_E_UNSUPPORTED, "%s contains a %.*s model; only BPE is supported",
                       r->name, (int)(type.bytes < 40 ? type.bytes : 40), type.text);
    return PJ_OK;
}

static pj_status read_dropout(model_reader *r)
{
    pj_json_text value;
    if (!pj_json_scan_skip(r->scan, &value)) return PJ_E_INVALID;
    bool none = pj_json_text_is(value, "null") || pj_json_text_is(value, "0") ||
                pj_json_text_is(value, "0.0");
    if (none) return PJ_OK;
    return pj_fail(r->err, PJ_E_UNSUPPORTED, "%s uses dropout, which is not supported", r->name);
}

static pj_status read_vocab(model_reader *r)
{
    if (pj_json_scan_peek(r->scan) != '{') { /* another kind of model: reported by its type */
        pj_json_scan_skip(r->scan, NULL);
        return PJ_OK;
    }
    size_t left = pj_json_scan_left(r->scan);
    if (!pj_vocab_reserve(&r->t->vocab, left / LEAST_TOKEN_BYTES + 1, left))
        return pj_fail_memory(r->err, "a vocabulary");
    pj_json_scan_enter(r->scan, '{');
    pj_json_text token;
    while (pj_json_scan_member(r->scan, &token)) {
        /* The key may be in the scanner's buffer, which reading a number does not overwrite. */
        uint64_t id;
        if (!pj_json_scan_uint(r->scan, &id)) break;
        if (id > INT32_MAX)
            return pj_fail(
                r->err, PJ_E_INVALID, "%s: token %.*s has the id %llu, which is too large", r->name,
                (int)(token.bytes < 40 ? token.bytes : 40), token.text, (unsigned long long)id);
        if (!pj_vocab_add(&r->t->vocab, token.text, token.bytes, (uint32_t)id))
            return pj_fail_memory(r->err, "a vocabulary");
    }
    r->has_vocab = true;
    return pj_vocab_index(&r->t->vocab) ? PJ_OK : pj_fail_memory(r->err, "a vocabulary");
}

static pj_status merges_now(model_reader *r)
{
    pj_json_scan_peek(r->scan);
    const char *begin = r->scan->at;
    pj_status status = PJ_OK;
    r->has_merges = true;
    if (r->has_vocab)
        status = pj_load_merges(r->t, r->scan, r->name, r->err);
    else
        pj_json_scan_skip(r->scan, NULL);
    r->merges_text = (pj_json_text){begin, (size_t)(r->scan->at - begin)};
    return status;
}

/* The merges came before something that they depend on: read them again. */
static pj_status merges_again(model_reader *r)
{
    pj_json_scan again;
    pj_json_scan_init(&again, r->merges_text.text, r->merges_text.bytes);
    pj_status status = pj_load_merges(r->t, &again, r->name, r->err);
    if (pj_json_scan_failed(&again)) status = pj_json_scan_error(&again, r->name, r->err);
    pj_json_scan_fini(&again);
    return status;
}

void pj_bpe_finish(pj_tokenizer *t)
{
    pj_bpe *bpe = &t->bpe;
    bpe->all_letters = true;
    for (int i = 0; i < 256; i++) {
        char token[8], letter[4];
        uint32_t c = pj_byte_letter((unsigned char)i);
        size_t bytes = pj_utf8_put(c, letter);
        snprintf(token, sizeof token, "<0x%02X>", (unsigned)i);
        bpe->byte_tokens[i] = pj_vocab_find(&t->vocab, token, 6);
        bpe->letters[i] = pj_vocab_find(&t->vocab, letter, bytes);
        if (bpe->letters[i] < 0) bpe->all_letters = false;
    }
    bpe->cut_at_mark = !t->vocab.crosses && !bpe->ignore_merges && bpe->prefix_bytes == 0 &&
                       bpe->suffix_bytes == 0 &&
                       pj_vocab_find(&t->vocab, PJ_SPACE_MARK, PJ_SPACE_MARK_BYTES) >= 0;
}

static pj_status model_finish(model_reader *r, bool again)
{
    pj_tokenizer *t = r->t;
    pj_bpe *bpe = &t->bpe;
    if (!r->has_vocab || !r->has_merges)
        return pj_fail(r->err, PJ_E_INVALID, "%s: the model has no %s", r->name,
                       r->has_vocab ? "merges" : "vocabulary");
    pj_status status = again ? merges_again(r) : PJ_OK;
    if (status != PJ_OK) return status;
    for (uint32_t i = 0; i < t->vocab.count; i++)
        if (t->vocab.entries[i].id >= (uint64_t)t->vocab.count * 4 + (1 << 20))
            return pj_fail(r->err, PJ_E_INVALID,
                           "%s: the id %u is far beyond a vocabulary of %u tokens", r->name,
                           t->vocab.entries[i].id, t->vocab.count);
    if (!pj_vocab_index_ids(&t->vocab) || !pj_vocab_index_merges(&t->vocab))
        return pj_fail_memory(r->err, "a vocabulary");
    if (r->unk.data) {
        bpe->unk = pj_vocab_find(&t->vocab, pj_buffer_get(&r->unk), r->unk.length);
        bpe->unk_missing = bpe->unk < 0;
    }
    pj_bpe_finish(t);
    return PJ_OK;
}

static pj_status read_unk(model_reader *r)
{
    pj_json_text text;
    if (!pj_json_scan_text(r->scan, &text)) return PJ_E_INVALID;
    if (!text.text) return PJ_OK;
    pj_buffer_clear(&r->unk);
    return pj_buffer_append(&r->unk, text.text, text.bytes) ? PJ_OK
                                                            : pj_fail_memory(r->err, "a tokenizer");
}

static pj_status model_read_field(model_reader *r, pj_json_text key)
{
    pj_bpe *bpe = &r->t->bpe;
    if (pj_json_text_is(key, "type")) return model_read_type(r);
    if (pj_json_text_is(key, "vocab")) return read_vocab(r);
    if (pj_json_text_is(key, "merges")) return merges_now(r);
    if (pj_json_text_is(key, "dropout")) return read_dropout(r);
    if (pj_json_text_is(key, "unk_token")) return read_unk(r);
    if (pj_json_text_is(key, "continuing_subword_prefix"))
        read_affix(r, &bpe->prefix, &bpe->prefix_bytes);
    else if (pj_json_text_is(key, "end_of_word_suffix"))
        read_affix(r, &bpe->suffix, &bpe->suffix_bytes);
    else if (pj_json_text_is(key, "fuse_unk"))
        read_flag(r, &bpe->fuse_unk);
    else if (pj_json_text_is(key, "byte_fallback"))
        read_flag(r, &bpe->byte_fallback);
    else if (pj_json_text_is(key, "ignore_merges"))
        read_flag(r, &bpe->ignore_merges);
    else
        pj_json_scan_skip(r->scan, NULL);
    return PJ_OK;
}

pj_status pj_load_model(pj_tokenizer *tokenizer, pj_json_scan *scan, const char *name,
                        pj_error *err)
{
    model_reader r = {.t = tokenizer, .scan = scan, .name = name, .err = err};
    pj_status status = PJ_OK;
    bool again = false;
    tokenizer->bpe.unk = -1;
    pj_buffer_init(&r.unk, 1 << 20);
    pj_json_scan_enter(scan, '{');
    pj_json_text key;
    while (status == PJ_OK && pj_json_scan_member(scan, &key)) {
        bool early = r.has_merges && (pj_json_text_is(key, "vocab") ||
                                      pj_json_text_is(key, "continuing_subword_prefix"));
        again |= early;
        status = model_read_field(&r, key);
    }
    if (status == PJ_OK && pj_json_scan_failed(scan))
        status = PJ_E_INVALID;
    else if (status == PJ_OK)
        status = model_finish(&r, again);
    pj_buffer_fini(&r.unk);
    return status;
}
