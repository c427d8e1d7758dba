/* Terminal capabilities and text styles. Pipes get plain text; NO_COLOR is respected. */
#ifndef PJ_CLI_TERMINAL_H
#define PJ_CLI_TERMINAL_H

#include "base/estimate.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

typedef enum pj_style {
    PJ_STYLE_PLAIN = 0,
    PJ_STYLE_BOLD,
    PJ_STYLE_DIM,
    PJ_STYLE_RED,
    PJ_STYLE_GREEN,
    PJ_STYLE_YELLOW,
    PJ_STYLE_BLUE,
    PJ_STYLE_PURPLE
} pj_style;

bool pj_terminal_is(FILE *stream);   /* a terminal that understands more than plain text */
int pj_terminal_width(FILE *stream); /* columns: $COLUMNS, the terminal's, or 80 if unknown */
/* Lines that are wider than a terminal are broken between words by pj_print; false: never. */
extern bool pj_terminal_wraps;
/* Of lines that people read: on a terminal, or where $COLUMNS is set; else 0, as wide as they are.
 */
int pj_wrapping_width(FILE *stream);
extern const char *pj_terminal_color; /* --color: auto, always or never */
/* The escape sequence, or "" where colour is off. */
const char *pj_style_on(FILE *stream, pj_style style);
const char *pj_style_off(FILE *stream);

/* Bytes of the first `columns` characters of a text of UTF-8. */
size_t pj_bytes_of_columns(const char *text, int columns);

/* A message on standard error, as a line. */
__attribute__((format(printf, 1, 2))) void pj_say(const char *format, ...);
/* Rewrites the terminal's current line with one that is live, cut off at its width. */
__attribute__((format(printf, 2, 3))) void pj_live_line(FILE *terminal, const char *format, ...);

/* A figure for people, made where it is printed: printf("%s", pj_energy_text(mj).s). */
typedef struct pj_text {
    char s[128];
} pj_text;

/* Three significant digits with a fitting unit; "unavailable" for NAN. */
pj_text pj_energy_text(double mj); /* "12.3 mJ", "4.56 J", "1.20 kJ" */
pj_text pj_power_text(double mw);
pj_text pj_time_text(double ms);
pj_text pj_count_text(double value); /* "1.24 G" */
/* A positive energy and its 95 % interval in one unit, with the digits that the interval supports:
 * "12.4 ± 0.3 mJ", "12 (5.1 to 31) mJ" (base/estimate.h); without a standard deviation the value
 * alone. */
pj_text pj_interval_text(double mj, double sd_mj);
pj_text pj_bounds_text(double mj, pj_bounds bounds);
pj_text pj_bounds_value_text(double mj, pj_bounds bounds); /* only the value, with these digits */
pj_text pj_signed_text(double mj, double sd_mj);           /* of an energy that may be negative */
pj_text pj_supported_text(double mj, double sd_mj);        /* only the value, with these digits */
pj_text pj_number_text(const char *format, double value);  /* printf of a double; "-" for NAN */
/* The text of a value, or "-" if that is NAN. */
pj_text pj_or_dash(double value, pj_text text);
/* "intervals leave out the sensor's calibration, which all rows share: ±16 %": once for a table,
 * instead of on every row. Nothing if it is below 0.1 %. */
void pj_gain_note_print(FILE *out, const char *before, double gain_sd);
/* The same below rows of several sensors: the largest. */
void pj_gain_of_rows_print(FILE *out, const char *before, double gain_sd);
/* A sparkline for values from 0 to the largest or, if that is more, to `most`; NAN is a blank. */
void pj_sparkline(const double *values, size_t count, int width, double most, char *text,
                  size_t bytes);
/* printf of everything that commands print: control characters, which texts from runs, models,
 * machines and servers may hold, become U+FFFD (pj_utf8_safe). Line feeds, tabs and the styles
 * above stay. */
__attribute__((format(printf, 2, 3))) void pj_print(FILE *stream, const char *format, ...);
void pj_cursor_up(FILE *stream, int lines);
/* fwrite of output that is for programs too: exact, but to a terminal as above. */
bool pj_write_output(FILE *stream, const char *bytes, size_t count);
/* A text from a run, another machine or a server, safe for a terminal (pj_utf8_safe) and on one
 * line;
 * "" for NULL: printf("%s", pj_safe(name).s). */
typedef struct pj_safe_text {
    char s[512];
} pj_safe_text;
pj_safe_text pj_safe(const char *text);
/* Prints such a text of any length; line feeds stay. */
void pj_print_safe(FILE *stream, const char *text, size_t bytes);
/* Padded to so many columns on the screen, on the left or, if negative, on the right: UTF-8
 * characters have more bytes than columns, so that printf cannot do it. */
pj_text pj_padded(int columns, pj_text text);

#endif
