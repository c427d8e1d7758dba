/* Single quotes, which keep everything but themselves. */
#include "base/shell.h"

#include "base/utf8.h"

#include <ctype.h>
#include <string.h>

static bool shell_is_plain(const char *text)
{
    if (!*text) return false;
    for (const char *c = text; *c; c++)
        if (!isalnum((unsigned char)*c) && !strchr("_-./:=,@%+", *c)) return false;
    return true;
}

static void shell_name_bytes(pj_buffer *out, const char *text, size_t count)
{
    pj_buffer_text(out, "'$'");
    for (size_t i = 0; i < count; i++) pj_buffer_printf(out, "\\x%02x", (unsigned char)text[i]);
    pj_buffer_text(out, "''");
}

void pj_shell_word(pj_buffer *out, const char *text)
{
    if (shell_is_plain(text)) {
        pj_buffer_text(out, text);
        return;
    }
    pj_buffer_char(out, '\'');
    for (size_t n, left = strlen(text); left > 0; left -= n, text += n) {
        uint32_t c;
        n = pj_utf8_step(text, left, &c);
        if (pj_utf8_is_control(c)) /* pasted, it would act on the terminal: $'\x1b' is its name */
            shell_name_bytes(out, text, n);
        else if (*text == '\'')
            pj_buffer_text(out, "'\\''");
        else
            pj_buffer_append(out, text, n);
    }
    pj_buffer_char(out, '\'');
}
