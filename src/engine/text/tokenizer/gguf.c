/*
 * A tokenizer from a GGUF file's fields. These name a kind ("gpt2": byte-level BPE with merges;
 * "llama": sentencepiece with scores; "gemma4": with merges) and, for the first, a pre-tokenizer by
 * name; the properties that a tokenizer.json lists are defined here by these names. Unknown names
 * are rejected.
 *
 * Sentencepiece joins the neighbours whose union is the token with the best score. This equals
 * byte-pair encoding with a merge for every way to split a token into two tokens, ranked by the
 * score of the whole; splits of one token share its rank, so that the leftmost wins.
 */
#include "engine/text/tokenizer/parts.h"

#include "base/utf8.h"
#include "engine/files/gguf.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Token types, numbered as in token_type. */
enum { NORMAL = 1, UNKNOWN = 2, CONTROL = 3, USER_DEFINED = 4, UNUSED = 5, BYTE = 6 };

/* Every split of a token is looked up, which is quadratic in its length. */
enum { MAX_SCORED_BYTES = 1024 };

/* ---- pre-tokenizers by name --------------------------------------------------------------- */

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define SPACES       "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define UPPER        "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER        "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define BEFORE       "[^\\r\\n\\p{L}\\p{N}]?"

static const char gpt2[] = PJ_GPT2_PATTERN;
static const char llama3[] = CONTRACTIONS "|" BEFORE "\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+"
                                          "[\\r\\n]*|" SPACES;
static const char qwen2[] = CONTRACTIONS "|" BEFORE "\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+"
                                         "[\\r\\n]*|" SPACES;
/* marks count as letters */
static const char qwen35[] =
    CONTRACTIONS "|" BEFORE "[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+"
                 "[\\r\\n]*|" SPACES;
/* line breaks do not join the punctuation before them */
static const char seed_coder[] =
    CONTRACTIONS "|" BEFORE "\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}\\r\\n]+|" SPACES;
static const char gpt4o[] = BEFORE UPPER "*" LOWER "+" CONTRACTIONS "?|" BEFORE UPPER "+" LOWER
                                         "*" CONTRACTIONS "?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+"
                                         "[\\r\\n/]*|" SPACES;
static const char tekken[] = BEFORE UPPER "*" LOWER "+|" BEFORE UPPER "+" LOWER
                                          "*|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" SPACES;

static const char deepseek_v3[] =
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|"
    " ?[\\p{P}\\p{S}]+[\\r\\n]*|" SPACES;

enum { STEPS_BEFORE = 5 };

typedef struct style {
    const char *name, *pattern;
    bool ignore_merges, bos;          /* adds BOS if add_bos_token is absent */
    bool compose;                     /* NFC first, as in the published tokenizer */
    const char *before[STEPS_BEFORE]; /* patterns that split before it does, in order */
} style;

/* clang-format off */
#define DIGITS  {"\\p{N}"}
/* then runs of Chinese and Japanese */
#define NUMBERS {"\\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"}
/* DeepSeek V2: line breaks; letters with cases, as a list of its own; punctuation; the end; Chinese,
 * Japanese and Korean */
#define CASED \
    "\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-" \
    "\u02af\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c" \
    "\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5" \
    "\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77" \
    "\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57" \
    "\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4" \
    "\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc" \
    "\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d" \
    "\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b" \
    "\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f" \
    "\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a" \
    "\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb" \
    "\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-" \
    "\U0001e943"
#define PARTS {"[\\r\\n]", "\\s?[A-Za-z" CASED "]+", \
               "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+", "\\s+$", \
               "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"}
/* clang-format on */

static const style styles[] = {
    {"llama-bpe", llama3, true, true, false},
    {"llama3", llama3, true, true, false},
    {"llama-v3", llama3, true, true, false},
    {"dbrx", llama3, false, false, false},
    {"smaug-bpe", llama3, false, false, false},
    {"glm4", llama3, false, false, false},
    {"chatglm-bpe", llama3, false, false, false},
    {"lfm2", llama3, true, true, false},
    {"falcon3", llama3, true, true, false},
    {"falcon-h1", llama3, true, true, false},
    {"pixtral", llama3, true, true, false},
    {"qwen2", qwen2, false, false, true},
    {"deepseek-r1-qwen", qwen2, false, false, false},
    {"hunyuan", qwen2, false, false, false},
    {"qwen35", qwen35, false, false, true},
    {"seed-coder", seed_coder, false, false, false},
    {"gpt-2", gpt2, false, false, false},
    {"phi-2", gpt2, false, false, false},
    {"olmo", gpt2, false, false, false},
    {"mpt", gpt2, false, false, false},
    {"exaone4", gpt2, false, false, false},
    {"deepseek-llm", "\\p{N}", false, false, false, PARTS},
    {"deepseek-v3", deepseek_v3, false, false, false, NUMBERS},
    {"hunyuan-dense", deepseek_v3, false, false, false, NUMBERS},
    {"tekken", tekken, true, true, false},
    {"gpt-4o", gpt4o, false, false, false},
    {"llama4", gpt4o, false, false, false},
    {"minimax-m2", gpt4o, false, false, false},
    {"smollm", gpt2, false, false, false, DIGITS},
    {"refact", gpt2, false, false, false, DIGITS},
    {"starcoder", gpt2, false, false, false, DIGITS},
    {"command-r", gpt2, false, false, false, DIGITS},
    {"codeshell", gpt2, false, false, false, DIGITS},
    {"exaone", gpt2, false, false, false, DIGITS},
    {"minerva-7b", gpt2, false, false, false, DIGITS},
};

/* ---- fields ------------------------------------------------------------------------------- */

typedef struct loader {
    pj_tokenizer *t;
    const pj_gguf *gguf;
    const char *name;
    pj_error *err;
    const pj_gguf_value *tokens, *types, *scores;
    const style *style; /* NULL: sentencepiece */
    bool merges;        /* sentencepiece with a list of merges instead of scores (Gemma 4) */
} loader;

static const pj_gguf_value *gguf_field(const loader *l, const char *name)
{
    char key[96];
    snprintf(key, sizeof key, "tokenizer.ggml.%s", name);
    return pj_gguf_find(l->gguf, key);
}

static pj_status gguf_bad(const loader *l, const char *name, const char *problem)
{
    return pj_fail(l->err, PJ_E_INVALID, "%s: tokenizer.ggml.%s %s", l->name, name, problem);
}

static pj_status gguf_no_memory(const loader *l)
{
    return pj_fail_memory(l->err, "a tokenizer");
}

static bool gguf_flag(const loader *l, const char *name, bool fallback)
{
    const pj_gguf_value *value = gguf_field(l, name);
    bool set = fallback;
    return value && pj_gguf_bool(value, &set) ? set : fallback;
}

/* An id within the vocabulary, or -1. */
static int64_t gguf_token_id(const loader *l, const char *name)
{
    const pj_gguf_value *value = gguf_field(l, name);
    int64_t id;
    bool given = value && !value->is_array && pj_gguf_integer(value, 0, &id);
    return given && id >= 0 && (uint64_t)id < l->tokens->count ? id : -1;
}

/* An array with one item per token; NULL when absent. */
static pj_status parallel(const loader *l, const char *name, const pj_gguf_value **value)
{
    *value = gguf_field(l, name);
    if (!*value || ((*value)->is_array && (*value)->count == l->tokens->count)) return PJ_OK;
    return gguf_bad(l, name, "must be an array with one item per token");
}

static pj_status read_fields(loader *l)
{
    l->tokens = gguf_field(l, "tokens");
    if (!l->tokens) return gguf_bad(l, "tokens", "is missing");
    if (!l->tokens->is_array || l->tokens->type != PJ_GGUF_STRING || l->tokens->count == 0)
        return gguf_bad(l, "tokens", "must be an array of strings");
    if (l->tokens->count > PJ_MAX_VOCAB) return gguf_bad(l, "tokens", "has more than 2^24 items");
    pj_status status = parallel(l, "token_type", &l->types);
    return status == PJ_OK ? parallel(l, "scores", &l->scores) : status;
}

static int type_of(const loader *l, uint64_t id)
{
    int64_t type;
    return l->types && pj_gguf_integer(l->types, id, &type) && type >= 0 && type <= BYTE ? (int)type
                                                                                         : NORMAL;
}

/* ---- vocabulary --------------------------------------------------------------------------- */

/* Tokens that are cut out of a text before any merging. */
static bool is_added(int type)
{
    return type == CONTROL || type == USER_DEFINED || type == UNKNOWN;
}

static pj_status gguf_add_token(loader *l, pj_gguf_text text, uint32_t id, int type, bool rstrip)
{
    pj_tokenizer *t = l->t;
    if (!is_added(type) || text.bytes == 0)
        return pj_vocab_add(&t->vocab, text.text, text.bytes, id) ? PJ_OK : gguf_no_memory(l);
    pj_added_token *token = &t->added[t->added_count];
    *token = (pj_added_token){.content = pj_arena_strndup(&t->arena, text.text, text.bytes),
                              .bytes = text.bytes,
                              .pattern_bytes = text.bytes,
                              .id = id,
                              .rstrip = rstrip && type == CONTROL,
                              .special = type != USER_DEFINED};
    token->pattern = token->content;
    bool added = token->content && pj_trie_add(&t->raw_trie, token->pattern, token->pattern_bytes,
                                               (int32_t)t->added_count++);
    return added ? PJ_OK : gguf_no_memory(l);
}

/* Phi-3's control tokens absorb the following white space; the fields cannot express that. The
 * first tokens, which belong to its sentencepiece model itself, do not. */
static bool strips_space(const loader *l, uint64_t id)
{
    enum { FIRST_ADDED = 32000 };
    const pj_gguf_value *arch = pj_gguf_find(l->gguf, "general.architecture");
    pj_gguf_text text;
    bool phi3 = arch && pj_gguf_string(arch, &text) && pj_gguf_text_is(text, "phi3");
    return phi3 && !l->style && id > FIRST_ADDED; /* that is <|endoftext|> */
}

static size_t text_bytes(const loader *l)
{
    size_t bytes = 0;
    const unsigned char *at = l->tokens->data;
    for (uint64_t id = 0; id < l->tokens->count; id++) bytes += pj_gguf_next_string(&at).bytes;
    return bytes;
}

static pj_status read_tokens(loader *l)
{
    pj_tokenizer *t = l->t;
    uint32_t added = 0, count = (uint32_t)l->tokens->count;
    for (uint32_t id = 0; id < count; id++) added += is_added(type_of(l, id));
    if (added > 0) t->added = pj_arena_alloc(&t->arena, added, sizeof *t->added);
    if (added > 0 && !t->added) return gguf_no_memory(l);
    if (!pj_vocab_reserve(&t->vocab, count, text_bytes(l))) return gguf_no_memory(l);
    const unsigned char *at = l->tokens->data;
    pj_status status = PJ_OK;
    for (uint32_t id = 0; status == PJ_OK && id < count; id++) {
        pj_gguf_text text = pj_gguf_next_string(&at);
        status = gguf_add_token(l, text, id, type_of(l, id), strips_space(l, id));
    }
    if (status != PJ_OK) return status;
    return pj_vocab_index(&t->vocab) && pj_vocab_index_ids(&t->vocab) ? PJ_OK : gguf_no_memory(l);
}

/* ---- merges ------------------------------------------------------------------------------- */

static pj_status written_merges(loader *l)
{
    const pj_gguf_value *list = gguf_field(l, "merges");
    if (!list || !list->is_array || list->type != PJ_GGUF_STRING)
        return gguf_bad(l, "merges", "must be an array of strings");
    return pj_load_merge_texts(l->t, list, l->name, l->err);
}

typedef struct scored {
    pj_gguf_text text;
    double score;
    uint32_t id;
} scored;

static int best_first(const void *a, const void *b)
{
    const scored *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* A token that text can consist of: not a control token or byte token. */
static int64_t find_part(const loader *l, const char *text, size_t bytes)
{
    int64_t id = pj_vocab_find(&l->t->vocab, text, bytes);
    return id >= 0 && type_of(l, (uint64_t)id) == NORMAL ? id : -1;
}

/* Appends the merges that form a token; the list has room for one per byte. */
static void cut_token(loader *l, const scored *token, uint32_t rank)
{
    pj_vocab *vocab = &l->t->vocab;
    const char *text = token->text.text;
    size_t bytes = token->text.bytes;
    uint32_t c;
    for (size_t at = 0, n; at < bytes; at += n) {
        n = pj_utf8_step(text + at, bytes - at, &c);
        int64_t left = at > 0 ? find_part(l, text, at) : -1;
        int64_t right = left >= 0 ? find_part(l, text + at, bytes - at) : -1;
        if (right < 0) continue;
        vocab->ranks[vocab->merge_count] = rank;
        vocab->merges[vocab->merge_count++] =
            (pj_merge){(uint32_t)left, (uint32_t)right, token->id};
        pj_vocab_note_parts(vocab, text, at, text + at, bytes - at);
    }
}

/* The normal tokens by descending score; NULL after an error. */
static scored *sort_tokens(loader *l, uint32_t *count)
{
    scored *list = pj_alloc((size_t)l->tokens->count, sizeof *list);
    const unsigned char *at = l->tokens->data;
    *count = 0;
    if (!list) gguf_no_memory(l);
    for (uint32_t id = 0; list && id < l->tokens->count; id++) {
        scored token = {.text = pj_gguf_next_string(&at), .id = id};
        if (type_of(l, id) != NORMAL) continue;
        bool right = pj_gguf_number(l->scores, id, &token.score) && !isnan(token.score) &&
                     token.text.bytes <= MAX_SCORED_BYTES;
        if (!right) {
            gguf_bad(l, "scores",
                     "contains something other than numbers, or a token of over 1024 bytes");
            pj_free(list);
            return NULL;
        }
        /* of tokens with equal text only one can be found */
        if (pj_vocab_find(&l->t->vocab, token.text.text, token.text.bytes) == id)
            list[(*count)++] = token;
    }
    if (list) qsort(list, *count, sizeof *list, best_first);
    return list;
}

static pj_status scored_merges(loader *l)
{
    uint32_t count, rank = 0;
    size_t cuts = 1;
    pj_vocab *vocab = &l->t->vocab;
    if (!l->scores) return gguf_bad(l, "scores", "is missing");
    scored *list = sort_tokens(l, &count);
    if (!list) return PJ_E_INVALID;
    for (uint32_t i = 0; i < count; i++) cuts += list[i].text.bytes;
    vocab->ranks = pj_alloc(cuts, sizeof *vocab->ranks);
    bool room = vocab->ranks && pj_vocab_reserve_merges(vocab, cuts);
    for (uint32_t i = 0; room && i < count; i++) {
        if (i > 0 && list[i].score != list[i - 1].score) rank = i;
        cut_token(l, &list[i], rank);
    }
    pj_free(list);
    return room ? PJ_OK : gguf_no_memory(l);
}

/* ---- steps -------------------------------------------------------------------------------- */

static pj_step *gguf_add(pj_step_list *to, pj_step step)
{
    to->items[to->count] = step;
    return &to->items[to->count++];
}

/* Pieces are what the pattern finds and what is between. */
static pj_status split_by(loader *l, const char *pattern)
{
    pj_step *step = gguf_add(
        &l->t->splitters, (pj_step){.kind = PJ_SPLITTER_PATTERN, .behavior = PJ_BEHAVIOR_ISOLATED});
    return pj_regex_new(pattern, strlen(pattern), &step->pattern.regex, l->err);
}

static pj_status set_byte_level(loader *l)
{
    pj_tokenizer *t = l->t;
    t->bpe.unk = -1;
    t->bpe.ignore_merges = l->style->ignore_merges;
    if (l->style->compose)
        gguf_add(&t->normalizers, (pj_step){.kind = PJ_NORMALIZER_FORM, .form = PJ_FORM_NFC});
    pj_status status = PJ_OK;
    for (int i = 0; i < STEPS_BEFORE && l->style->before[i] && !status; i++)
        status = split_by(l, l->style->before[i]);
    if (!status) status = split_by(l, l->style->pattern);
    gguf_add(&t->splitters, (pj_step){.kind = PJ_SPLITTER_BYTE_LEVEL});
    t->letters_last = true;
    gguf_add(&t->decoders, (pj_step){.kind = PJ_DECODER_BYTE_LEVEL});
    return status;
}

static void set_sentencepiece(loader *l)
{
    pj_tokenizer *t = l->t;
    bool prefix = gguf_flag(l, "add_space_prefix", !l->merges);
    t->bpe.unk = gguf_token_id(l, "unknown_token_id");
    t->bpe.byte_fallback = t->bpe.fuse_unk = true;
    if (prefix)
        gguf_add(&t->normalizers, (pj_step){.kind = PJ_NORMALIZER_PREPEND,
                                            .content = PJ_SPACE_MARK,
                                            .content_bytes = PJ_SPACE_MARK_BYTES});
    gguf_add(&t->normalizers, (pj_step){.kind = PJ_NORMALIZER_REPLACE,
                                        .pattern = {.plain = " ", .plain_bytes = 1},
                                        .content = PJ_SPACE_MARK,
                                        .content_bytes = PJ_SPACE_MARK_BYTES});
    gguf_add(&t->decoders,
             (pj_step){.kind = PJ_DECODER_REPLACE,
                       .pattern = {.plain = PJ_SPACE_MARK, .plain_bytes = PJ_SPACE_MARK_BYTES},
                       .content = " ",
                       .content_bytes = 1});
    gguf_add(&t->decoders, (pj_step){.kind = PJ_DECODER_BYTE_FALLBACK});
    gguf_add(&t->decoders, (pj_step){.kind = PJ_DECODER_FUSE});
    if (prefix)
        gguf_add(&t->decoders,
                 (pj_step){
                     .kind = PJ_DECODER_STRIP, .character = " ", .character_bytes = 1, .start = 1});
}

static pj_status find_style(loader *l)
{
    pj_gguf_text model, pre = {"(none)", 6};
    const pj_gguf_value *value = gguf_field(l, "model"), *named = gguf_field(l, "pre");
    if (!value || !pj_gguf_string(value, &model)) return gguf_bad(l, "model", "is missing");
    l->merges = pj_gguf_text_is(model, "gemma4");
    if (l->merges || pj_gguf_text_is(model, "llama")) return PJ_OK;
    if (!pj_gguf_text_is(model, "gpt2"))
        return pj_fail(l->err, PJ_E_UNSUPPORTED,
                       "%s has a tokenizer of the kind %.*s, which is not supported (gpt2, llama "
                       "and gemma4 are)",
                       l->name, (int)(model.bytes < 40 ? model.bytes : 40), model.text);
    if (named) pj_gguf_string(named, &pre);
    for (size_t i = 0; i < sizeof styles / sizeof *styles; i++)
        if (pj_gguf_text_is(pre, styles[i].name)) l->style = &styles[i];
    if (l->style) return PJ_OK;
    return pj_fail(l->err, PJ_E_UNSUPPORTED,
                   "%s has the pre-tokenizer %.*s (tokenizer.ggml.pre), which is not supported",
                   l->name, (int)(pre.bytes < 40 ? pre.bytes : 40), pre.text);
}

/* Adds BOS before and EOS after a text, if the file requires them. */
static pj_status set_template(loader *l)
{
    pj_template *template = &l->t->template;
    bool bos = l->style ? l->style->bos : true;
    int64_t begin = gguf_flag(l, "add_bos_token", bos) ? gguf_token_id(l, "bos_token_id") : -1;
    int64_t end = gguf_flag(l, "add_eos_token", false) ? gguf_token_id(l, "eos_token_id") : -1;
    if (begin < 0 && end < 0) return PJ_OK;
    template->ids = pj_arena_alloc(&l->t->arena, 3, sizeof *template->ids);
    if (!template->ids) return gguf_no_memory(l);
    if (begin >= 0) template->ids[template->count++] = (int32_t)begin;
    template->ids[template->count++] = -1;
    if (end >= 0) template->ids[template->count++] = (int32_t)end;
    return PJ_OK;
}

static pj_status gguf_build(loader *l)
{
    pj_status status = find_style(l);
    if (status == PJ_OK) status = read_fields(l);
    if (status == PJ_OK) status = read_tokens(l);
    if (status == PJ_OK && l->style)
        status = set_byte_level(l);
    else if (status == PJ_OK)
        set_sentencepiece(l);
    if (status == PJ_OK) status = l->style || l->merges ? written_merges(l) : scored_merges(l);
    if (status != PJ_OK) return status;
    if (!pj_vocab_index_merges(&l->t->vocab)) return gguf_no_memory(l);
    pj_bpe_finish(l->t);
    l->t->has_decoder = true;
    status = set_template(l);
    return status == PJ_OK ? pj_tokenizer_index(l->t, l->name, l->err) : status;
}

bool pj_tokenizer_in_gguf(const pj_gguf *gguf)
{
    const pj_gguf_value *value = pj_gguf_find(gguf, "tokenizer.ggml.model");
    pj_gguf_text kind;
    bool none = value && pj_gguf_string(value, &kind) &&
                (pj_gguf_text_is(kind, "none") || pj_gguf_text_is(kind, "no_vocab"));
    return value && !none;
}

pj_status pj_tokenizer_from_gguf(const pj_gguf *gguf, const char *name, pj_tokenizer **tokenizer,
                                 pj_error *err)
{
    *tokenizer = NULL;
    loader l = {.t = pj_tokenizer_new(), .gguf = gguf, .name = name, .err = err};
    if (!l.t) return gguf_no_memory(&l);
    pj_status status = gguf_build(&l);
    if (status == PJ_OK)
        *tokenizer = l.t;
    else
        pj_tokenizer_close(l.t);
    return status;
}
