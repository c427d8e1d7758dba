/* Single quotes, which keep everything but themselves. */
#include "base/shell.h"

#include <ctype.h>
#include <string.h>

static bool shell_is_plain(const char *text)
{
    if (!*text) return false;
    for (const char *c = text; *c; c++)
        if (!isalnum((unsigned char)*c) && !strchr("_-./:=,@%+", *c)) return false;
    return true;
}

void pj_shell_word(pj_buffer *out, const char *text)
{
    if (shell_is_plain(text)) {
        pj_buffer_text(out, text);
        return;
    }
    pj_buffer_char(out, '\'');
    for (; *text; text++) pj_buffer_text(out, *text == '\'' ? "'\\''" : (char[2]){*text, 0});
    pj_buffer_char(out, '\'');
}
