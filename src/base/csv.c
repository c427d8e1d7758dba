/* Quoting of texts in comma-separated values. */
#include "base/csv.h"

#include <stdbool.h>
#include <string.h>

/* CSV injection: spreadsheets treat a cell that begins with one of these as a formula, which can
 * run programs. A leading apostrophe makes it text. */
static bool is_formula(const char *text, size_t bytes)
{
    static const char wide_equals[] = "\xef\xbc\x9d", no_break_space[] = "\xc2\xa0";
    if (bytes && text[0] && strchr("=+-@\t\r\n", text[0])) return true;
    return (bytes >= 3 && memcmp(text, wide_equals, 3) == 0) ||
           (bytes >= 2 && memcmp(text, no_break_space, 2) == 0);
}

void pj_csv_put_text(pj_buffer *line, const char *text, size_t bytes)
{
    bool formula = is_formula(text, bytes), plain = !formula;
    for (size_t i = 0; i < bytes && plain; i++) plain = !strchr(",\"\r\n", text[i]) && text[i];
    /* Quotes keep leading and trailing blanks. */
    if (bytes && (text[0] == ' ' || text[bytes - 1] == ' ')) plain = false;
    if (plain) {
        pj_buffer_append(line, text, bytes);
        return;
    }
    pj_buffer_char(line, '"');
    if (formula) pj_buffer_char(line, '\'');
    for (size_t i = 0; i < bytes; i++) {
        if (text[i] == '"') pj_buffer_char(line, '"');
        pj_buffer_char(line, text[i]);
    }
    pj_buffer_char(line, '"');
}
