/* Shared by the tokenizer's files. A tokenizer is a list of steps per stage, built when it is
 * opened and constant afterwards; the mutable state of encoding is in a workspace. */
#ifndef PJ_TEXT_TOKENIZER_PARTS_H
#define PJ_TEXT_TOKENIZER_PARTS_H

#include "base/json_scan.h"
#include "base/memory.h"
#include "engine/text/tokenizer.h"

#include <jansson.h>
#include <pthread.h>

#define PJ_SPACE_MARK "\xe2\x96\x81" /* U+2581, which represents a space in vocabularies */
enum { PJ_SPACE_MARK_BYTES = 3 };

/* ---- unicode.c: properties as the reference's libraries define them ---- */

bool pj_unicode_is_space(uint32_t c);   /* White_Space */
bool pj_unicode_is_word(uint32_t c);    /* letters, marks, decimal digits, connectors, joiners */
bool pj_unicode_is_numeric(uint32_t c); /* category N */
bool pj_unicode_is_punctuation(uint32_t c); /* category P, and all ASCII punctuation */
bool pj_unicode_is_mark(uint32_t c);        /* category M */
bool pj_unicode_is_nonspacing(uint32_t c);  /* category Mn */
bool pj_unicode_is_other(uint32_t c);       /* control, format, private, surrogate */
bool pj_unicode_is_letter(uint32_t c);      /* category L */
uint32_t pj_unicode_lower(uint32_t c);
uint32_t pj_unicode_upper(uint32_t c);
typedef enum pj_unicode_form {
    PJ_FORM_NFC,
    PJ_FORM_NFD,
    PJ_FORM_NFKC,
    PJ_FORM_NFKD
} pj_unicode_form;
bool pj_unicode_normalize(pj_unicode_form form, const char *text, size_t bytes, pj_buffer *out);
/* Replaces each invalid sequence (maximal subpart) by U+FFFD. */
bool pj_utf8_repair(const char *text, size_t bytes, pj_buffer *out);
/* Number of bytes at the end that may be the beginning of a character. */
size_t pj_utf8_unfinished(const char *text, size_t bytes);
/* The code point ending at text + at, at > 0; the text must be valid. */
uint32_t pj_utf8_before(const char *text, size_t at);

/* ---- regex.c ---- */

/* Not thread-safe: matching writes into the regex. The tokenizer's lock guards it. */
typedef struct pj_regex pj_regex;
pj_status pj_regex_new(const char *pattern, size_t bytes, pj_regex **regex, pj_error *err);
void pj_regex_free(pj_regex *regex);
/* The next match at or after *from in valid UTF-8: 1 found, 0 none, -1 limit exceeded. Empty
 * matches directly after the last match are skipped; *from and *last keep the position. */
typedef struct pj_regex_cursor {
    size_t from, last; /* `last` is SIZE_MAX before the first match */
} pj_regex_cursor;

/* A pattern in the file: a plain string or a regular expression. */
typedef struct pj_pattern {
    pj_regex *regex; /* NULL: plain */
    const char *plain;
    size_t plain_bytes;
} pj_pattern;
int pj_pattern_next(const pj_pattern *pattern, const char *text, size_t bytes,
                    pj_regex_cursor *cursor, size_t *begin, size_t *end);
/* Appends the text with every match replaced; false: out of memory, or a limit exceeded. */
bool pj_pattern_replace(const pj_pattern *pattern, const char *text, size_t bytes,
                        const char *content, size_t content_bytes, pj_buffer *out);

/* ---- vocab.c: token text to id and back, pairs to merges ---- */

typedef struct pj_vocab_entry {
    uint32_t offset, bytes, id;
} pj_vocab_entry;

typedef struct pj_merge {
    uint32_t left, right, result; /* ids */
} pj_merge;

/* Open addressing: upper half of the hash << 32 | index in the list + 1; 0: free. */
typedef struct pj_table {
    uint64_t *slots;
    size_t mask;
} pj_table;

typedef struct pj_vocab {
    char *text; /* all tokens, each terminated */
    size_t text_bytes, text_capacity;
    pj_vocab_entry *entries; /* in file order */
    uint32_t count, capacity;
    pj_table by_text;
    uint64_t seed;
    uint32_t *by_id; /* [size] entry index + 1; 0: unused */
    uint32_t size;
    pj_merge *merges; /* by rank */
    uint32_t *ranks;  /* [merge_count] if merges share ranks; NULL: the index is the rank */
    uint32_t merge_count;
    bool crosses; /* some merge joins two parts across a space mark */
    pj_table by_pair;
} pj_vocab;

void pj_vocab_init(pj_vocab *vocab);
void pj_vocab_fini(pj_vocab *vocab);

/* Building a vocabulary: reserve tokens and bytes of text, add all tokens, then index; look-ups
 * work only afterwards. Of equal texts the last one counts. */
bool pj_vocab_reserve(pj_vocab *vocab, size_t tokens, size_t bytes);
bool pj_vocab_add(pj_vocab *vocab, const char *text, size_t bytes, uint32_t id);
bool pj_vocab_index(pj_vocab *vocab);
bool pj_vocab_index_ids(pj_vocab *vocab); /* after the last index */
int64_t pj_vocab_find(const pj_vocab *vocab, const char *text, size_t bytes); /* id; -1: none */
static inline const pj_vocab_entry *pj_vocab_entry_of(const pj_vocab *vocab, uint32_t id)
{
    uint32_t entry = id < vocab->size ? vocab->by_id[id] : 0;
    return entry ? &vocab->entries[entry - 1] : NULL;
}
/* The index in the list; -1: none. */
int64_t pj_vocab_number(const pj_vocab *vocab, const char *text, size_t bytes);
/* Batched look-up, so that cache misses overlap. */
typedef struct pj_vocab_query {
    const char *text;
    size_t bytes;
    uint64_t hash;
    int64_t id; /* result; -1: none */
} pj_vocab_query;
void pj_vocab_find_all(const pj_vocab *vocab, pj_vocab_query *queries, size_t count);
/* Whether the token at this index, which may be past the end, has this text. */
bool pj_vocab_is_at(const pj_vocab *vocab, uint32_t index, const char *text, size_t bytes);

/* Building merges: reserve, let the caller fill list and count, then index. The index in the list
 * is the rank, unless there are ranks; of equal pairs the last one counts. */
#define PJ_NO_MERGE UINT32_MAX
bool pj_vocab_reserve_merges(pj_vocab *vocab, size_t count);
bool pj_vocab_index_merges(pj_vocab *vocab);
/* Notes whether a merge of these parts joins them across a space mark. */
void pj_vocab_note_parts(pj_vocab *vocab, const char *left, size_t left_bytes, const char *right,
                         size_t right_bytes);
/* The index in the list, or PJ_NO_MERGE. */
uint32_t pj_vocab_merge(const pj_vocab *vocab, uint32_t left, uint32_t right);

uint64_t pj_text_hash(const char *text, size_t bytes, uint64_t seed);

/* ---- added.c: tokens that are cut out of the text before anything else ---- */

typedef struct pj_added_token {
    char *content; /* in the arena */
    size_t bytes;
    char *pattern; /* text to search for: the content, normalised if the token requires it */
    size_t pattern_bytes;
    uint32_t id;
    bool single_word, lstrip, rstrip, normalized, special;
} pj_added_token;

typedef struct pj_trie_node {
    uint32_t child, sibling; /* 0: none */
    int32_t token;           /* -1: no token ends here */
    unsigned char byte;
} pj_trie_node;

typedef struct pj_trie {
    pj_trie_node *nodes; /* the first is the root */
    uint32_t count, capacity;
    bool starts[256];
} pj_trie;

bool pj_trie_add(pj_trie *trie, const char *text, size_t bytes, int32_t token);
void pj_trie_fini(pj_trie *trie);
/* The longest token at text[at], with its end in *end; -1 for none. */
int32_t pj_trie_longest(const pj_trie *trie, const char *text, size_t bytes, size_t at,
                        size_t *end);

/* ---- the steps of the stages ---- */

typedef enum pj_step_kind {
    PJ_NORMALIZER_FORM,
    PJ_NORMALIZER_LOWERCASE,
    PJ_NORMALIZER_STRIP_ACCENTS,
    PJ_NORMALIZER_STRIP,
    PJ_NORMALIZER_REPLACE,
    PJ_NORMALIZER_PREPEND,
    PJ_NORMALIZER_BYTE_LEVEL,
    PJ_NORMALIZER_BERT,
    PJ_SPLITTER_PATTERN,
    PJ_SPLITTER_BYTE_LEVEL,
    PJ_SPLITTER_METASPACE,
    PJ_SPLITTER_CLASS, /* runs or single characters of a class */
    PJ_SPLITTER_WORDS, /* Whitespace: runs of word characters, runs of the rest */
    PJ_SPLITTER_FIXED,
    PJ_DECODER_BYTE_LEVEL,
    PJ_DECODER_REPLACE,
    PJ_DECODER_BYTE_FALLBACK,
    PJ_DECODER_FUSE,
    PJ_DECODER_STRIP,
    PJ_DECODER_METASPACE,
    PJ_DECODER_SUFFIX
} pj_step_kind;

typedef enum pj_behavior {
    PJ_BEHAVIOR_REMOVED,
    PJ_BEHAVIOR_ISOLATED,
    PJ_BEHAVIOR_WITH_PREVIOUS,
    PJ_BEHAVIOR_WITH_NEXT,
    PJ_BEHAVIOR_CONTIGUOUS
} pj_behavior;

typedef enum pj_prepend { PJ_PREPEND_ALWAYS, PJ_PREPEND_FIRST, PJ_PREPEND_NEVER } pj_prepend;

/* A step of the normalizer, the pre-tokenizer or the decoder. */
typedef struct pj_step {
    pj_step_kind kind;
    pj_pattern pattern;  /* what is replaced, or where text is split */
    const char *content; /* replace, prepend */
    size_t content_bytes;
    char character[4]; /* metaspace; strip of a decoder */
    size_t character_bytes;
    /* normalizers */
    pj_unicode_form form;
    bool left, right;                        /* strip */
    bool clean, chinese, accents, lowercase; /* bert */
    /* pre-tokenizers */
    pj_behavior behavior;
    bool invert;
    bool (*in_class)(uint32_t c);
    uint32_t delimiter;    /* CLASS without in_class: this delimiter */
    bool add_prefix_space; /* byte level */
    pj_prepend prepend;    /* metaspace */
    bool split;
    size_t length; /* fixed */
    /* decoders */
    size_t start, stop; /* strip */
    bool drop_first;    /* metaspace: drop the first token's mark */
} pj_step;

enum { PJ_MAX_STEPS = 64 };

typedef struct pj_step_list {
    pj_step items[PJ_MAX_STEPS];
    uint32_t count;
} pj_step_list;

/* The post-processor's result: pieces in order; id -1 represents the text. */
typedef struct pj_template {
    int32_t *ids; /* in the arena; NULL: only the text */
    uint32_t count;
} pj_template;

typedef struct pj_bpe {
    int64_t unk;      /* -1: none */
    bool unk_missing; /* the file names one missing from the vocabulary */
    bool byte_fallback, fuse_unk, ignore_merges;
    const char *prefix, *suffix; /* for symbols after the first, for the last; "" none */
    size_t prefix_bytes, suffix_bytes;
    int64_t byte_tokens[256]; /* "<0x41>"; a symbol's fallback needs all of them */
    int64_t letters[256];     /* the byte-level letter of a byte; -1: missing from the vocabulary */
    bool all_letters;
    bool cut_at_mark; /* words can be split before U+2581: no merge crosses it */
} pj_bpe;

struct pj_tokenizer {
    pj_arena arena;
    pj_vocab vocab;
    pj_bpe bpe;
    pj_added_token *added;
    uint32_t added_count;
    pj_trie raw_trie, normalized_trie;
    uint32_t *added_by_id; /* [size] index + 1; 0: none */
    uint32_t size;
    pj_step_list normalizers, splitters, decoders;
    bool has_decoder;
    /* the last splitter's conversion of bytes to letters is left to the model stage */
    bool letters_last;
    pj_template template;
    pthread_mutex_t lock; /* protects `workspace` and every regex */
    struct pj_workspace *workspace;
};

/* ---- byte level: the 256 letters that represent bytes (unicode.c) ---- */

uint32_t pj_byte_letter(unsigned char byte);
void pj_put_byte_letters(const char *text, size_t bytes, pj_buffer *out);
int pj_letter_byte(uint32_t letter); /* -1: not a byte letter */

/* ---- normalizer.c ---- */

/* Normalises `text` into `out`, using `scratch`; both are cleared first. `head`, unless NULL, is a
 * number of bytes at the front of the text, and becomes the number of bytes at the front of `out`
 * that come from them. */
pj_status pj_normalize(const pj_tokenizer *tokenizer, const char *text, size_t bytes,
                       pj_buffer *out, pj_buffer *scratch, size_t *head, pj_error *err);

/* ---- splitter.c ---- */

typedef struct pj_piece {
    size_t begin, end;
} pj_piece;

typedef struct pj_pieces {
    pj_piece *items;
    size_t count, capacity;
} pj_pieces;

/* Text split into pieces; a step that changes text rewrites all of it. */
typedef struct pj_split_state {
    const char *text; /* the input, or one of the buffers */
    pj_buffer buffers[2];
    pj_pieces pieces, next;
    bool first; /* the piece at 0 begins the original text */
} pj_split_state;

void pj_split_state_init(pj_split_state *state);
void pj_split_state_fini(pj_split_state *state);
pj_status pj_split(const pj_tokenizer *tokenizer, pj_split_state *state, const char *text,
                   size_t bytes, bool first, pj_error *err);

/* ---- bpe.c ---- */

typedef struct pj_bpe_scratch {
    struct pj_symbol *symbols;
    struct pj_candidate *heap;
    size_t symbol_capacity, heap_capacity;
    pj_buffer letters; /* a word in byte-level letters, for look-up as text */
} pj_bpe_scratch;

void pj_bpe_scratch_fini(pj_bpe_scratch *scratch);
/* Appends the ids of one word; `raw`: its bytes have not been converted to letters. */
pj_status pj_bpe_encode(const pj_tokenizer *tokenizer, pj_bpe_scratch *scratch, const char *word,
                        size_t bytes, bool raw, pj_ids *ids, pj_error *err);

/* ---- encode.c ---- */

void pj_workspace_free(struct pj_workspace *workspace);

/* ---- building one: table.c; steps.c, model.c, merges.c; gguf.c ---- */

/* The pattern of GPT-2, used by byte level for splitting. */
#define PJ_GPT2_PATTERN \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

pj_tokenizer *pj_tokenizer_new(void); /* empty; NULL: out of memory */
/* Finds the tokens of single bytes, and whether words can be split, once the vocabulary and the
 * merges are complete. */
void pj_bpe_finish(pj_tokenizer *tokenizer);
/* Builds the table from ids to added tokens, once all are known; checks the ids that the template
 * adds. */
pj_status pj_tokenizer_index(pj_tokenizer *tokenizer, const char *name, pj_error *err);

pj_status pj_load_steps(pj_tokenizer *tokenizer, json_t *root, const char *name, pj_error *err);
/* Reads the list at the scanner's cursor. */
pj_status pj_load_merges(pj_tokenizer *tokenizer, pj_json_scan *scan, const char *name,
                         pj_error *err);
struct pj_gguf_value;
/* The same from an array of strings "a b". */
pj_status pj_load_merge_texts(pj_tokenizer *tokenizer, const struct pj_gguf_value *list,
                              const char *name, pj_error *err);
pj_status pj_load_model(pj_tokenizer *tokenizer, pj_json_scan *scan, const char *name,
                        pj_error *err);

#endif
