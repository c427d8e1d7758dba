/* Option tables: parsing. */
#include "cli/options.h"

#include "base/nearest.h"
#include "cli/help.h"
#include "cli/terminal.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
    for (char *p = text; *p; p++) /* one line, whatever a value contains */
        if (*p == '\n' || *p == '\r') *p = ' ';
    pj_say("perjoule %s: %s (see: perjoule %s --help)", command->name, text, command->name);
    return PJ_EXIT_USAGE;
}

bool pj_output_is_closed(void)
{
    struct pollfd out = {.fd = STDOUT_FILENO, .events = POLLOUT};
    return poll(&out, 1, 0) == 1 && out.revents & POLLERR;
}

int pj_check_output(const char *name, int code)
{
    bool failed = fflush(stdout) != 0 || ferror(stdout);
    if (!failed || code != PJ_EXIT_OK || pj_output_is_closed()) return code;
    pj_say("%s: cannot write to standard output: is the disk full?", name);
    return PJ_EXIT_FAILED;
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

static const char *options_set_duration(const pj_option *o, const char *value)
{
    int64_t ns;
    if (!parse_duration(value, o->type == PJ_OPTION_SECONDS ? 1e9 : 1e6, &ns))
        return "is not a duration such as 100ms or 2s";
    if ((o->min != 0 || o->max != 0) && ((double)ns < o->min || (double)ns > o->max))
        return "is out of range";
    *(int64_t *)o->target = ns;
    return NULL;
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

/* The first of the names that is not a choice, and its length; NULL: all are. */
static const char *options_not_a_choice(const char *choices, const char *names, size_t *length)
{
    char name[64];
    for (;; names += *length + 1) {
        *length = strcspn(names, ",");
        snprintf(name, sizeof name, "%.*s", (int)*length, names);
        if (!options_is_choice(choices, name)) return names;
        if (!names[*length]) return NULL;
    }
}

/* Sets the value; returns NULL, or what is wrong with it. */
static const char *set_value(const pj_option *o, const char *value)
{
    pj_text_list *list = o->target;
    switch (o->type) {
    case PJ_OPTION_TEXT:
    case PJ_OPTION_ANY_TEXT:
    case PJ_OPTION_CHOICE:
    case PJ_OPTION_CHOICES: *(const char **)o->target = value; return NULL;
    case PJ_OPTION_DURATION:
    case PJ_OPTION_SECONDS: return options_set_duration(o, value);
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
        if (o->type != PJ_OPTION_GROUP && strlen(o->name) == length &&
            strncmp(o->name, name, length) == 0)
            return o;
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
            if (o->type != PJ_OPTION_GROUP) pj_nearest_offer(&nearest, o->name, strlen(o->name));
        pj_nearest_write(&nearest, "--", hint, sizeof hint);
    }
    return pj_command_usage(command, "unknown option %s%s", word, hint);
}

/* "--depth must be off, module or deep, not dep; did you mean deep?" */
static int wrong_choice(const pj_command *command, const pj_option *o, const char *value)
{
    char hint[64], list[512] = "";
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

const pj_option pj_common_options[] = {
    {"color", 0, PJ_OPTION_CHOICE, &pj_terminal_color, "WHEN",
     "auto (on terminals, unless NO_COLOR is set; default), always or never",
     .choices = "auto always never"},
    {0}};

/* Refuses a value that the option's type or rule does not allow. */
static int check_value(const pj_command *command, const pj_option *o, const char *value)
{
    pj_error err = {0};
    size_t length;
    if (!*value && o->type != PJ_OPTION_ANY_TEXT)
        return pj_command_usage(command, "--%s \"\": must not be empty", o->name);
    if (o->type == PJ_OPTION_CHOICE && !options_is_choice(o->choices, value))
        return wrong_choice(command, o, value);
    const char *wrong =
        o->type == PJ_OPTION_CHOICES ? options_not_a_choice(o->choices, value, &length) : NULL;
    if (wrong) {
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)length, wrong);
        return wrong_choice(command, o, name);
    }
    if (o->rule && o->rule(value, &err) != PJ_OK)
        return pj_command_usage(command, "--%s %.*s: %s", o->name, pj_error_repeatable(value),
                                value, err.text);
    return PJ_PARSE_GO_ON;
}

/* ---- options that other options need or exclude ---- */

enum { OPTIONS_MAX = 128 };
typedef enum option_use { NOT_USED, TURNED_OFF, USED } option_use;

/* The first of the names that is in use. */
static bool options_any_used(const pj_option *options, const option_use *uses, const char *names,
                             char found[64])
{
    for (size_t n; *names; names += n + (names[n] == ' ')) {
        n = strcspn(names, " ");
        snprintf(found, 64, "%.*s", (int)n, names);
        const char *value = *found == '$' ? getenv(found + 1) : NULL;
        if (value && *value) return true;
        for (const pj_option *o = options; o->name; o++)
            if (strcmp(o->name, found) == 0 && uses[o - options] == USED) return true;
    }
    return false;
}

/* "--listen", "--otlp or $PERJOULE_OTLP", "--a, --b or --c" */
static void options_write_names(const char *names, char *out, size_t bytes)
{
    size_t used = 0;
    for (size_t n; *names && used < bytes; names += n + (names[n] == ' ')) {
        n = strcspn(names, " ");
        used += (size_t)snprintf(out + used, bytes - used, "%s%s%.*s",
                                 !used      ? ""
                                 : names[n] ? ", "
                                            : " or ",
                                 *names == '$' ? "" : "--", (int)n, names);
    }
}

/* Refuses an option that would do nothing because of others that were given, or were not. */
static int options_check_uses(const pj_command *command, const pj_option *options,
                              const option_use *uses)
{
    char found[64], names[256];
    for (const pj_option *o = options; o->name; o++) {
        if (uses[o - options] == NOT_USED) continue;
        if (o->excludes && options_any_used(options, uses, o->excludes, found))
            return pj_command_usage(command, "--%s has no effect with --%s", o->name, found);
        if (!o->needs || options_any_used(options, uses, o->needs, found)) continue;
        options_write_names(o->needs, names, sizeof names);
        return pj_command_usage(command, "--%s has no effect without %s", o->name, names);
    }
    return PJ_PARSE_GO_ON;
}

/* Handles the option at argv[*index] and its value; after an error the exit code. */
static int take_option(const pj_command *command, const pj_option *options, int argc, char **argv,
                       int *index, option_use *uses)
{
    const char *word = argv[*index], *value = NULL;
    const pj_option *o;
    bool negated = false;
    if (word[1] == '-') {
        size_t length = strcspn(word + 2, "=");
        o = find_long(options, word + 2, length, &negated);
        if (o) uses[o - options] = negated ? TURNED_OFF : USED;
        if (!o) o = find_long(pj_common_options, word + 2, length, &negated);
        if (word[2 + length] == '=') value = word + 3 + length;
    } else {
        o = find_letter(options, word[1]);
        if (o) uses[o - options] = USED;
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
    int code = check_value(command, o, value);
    if (code != PJ_PARSE_GO_ON) return code;
    const char *wrong = set_value(o, value);
    if (!wrong) return PJ_PARSE_GO_ON;
    if (o->min == 0 && o->max == 0)
        return pj_command_usage(command, "--%s %s %s", o->name, value, wrong);
    double unit = o->type == PJ_OPTION_SECONDS ? 1e9 : o->type == PJ_OPTION_DURATION ? 1e6 : 1;
    const char *name = unit == 1e9 ? " s" : unit == 1e6 ? " ms" : "";
    return pj_command_usage(command, "--%s %s %s (%.16g to %.16g%s)", o->name, value, wrong,
                            o->min / unit, o->max / unit, name);
}

int pj_options_parse(const pj_command *command, const pj_option *options, int argc, char **argv,
                     int *positional)
{
    bool only_positional = false;
    int count = 0;
    option_use uses[OPTIONS_MAX] = {NOT_USED};
    for (const pj_option *o = options; o->name; o++)
        if (o - options == OPTIONS_MAX) abort(); /* a command with more options than places */
    for (int i = 1; i < argc; i++) {
        char *word = argv[i];
        if (only_positional || word[0] != '-' || word[1] == 0 ||
            (isdigit((unsigned char)word[1]) && !find_letter(options, word[1]))) {
            argv[1 + count++] = word;
        } else if (strcmp(word, "--") == 0) {
            only_positional = true;
        } else if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
            pj_help_print(command, options);
            return PJ_EXIT_OK;
        } else if (strcmp(word, "--man") == 0) { /* used by the build */
            pj_help_print_man(command, options);
            return PJ_EXIT_OK;
        } else if (strcmp(word, "--list-options") == 0) { /* used by the build */
            pj_help_print_table(options);
            return PJ_EXIT_OK;
        } else {
            int code = take_option(command, options, argc, argv, &i, uses);
            if (code != PJ_PARSE_GO_ON) return code;
        }
    }
    if (positional) *positional = count;
    if (!positional && count > 0)
        return pj_command_usage(command, "takes no arguments, but there is %s", argv[1]);
    return options_check_uses(command, options, uses);
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
    const char *needs = NULL;
    if (strcmp(field, "batch_rule") == 0) needs = "batch prompts";
    if (strcmp(field, "draft_tokens") == 0) needs = "draft";
    return (pj_option){.name = f->option,
                       .letter = f->letter,
                       /* an empty system message is not the template's usual one */
                       .type = strcmp(field, "system") == 0 ? PJ_OPTION_ANY_TEXT : types[f->kind],
                       .target = (char *)request + f->offset,
                       .value_name = f->value_name,
                       .help = f->help,
                       .min = is_number ? f->least : 0,
                       .max = is_number ? f->most : 0,
                       .choices = f->choices,
                       .rule = f->kind == PJ_REQUEST_MAP ? pj_rule_bias : NULL,
                       .needs = needs};
}

void pj_session_option(const char *id)
{
    if (id) setenv("PERJOULE_SESSION", id, 1);
}
