/* perjoule-bench, run by `perjoule bench`: finds and runs a benchmark; each has its own file and
 * options. */
#include "cli/options.h"
#include "cli/patience.h"

#include "base/file.h"
#include "base/nearest.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#define BENCH(name) extern const pj_command pj_bench_##name;
#include "bench/benches.def"
#undef BENCH

static const pj_command *const benches[] = {
#define BENCH(name) &pj_bench_##name,
#include "bench/benches.def"
#undef BENCH
};

enum { BENCH_COUNT = sizeof benches / sizeof *benches };

/* "engine" for "bench engine" */
static const char *short_name(const pj_command *bench)
{
    return strchr(bench->name, ' ') + 1;
}

static void main_print_list(FILE *out)
{
    for (int i = 0; i < BENCH_COUNT; i++)
        fprintf(out, "  %-12s %s\n", short_name(benches[i]), benches[i]->summary);
    fprintf(out, "\nperjoule bench NAME --help shows a benchmark's options.\n");
}

static int main_run_bench(const pj_command *command, int argc, char **argv)
{
    static const pj_option none[] = {{0}};
    int positional;
    if (argc < 2) {
        fprintf(stderr, "Usage: perjoule bench NAME [options]\n\n");
        main_print_list(stderr);
        return PJ_EXIT_USAGE;
    }
    for (int i = 0; i < BENCH_COUNT; i++)
        if (strcmp(short_name(benches[i]), argv[1]) == 0) {
            char name[64];
            snprintf(name, sizeof name, "perjoule %s", benches[i]->name);
            pj_patience_begin(name);
            int code = benches[i]->run(benches[i], argc - 1, argv + 1);
            pj_patience_end();
            return pj_check_output(name, code);
        }
    int code = pj_options_parse(command, none, argc, argv, &positional);
    if (code != PJ_PARSE_GO_ON) {
        if (code == PJ_EXIT_OK && strcmp(argv[1], "--man") != 0) {
            printf("\nBenchmarks:\n");
            main_print_list(stdout);
        }
        return code;
    }
    pj_nearest nearest;
    char hint[80];
    pj_nearest_begin(&nearest, argv[1]);
    for (int i = 0; i < BENCH_COUNT; i++)
        pj_nearest_offer(&nearest, short_name(benches[i]), strlen(short_name(benches[i])));
    pj_nearest_write(&nearest, "", hint, sizeof hint);
    return pj_command_usage(command, "unknown benchmark %s%s", argv[1], hint);
}

static const pj_command bench_command = {
    .name = "bench",
    .summary = "measure the machine, the engine and the profiler itself",
    .run = main_run_bench,
    .usage = "NAME [options]",
    .text =
        "Each benchmark prints a table for people, or one JSON object with --json. Figures that "
        "compare are ratios measured interleaved in one process; none passes or fails on time.",
    .examples = "perjoule bench engine -m synthetic:llama-3.2-1b\n",
};

int main(int argc, char **argv)
{
    pj_error err;
    signal(SIGPIPE, SIG_IGN); /* a closed pipe becomes an error of write() */
    pj_file_guard();
    if (pj_rules_check_environment(&err) != PJ_OK) return pj_command_failed(&bench_command, &err);
    return bench_command.run(&bench_command, argc, argv);
}
