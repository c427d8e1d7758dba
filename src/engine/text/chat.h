/* Renders conversations with the model's own chat template, a Jinja program from
 * chat_template.jinja, tokenizer_config.json or a GGUF file's metadata; the program is executed
 * (text/jinja), not recognised by pattern. Message text stays marked through the template, so that
 * control tokens spelled in a message are encoded as plain text. */
#ifndef PJ_TEXT_CHAT_H
#define PJ_TEXT_CHAT_H

#include "engine/text/jinja/jinja.h"
#include "engine/text/tokenizer.h"

typedef struct pj_chat pj_chat; /* a template and its special tokens */

/* A conversation, rendered up to the start of the assistant's answer. */
typedef struct pj_conversation {
    const char *text; /* one user message; or messages as JSON */
    size_t bytes;
    /* `text` is a JSON array of {"role", "content", ...}, or an object with such an array as
     * "messages" and further template variables ("tools", "documents", ...). */
    bool messages;
    const char *system;    /* prepended as a system message; or NULL */
    const char *variables; /* a JSON object of further variables ("enable_thinking"); or NULL */
} pj_conversation;

/* From the files of a model folder. PJ_E_UNSUPPORTED: it has no template (a base model). */
pj_status pj_chat_open(const char *folder, pj_chat **chat, pj_error *err);
struct pj_gguf;
/* From the metadata of a GGUF file and its tokenizer. */
pj_status pj_chat_of_gguf(const struct pj_gguf *gguf, const pj_tokenizer *tokenizer,
                          const char *name, pj_chat **chat, pj_error *err);
/* From a template's text; bos and eos may be "". */
pj_status pj_chat_parse(const char *template, size_t bytes, const char *name, const char *bos,
                        const char *eos, pj_chat **chat, pj_error *err);
void pj_chat_close(pj_chat *chat); /* NULL is allowed */

/* The text, with the bytes from messages marked. */
pj_status pj_chat_render(const pj_chat *chat, const pj_conversation *conversation,
                         pj_jinja_output *output, pj_error *err);
/* Renders and encodes. The template writes the special tokens itself; the post-processor adds
 * none. */
pj_status pj_chat_encode(const pj_chat *chat, const pj_tokenizer *tokenizer,
                         const pj_conversation *conversation, pj_ids *ids, pj_error *err);

#endif
