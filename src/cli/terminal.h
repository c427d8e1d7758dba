/* Terminal capabilities and text styles. Pipes get plain text; NO_COLOR is respected. */
#ifndef PJ_CLI_TERMINAL_H
#define PJ_CLI_TERMINAL_H

#include <stdbool.h>
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
int pj_terminal_width(FILE *stream); /* columns, 80 when unknown */
/* The escape sequence, or "" where colour is off. */
const char *pj_style_on(FILE *stream, pj_style style);
const char *pj_style_off(FILE *stream);

/* A message on standard error, as a line. */
__attribute__((format(printf, 1, 2))) void pj_say(const char *format, ...);
/* Rewrites the terminal's current line with one that is live, cut off at its width. */
__attribute__((format(printf, 2, 3))) void pj_live_line(FILE *terminal, const char *format, ...);

/* Figures for people: three significant digits with a fitting unit; "unavailable" for NAN. */
void pj_format_energy(double mj, char *text, size_t bytes); /* "12.3 mJ", "4.56 J", "1.20 kJ" */
void pj_format_power(double mw, char *text, size_t bytes);
void pj_format_time(double ms, char *text, size_t bytes);
void pj_format_count(double value, char *text, size_t bytes); /* "1.24 G" */
/* A value and the half width of its 95 % interval in one unit and with as many decimals as the half
 * width justifies: "12.4 ± 0.3 mJ"; without a standard deviation the value alone. */
void pj_format_interval(double mj, double sd_mj, char *text, size_t bytes);
/* The width to give printf ("%*s") for a text to take `columns` on the screen: UTF-8 characters
 * have more bytes than columns. */
int pj_width_of(const char *text, int columns);

#endif
