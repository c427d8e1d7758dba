/* Command-line options, declared once in a table per command: parsing, --help, the man page and
 * shell completions are generated from it. Accepted forms: --name value, --name=value, -n value,
 * -nvalue; "--" ends the options. The rest are positional arguments. */
#ifndef PJ_CLI_OPTIONS_H
#define PJ_CLI_OPTIONS_H

#include "base/error.h"
#include "base/text_list.h"
#include "cli/rules.h"
#include "trace/generation_request.h"

#include <math.h>

typedef enum pj_option_type {
    PJ_OPTION_FLAG,     /* bool *: set to true; --no-NAME sets it to false */
    PJ_OPTION_TEXT,     /* const char **: not empty; `choices`, if any, are suggestions */
    PJ_OPTION_ANY_TEXT, /* the same, or empty */
    PJ_OPTION_CHOICE,   /* const char **: one of `choices` */
    PJ_OPTION_CHOICES,  /* const char **: some of `choices`, separated by commas */
    PJ_OPTION_INT,      /* int64_t *, within min and max */
    PJ_OPTION_DOUBLE,   /* double *, within min and max */
    PJ_OPTION_DURATION, /* int64_t * nanoseconds, within min and max: "100ms", "1s", "50us", plain
                           number: ms */
    PJ_OPTION_SECONDS,  /* int64_t * nanoseconds, as before, plain number: s */
    PJ_OPTION_LIST,     /* pj_text_list *: may be given several times, never empty */
    PJ_OPTION_GROUP     /* no option: heads the options that follow in the help */
} pj_option_type;

typedef struct pj_option {
    const char *name; /* without dashes */
    char letter;      /* 0: none */
    pj_option_type type;
    void *target;
    const char *value_name; /* for help: "FILE" */
    const char *help;
    double min, max;     /* numbers; durations in nanoseconds; both 0: unbounded */
    const char *choices; /* "off module deep" */
    char old_letter;     /* still accepted here; other commands use it for another option */
    /* Of texts: refuses a value before the command starts anything, and says why (cli/rules.h). */
    pj_status (*rule)(const char *value, pj_error *err);
    /* Names of other options, separated by spaces, "$NAME" of the environment's. Without any of the
     * first, or with any of the second, this one would do nothing: it is refused. */
    const char *needs, *excludes;
} pj_option;

#define PJ_OPTION_HEADING(title)                    \
    {                                               \
        title, 0, PJ_OPTION_GROUP, NULL, NULL, NULL \
    }
/* Options that every command takes, listed below its own. */
extern const pj_option pj_common_options[];

/* Options with the same meaning in every command. */
#define PJ_OPTION_POWER(pointer)                                                              \
    {                                                                                         \
        "power", 0, PJ_OPTION_TEXT, pointer, "LIST",                                          \
            "power sources, separated by commas: auto (default), none, rapl, nvml, hwmon, "   \
            "ioreport, powermetrics, estimate (modelled), perjoule:URL (another machine's), " \
            "sim (simulated) or replay:FILE; a source's settings follow a colon",             \
            .choices = "auto none rapl nvml hwmon ioreport powermetrics estimate perjoule: "  \
                       "sim replay:",                                                         \
            .rule = pj_rule_power                                                             \
    }
/* NAN: not given. pj_baseline_seconds makes an option of a session of it. `old`: a letter that is
 * still accepted, 0 for none. */
#define PJ_OPTION_BASELINE(pointer, old)                                                      \
    {                                                                                         \
        "baseline", 0, PJ_OPTION_DOUBLE, pointer, "S",                                        \
            "seconds of idle power measured before, and half as long after (default: 1, "     \
            "unless it is known from the last minute); 0: none, then there is no net figure", \
            0, 600, .old_letter = old                                                         \
    }
/* Between samples; 0 where it is not given: each source's own. */
#define PJ_OPTION_INTERVAL(pointer, letter, help)                                \
    {                                                                            \
        "interval", letter, PJ_OPTION_DURATION, pointer, "TIME", help, 1e4, 60e9 \
    }
#define PJ_OPTION_DTYPE(pointer)                                                               \
    {                                                                                          \
        "dtype", 0, PJ_OPTION_CHOICE, pointer, "TYPE",                                         \
            "convert the weights: q8_0, q4_0, bf16, f16 or f32 (default: as they are stored)", \
            .choices = PJ_REQUEST_DTYPES                                                       \
    }
#define PJ_OPTION_KV(pointer)                                                             \
    {                                                                                     \
        "kv", 0, PJ_OPTION_CHOICE, pointer, "TYPE", "keep keys and values in f32 or f16", \
            .choices = PJ_REQUEST_KV_TYPES                                                \
    }
#define PJ_OPTION_DEVICE(pointer)                                                               \
    {                                                                                           \
        "device", 0, PJ_OPTION_TEXT, pointer, "DEVICE",                                         \
            "what computes: cpu (default), gpu, gpu:N, a name or UUID that `perjoule devices` " \
            "lists, or auto (a GPU on which the model fits, else the CPU)"                      \
    }
#define PJ_OPTION_MODEL(pointer)                                                              \
    {                                                                                         \
        "model", 'm', PJ_OPTION_TEXT, pointer, "MODEL",                                       \
            "a folder, a GGUF file, a name that `perjoule models` lists, or synthetic:SHAPE " \
            "(default: the demo model)"                                                       \
    }

/* --session: pj_session_option applies it after parsing. */
#define PJ_OPTION_SESSION(pointer)                                                       \
    {                                                                                    \
        "session", 0, PJ_OPTION_TEXT, pointer, "ID",                                     \
            "the task that the run is a part of, for `perjoule ls --session` (default: " \
            "$PERJOULE_SESSION)",                                                        \
            .rule = pj_rule_session                                                      \
    }

typedef struct pj_command {
    const char *name;
    const char *summary; /* one line, for the list of commands */
    int (*run)(const struct pj_command *command, int argc, char **argv); /* argv[0]: the name */
    const char *usage;                                                   /* "[options] PROMPT" */
    const char *text;     /* a paragraph or two for --help and the man page */
    bool shows_progress;  /* of its own; others get a line while they work without a word */
    const char *examples; /* lines "perjoule run ...\n", each with "# what" above or after it */
} pj_command;

/* The option of a field of requests to generate, with the table's letter, help, bounds and choices;
 * it writes into `ask`. */
pj_option pj_request_option(pj_generation_request *request, const char *field);

/* As pj_session_options.baseline_seconds. */
static inline double pj_baseline_seconds(double given)
{
    return isnan(given) ? 0 : given == 0 ? -1 : given;
}

/* How pj_options_parse ended. */
enum { PJ_PARSE_GO_ON = -1 }; /* else: the exit code to return */

/* Parses; positional arguments are moved to the front of argv + 1 and counted in *positional; NULL:
 * the command takes none.
 * `options` ends with an entry without a name. Handles --help and prints errors itself. */
int pj_options_parse(const pj_command *command, const pj_option *options, int argc, char **argv,
                     int *positional);

/* Makes runs from now on, also those of programs that are started, part of a session (NULL: no
 * change). */
void pj_session_option(const char *id);

/* Documented exit codes. */
enum {
    PJ_EXIT_OK = 0,
    PJ_EXIT_FAILED = 1,
    PJ_EXIT_USAGE = 2,
    PJ_EXIT_UNAVAILABLE = 3,
    PJ_EXIT_INTERRUPTED = 130
};
int pj_exit_code(pj_status status);
/* A reader that has seen enough, such as `head`, closes its end of a pipe: no failure. */
bool pj_output_is_closed(void);
/* The exit code of a program that has run `name` ("perjoule ls"): what was printed and could not be
 * written is an error, whatever the command was. */
int pj_check_output(const char *name, int code);
/* Prints "perjoule COMMAND: sentence" to standard error, returns pj_exit_code(err->status). */
int pj_command_failed(const pj_command *command, const pj_error *err);
/* For wrong usage found by a command itself: prints, points to --help, returns PJ_EXIT_USAGE. */
int pj_command_usage(const pj_command *command, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
