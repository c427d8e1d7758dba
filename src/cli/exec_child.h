/*
 * The program that `perjoule exec` runs: started with its own terminal and signals, followed until
 * it ends, and its processor time counted with that of everything it started. Its descriptors are
 * those of perjoule plus one for markers, into which writing never blocks and never raises SIGPIPE.
 */
#ifndef PJ_CLI_EXEC_CHILD_H
#define PJ_CLI_EXEC_CHILD_H

#include "base/error.h"

#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

typedef struct pj_child {
    char **words;
    char path[PATH_MAX]; /* the program's file; "": unknown */
    int reserved_fd;     /* the marker descriptor's number in the program; -1: none was free */
    int markers[2];      /* the pipe; we read [0] */
    int wake[2];         /* a byte arrives when a child changes state */
    pid_t pid;
    char cgroup[512]; /* cgroup created for the program; "": not permitted */
    int64_t begin_ns, end_ns;
    uint32_t left_count;    /* of its processes, those that run on after it */
    char left_name[20];     /* one of them */
    double energy_mj;       /* of the program alone, as the system says; NAN: it does not */
    double cpu_s;           /* of the program and what it started */
    const char *cpu_method; /* "cgroup" or "processes" */
    int exit_code, signal;  /* signal: what killed it, 0: nothing */
} pj_child;

enum { PJ_CHILD_NOT_FOUND = 127, PJ_CHILD_NOT_RUNNABLE = 126, PJ_CHILD_SIGNAL = 128 };

/* Called before anything changes the disposition of a signal: notes what the caller had ignored. */
void pj_child_note_signals(void);
/* Called before anything else is opened: reserves a single-digit descriptor for the markers,
 * because some shells can only redirect to those. */
void pj_child_reserve(pj_child *child);
/* Whether the program can be found and run; PJ_E_NOT_FOUND with exit_code set. */
pj_status pj_child_find(pj_child *child, pj_error *err);
/* The file that a shell would run for the word; false: there is none. */
bool pj_program_find(const char *word, char *path, size_t bytes);
/* Makes the pipe, if there is none yet. */
bool pj_child_open_markers(pj_child *child);
/* `variables` (NAME=VALUE, ends with NULL) are added to the program's environment. */
pj_status pj_child_start(pj_child *child, const char *const *variables, pj_error *err);
/* `take` gets the bytes of markers as they arrive. `look` is called after each of them and from
 * time to time: ten times per second while it returns true. */
typedef struct pj_child_watch {
    void *context;
    void (*take)(void *context, const char *bytes, size_t count);
    bool (*look)(void *context);
} pj_child_watch;

/* Waits for the program. */
void pj_child_wait(pj_child *child, const pj_child_watch *watch);
void pj_child_close(pj_child *child);

#endif
