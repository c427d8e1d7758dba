/* The small parts of a tokenizer.json: added tokens, normalizer, pre-tokenizer, post-processor,
 * decoder, each a JSON object with a "type". A table per stage lists the supported types; others
 * are rejected by name. */
#include "engine/text/tokenizer/parts.h"

#include "base/utf8.h"

#include <string.h>

static const char gpt2_pattern[] = PJ_GPT2_PATTERN;

enum { MAX_NESTING = 8 };

typedef struct loader {
    pj_tokenizer *t;
    const char *name;
    pj_error *err;
} loader;

static pj_status steps_bad(const loader *l, const char *part, const char *problem)
{
    return pj_fail(l->err, PJ_E_INVALID, "%s: %s %s", l->name, part, problem);
}

static pj_status lacking(const loader *l, const char *stage, const char *type)
{
    return pj_fail(l->err, PJ_E_UNSUPPORTED, "%s asks for the %s %.60s, which is not supported",
                   l->name, stage, type);
}

static bool steps_flag(json_t *object, const char *key, bool fallback)
{
    json_t *value = json_object_get(object, key);
    return json_is_boolean(value) ? json_is_true(value) : fallback;
}

static const char *word(json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

static bool steps_number(json_t *object, const char *key, int64_t min, int64_t max, size_t *value)
{
    json_t *given = json_object_get(object, key);
    int64_t n = json_integer_value(given);
    if (!json_is_integer(given) || n < min || n > max) return false;
    *value = (size_t)n;
    return true;
}

/* A copy in the arena of a string that may contain NULs; NULL if it is not a string. */
static char *steps_text_of(const loader *l, json_t *value, size_t *bytes)
{
    *bytes = json_string_length(value);
    return json_is_string(value) ? pj_arena_strndup(&l->t->arena, json_string_value(value), *bytes)
                                 : NULL;
}

/* One character, as its bytes. */
static bool character(json_t *value, char out[4], size_t *bytes)
{
    uint32_t c;
    *bytes = json_string_length(value);
    if (!json_is_string(value) || *bytes == 0 || *bytes > 4) return false;
    if (pj_utf8_next(json_string_value(value), *bytes, &c) != *bytes) return false;
    memcpy(out, json_string_value(value), *bytes);
    return true;
}

static pj_status read_regex(const loader *l, const char *text, size_t bytes, pj_regex **regex)
{
    pj_status status = pj_regex_new(text, bytes, regex, l->err);
    if (status != PJ_OK) pj_error_prefix(l->err, "%s", l->name);
    return status;
}

/* {"String": ...}, {"Regex": ...}, or a plain string. */
static pj_status read_pattern(const loader *l, json_t *value, pj_pattern *pattern)
{
    json_t *regex = json_object_get(value, "Regex"), *plain = json_object_get(value, "String");
    if (json_is_string(value)) plain = value;
    if (json_is_string(regex))
        return read_regex(l, json_string_value(regex), json_string_length(regex), &pattern->regex);
    if (!json_is_string(plain)) return steps_bad(l, "a pattern", "is neither a String nor a Regex");
    /* matches between any two characters, like the empty expression */
    if (json_string_length(plain) == 0) return read_regex(l, "", 0, &pattern->regex);
    pattern->plain = steps_text_of(l, plain, &pattern->plain_bytes);
    return pattern->plain ? PJ_OK : pj_fail_memory(l->err, "a tokenizer");
}

/* ---- normalizers ---- */

typedef pj_status read_normalizer_fn(const loader *l, json_t *object, pj_normalizer *step);

static pj_status read_form(const loader *l, json_t *object, pj_normalizer *step)
{
    static const char *const names[] = {[PJ_FORM_NFC] = "NFC",
                                        [PJ_FORM_NFD] = "NFD",
                                        [PJ_FORM_NFKC] = "NFKC",
                                        [PJ_FORM_NFKD] = "NFKD"};
    for (int i = 0; i < 4; i++)
        if (strcmp(word(object, "type"), names[i]) == 0) step->form = (pj_unicode_form)i;
    return PJ_OK;
}

static pj_status read_strip(const loader *l, json_t *object, pj_normalizer *step)
{
    step->left = steps_flag(object, "strip_left", true);
    step->right = steps_flag(object, "strip_right", true);
    return PJ_OK;
}

static pj_status read_replace(const loader *l, json_t *object, pj_normalizer *step)
{
    step->content = steps_text_of(l, json_object_get(object, "content"), &step->content_bytes);
    if (!step->content) return steps_bad(l, "the normalizer Replace", "has no content");
    return read_pattern(l, json_object_get(object, "pattern"), &step->pattern);
}

static pj_status read_prepend(const loader *l, json_t *object, pj_normalizer *step)
{
    step->content = steps_text_of(l, json_object_get(object, "prepend"), &step->content_bytes);
    return step->content ? PJ_OK : steps_bad(l, "the normalizer Prepend", "has no text");
}

static pj_status read_bert(const loader *l, json_t *object, pj_normalizer *step)
{
    step->clean = steps_flag(object, "clean_text", true);
    step->chinese = steps_flag(object, "handle_chinese_chars", true);
    step->lowercase = steps_flag(object, "lowercase", true);
    step->accents = steps_flag(object, "strip_accents", step->lowercase);
    return PJ_OK;
}

static const struct {
    const char *type;
    pj_normalizer_kind kind;
    read_normalizer_fn *read;
} normalizer_types[] = {
    {"NFC", PJ_NORMALIZER_FORM, read_form},
    {"NFD", PJ_NORMALIZER_FORM, read_form},
    {"NFKC", PJ_NORMALIZER_FORM, read_form},
    {"NFKD", PJ_NORMALIZER_FORM, read_form},
    {"Lowercase", PJ_NORMALIZER_LOWERCASE, NULL},
    {"StripAccents", PJ_NORMALIZER_STRIP_ACCENTS, NULL},
    {"Strip", PJ_NORMALIZER_STRIP, read_strip},
    {"Replace", PJ_NORMALIZER_REPLACE, read_replace},
    {"Prepend", PJ_NORMALIZER_PREPEND, read_prepend},
    {"ByteLevel", PJ_NORMALIZER_BYTE_LEVEL, NULL},
    {"BertNormalizer", PJ_NORMALIZER_BERT, read_bert},
};

static pj_status read_normalizer(const loader *l, json_t *object)
{
    const char *type = word(object, "type");
    pj_tokenizer *t = l->t;
    for (size_t i = 0; i < sizeof normalizer_types / sizeof *normalizer_types; i++) {
        if (strcmp(normalizer_types[i].type, type) != 0) continue;
        if (t->normalizer_count == PJ_MAX_STEPS)
            return steps_bad(l, "the normalizer", "has too many steps");
        pj_normalizer *step = &t->normalizers[t->normalizer_count++];
        step->kind = normalizer_types[i].kind;
        return normalizer_types[i].read ? normalizer_types[i].read(l, object, step) : PJ_OK;
    }
    return lacking(l, "normalizer", type);
}

/* ---- pre-tokenizers ---- */

typedef pj_status read_splitter_fn(const loader *l, json_t *object, pj_splitter *step);

static pj_status read_behavior(const loader *l, json_t *object, pj_behavior fallback,
                               pj_behavior *behavior)
{
    static const struct {
        const char *name;
        pj_behavior value;
    } names[] = {
        {"Removed", PJ_BEHAVIOR_REMOVED},
        {"Isolated", PJ_BEHAVIOR_ISOLATED},
        {"MergedWithPrevious", PJ_BEHAVIOR_WITH_PREVIOUS},
        {"MergedWithNext", PJ_BEHAVIOR_WITH_NEXT},
        {"Contiguous", PJ_BEHAVIOR_CONTIGUOUS},
    };
    *behavior = fallback;
    if (!json_object_get(object, "behavior")) return PJ_OK;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i].name, word(object, "behavior")) == 0) {
            *behavior = names[i].value;
            return PJ_OK;
        }
    return lacking(l, "split behavior", word(object, "behavior"));
}

static pj_status read_split(const loader *l, json_t *object, pj_splitter *step)
{
    step->kind = PJ_SPLITTER_PATTERN;
    step->invert = steps_flag(object, "invert", false);
    pj_status status = read_behavior(l, object, PJ_BEHAVIOR_ISOLATED, &step->behavior);
    if (status != PJ_OK) return status;
    return read_pattern(l, json_object_get(object, "pattern"), &step->pattern);
}

static pj_status read_byte_level(const loader *l, json_t *object, pj_splitter *step)
{
    step->kind = PJ_SPLITTER_BYTE_LEVEL;
    step->behavior = PJ_BEHAVIOR_ISOLATED;
    step->add_prefix_space = steps_flag(object, "add_prefix_space", true);
    if (!steps_flag(object, "use_regex", true)) return PJ_OK;
    return read_regex(l, gpt2_pattern, sizeof gpt2_pattern - 1, &step->pattern.regex);
}

/* `prepend_scheme`, or the older `add_prefix_space`. */
static pj_status read_prepend_scheme(const loader *l, json_t *object, pj_prepend *prepend)
{
    const char *name = word(object, "prepend_scheme");
    bool given = name[0] != 0;
    *prepend = PJ_PREPEND_ALWAYS;
    if (strcmp(name, "first") == 0)
        *prepend = PJ_PREPEND_FIRST;
    else if (strcmp(name, "never") == 0)
        *prepend = PJ_PREPEND_NEVER;
    else if (given && strcmp(name, "always") != 0)
        return lacking(l, "prepend_scheme", name);
    if (steps_flag(object, "add_prefix_space", true)) return PJ_OK;
    if (given && *prepend != PJ_PREPEND_NEVER)
        return steps_bad(l, "Metaspace",
                         "has an add_prefix_space that contradicts its prepend_scheme");
    *prepend = PJ_PREPEND_NEVER;
    return PJ_OK;
}

static pj_status read_metaspace(const loader *l, json_t *object, pj_splitter *step)
{
    step->kind = PJ_SPLITTER_METASPACE;
    step->behavior = PJ_BEHAVIOR_WITH_NEXT;
    step->split = steps_flag(object, "split", true);
    if (!character(json_object_get(object, "replacement"), step->replacement,
                   &step->replacement_bytes))
        return steps_bad(l, "Metaspace", "has no replacement of one character");
    step->pattern.plain = step->replacement;
    step->pattern.plain_bytes = step->replacement_bytes;
    return read_prepend_scheme(l, object, &step->prepend);
}

static pj_status read_digits(const loader *l, json_t *object, pj_splitter *step)
{
    bool single = steps_flag(object, "individual_digits", false);
    step->kind = PJ_SPLITTER_CLASS;
    step->in_class = pj_unicode_is_numeric;
    step->behavior = single ? PJ_BEHAVIOR_ISOLATED : PJ_BEHAVIOR_CONTIGUOUS;
    return PJ_OK;
}

static pj_status read_punctuation(const loader *l, json_t *object, pj_splitter *step)
{
    step->kind = PJ_SPLITTER_CLASS;
    step->in_class = pj_unicode_is_punctuation;
    return read_behavior(l, object, PJ_BEHAVIOR_ISOLATED, &step->behavior);
}

static pj_status read_words(const loader *l, json_t *object, pj_splitter *step)
{
    step->kind = PJ_SPLITTER_WORDS;
    return PJ_OK;
}

static pj_status read_whitespace(const loader *l, json_t *object, pj_splitter *step)
{
    step->kind = PJ_SPLITTER_CLASS;
    step->in_class = pj_unicode_is_space;
    step->behavior = PJ_BEHAVIOR_REMOVED;
    return PJ_OK;
}

static pj_status read_delimiter(const loader *l, json_t *object, pj_splitter *step)
{
    char bytes[4];
    size_t count;
    step->kind = PJ_SPLITTER_CLASS;
    step->behavior = PJ_BEHAVIOR_REMOVED;
    if (!character(json_object_get(object, "delimiter"), bytes, &count))
        return steps_bad(l, "CharDelimiterSplit", "has no delimiter of one character");
    pj_utf8_next(bytes, count, &step->delimiter);
    return PJ_OK;
}

static pj_status read_fixed(const loader *l, json_t *object, pj_splitter *step)
{
    step->kind = PJ_SPLITTER_FIXED;
    step->length = 5;
    bool given = json_object_get(object, "length") != NULL;
    if (given && !steps_number(object, "length", 1, INT32_MAX, &step->length))
        return steps_bad(l, "FixedLength", "has a length that is not a positive number");
    return PJ_OK;
}

static const struct {
    const char *type;
    read_splitter_fn *read;
} splitter_types[] = {
    {"Split", read_split},
    {"ByteLevel", read_byte_level},
    {"Metaspace", read_metaspace},
    {"Digits", read_digits},
    {"Punctuation", read_punctuation},
    {"Whitespace", read_words},
    {"WhitespaceSplit", read_whitespace},
    {"CharDelimiterSplit", read_delimiter},
    {"FixedLength", read_fixed},
};

static pj_splitter *add_splitter(const loader *l)
{
    pj_tokenizer *t = l->t;
    return t->splitter_count < PJ_MAX_STEPS ? &t->splitters[t->splitter_count++] : NULL;
}

static pj_status read_splitter(const loader *l, json_t *object)
{
    const char *type = word(object, "type");
    pj_splitter *step = NULL;
    if (strcmp(type, "BertPreTokenizer") == 0) { /* white space, then punctuation */
        pj_splitter *spaces = add_splitter(l);
        step = add_splitter(l);
        if (!step) return steps_bad(l, "the pre-tokenizer", "has too many steps");
        read_whitespace(l, object, spaces);
        return read_punctuation(l, object, step);
    }
    for (size_t i = 0; i < sizeof splitter_types / sizeof *splitter_types; i++) {
        if (strcmp(splitter_types[i].type, type) != 0) continue;
        step = add_splitter(l);
        return step ? splitter_types[i].read(l, object, step)
                    : steps_bad(l, "the pre-tokenizer", "has too many steps");
    }
    return lacking(l, "pre-tokenizer", type);
}

/* ---- decoders ---- */

static pj_status read_decoder_step(const loader *l, json_t *object, pj_decoder *step)
{
    pj_prepend prepend;
    pj_status status;
    switch (step->kind) {
    case PJ_DECODER_REPLACE:
        step->content = steps_text_of(l, json_object_get(object, "content"), &step->content_bytes);
        if (!step->content) return steps_bad(l, "the decoder Replace", "has no content");
        return read_pattern(l, json_object_get(object, "pattern"), &step->pattern);
    case PJ_DECODER_STRIP:
        if (!character(json_object_get(object, "content"), step->character,
                       &step->character_bytes) ||
            !steps_number(object, "start", 0, INT32_MAX, &step->start) ||
            !steps_number(object, "stop", 0, INT32_MAX, &step->stop))
            return steps_bad(l, "the decoder Strip", "needs a character, a start and a stop");
        return PJ_OK;
    case PJ_DECODER_METASPACE:
        if (!character(json_object_get(object, "replacement"), step->character,
                       &step->character_bytes))
            return steps_bad(l, "the decoder Metaspace", "has no replacement of one character");
        status = read_prepend_scheme(l, object, &prepend);
        step->drop_first = prepend != PJ_PREPEND_NEVER;
        return status;
    case PJ_DECODER_SUFFIX:
        step->pattern.plain =
            steps_text_of(l, json_object_get(object, "suffix"), &step->pattern.plain_bytes);
        return step->pattern.plain ? PJ_OK
                                   : steps_bad(l, "the decoder BPEDecoder", "has no suffix");
    default: return PJ_OK;
    }
}

static pj_status read_decoder(const loader *l, json_t *object)
{
    static const struct {
        const char *type;
        pj_decoder_kind kind;
    } types[] = {
        {"ByteLevel", PJ_DECODER_BYTE_LEVEL},
        {"Replace", PJ_DECODER_REPLACE},
        {"ByteFallback", PJ_DECODER_BYTE_FALLBACK},
        {"Fuse", PJ_DECODER_FUSE},
        {"Strip", PJ_DECODER_STRIP},
        {"Metaspace", PJ_DECODER_METASPACE},
        {"BPEDecoder", PJ_DECODER_SUFFIX},
    };
    const char *type = word(object, "type");
    pj_tokenizer *t = l->t;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (strcmp(types[i].type, type) != 0) continue;
        if (t->decoder_count == PJ_MAX_STEPS)
            return steps_bad(l, "the decoder", "has too many steps");
        pj_decoder *step = &t->decoders[t->decoder_count++];
        step->kind = types[i].kind;
        return read_decoder_step(l, object, step);
    }
    return lacking(l, "decoder", type);
}

/* ---- post-processors ---- */

static pj_status add_template_id(const loader *l, int64_t id)
{
    pj_template *template = &l->t->template;
    if (!template->ids)
        template->ids = pj_arena_alloc(&l->t->arena, PJ_MAX_STEPS, sizeof *template->ids);
    if (!template->ids) return pj_fail_memory(l->err, "a tokenizer");
    if (template->count == PJ_MAX_STEPS)
        return steps_bad(l, "the post-processor", "adds too many tokens");
    template->ids[template->count++] = (int32_t)id;
    return PJ_OK;
}

static pj_status add_special(const loader *l, json_t *specials, const char *name)
{
    json_t *ids = json_object_get(json_object_get(specials, name), "ids"), *item;
    size_t i;
    if (!json_is_array(ids))
        return pj_fail(l->err, PJ_E_INVALID, "%s: the template names the unknown token %.60s",
                       l->name, name);
    json_array_foreach(ids, i, item)
    {
        int64_t id = json_integer_value(item);
        if (!json_is_integer(item) || id < 0 || id > INT32_MAX)
            return steps_bad(l, "the template", "contains an invalid id");
        pj_status status = add_template_id(l, id);
        if (status != PJ_OK) return status;
    }
    return PJ_OK;
}

static pj_status steps_read_template(const loader *l, json_t *object)
{
    json_t *single = json_object_get(object, "single"), *item;
    json_t *specials = json_object_get(object, "special_tokens");
    size_t i;
    if (!json_is_array(single)) return steps_bad(l, "the template", "has no list `single`");
    if (l->t->template.count > 0) return lacking(l, "post-processor", "Sequence of two templates");
    json_array_foreach(single, i, item)
    {
        json_t *special = json_object_get(item, "SpecialToken");
        json_t *sequence = json_object_get(item, "Sequence");
        pj_status status;
        if (special)
            status = add_special(l, specials, word(special, "id"));
        else if (sequence && strcmp(word(sequence, "id"), "A") == 0)
            status = add_template_id(l, -1);
        else
            return steps_bad(l, "the template",
                             "has a piece that is neither a token nor a sequence");
        if (status != PJ_OK) return status;
    }
    return PJ_OK;
}

/* RobertaProcessing, BertProcessing: "cls" and "sep" are pairs of a token and its id. */
static pj_status read_around(const loader *l, json_t *object)
{
    json_t *cls = json_array_get(json_object_get(object, "cls"), 1);
    json_t *sep = json_array_get(json_object_get(object, "sep"), 1);
    int64_t begin = json_integer_value(cls), end = json_integer_value(sep);
    if (l->t->template.count > 0) return lacking(l, "post-processor", "Sequence of two templates");
    if (!json_is_integer(cls) || !json_is_integer(sep) || begin < 0 || end < 0 ||
        begin > INT32_MAX || end > INT32_MAX)
        return steps_bad(l, "the post-processor", "needs cls and sep with their ids");
    pj_status status = add_template_id(l, begin);
    if (status == PJ_OK) status = add_template_id(l, -1);
    return status == PJ_OK ? add_template_id(l, end) : status;
}

static pj_status read_processor(const loader *l, json_t *object)
{
    const char *type = word(object, "type");
    if (strcmp(type, "ByteLevel") == 0) return PJ_OK; /* affects only offsets, which are not used */
    if (strcmp(type, "TemplateProcessing") == 0) return steps_read_template(l, object);
    if (strcmp(type, "RobertaProcessing") == 0 || strcmp(type, "BertProcessing") == 0)
        return read_around(l, object);
    return lacking(l, "post-processor", type);
}

/* ---- stages ---- */

typedef pj_status read_step_fn(const loader *l, json_t *object);

/* A stage is one step, or a (possibly nested) Sequence of them under `list`. */
static pj_status read_stage(const loader *l, json_t *object, const char *list, int depth,
                            read_step_fn *read)
{
    json_t *item;
    size_t i;
    if (!json_is_object(object))
        return steps_bad(l, list, "contains something that is not an object");
    if (strcmp(word(object, "type"), "Sequence") != 0) return read(l, object);
    json_t *steps = json_object_get(object, list);
    if (!json_is_array(steps) || depth == MAX_NESTING)
        return steps_bad(l, list, "is missing from a Sequence, or nested too deep");
    json_array_foreach(steps, i, item)
    {
        pj_status status = read_stage(l, item, list, depth + 1, read);
        if (status != PJ_OK) return status;
    }
    return PJ_OK;
}

static pj_status load_stages(const loader *l, json_t *root)
{
    const struct {
        const char *key, *list;
        read_step_fn *read;
    } stages[] = {
        {"normalizer", "normalizers", read_normalizer},
        {"pre_tokenizer", "pretokenizers", read_splitter},
        {"post_processor", "processors", read_processor},
        {"decoder", "decoders", read_decoder},
    };
    for (size_t i = 0; i < sizeof stages / sizeof *stages; i++) {
        json_t *object = json_object_get(root, stages[i].key);
        if (!object || json_is_null(object)) continue;
        pj_status status = read_stage(l, object, stages[i].list, 0, stages[i].read);
        if (status != PJ_OK) return status;
    }
    json_t *decoder = json_object_get(root, "decoder");
    l->t->has_decoder = decoder && !json_is_null(decoder);
    return PJ_OK;
}

/* ---- added tokens ---- */

static pj_status read_added(const loader *l, json_t *object, pj_added_token *token)
{
    pj_tokenizer *t = l->t;
    size_t id = 0;
    token->content = steps_text_of(l, json_object_get(object, "content"), &token->bytes);
    if (!token->content || token->bytes == 0)
        return steps_bad(l, "an added token", "has no content");
    int64_t known = pj_vocab_find(&t->vocab, token->content, token->bytes);
    if (known < 0 && !steps_number(object, "id", 0, (int64_t)t->vocab.count * 4 + (1 << 20), &id))
        return steps_bad(l, "an added token", "has no id, or one that is beyond the vocabulary");
    token->id = known < 0 ? (uint32_t)id : (uint32_t)known;
    token->special = steps_flag(object, "special", false);
    token->normalized = steps_flag(object, "normalized", !token->special);
    token->single_word = steps_flag(object, "single_word", false);
    token->lstrip = steps_flag(object, "lstrip", false);
    token->rstrip = steps_flag(object, "rstrip", false);
    token->pattern = token->content;
    token->pattern_bytes = token->bytes;
    return PJ_OK;
}

/* In normalised text, the normalised token is searched for. */
static pj_status normalize_added(const loader *l, pj_added_token *token)
{
    pj_buffer out, scratch;
    pj_buffer_init(&out, 1 << 20);
    pj_buffer_init(&scratch, 1 << 20);
    pj_status status =
        pj_normalize(l->t, token->content, token->bytes, &out, &scratch, NULL, l->err);
    bool same =
        out.length == token->bytes && memcmp(pj_buffer_get(&out), token->content, out.length) == 0;
    if (status == PJ_OK && !same) {
        token->pattern = pj_arena_strndup(&l->t->arena, pj_buffer_get(&out), out.length);
        token->pattern_bytes = out.length;
        if (!token->pattern) status = pj_fail_memory(l->err, "a tokenizer");
    }
    pj_buffer_fini(&out);
    pj_buffer_fini(&scratch);
    return status;
}

static pj_status load_added(const loader *l, json_t *list)
{
    pj_tokenizer *t = l->t;
    size_t i, count = json_array_size(list);
    json_t *item;
    if (list && !json_is_null(list) && !json_is_array(list))
        return steps_bad(l, "added_tokens", "is not a list");
    if (count == 0) return PJ_OK;
    t->added = pj_arena_alloc(&t->arena, count, sizeof *t->added);
    if (!t->added) return pj_fail_memory(l->err, "added tokens");
    json_array_foreach(list, i, item)
    {
        pj_added_token *token = &t->added[t->added_count];
        pj_status status = read_added(l, item, token);
        if (status == PJ_OK && token->normalized && t->normalizer_count > 0)
            status = normalize_added(l, token);
        if (status != PJ_OK) return status;
        if (!pj_trie_add(token->normalized ? &t->normalized_trie : &t->raw_trie, token->pattern,
                         token->pattern_bytes, (int32_t)t->added_count++))
            return pj_fail_memory(l->err, "added tokens");
    }
    return PJ_OK;
}

pj_status pj_load_steps(pj_tokenizer *tokenizer, json_t *root, const char *name, pj_error *err)
{
    loader l = {tokenizer, name, err};
    pj_status status = load_stages(&l, root);
    if (status == PJ_OK) status = load_added(&l, json_object_get(root, "added_tokens"));
    if (status != PJ_OK) return status;
    uint32_t steps = tokenizer->splitter_count;
    tokenizer->letters_last =
        steps > 0 && tokenizer->splitters[steps - 1].kind == PJ_SPLITTER_BYTE_LEVEL;
    return PJ_OK;
}
