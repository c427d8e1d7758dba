/* The names of the files, in a form that a signal handler can use. */
#include "bench/folder.h"

#include "cli/options.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { SUFFIXES = 4, DATABASES = 8 };

static char folder[200], spool[400], files[DATABASES * SUFFIXES][300], spools[DATABASES][300];
static int databases;

void pj_bench_folder_remove(void)
{
    if (spool[0]) unlink(spool);
    for (int i = 0; i < databases * SUFFIXES; i++) unlink(files[i]);
    for (int i = 0; i < databases; i++) rmdir(spools[i]);
    if (folder[0]) rmdir(folder);
}

static void remove_and_die(int number)
{
    pj_bench_folder_remove();
    _exit(number == SIGINT ? PJ_EXIT_INTERRUPTED : 128 + number);
}

static void watch_signals(void)
{
    struct sigaction action = {.sa_handler = remove_and_die};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
}

pj_status pj_bench_folder_open(const char *base, pj_error *err)
{
    if (!base) base = getenv("TMPDIR");
    if (!base) base = "/tmp";
    databases = 0;
    spool[0] = 0;
    snprintf(folder, sizeof folder, "%.150s/perjoule-bench-XXXXXX", base);
    if (!mkdtemp(folder)) {
        folder[0] = 0;
        return pj_fail_errno(err, errno, "cannot create a folder for the benchmark in %s", base);
    }
    watch_signals();
    return PJ_OK;
}

void pj_bench_folder_database(const char *name, char *path, size_t bytes)
{
    static const char *const suffixes[SUFFIXES] = {"", "-wal", "-shm", "-spool/reserve"};
    snprintf(path, bytes, "%s/%s", folder, name);
    if (databases == DATABASES) return;
    for (int i = 0; i < SUFFIXES; i++)
        snprintf(files[databases * SUFFIXES + i], sizeof files[0], "%s/%.60s%s", folder, name,
                 suffixes[i]);
    snprintf(spools[databases++], sizeof spools[0], "%s/%.60s-spool", folder, name);
}

void pj_bench_folder_note_run(const char *path, const char *run_id)
{
    snprintf(spool, sizeof spool, "%.300s-spool/%.64s.spool", path, run_id);
}
