/* --help, the man page and the table for shell completions, made from a command's options. */
#include "cli/help.h"

#include "cli/terminal.h"
#include "cli/wrap.h"

#include <stdio.h>
#include <string.h>

static void option_heading(const pj_option *o, char *text, size_t bytes)
{
    char letter[8] = "    ";
    if (o->letter) snprintf(letter, sizeof letter, "-%c, ", o->letter);
    snprintf(text, bytes, "%s--%s%s%s", letter, o->name, o->value_name ? " " : "",
             o->value_name ? o->value_name : "");
}

enum { HELP_COLUMN = 30, NARROWEST = 30, WIDEST = 100 };

static void print_option(const char *heading, const char *help, int width)
{
    int indent = width < 60 ? 8 : HELP_COLUMN, used = 2 + (int)strlen(heading);
    pj_print(stdout, "  %s", heading);
    if (used + 2 > indent)
        pj_print(stdout, "\n%*s", indent, "");
    else
        pj_print(stdout, "%*s", indent - used, "");
    pj_print_wrapped(stdout, help, indent, indent, width);
}

/* Prints a command, continued with a backslash if it is too wide; never inside quotes. */
static void print_example_command(const char *text, size_t length, int width)
{
    int column = 2;
    bool quoted = false;
    pj_print(stdout, "  ");
    for (size_t i = 0; i < length; i++) {
        size_t next = 1; /* the next word, including quotes */
        bool inside = false;
        if (text[i] == '"') quoted = !quoted;
        while (i + next < length && (inside || text[i + next] != ' '))
            inside ^= text[i + next++] == '"';
        if (text[i] == ' ' && !quoted && column + (int)next + 2 > width && column > 6) {
            pj_print(stdout, " \\\n      ");
            column = 6;
        } else {
            putchar(text[i]);
            column++;
        }
    }
    putchar('\n');
}

/* Lines "command # comment"; a comment that does not fit after its command is printed above it. */
static void print_examples(const char *lines, int width)
{
    for (; *lines; lines += *lines == '\n') {
        size_t length = strcspn(lines, "\n");
        const char *comment = memchr(lines, '#', length);
        size_t command = comment ? (size_t)(comment - lines) : length;
        if ((int)length + 2 <= width) {
            pj_print(stdout, "  %.*s\n", (int)length, lines);
        } else {
            while (command && lines[command - 1] == ' ') command--;
            char text[256];
            snprintf(text, sizeof text, "%.*s", comment ? (int)(lines + length - comment) : 0,
                     comment ? comment : "");
            if (*text) {
                pj_print(stdout, "  ");
                pj_print_wrapped(stdout, text, 2, 2, width);
            }
            if (command) print_example_command(lines, command, width);
        }
        lines += length;
    }
}

int pj_help_width(FILE *out)
{
    int width = pj_terminal_width(out);
    return width < NARROWEST ? NARROWEST : width > WIDEST ? WIDEST : width;
}

static void print_options(const pj_option *options, int width)
{
    for (const pj_option *o = options; o->name; o++) {
        char heading[64];
        if (o->type == PJ_OPTION_GROUP) {
            pj_print(stdout, "%s%s%s:%s\n", o == options ? "" : "\n",
                     pj_style_on(stdout, PJ_STYLE_BOLD), o->name, pj_style_off(stdout));
            continue;
        }
        option_heading(o, heading, sizeof heading);
        print_option(heading, o->help, width);
    }
}

void pj_help_print(const pj_command *command, const pj_option *options)
{
    int width = pj_help_width(stdout);
    bool grouped = options->name && options->type == PJ_OPTION_GROUP;
    char usage[512];
    pj_print(stdout, "perjoule %s: ", command->name);
    pj_print_wrapped(stdout, command->summary, 11 + (int)strlen(command->name), 2, width);
    snprintf(usage, sizeof usage, "perjoule %s %s", command->name,
             command->usage ? command->usage : "");
    pj_print(stdout, "\nUsage: ");
    pj_print_wrapped(stdout, usage, 7, 7, width);
    if (command->text) {
        pj_print(stdout, "\n");
        pj_print_wrapped(stdout, command->text, 0, 0, width);
    }
    pj_print(stdout, grouped ? "\n" : "\nOptions:\n");
    print_options(options, width);
    if (grouped) pj_print(stdout, "\n");
    print_options(pj_common_options, width);
    print_option("-h, --help", "show this", width);
    if (command->examples) {
        pj_print(stdout, "\nExamples:\n");
        print_examples(command->examples, width);
    }
}

static void print_rows(const pj_option *options)
{
    for (const pj_option *o = options; o->name; o++)
        if (o->type != PJ_OPTION_GROUP)
            pj_print(stdout, "%s\t%s\t%s\t%s\n", o->name, o->value_name ? o->value_name : "",
                     o->choices ? o->choices : "", o->help);
}

void pj_help_print_table(const pj_option *options)
{
    pj_terminal_wraps = false;
    print_rows(options);
    print_rows(pj_common_options);
}

/* In roff, '-' is a hyphen, '\' an escape, and a leading '.' or ''' a request. */
static void print_roff(const char *text)
{
    for (const char *p = text; *p; p++) {
        if ((*p == '.' || *p == '\'') && (p == text || p[-1] == '\n')) pj_print(stdout, "\\&");
        if (*p == '-')
            pj_print(stdout, "\\-");
        else if (*p == '\\')
            pj_print(stdout, "\\e");
        else if (*p == '\n' && p[1] == '\n')
            pj_print(stdout, "\n.PP");
        else
            putchar(*p);
    }
    putchar('\n');
}

static void print_man_options(const pj_option *options)
{
    for (const pj_option *o = options; o->name; o++) {
        char heading[64];
        if (o->type == PJ_OPTION_GROUP) {
            pj_print(stdout, ".SS ");
            print_roff(o->name);
            continue;
        }
        option_heading(o, heading, sizeof heading);
        pj_print(stdout, ".TP\n.B ");
        print_roff(heading + strspn(heading, " "));
        print_roff(o->help);
    }
}

void pj_help_print_man(const pj_command *command, const pj_option *options)
{
    pj_terminal_wraps = false;
    pj_print(stdout, ".TH PERJOULE\\-%s 1 \"\" \"perjoule %s\" \"perjoule manual\"\n",
             command->name, pj_version());
    pj_print(stdout, ".SH NAME\nperjoule\\-%s \\- ", command->name);
    print_roff(command->summary);
    pj_print(stdout, ".SH SYNOPSIS\n.B perjoule %s\n", command->name);
    print_roff(command->usage ? command->usage : "");
    if (command->text) {
        pj_print(stdout, ".SH DESCRIPTION\n");
        print_roff(command->text);
    }
    pj_print(stdout, ".SH OPTIONS\n");
    print_man_options(options);
    print_man_options(pj_common_options);
    pj_print(stdout, ".TP\n.B \\-h, \\-\\-help\nshow a summary of all this\n");
    if (command->examples) {
        pj_print(stdout, ".SH EXAMPLES\n.nf\n");
        print_roff(command->examples);
        pj_print(stdout, ".fi\n");
    }
    pj_print(
        stdout,
        ".SH EXIT STATUS\n0 done, 1 it failed while working, 2 bad input or usage, 3 something "
        "it needs is unavailable, 130 interrupted.\n.SH SEE ALSO\n.BR perjoule (1)\n");
}
