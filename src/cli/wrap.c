#include "cli/wrap.h"

#include "cli/terminal.h"

#include <stdbool.h>
#include <string.h>

/* Whether a line break in a text separates paragraphs or an indented line, and must be kept. A
 * single one before a word becomes a space. */
static bool is_kept_break(const char *text, const char *at)
{
    return at == text || at[-1] == '\n' || at[1] == '\n' || at[1] == ' ' || !at[1];
}

int pj_columns_of(const char *word, int bytes)
{
    int columns = 0;
    for (int i = 0; i < bytes; i++) {
        if (word[i] == '\033')
            while (i + 1 < bytes && word[i] != 'm') i++;
        else
            columns += ((unsigned char)word[i] & 0xc0) != 0x80;
    }
    return columns;
}

/* Bytes up to the next place where a line may be broken: not between a number and its per cent. */
static int word_length(const char *word)
{
    size_t length = strcspn(word, " \n");
    if (strncmp(word + length, " %", 2) == 0) length += 1 + strcspn(word + length + 1, " \n");
    return (int)length;
}

/* Bytes of the first `columns` of a word that is too long for a line. */
static int piece_length(const char *word, int length, int columns)
{
    int bytes = length;
    while (bytes > 1 && pj_columns_of(word, bytes) > columns) bytes--;
    return bytes;
}

void pj_print_wrapped(FILE *out, const char *text, int at, int indent, int width)
{
    const char *begin = text;
    int column = at;
    bool fresh = true; /* nothing printed on this line yet */
    while (*text) {
        bool is_break = *text == '\n';
        if (is_break && is_kept_break(begin, text)) {
            putc('\n', out);
            if (text[1] && text[1] != '\n') pj_print(out, "%*s", indent, "");
            column = indent;
            fresh = true;
            text++;
            continue;
        }
        int blanks = (int)strspn(text, is_break ? "\n" : " ");
        int length = word_length(text + blanks);
        const char *word = text + blanks;
        bool is_long = indent < width && pj_columns_of(word, length) > width - indent;
        int needed = is_long ? 1 : pj_columns_of(word, length);
        if (!fresh && column + blanks + needed > width) {
            pj_print(out, "\n%*s", indent, "");
            column = indent;
            blanks = 0;
        }
        if (is_long) length = piece_length(word, length, width - column - blanks);
        pj_print(out, "%*s%.*s", blanks, "", length, word);
        column += blanks + pj_columns_of(word, length);
        text = word + length;
        fresh = false;
    }
    putc('\n', out);
}
