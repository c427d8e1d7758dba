/*
 * Chat formats. A model says how a conversation is written in a template of its
 * tokenizer_config.json (or chat_template.jinja); templates are programs, which perjoule does not
 * run: it recognises the formats of the families it knows by what their templates contain, and
 * refuses the rest. What a user wrote is marked, so that control tokens spelled in it stay text.
 */
#ifndef PJ_LLM_CHAT_H
#define PJ_LLM_CHAT_H

#include "llm/tokenizer.h"

typedef enum pj_chat_kind {
    PJ_CHAT_CHATML = 0,     /* <|im_start|>role\ncontent<|im_end|>\n */
    PJ_CHAT_PHI4,           /* <|im_start|>role<|im_sep|>content<|im_end|> */
    PJ_CHAT_LLAMA2,         /* [INST] <<SYS>>...<</SYS>> u [/INST] a </s> */
    PJ_CHAT_MISTRAL_V1,     /* [INST] u [/INST] a</s> */
    PJ_CHAT_MISTRAL_V3,     /* [INST] u[/INST] a</s> */
    PJ_CHAT_MISTRAL_TEKKEN, /* [INST]u[/INST]a</s> */
    PJ_CHAT_MISTRAL_V7,     /* [SYSTEM_PROMPT] s[/SYSTEM_PROMPT][INST] u[/INST] a</s> */
    PJ_CHAT_PHI3,           /* <|role|>\ncontent<|end|>\n */
    PJ_CHAT_LLAMA3,         /* <|start_header_id|>role<|end_header_id|>\n\ncontent<|eot_id|> */
    PJ_CHAT_KIND_COUNT
} pj_chat_kind;

typedef struct pj_chat_format {
    pj_chat_kind kind;
    char bos[64], eos[64];    /* as text; bos "": the template writes none */
    char default_system[256]; /* ChatML: when a conversation has no system message; "": none */
    bool dated_system;        /* Llama 3.1 and later: date lines in front of the system text */
    bool newlines;            /* Phi-3: behind role and message */
    bool leading_space;       /* Mistral v1: before [INST] */
} pj_chat_format;

typedef struct pj_chat_message {
    const char *role; /* "system", "user", "assistant" */
    const char *content;
} pj_chat_message;

const char *pj_chat_name(pj_chat_kind kind); /* "llama-3" */
/* From the text of a template; bos and eos are the tokens that it may name. Unknown: unsupported.
 */
pj_status pj_chat_recognise(const char *text, const char *bos, const char *eos,
                            pj_chat_format *format, pj_error *err);
/* From the files of a model folder. */
pj_status pj_chat_open(const char *folder, pj_chat_format *format, pj_error *err);
struct pj_gguf;
/* From the metadata of a GGUF file, whose tokenizer is given. */
pj_status pj_chat_of_gguf(const struct pj_gguf *gguf, const pj_tokenizer *tokenizer,
                          const char *name, pj_chat_format *format, pj_error *err);
/* Appends the conversation, ending with the assistant's opening; `literals` has room for `count`
 * spans and gets those of the contents. */
pj_status pj_chat_render(const pj_chat_format *format, const pj_chat_message *messages,
                         size_t count, pj_buffer *text, pj_text_span *literals, pj_error *err);
/* Render and encode; the format brings its own control tokens, so the post-processor adds none. */
pj_status pj_chat_encode(const pj_chat_format *format, const pj_tokenizer *tokenizer,
                         const pj_chat_message *messages, size_t count, pj_ids *ids, pj_error *err);

#endif
