/* Text as a word of a shell's command. */
#ifndef PJ_BASE_SHELL_H
#define PJ_BASE_SHELL_H

#include "base/buffer.h"

/* Appends the text, quoted if a shell would expand or split it. */
void pj_shell_word(pj_buffer *out, const char *text);

#endif
