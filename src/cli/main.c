/* perjoule: the command line. Finds and runs the command; each has its own file. */
#include "base/file.h"
#include "base/nearest.h"
#include "base/thread.h"
#include "cli/exec_child.h"
#include "cli/help.h"
#include "cli/options.h"
#include "cli/patience.h"
#include "cli/terminal.h"
#include "cli/wrap.h"
#include "record/session.h"
#include "store/store.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#define GROUP(title)
#define COMMAND(name) extern const pj_command pj_command_##name;
#include "cli/commands.def"
#undef COMMAND

static const pj_command *const commands[] = {
#define COMMAND(name) &pj_command_##name,
#include "cli/commands.def"
#undef COMMAND
#undef GROUP
};

enum { COMMAND_COUNT = sizeof commands / sizeof *commands, SUMMARY_COLUMN = 14 };

/* The help's lines: a title, or a command. */
static const struct listed {
    const char *title;
    const pj_command *command;
} listing[] = {
#define GROUP(title)  {title, NULL},
#define COMMAND(name) {NULL, &pj_command_##name},
#include "cli/commands.def"
#undef COMMAND
#undef GROUP
};

static void print_overview(FILE *out)
{
    int width = pj_help_width(out);
    pj_print(out,
             "perjoule %s: energy profiler for transformer inference\n\n"
             "Usage: perjoule COMMAND [options]\n"
             "Start: perjoule run \"Once upon a time\"\n",
             pj_version());
    for (size_t i = 0; i < sizeof listing / sizeof *listing; i++) {
        const struct listed *line = &listing[i];
        if (line->title) {
            pj_print(out, "\n%s%s:%s\n", pj_style_on(out, PJ_STYLE_BOLD), line->title,
                     pj_style_off(out));
            continue;
        }
        pj_print(out, "  %-10s  ", line->command->name);
        pj_print_wrapped(out, line->command->summary, SUMMARY_COLUMN, SUMMARY_COLUMN, width);
    }
    pj_print(out, "\nperjoule COMMAND --help: options and examples\n"
                  "perjoule --version:      the version\n");
}

static const pj_command *find_command(const char *name)
{
    for (int i = 0; i < COMMAND_COUNT; i++)
        if (strcmp(commands[i]->name, name) == 0) return commands[i];
    return NULL;
}

/* "unknown command rnu; did you mean run?" */
static void print_unknown(const char *prefix, const char *name)
{
    char hint[64];
    pj_nearest nearest;
    pj_nearest_begin(&nearest, name);
    for (int i = 0; i < COMMAND_COUNT; i++)
        pj_nearest_offer(&nearest, commands[i]->name, strlen(commands[i]->name));
    if (name[0] == '-') pj_nearest_offer_list(&nearest, "--help --version");
    pj_nearest_write(&nearest, "", hint, sizeof hint);
    pj_say("%s: unknown command %s%s (see: perjoule help)", prefix, name, hint);
}

static int run_help(const pj_command *command, int argc, char **argv)
{
    static const pj_option none[] = {{0}};
    int positional;
    int code = pj_options_parse(command, none, argc, argv, &positional);
    if (code != PJ_PARSE_GO_ON) return code;
    if (positional == 0) {
        print_overview(stdout);
        return PJ_EXIT_OK;
    }
    const pj_command *about = find_command(argv[1]);
    if (!about) {
        print_unknown("perjoule help", argv[1]);
        return PJ_EXIT_USAGE;
    }
    char option[] = "--help";
    char *words[] = {argv[1], option, NULL};
    return about->run(about, 2, words);
}

const pj_command pj_command_help = {
    .name = "help",
    .summary = "list the commands, or show one",
    .run = run_help,
    .usage = "[COMMAND]",
    .examples = "perjoule help\nperjoule help run\n",
};

static int main_run_program(int argc, char **argv)
{
    if (argc < 2) {
        print_overview(stderr);
        return PJ_EXIT_USAGE;
    }
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0) {
        pj_print(stdout, "perjoule %s\n", pj_version());
        return pj_check_output("perjoule", PJ_EXIT_OK);
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        print_overview(stdout);
        return pj_check_output("perjoule", PJ_EXIT_OK);
    }
    const pj_command *command = find_command(argv[1]);
    if (!command) {
        print_unknown("perjoule", argv[1]);
        return PJ_EXIT_USAGE;
    }
    char name[64];
    pj_error err;
    snprintf(name, sizeof name, "perjoule %s", command->name);
    if (command != &pj_command_help && pj_rules_check_environment(&err) != PJ_OK)
        return pj_command_failed(command, &err);
    if (!command->shows_progress) pj_patience_begin(name);
    int code = command->run(command, argc - 1, argv + 1);
    pj_patience_end();
    return pj_check_output(name, code);
}

/* ---- the stack ---- */

/* Kernels keep more than this on the stack. */
enum { LEAST_STACK_BYTES = 1 << 20 };

typedef struct program {
    char **argv;
    int argc, code;
    sigset_t mask;
} program;

static void *run_in_thread(void *context)
{
    program *p = context;
    pthread_sigmask(SIG_SETMASK, &p->mask, NULL);
    p->code = main_run_program(p->argc, p->argv);
    return NULL;
}

/* Under a small `ulimit -s` everything runs in a thread, whose stack is large enough, and which
 * gets all signals. */
static void main_say_wait(const char *text)
{
    pj_say("perjoule: %s", text);
}

/* A line that is there while nothing else would be. */
static void main_say_listening(double seconds)
{
    if (!pj_terminal_is(stderr)) return;
    if (seconds > 0)
        pj_live_line(stderr, "measuring idle power for %.2g s", seconds);
    else
        pj_live_line(stderr, "%s", "");
}

int main(int argc, char **argv)
{
    pthread_t thread;
    struct rlimit stack;
    sigset_t all;
    program p = {argv, argc, PJ_EXIT_FAILED};
    pj_child_note_signals();
    pj_store_on_wait(main_say_wait);
    pj_session_on_listen(main_say_listening);
    signal(SIGPIPE, SIG_IGN); /* a closed pipe becomes an error of write() */
    signal(SIGXFSZ, SIG_IGN); /* and so does the file size limit */
    pj_file_guard();
    if (getrlimit(RLIMIT_STACK, &stack) != 0 || stack.rlim_cur >= LEAST_STACK_BYTES)
        return main_run_program(argc, argv);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &p.mask);
    if (pj_thread_start(&thread, "main", run_in_thread, &p, NULL) != PJ_OK) {
        pthread_sigmask(SIG_SETMASK, &p.mask, NULL);
        return main_run_program(argc, argv);
    }
    pthread_join(thread, NULL);
    return p.code;
}
