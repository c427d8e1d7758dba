/* Wraps and truncates lines; escape sequences take no columns, a UTF-8 character takes one. */
#include "cli/fold.h"

#include "base/memory.h"
#include "base/thread.h"
#include "cli/terminal.h"

#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_BYTES = 64 << 20, MAX_INDENT = 24 };

static FILE *collected_stream; /* NULL: none is collected */
static int terminal = -1;      /* descriptor of the terminal while output is collected */
static int terminal_width;

/* For line-by-line folding, output goes through a pipe that a thread reads. */
static struct {
    bool active, truncated;
    pthread_t thread;
    FILE *in, *out;
} lines;

/* Bytes of the escape sequence at `p`, 0: there is none. */
static size_t escape_bytes(const char *p)
{
    if (p[0] != '\033' || p[1] != '[') return 0;
    size_t n = 2;
    while (p[n] && !(p[n] >= '@' && p[n] <= '~')) n++;
    return n + (p[n] != 0);
}

/* Bytes of the character or escape sequence at `p`; *columns is its width. */
static size_t step(const char *p, int *columns)
{
    size_t n = escape_bytes(p);
    *columns = n ? 0 : 1;
    if (n) return n;
    n = 1;
    while (((unsigned char)p[n] & 0xc0) == 0x80) n++;
    return n;
}

static int columns_of(const char *text, size_t bytes)
{
    int total = 0, one;
    for (size_t i = 0; i < bytes; total += one) i += step(text + i, &one);
    return total;
}

static bool is_row(const char *line, size_t bytes)
{
    size_t i = strspn(line, " ");
    for (; i + 1 < bytes; i++)
        if (line[i] == ' ' && line[i + 1] == ' ') return true;
    return false;
}

/* Escape sequences after the cut are still printed: one of them resets the colour. */
static void print_cut(FILE *out, const char *line, size_t bytes, int width)
{
    int column = 0, one;
    for (size_t i = 0, n; i < bytes; i += n) {
        n = step(line + i, &one);
        if (one && column == width - 1) fputs("\u2026", out);
        if (!one || column < width - 1) fwrite(line + i, 1, n, out);
        column += one;
    }
}

/* A word wider than the line, such as a path, is broken. Returns the column after it. */
static int print_word(FILE *out, const char *word, size_t bytes, int column, int width)
{
    int one;
    for (size_t i = 0, n; i < bytes; i += n, column += one) {
        n = step(word + i, &one);
        if (column + one > width) {
            putc('\n', out);
            column = 0;
        }
        fwrite(word + i, 1, n, out);
    }
    return column;
}

static void print_folded(FILE *out, const char *line, size_t bytes, int width)
{
    int indent = (int)strspn(line, " "), column = 0;
    if (indent > MAX_INDENT || indent > width / 2) indent = 2;
    for (size_t i = 0; i < bytes;) {
        size_t blanks = strspn(line + i, " ");
        if (i + blanks > bytes) blanks = bytes - i;
        size_t word = 0;
        while (i + blanks + word < bytes && line[i + blanks + word] != ' ') word++;
        int wide = columns_of(line + i + blanks, word);
        if (i && column + (int)blanks + wide > width) {
            fprintf(out, "\n%*s", indent, "");
            column = indent;
        } else {
            fprintf(out, "%*s", (int)blanks, "");
            column += (int)blanks;
        }
        column = print_word(out, line + i + blanks, word, column, width);
        i += blanks + word;
    }
}

/* Prints text with no line wider than `width` columns: a table row (columns separated by two or
 * more blanks) is truncated, a sentence continues on the next line with its own indentation. JSON
 * is left unchanged. Returns whether a row was truncated. */
static bool fold_text(FILE *out, const char *text, int width)
{
    bool json = *text == '{' || *text == '[', truncated = false;
    while (*text) {
        size_t bytes = strcspn(text, "\n");
        if (json || columns_of(text, bytes) <= width)
            fwrite(text, 1, bytes, out);
        else if (is_row(text, bytes)) {
            print_cut(out, text, bytes, width);
            truncated = true;
        } else
            print_folded(out, text, bytes, width);
        text += bytes;
        if (*text == '\n') putc(*text++, out);
    }
    return truncated;
}

void pj_say(const char *format, ...)
{
    char text[4096];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    int width = pj_terminal_is(stderr) ? pj_terminal_width(stderr) : INT_MAX;
    for (const char *line = text; *line;) {
        size_t bytes = strcspn(line, "\n");
        if (columns_of(line, bytes) <= width)
            fwrite(line, 1, bytes, stderr);
        else
            print_folded(stderr, line, bytes, width);
        line += bytes + (line[bytes] == '\n');
        putc('\n', stderr);
    }
}

void pj_live_line(FILE *out, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    size_t bytes = strlen(text);
    fputs("\r\033[K", out);
    if (columns_of(text, bytes) <= pj_terminal_width(out))
        fputs(text, out);
    else
        print_cut(out, text, bytes, pj_terminal_width(out));
    fflush(out);
}

void pj_fold_begin(FILE *stream)
{
    if (terminal >= 0 || !pj_terminal_is(stream)) return;
    FILE *collected = tmpfile();
    if (!collected) return; /* fallback: unchanged output */
    fflush(stream);
    terminal_width = pj_terminal_width(stream);
    terminal = dup(fileno(stream));
    if (terminal >= 0) {
        pj_terminal_remember(stream); /* the collecting file is not a terminal */
        collected_stream = stream;
        dup2(fileno(collected), fileno(stream));
    }
    fclose(collected);
}

/* ---- line by line --------------------------------------------------------------------- */

static void *fold_lines(void *context)
{
    char *line = NULL;
    size_t bytes = 0;
    (void)context;
    while (getline(&line, &bytes, lines.in) > 0) {
        lines.truncated |= fold_text(lines.out, line, terminal_width);
        fflush(lines.out);
    }
    free(line); /* allocated by getline */
    return NULL;
}

static void close_lines(void)
{
    if (lines.in) fclose(lines.in);
    if (lines.out) fclose(lines.out);
    if (terminal >= 0) close(terminal);
    terminal = -1;
    lines.active = false;
}

void pj_fold_lines_begin(FILE *stream)
{
    int ends[2];
    if (terminal >= 0 || !pj_terminal_is(stream) || pipe(ends) != 0) return;
    fflush(stream);
    terminal_width = pj_terminal_width(stream);
    terminal = dup(fileno(stream));
    lines.in = fdopen(ends[0], "r");
    lines.out = fdopen(dup(terminal), "w");
    lines.active = lines.in && lines.out &&
                   pj_thread_start(&lines.thread, "fold", fold_lines, NULL, NULL) == PJ_OK;
    if (lines.active) {
        pj_terminal_remember(stream);
        collected_stream = stream;
        dup2(ends[1], fileno(stream));
        setvbuf(stream, NULL, _IOLBF, BUFSIZ); /* the pipe is not a terminal */
    } else {
        close_lines(); /* fallback: unchanged output */
    }
    close(ends[1]);
}

/* Other holders of the pipe's write end, such as children, must have exited. */
static void end_lines(void)
{
    static const char note[] = "rows are truncated to the terminal's width; all columns: in a "
                               "wider one, in a pipe, or with --json\n";
    fflush(collected_stream);
    dup2(terminal, fileno(collected_stream));
    pthread_join(lines.thread, NULL);
    close_lines();
    pj_terminal_remember(NULL);
    if (lines.truncated) fold_text(collected_stream, note, terminal_width);
    fflush(collected_stream);
}

void pj_fold_end(void)
{
    if (terminal < 0) return;
    if (lines.active) {
        end_lines();
        return;
    }
    FILE *stream = collected_stream;
    fflush(stream);
    off_t bytes = lseek(fileno(stream), 0, SEEK_END);
    char *text = bytes > 0 && bytes < MAX_BYTES ? pj_alloc((size_t)bytes + 1, 1) : NULL;
    ssize_t got = text ? pread(fileno(stream), text, (size_t)bytes, 0) : 0;
    dup2(terminal, fileno(stream));
    close(terminal);
    terminal = -1;
    pj_terminal_remember(NULL);
    if (text && got > 0) {
        text[got] = 0;
        fold_text(stream, text, terminal_width);
        fflush(stream);
    }
    pj_free(text);
}
