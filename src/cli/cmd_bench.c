/* perjoule bench: runs perjoule-bench, the program of the benchmarks (bench/), from the folder of
 * this one. */
#include "cli/options.h"
#include "cli/terminal.h"

#include "base/process.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

static int bench_run(const pj_command *command, int argc, char **argv)
{
    pj_error err;
    char path[PATH_MAX];
    if (pj_process_sibling("perjoule-bench", path, sizeof path, &err) != PJ_OK)
        return pj_command_failed(command, &err);
    execv(path, argv);
    pj_say("perjoule bench: cannot run %s: %s; install it beside perjoule (make builds both)", path,
           strerror(errno));
    return PJ_EXIT_FAILED;
}

const pj_command pj_command_bench = {
    .name = "bench",
    .summary = "measure the machine, the engine and the profiler itself",
    .run = bench_run,
    .shows_progress = true,
};
