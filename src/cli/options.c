/* Option tables: parsing, help, man page. */
#include "cli/options.h"

#include "base/nearest.h"
#include "cli/terminal.h"
#include "trace/run_data.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int pj_exit_code(pj_status status)
{
    switch (status) {
    case PJ_OK: return PJ_EXIT_OK;
    case PJ_E_INVALID:
    case PJ_E_UNSUPPORTED:
    case PJ_E_NOT_FOUND: return PJ_EXIT_USAGE;
    case PJ_E_UNAVAILABLE:
    case PJ_E_DENIED: return PJ_EXIT_UNAVAILABLE;
    case PJ_E_CANCELLED: return PJ_EXIT_INTERRUPTED;
    default: return PJ_EXIT_FAILED;
    }
}

int pj_command_failed(const pj_command *command, const pj_error *err)
{
    pj_say("perjoule %s: %s", command->name, err->text);
    return pj_exit_code(err->status);
}

int pj_command_usage(const pj_command *command, const char *format, ...)
{
    char text[2048];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    pj_say("perjoule %s: %s (see: perjoule %s --help)", command->name, text, command->name);
    return PJ_EXIT_USAGE;
}

/* ---- help and man page ---- */

static void option_heading(const pj_option *o, char *text, size_t bytes)
{
    char letter[8] = "    ";
    if (o->letter) snprintf(letter, sizeof letter, "-%c, ", o->letter);
    snprintf(text, bytes, "%s--%s%s%s", letter, o->name, o->value_name ? " " : "",
             o->value_name ? o->value_name : "");
}

enum { HELP_COLUMN = 30, NARROWEST = 30 };

/* Whether a line break in a text separates paragraphs or an indented line, and must be kept. A
 * single one before a word becomes a space. */
static bool is_kept_break(const char *text, const char *at)
{
    return at == text || at[-1] == '\n' || at[1] == '\n' || at[1] == ' ' || !at[1];
}

/* Wraps text at `width` columns; the first line begins at column `at`, the others at `indent`.
 * Empty lines, and the line breaks of indented lines (examples), are kept. */
static void print_wrapped(const char *text, int at, int indent, int width)
{
    const char *begin = text;
    int column = at;
    bool fresh = true; /* nothing printed on this line yet */
    while (*text) {
        bool is_break = *text == '\n';
        if (is_break && is_kept_break(begin, text)) {
            putchar('\n');
            if (text[1] && text[1] != '\n') pj_print(stdout, "%*s", indent, "");
            column = indent;
            fresh = true;
            text++;
            continue;
        }
        int blanks = (int)strspn(text, is_break ? "\n" : " ");
        int length = (int)strcspn(text + blanks, " \n");
        const char *word = text + blanks;
        if (!fresh && column + blanks + length > width) {
            pj_print(stdout, "\n%*s", indent, "");
            column = indent;
            blanks = 0;
        }
        pj_print(stdout, "%*s%.*s", blanks, "", length, word);
        column += blanks + length;
        text = word + length;
        fresh = false;
    }
    putchar('\n');
}

static void print_option(const char *heading, const char *help, int width)
{
    int indent = width < 60 ? 8 : HELP_COLUMN, used = 2 + (int)strlen(heading);
    pj_print(stdout, "  %s", heading);
    if (used + 2 > indent)
        pj_print(stdout, "\n%*s", indent, "");
    else
        pj_print(stdout, "%*s", indent - used, "");
    print_wrapped(help, indent, indent, width);
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
                print_wrapped(text, 2, 2, width);
            }
            if (command) print_example_command(lines, command, width);
        }
        lines += length;
    }
}

static int help_width(void)
{
    int width = pj_terminal_width(stdout);
    return width < NARROWEST ? NARROWEST : width > 100 ? 100 : width;
}

static void print_help(const pj_command *command, const pj_option *options)
{
    int width = help_width();
    char usage[512];
    pj_print(stdout, "perjoule %s: ", command->name);
    print_wrapped(command->summary, 11 + (int)strlen(command->name), 2, width);
    snprintf(usage, sizeof usage, "perjoule %s %s", command->name,
             command->usage ? command->usage : "");
    pj_print(stdout, "\nUsage: ");
    print_wrapped(usage, 7, 7, width);
    if (command->text) {
        pj_print(stdout, "\n");
        print_wrapped(command->text, 0, 0, width);
    }
    pj_print(stdout, "\nOptions:\n");
    for (const pj_option *o = options; o->name; o++) {
        char heading[64];
        option_heading(o, heading, sizeof heading);
        print_option(heading, o->help, width);
    }
    print_option("-h, --help", "show this", width);
    if (command->examples) {
        pj_print(stdout, "\nExamples:\n");
        print_examples(command->examples, width);
    }
}

/* For shell completions: name, value name, choices and help, tab-separated. */
static void options_print_table(const pj_option *options)
{
    for (const pj_option *o = options; o->name; o++)
        pj_print(stdout, "%s\t%s\t%s\t%s\n", o->name, o->value_name ? o->value_name : "",
                 o->choices ? o->choices : "", o->help);
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

static void print_man(const pj_command *command, const pj_option *options)
{
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
    for (const pj_option *o = options; o->name; o++) {
        char heading[64];
        option_heading(o, heading, sizeof heading);
        pj_print(stdout, ".TP\n.B ");
        print_roff(heading + strspn(heading, " "));
        print_roff(o->help);
    }
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

/* ---- parsing ---- */

/* `bare_ns`: unit of a number without a unit. */
static bool parse_duration(const char *text, double bare_ns, int64_t *ns)
{
    static const struct {
        const char *unit;
        double ns;
    } units[] = {{"ms", 1e6}, {"s", 1e9}, {"us", 1e3}, {"ns", 1}, {"min", 60e9}};
    char *end;
    double value = strtod(text, &end), unit_ns = *end ? 0 : bare_ns;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (strcmp(end, units[i].unit) == 0) unit_ns = units[i].ns;
    if (end == text || unit_ns == 0 || !(value >= 0 && value * unit_ns < 9e18)) return false;
    *ns = (int64_t)(value * unit_ns);
    return true;
}

static const char *options_set_number(const pj_option *o, const char *value)
{
    char *end;
    errno = 0;
    double number;
    int64_t whole = 0;
    if (o->type == PJ_OPTION_INT) {
        whole = strtoll(value, &end, 10);
        number = (double)whole;
    } else
        number = strtod(value, &end);
    if (end == value || *end || errno == ERANGE || !isfinite(number)) return "is not a number";
    if ((o->min != 0 || o->max != 0) && (number < o->min || number > o->max))
        return "is out of range";
    if (o->type == PJ_OPTION_INT)
        *(int64_t *)o->target = whole;
    else
        *(double *)o->target = number;
    return NULL;
}

static bool options_is_choice(const char *choices, const char *value)
{
    size_t length = strlen(value);
    for (const char *word = choices; *word;) {
        size_t n = strcspn(word, " ");
        if (n == length && strncmp(word, value, n) == 0) return true;
        word += n + (word[n] == ' ');
    }
    return false;
}

/* Sets the value; returns NULL, or what is wrong with it. */
static const char *set_value(const pj_option *o, const char *value)
{
    pj_text_list *list = o->target;
    switch (o->type) {
    case PJ_OPTION_TEXT: *(const char **)o->target = value; return NULL;
    case PJ_OPTION_CHOICE:
        *(const char **)o->target = value;
        return options_is_choice(o->choices, value) ? NULL : "is not one of";
    case PJ_OPTION_DURATION:
    case PJ_OPTION_SECONDS:
        return parse_duration(value, o->type == PJ_OPTION_SECONDS ? 1e9 : 1e6, o->target)
                   ? NULL
                   : "is not a duration such as 100ms or 2s";
    case PJ_OPTION_LIST:
        if (list->count == PJ_LIST_MAX) return "is one value too many (at most 64)";
        list->items[list->count++] = value;
        return NULL;
    default: return options_set_number(o, value);
    }
}

/* *negated: the name was found after "no-". */
static const pj_option *find_long(const pj_option *options, const char *name, size_t length,
                                  bool *negated)
{
    for (const pj_option *o = options; o->name; o++)
        if (strlen(o->name) == length && strncmp(o->name, name, length) == 0) return o;
    if (*negated || length <= 3 || strncmp(name, "no-", 3) != 0) return NULL;
    *negated = true;
    const pj_option *o = find_long(options, name + 3, length - 3, negated);
    return o && o->type == PJ_OPTION_FLAG ? o : NULL;
}

static const pj_option *find_letter(const pj_option *options, char letter)
{
    for (const pj_option *o = options; o->name; o++)
        if (o->letter == letter || o->old_letter == letter) return o;
    return NULL;
}

static int unknown_option(const pj_command *command, const pj_option *options, const char *word)
{
    char name[64], hint[64] = "";
    if (word[1] == '-') {
        pj_nearest nearest;
        snprintf(name, sizeof name, "%.*s", (int)strcspn(word + 2, "="), word + 2);
        pj_nearest_begin(&nearest, name);
        for (const pj_option *o = options; o->name; o++)
            pj_nearest_offer(&nearest, o->name, strlen(o->name));
        pj_nearest_write(&nearest, "--", hint, sizeof hint);
    }
    return pj_command_usage(command, "unknown option %s%s", word, hint);
}

/* "--depth must be off, module or deep, not dep; did you mean deep?" */
static int wrong_choice(const pj_command *command, const pj_option *o, const char *value)
{
    char hint[64], list[256] = "";
    size_t used = 0;
    for (const char *p = o->choices; *p && used < sizeof list; p += strspn(p, " ")) {
        size_t n = strcspn(p, " ");
        const char *before = !used ? "" : p[n] ? ", " : " or ";
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%.*s", before, (int)n, p);
        p += n;
    }
    pj_nearest_hint(value, o->choices, hint, sizeof hint);
    return pj_command_usage(command, "--%s must be %s, not %s%s", o->name, list, value, hint);
}

/* Handles the option at argv[*index] and its value; after an error the exit code. */
static int take_option(const pj_command *command, const pj_option *options, int argc, char **argv,
                       int *index)
{
    const char *word = argv[*index], *value = NULL;
    const pj_option *o;
    bool negated = false;
    if (word[1] == '-') {
        size_t length = strcspn(word + 2, "=");
        o = find_long(options, word + 2, length, &negated);
        if (word[2 + length] == '=') value = word + 3 + length;
    } else {
        o = find_letter(options, word[1]);
        if (word[2]) value = word + 2;
    }
    if (!o) return unknown_option(command, options, word);
    if (o->type == PJ_OPTION_FLAG) {
        if (value) return pj_command_usage(command, "--%s takes no value", o->name);
        *(bool *)o->target = !negated;
        return PJ_PARSE_GO_ON;
    }
    if (!value && *index + 1 < argc) value = argv[++*index];
    if (!value) return pj_command_usage(command, "--%s needs a value", o->name);
    const char *wrong = set_value(o, value);
    if (!wrong) return PJ_PARSE_GO_ON;
    if (o->type == PJ_OPTION_CHOICE) return wrong_choice(command, o, value);
    if (o->min != 0 || o->max != 0)
        return pj_command_usage(command, "--%s %s %s (%.16g to %.16g)", o->name, value, wrong,
                                o->min, o->max);
    return pj_command_usage(command, "--%s %s %s", o->name, value, wrong);
}

int pj_options_parse(const pj_command *command, const pj_option *options, int argc, char **argv,
                     int *positional)
{
    bool only_positional = false;
    int count = 0;
    for (int i = 1; i < argc; i++) {
        char *word = argv[i];
        if (only_positional || word[0] != '-' || word[1] == 0 ||
            (isdigit((unsigned char)word[1]) && !find_letter(options, word[1]))) {
            argv[1 + count++] = word;
        } else if (strcmp(word, "--") == 0) {
            only_positional = true;
        } else if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
            print_help(command, options);
            return PJ_EXIT_OK;
        } else if (strcmp(word, "--man") == 0) { /* used by the build */
            print_man(command, options);
            return PJ_EXIT_OK;
        } else if (strcmp(word, "--list-options") == 0) { /* used by the build */
            options_print_table(options);
            return PJ_EXIT_OK;
        } else {
            int code = take_option(command, options, argc, argv, &i);
            if (code != PJ_PARSE_GO_ON) return code;
        }
    }
    if (positional) *positional = count;
    if (!positional && count > 0)
        return pj_command_usage(command, "takes no arguments, but there is %s", argv[1]);
    return PJ_PARSE_GO_ON;
}

/* ---- options of requests to generate ---- */

pj_option pj_request_option(pj_generation_request *request, const char *field)
{
    static const pj_option_type types[] = {
        [PJ_REQUEST_TEXT] = PJ_OPTION_TEXT, [PJ_REQUEST_CHOICE] = PJ_OPTION_CHOICE,
        [PJ_REQUEST_INT] = PJ_OPTION_INT,   [PJ_REQUEST_NUMBER] = PJ_OPTION_DOUBLE,
        [PJ_REQUEST_FLAG] = PJ_OPTION_FLAG, [PJ_REQUEST_LIST] = PJ_OPTION_LIST,
        [PJ_REQUEST_MAP] = PJ_OPTION_LIST,
    };
    const pj_request_field *f = pj_request_field_find(field);
    bool is_number = f->kind == PJ_REQUEST_INT || f->kind == PJ_REQUEST_NUMBER;
    return (pj_option){.name = f->option,
                       .letter = f->letter,
                       .type = types[f->kind],
                       .target = (char *)request + f->offset,
                       .value_name = f->value_name,
                       .help = f->help,
                       .min = is_number ? f->least : 0,
                       .max = is_number ? f->most : 0,
                       .choices = f->choices};
}

int pj_session_option(const pj_command *command, const char *id)
{
    if (!id) return PJ_PARSE_GO_ON;
    if (!pj_session_id_is_valid(id))
        return pj_command_usage(command,
                                "--session takes at most %d printable ASCII characters "
                                "without blanks",
                                PJ_SESSION_ID_MAX);
    setenv("PERJOULE_SESSION", id, 1);
    return PJ_PARSE_GO_ON;
}
