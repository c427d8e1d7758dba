/* Terminal capabilities and number formats for people. */
#include "cli/terminal.h"

#include "base/ids.h"
#include "base/memory.h"
#include "base/utf8.h"
#include "cli/patience.h"
#include "cli/wrap.h"

#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { SAY_BYTES = 16 << 10, WIDEST = 10000 };

bool pj_terminal_is(FILE *stream)
{
    const char *term = getenv("TERM");
    return isatty(fileno(stream)) && term && strcmp(term, "dumb") != 0;
}

const char *pj_terminal_color = "auto";

static bool has_colour(FILE *stream)
{
    const char *no_color = getenv("NO_COLOR");
    if (strcmp(pj_terminal_color, "auto") != 0) return strcmp(pj_terminal_color, "always") == 0;
    return pj_terminal_is(stream) && !(no_color && no_color[0]);
}

int pj_terminal_width(FILE *stream)
{
    struct winsize size;
    const char *columns = getenv("COLUMNS");
    int wanted = columns ? atoi(columns) : 0;
    if (wanted > 0 && wanted <= WIDEST) return wanted;
    if (ioctl(fileno(stream), TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
    return 80;
}

/* Within a text a style is an escape sequence with a number that texts from elsewhere cannot know:
 * theirs are cleaned like other control characters. */
enum { STYLE_OFF = PJ_STYLE_PURPLE + 1, STYLES };
static const char *const style_codes[STYLES] = {"", "1", "2", "31", "32", "33", "34", "35", "0"};
static char style_marks[STYLES][24];

static void make_style_marks(void)
{
    char secret[PJ_SECRET_BYTES];
    if (!pj_secret_make(secret)) return; /* no colours then */
    for (int i = 1; i < STYLES; i++)
        snprintf(style_marks[i], sizeof style_marks[i], "\033[%s;%.8sm", style_codes[i], secret);
}

static const char *style_mark(FILE *stream, int style)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_style_marks);
    return has_colour(stream) ? style_marks[style] : "";
}

const char *pj_style_on(FILE *stream, pj_style style)
{
    return style_mark(stream, (int)style);
}

const char *pj_style_off(FILE *stream)
{
    return style_mark(stream, STYLE_OFF);
}

/* ---- messages ---- */

/* The style whose mark `text` begins with; 0: none. */
static int style_at(const char *text)
{
    for (int i = 1; i < STYLES; i++)
        if (style_marks[i][0] && strncmp(text, style_marks[i], strlen(style_marks[i])) == 0)
            return i;
    return 0;
}

/* What is printed ends the line that says how long there was nothing. */
static void begin_output(FILE *stream)
{
    if (stream == stdout || stream == stderr) pj_patience_end();
}

static void print_styled(FILE *stream, const char *text)
{
    for (const char *at = text; *at;) {
        size_t plain = strcspn(at, "\033");
        pj_print_safe(stream, at, plain);
        at += plain;
        int style = style_at(at);
        if (style) {
            fprintf(stream, "\033[%sm", style_codes[style]);
            at += strlen(style_marks[style]);
        } else if (*at) {
            pj_print_safe(stream, at++, 1);
        }
    }
}

/* ---- lines that are wider than the terminal ---- */

bool pj_terminal_wraps = true;

/* Where people read: on a terminal, or where a width was asked for. 0: lines are left as they are.
 */
int pj_wrapping_width(FILE *stream)
{
    bool is_read =
        (stream == stdout || stream == stderr) && (pj_terminal_is(stream) || getenv("COLUMNS"));
    return is_read && pj_terminal_wraps ? pj_terminal_width(stream) : 0;
}

/* Tables for other programs, with tabs or bars between their columns, keep their lines. */
static bool is_wide_prose(const char *line, size_t bytes, int width)
{
    return line[0] != '|' && !memchr(line, '\t', bytes) && pj_columns_of(line, (int)bytes) > width;
}

static bool is_too_wide(FILE *stream, const char *text)
{
    int width = pj_wrapping_width(stream);
    if (!width || strlen(text) <= (size_t)width) return false;
    for (const char *end; (end = strchr(text, '\n')); text = end + 1)
        if (is_wide_prose(text, (size_t)(end - text), width)) return true;
    return false;
}

/* The column at which a line goes on: that of the text after a label, else a little further in. */
static int hang_of(const char *line, size_t bytes)
{
    enum { MOST_LABEL = 16 };
    size_t begin = 0;
    while (begin < bytes && line[begin] == ' ') begin++;
    for (size_t i = begin; i + 2 < bytes; i++) {
        if (line[i] != ' ' || line[i + 1] != ' ') continue;
        while (i < bytes && line[i] == ' ') i++;
        int column = pj_columns_of(line, (int)i);
        return column <= MOST_LABEL ? column : (int)begin + 2;
    }
    return (int)begin + 2;
}

static void print_lines(FILE *stream, char *text)
{
    int width = pj_wrapping_width(stream);
    while (*text) {
        size_t bytes = strcspn(text, "\n");
        bool is_line = text[bytes];
        text[bytes] = 0;
        if (is_line && is_wide_prose(text, bytes, width)) {
            pj_print_wrapped(stream, text, 0, hang_of(text, bytes), width);
        } else {
            print_styled(stream, text);
            if (is_line) putc('\n', stream);
        }
        text += bytes + is_line;
    }
}

void pj_print(FILE *stream, const char *format, ...)
{
    begin_output(stream);
    char few[1024], *text = few;
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int bytes = vsnprintf(few, sizeof few, format, args);
    if (bytes >= (int)sizeof few && (text = pj_alloc((size_t)bytes + 1, 1)))
        vsnprintf(text, (size_t)bytes + 1, format, again);
    va_end(again);
    va_end(args);
    if (text && is_too_wide(stream, text))
        print_lines(stream, text);
    else if (text)
        print_styled(stream, text);
    if (text != few) pj_free(text);
}

void pj_cursor_up(FILE *stream, int lines)
{
    fprintf(stream, "\033[%dA", lines);
}

bool pj_write_output(FILE *stream, const char *bytes, size_t count)
{
    begin_output(stream);
    if (!isatty(fileno(stream))) return fwrite(bytes, 1, count, stream) == count;
    pj_print_safe(stream, bytes, count);
    return !ferror(stream);
}

void pj_say(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    char text[SAY_BYTES],
        safe[SAY_BYTES]; /* messages have no styles: what looks like one is a name */
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    pj_utf8_safe(text, strlen(text), safe, sizeof safe);
    pj_print(stderr, "%s\n", safe);
}

pj_safe_text pj_safe(const char *text)
{
    pj_safe_text safe = {""};
    if (!text) return safe;
    pj_utf8_safe(text, strlen(text), safe.s, sizeof safe.s);
    for (char *c = safe.s; *c; c++)
        if (*c == '\n' || *c == '\t') *c = ' ';
    return safe;
}

void pj_print_safe(FILE *stream, const char *text, size_t bytes)
{
    char out[4];
    uint32_t c;
    for (size_t n; bytes; text += n, bytes -= n) {
        n = pj_utf8_step(text, bytes, &c);
        fwrite(out, 1, pj_utf8_put(pj_utf8_is_control(c) ? 0xfffd : c, out), stream);
    }
}

size_t pj_bytes_of_columns(const char *text, int columns)
{
    size_t bytes = 0;
    for (; text[bytes]; bytes++)
        if (((unsigned char)text[bytes] & 0xc0) != 0x80 && columns-- == 0) break;
    return bytes;
}

void pj_live_line(FILE *out, const char *format, ...)
{
    pj_patience_pause();
    char text[512], line[3 * sizeof text] = "\r\033[K";
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    size_t shown = pj_bytes_of_columns(text, pj_terminal_width(out)), begin = strlen(line);
    pj_utf8_safe(text, shown, line + begin, sizeof line - begin);
    fputs(line, out); /* at once: two threads may have something to say */
    fflush(out);
}

/* ---- figures ---- */

/* The best-fitting unit; factors ascend. */
static int unit_of(double value, const double *factors, int count)
{
    int i = 0;
    while (i + 1 < count && fabs(value) >= factors[i + 1] * 0.9995) i++;
    return i;
}

/* Three significant digits. */
static pj_text scaled_text(double value, const char *const *units, const double *factors, int count)
{
    pj_text text = {"unavailable"};
    if (!isfinite(value)) return text;
    int i = unit_of(value, factors, count);
    double scaled = value / factors[i];
    double size = fabs(scaled);
    if (size < 0.005) scaled = 0; /* not "-0.00" */
    int digits = size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2;
    snprintf(text.s, sizeof text.s, "%.*f %s", scaled == 0 ? 0 : digits, scaled, units[i]);
    return text;
}

static const char *const joules[] = {"nJ", "µJ", "mJ", "J", "kJ", "MJ"};
static const double joule_factors[] = {1e-6, 1e-3, 1, 1e3, 1e6, 1e9};

pj_text pj_energy_text(double mj)
{
    return scaled_text(mj, joules, joule_factors, 6);
}

typedef size_t estimate_writer(double value, pj_bounds bounds, char *text, size_t bytes);

/* In the unit that fits `size`, or the next one if the value is rounded up to it. */
static pj_text joules_text(double mj, pj_bounds b, double size, estimate_writer *write)
{
    pj_text text;
    for (int unit = unit_of(size, joule_factors, 6);; unit++) {
        double factor = joule_factors[unit];
        size_t used =
            write(mj / factor, (pj_bounds){b.lo / factor, b.hi / factor}, text.s, sizeof text.s);
        if (unit < 5 && fabs(strtod(text.s, NULL)) >= 1000) continue;
        snprintf(text.s + used, sizeof text.s - used, " %s", joules[unit]);
        return text;
    }
}

static bool has_interval(double mj, double half)
{
    return isfinite(mj) && half > 0 && isfinite(half);
}

pj_text pj_interval_text(double mj, double sd_mj)
{
    double half = PJ_Z95 * sd_mj;
    if (!has_interval(mj, half)) return pj_energy_text(mj);
    return mj > 0 ? pj_bounds_text(mj, pj_bounds_of(mj, half)) : pj_signed_text(mj, sd_mj);
}

pj_text pj_bounds_text(double mj, pj_bounds bounds)
{
    return isnan(mj) ? pj_energy_text(mj) : joules_text(mj, bounds, fabs(mj), pj_estimate_write);
}

pj_text pj_bounds_value_text(double mj, pj_bounds bounds)
{
    return isnan(mj) ? pj_energy_text(mj) : joules_text(mj, bounds, fabs(mj), pj_value_write);
}

pj_text pj_signed_text(double mj, double sd_mj)
{
    double half = PJ_Z95 * sd_mj;
    if (!has_interval(mj, half)) return pj_energy_text(mj);
    return joules_text(mj, (pj_bounds){mj - half, mj + half}, fmax(fabs(mj), half),
                       pj_estimate_write);
}

pj_text pj_supported_text(double mj, double sd_mj)
{
    double half = PJ_Z95 * sd_mj;
    if (!has_interval(mj, half)) return pj_energy_text(mj);
    return joules_text(mj, pj_bounds_of(mj, half), fabs(mj), pj_value_write);
}

/* "16"; "" if it is below 0.1. */
static pj_text gain_percent(double gain_sd)
{
    double percent = 100 * PJ_Z95 * gain_sd;
    pj_text text = {""};
    if (percent >= 0.1) pj_digits_write(percent, 2, text.s, sizeof text.s);
    return text;
}

void pj_gain_note_print(FILE *out, const char *before, double gain_sd)
{
    pj_text percent = gain_percent(gain_sd);
    if (*percent.s)
        pj_print(out,
                 "%sintervals leave out the sensor's calibration, which all rows share: ±%s %%\n",
                 before, percent.s);
}

void pj_gain_of_rows_print(FILE *out, const char *before, double gain_sd)
{
    pj_text percent = gain_percent(gain_sd);
    if (*percent.s)
        pj_print(out,
                 "%sleft out: a sensor's calibration, the same in all of its rows, up to ±%s %%\n",
                 before, percent.s);
}

pj_text pj_power_text(double mw)
{
    static const char *const units[] = {"µW", "mW", "W", "kW"};
    static const double factors[] = {1e-3, 1, 1e3, 1e6};
    return scaled_text(mw, units, factors, 4);
}

pj_text pj_time_text(double ms)
{
    static const char *const units[] = {"ns", "µs", "ms", "s", "min"};
    static const double factors[] = {1e-6, 1e-3, 1, 1e3, 60e3};
    return scaled_text(ms, units, factors, 5);
}

pj_text pj_count_text(double value)
{
    static const char *const units[] = {"", "k", "M", "G", "T"};
    static const double factors[] = {1, 1e3, 1e6, 1e9, 1e12};
    pj_text text = scaled_text(value, units, factors, 5);
    size_t length = strlen(text.s);
    if (text.s[length - 1] == ' ') text.s[length - 1] = 0;
    return text;
}

pj_text pj_number_text(const char *format, double value)
{
    pj_text text = {"-"};
    if (!isnan(value)) snprintf(text.s, sizeof text.s, format, value);
    return text;
}

pj_text pj_or_dash(double value, pj_text text)
{
    if (isnan(value)) strcpy(text.s, "-");
    return text;
}

pj_text pj_padded(int columns, pj_text text)
{
    pj_text padded;
    int more = 0; /* bytes than columns */
    for (const char *p = text.s; *p; p++) more += (*p & 0xc0) == 0x80;
    snprintf(padded.s, sizeof padded.s, "%*s", columns < 0 ? columns - more : columns + more,
             text.s);
    return padded;
}

void pj_sparkline(const double *values, size_t count, int width, double most, char *text,
                  size_t bytes)
{
    static const char *const bars[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    size_t at = 0, cells = count < (size_t)width ? count : (size_t)width;
    for (size_t i = 0; i < count; i++) most = fmax(most, values[i]);
    text[0] = 0;
    for (size_t c = 0; c < cells && at + 4 < bytes; c++) {
        double high = NAN; /* the largest value in the cell */
        for (size_t i = c * count / cells; i < (c + 1) * count / cells; i++)
            high = fmax(high, values[i]);
        int level = most > 0 ? (int)(fmax(high, 0) / most * 7.999) : 0;
        at += (size_t)snprintf(text + at, bytes - at, "%s", isnan(high) ? " " : bars[level]);
    }
}
