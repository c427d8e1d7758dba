/*
 * Recognises the events of a stream that differ in their text alone, which are most of them, so
 * that their JSON need not be parsed again. An event that was parsed and did nothing but give one
 * text is kept as the template; an event with the same bytes before and after its text means the
 * same. Whatever is not certainly so (escapes, a text that the event contains twice, invalid
 * UTF-8) does not match and is parsed.
 */
#ifndef PJ_ATTACH_ANSWER_TEMPLATE_H
#define PJ_ATTACH_ANSWER_TEMPLATE_H

#include "base/buffer.h"

#include <stdint.h>

typedef struct pj_answer_template {
    pj_buffer event;   /* its JSON; empty: there is no template */
    size_t begin, end; /* of the text in it, without quotes */
    uint32_t choice;
    bool reasoning;
} pj_answer_template;

void pj_answer_template_init(pj_answer_template *t);
void pj_answer_template_fini(pj_answer_template *t);
/* Keeps an event whose only effect was to give this text to this choice, if the text is found in it
 * unmistakably; otherwise the present template stays. */
void pj_answer_template_learn(pj_answer_template *t, const char *event, size_t bytes,
                              const char *text, size_t text_bytes, uint32_t choice, bool reasoning);
void pj_answer_template_forget(pj_answer_template *t);
/* The event's text, if the event equals the template otherwise. */
bool pj_answer_template_match(const pj_answer_template *t, const char *event, size_t bytes,
                              const char **text, size_t *text_bytes);

#endif
