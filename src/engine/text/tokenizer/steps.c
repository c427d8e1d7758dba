/* The small parts of a tokenizer.json: added tokens, normalizer, pre-tokenizer, post-processor,
 * decoder, each a JSON object with a "type". A table per stage lists the supported types; others
 * are rejected by name. */
#include "engine/text/tokenizer/parts.h"

#include "base/utf8.h"

#include <string.h>

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

typedef pj_status read_step_fn(const loader *l, json_t *object, pj_step *step);

/* A type of step: what it is without its settings, and the reader of those; NULL: it has none. */
typedef struct step_type {
    const char *type;
    pj_step like;
    read_step_fn *read;
} step_type;

/* ---- normalizers ---- */

static pj_status read_strip(const loader *l, json_t *object, pj_step *step)
{
    step->left = steps_flag(object, "strip_left", true);
    step->right = steps_flag(object, "strip_right", true);
    return PJ_OK;
}

static pj_status read_replace(const loader *l, json_t *object, pj_step *step)
{
    bool decoder = step->kind == PJ_DECODER_REPLACE;
    step->content = steps_text_of(l, json_object_get(object, "content"), &step->content_bytes);
    if (!step->content)
        return steps_bad(l, decoder ? "the decoder Replace" : "the normalizer Replace",
                         "has no content");
    return read_pattern(l, json_object_get(object, "pattern"), &step->pattern);
}

static pj_status read_prepend(const loader *l, json_t *object, pj_step *step)
{
    step->content = steps_text_of(l, json_object_get(object, "prepend"), &step->content_bytes);
    return step->content ? PJ_OK : steps_bad(l, "the normalizer Prepend", "has no text");
}

static pj_status read_bert(const loader *l, json_t *object, pj_step *step)
{
    step->clean = steps_flag(object, "clean_text", true);
    step->chinese = steps_flag(object, "handle_chinese_chars", true);
    step->lowercase = steps_flag(object, "lowercase", true);
    step->accents = steps_flag(object, "strip_accents", step->lowercase);
    return PJ_OK;
}

static const step_type normalizer_types[] = {
    {"NFC", {.kind = PJ_NORMALIZER_FORM, .form = PJ_FORM_NFC}},
    {"NFD", {.kind = PJ_NORMALIZER_FORM, .form = PJ_FORM_NFD}},
    {"NFKC", {.kind = PJ_NORMALIZER_FORM, .form = PJ_FORM_NFKC}},
    {"NFKD", {.kind = PJ_NORMALIZER_FORM, .form = PJ_FORM_NFKD}},
    {"Lowercase", {.kind = PJ_NORMALIZER_LOWERCASE}},
    {"StripAccents", {.kind = PJ_NORMALIZER_STRIP_ACCENTS}},
    {"Strip", {.kind = PJ_NORMALIZER_STRIP}, read_strip},
    {"Replace", {.kind = PJ_NORMALIZER_REPLACE}, read_replace},
    {"Prepend", {.kind = PJ_NORMALIZER_PREPEND}, read_prepend},
    {"ByteLevel", {.kind = PJ_NORMALIZER_BYTE_LEVEL}},
    {"BertNormalizer", {.kind = PJ_NORMALIZER_BERT}, read_bert},
    {NULL},
};

/* ---- pre-tokenizers ---- */

/* Replaces the default if another one is given. */
static pj_status read_behavior(const loader *l, json_t *object, pj_step *step)
{
    static const char *const names[] = {
        [PJ_BEHAVIOR_REMOVED] = "Removed",
        [PJ_BEHAVIOR_ISOLATED] = "Isolated",
        [PJ_BEHAVIOR_WITH_PREVIOUS] = "MergedWithPrevious",
        [PJ_BEHAVIOR_WITH_NEXT] = "MergedWithNext",
        [PJ_BEHAVIOR_CONTIGUOUS] = "Contiguous",
    };
    if (!json_object_get(object, "behavior")) return PJ_OK;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i], word(object, "behavior")) == 0) {
            step->behavior = (pj_behavior)i;
            return PJ_OK;
        }
    return lacking(l, "split behavior", word(object, "behavior"));
}

static pj_status read_split(const loader *l, json_t *object, pj_step *step)
{
    step->invert = steps_flag(object, "invert", false);
    pj_status status = read_behavior(l, object, step);
    if (status != PJ_OK) return status;
    return read_pattern(l, json_object_get(object, "pattern"), &step->pattern);
}

static pj_status read_byte_level(const loader *l, json_t *object, pj_step *step)
{
    step->add_prefix_space = steps_flag(object, "add_prefix_space", true);
    if (!steps_flag(object, "use_regex", true)) return PJ_OK;
    return read_regex(l, PJ_GPT2_PATTERN, strlen(PJ_GPT2_PATTERN), &step->pattern.regex);
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

static pj_status read_metaspace(const loader *l, json_t *object, pj_step *step)
{
    step->split = steps_flag(object, "split", true);
    if (!character(json_object_get(object, "replacement"), step->character, &step->character_bytes))
        return steps_bad(l,
                         step->kind == PJ_DECODER_METASPACE ? "the decoder Metaspace" : "Metaspace",
                         "has no replacement of one character");
    step->pattern.plain = step->character;
    step->pattern.plain_bytes = step->character_bytes;
    pj_status status = read_prepend_scheme(l, object, &step->prepend);
    step->drop_first = step->prepend != PJ_PREPEND_NEVER;
    return status;
}

static pj_status read_digits(const loader *l, json_t *object, pj_step *step)
{
    if (steps_flag(object, "individual_digits", false)) step->behavior = PJ_BEHAVIOR_ISOLATED;
    return PJ_OK;
}

static pj_status read_delimiter(const loader *l, json_t *object, pj_step *step)
{
    char bytes[4];
    size_t count;
    if (!character(json_object_get(object, "delimiter"), bytes, &count))
        return steps_bad(l, "CharDelimiterSplit", "has no delimiter of one character");
    pj_utf8_next(bytes, count, &step->delimiter);
    return PJ_OK;
}

static pj_status read_fixed(const loader *l, json_t *object, pj_step *step)
{
    bool given = json_object_get(object, "length") != NULL;
    if (given && !steps_number(object, "length", 1, INT32_MAX, &step->length))
        return steps_bad(l, "FixedLength", "has a length that is not a positive number");
    return PJ_OK;
}

static const step_type splitter_types[] = {
    {"Split", {.kind = PJ_SPLITTER_PATTERN, .behavior = PJ_BEHAVIOR_ISOLATED}, read_split},
    {"ByteLevel",
     {.kind = PJ_SPLITTER_BYTE_LEVEL, .behavior = PJ_BEHAVIOR_ISOLATED},
     read_byte_level},
    {"Metaspace",
     {.kind = PJ_SPLITTER_METASPACE, .behavior = PJ_BEHAVIOR_WITH_NEXT},
     read_metaspace},
    {"Digits",
     {.kind = PJ_SPLITTER_CLASS,
      .behavior = PJ_BEHAVIOR_CONTIGUOUS,
      .in_class = pj_unicode_is_numeric},
     read_digits},
    {"Punctuation",
     {.kind = PJ_SPLITTER_CLASS,
      .behavior = PJ_BEHAVIOR_ISOLATED,
      .in_class = pj_unicode_is_punctuation},
     read_behavior},
    {"Whitespace", {.kind = PJ_SPLITTER_WORDS}},
    {"WhitespaceSplit",
     {.kind = PJ_SPLITTER_CLASS, .behavior = PJ_BEHAVIOR_REMOVED, .in_class = pj_unicode_is_space}},
    {"CharDelimiterSplit",
     {.kind = PJ_SPLITTER_CLASS, .behavior = PJ_BEHAVIOR_REMOVED},
     read_delimiter},
    {"FixedLength", {.kind = PJ_SPLITTER_FIXED, .length = 5}, read_fixed},
    {NULL},
};

/* ---- decoders ---- */

static pj_status read_decoder_strip(const loader *l, json_t *object, pj_step *step)
{
    if (character(json_object_get(object, "content"), step->character, &step->character_bytes) &&
        steps_number(object, "start", 0, INT32_MAX, &step->start) &&
        steps_number(object, "stop", 0, INT32_MAX, &step->stop))
        return PJ_OK;
    return steps_bad(l, "the decoder Strip", "needs a character, a start and a stop");
}

static pj_status read_suffix(const loader *l, json_t *object, pj_step *step)
{
    step->pattern.plain =
        steps_text_of(l, json_object_get(object, "suffix"), &step->pattern.plain_bytes);
    return step->pattern.plain ? PJ_OK : steps_bad(l, "the decoder BPEDecoder", "has no suffix");
}

static const step_type decoder_types[] = {
    {"ByteLevel", {.kind = PJ_DECODER_BYTE_LEVEL}},
    {"Replace", {.kind = PJ_DECODER_REPLACE}, read_replace},
    {"ByteFallback", {.kind = PJ_DECODER_BYTE_FALLBACK}},
    {"Fuse", {.kind = PJ_DECODER_FUSE}},
    {"Strip", {.kind = PJ_DECODER_STRIP}, read_decoder_strip},
    {"Metaspace", {.kind = PJ_DECODER_METASPACE}, read_metaspace},
    {"BPEDecoder", {.kind = PJ_DECODER_SUFFIX}, read_suffix},
    {NULL},
};

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

typedef struct stage {
    const char *key, *list, *what;
    const step_type *types; /* NULL: the post-processor, whose steps become one template */
    pj_step_list *steps;
} stage;

static pj_status add_step(const loader *l, const stage *to, const char *type, json_t *object)
{
    for (const step_type *t = to->types; t->type; t++) {
        if (strcmp(t->type, type) != 0) continue;
        if (to->steps->count == PJ_MAX_STEPS)
            return pj_fail(l->err, PJ_E_INVALID, "%s: the %s has too many steps", l->name,
                           to->what);
        pj_step *step = &to->steps->items[to->steps->count++];
        *step = t->like;
        return t->read ? t->read(l, object, step) : PJ_OK;
    }
    return lacking(l, to->what, type);
}

static pj_status read_step(const loader *l, const stage *to, json_t *object)
{
    const char *type = word(object, "type");
    if (!to->types) return read_processor(l, object);
    if (to->types != splitter_types || strcmp(type, "BertPreTokenizer") != 0)
        return add_step(l, to, type, object);
    pj_status status = add_step(l, to, "WhitespaceSplit", object);
    return status == PJ_OK ? add_step(l, to, "Punctuation", object) : status;
}

/* A stage is one step, or a (possibly nested) Sequence of them under its `list`. */
static pj_status read_stage(const loader *l, const stage *to, json_t *object, int depth)
{
    json_t *item;
    size_t i;
    if (!json_is_object(object))
        return steps_bad(l, to->list, "contains something that is not an object");
    if (strcmp(word(object, "type"), "Sequence") != 0) return read_step(l, to, object);
    json_t *steps = json_object_get(object, to->list);
    if (!json_is_array(steps) || depth == MAX_NESTING)
        return steps_bad(l, to->list, "is missing from a Sequence, or nested too deep");
    json_array_foreach(steps, i, item)
    {
        pj_status status = read_stage(l, to, item, depth + 1);
        if (status != PJ_OK) return status;
    }
    return PJ_OK;
}

static pj_status load_stages(const loader *l, json_t *root)
{
    pj_tokenizer *t = l->t;
    const stage stages[] = {
        {"normalizer", "normalizers", "normalizer", normalizer_types, &t->normalizers},
        {"pre_tokenizer", "pretokenizers", "pre-tokenizer", splitter_types, &t->splitters},
        {"post_processor", "processors", "post-processor", NULL, NULL},
        {"decoder", "decoders", "decoder", decoder_types, &t->decoders},
    };
    for (size_t i = 0; i < sizeof stages / sizeof *stages; i++) {
        json_t *object = json_object_get(root, stages[i].key);
        if (!object || json_is_null(object)) continue;
        pj_status status = read_stage(l, &stages[i], object, 0);
        if (status != PJ_OK) return status;
    }
    json_t *decoder = json_object_get(root, "decoder");
    t->has_decoder = decoder && !json_is_null(decoder);
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
        if (status == PJ_OK && token->normalized && t->normalizers.count > 0)
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
    const pj_step_list *splitters = &tokenizer->splitters;
    tokenizer->letters_last = splitters->count > 0 &&
                              splitters->items[splitters->count - 1].kind == PJ_SPLITTER_BYTE_LEVEL;
    return PJ_OK;
}
