/* Starting, following and reaping a program and its descendants. */
#include "cli/exec_child.h"

#include "base/file.h"
#include "base/memory.h"
#include "power/process_energy.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef __linux__
#include <sys/prctl.h>
#endif

enum { LOWEST_FD = 3, HIGHEST_FD = 9, PIPE_BYTES = 1 << 20, READ_BYTES = 1 << 16 };

static volatile sig_atomic_t child_pid; /* for the handlers */
static int wake_fd = -1;

/* ---- signals ---- */

/* Signals whose disposition perjoule changes, and which of them its caller had ignored (nohup, a
 * shell's background job): the program starts with the caller's. */
static const int changed[] = {SIGPIPE, SIGXFSZ, SIGINT,  SIGQUIT, SIGTERM,
                              SIGHUP,  SIGUSR1, SIGUSR2, SIGCHLD};
enum { CHANGED = sizeof changed / sizeof *changed };
static bool ignored_by_caller[CHANGED];

void pj_child_note_signals(void)
{
    for (size_t i = 0; i < CHANGED; i++) {
        struct sigaction now;
        ignored_by_caller[i] = sigaction(changed[i], NULL, &now) == 0 && now.sa_handler == SIG_IGN;
    }
}

/* Signals that are handled while a program runs, those of the terminal first, and perjoule's own
 * way with them otherwise. */
static const int handled[] = {SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGCHLD};
enum { HANDLED = sizeof handled / sizeof *handled };
static struct sigaction before_program[HANDLED];

/* An experiment is cancelled by the signal that also ends its present program. */
static void handle_own(int number)
{
    for (size_t i = 0; i < HANDLED; i++)
        if (handled[i] == number && before_program[i].sa_handler != SIG_DFL &&
            before_program[i].sa_handler != SIG_IGN)
            before_program[i].sa_handler(number);
}

static void exec_child_forward(int number, siginfo_t *from, void *context)
{
    int kept = errno;
    (void)from, (void)context;
    if (child_pid > 0) kill((pid_t)child_pid, number);
    handle_own(number);
    errno = kept;
}

/* The terminal sends SIGINT and SIGQUIT to its whole process group, hence to the program too. Those
 * that hand_over_pending sent it already: */
enum { OF_TERMINAL = 2 };
static volatile sig_atomic_t handed_over[OF_TERMINAL];

/* One that a process sent to perjoule alone is forwarded. A sender in our own process group
 * (timeout, a shell's `kill 0`) sends to the whole group. */
static void forward_unless_delivered(int number, siginfo_t *from, void *context)
{
    int kept = errno;
    bool sent = from->si_code == SI_USER || from->si_code == SI_QUEUE; /* else: the terminal */
    bool delivered = !sent || getpgid(from->si_pid) == getpgrp();
    for (size_t i = 0; i < OF_TERMINAL; i++)
        if (handled[i] == number && handed_over[i]) {
            handed_over[i] = 0;
            delivered = true;
        }
    if (delivered)
        handle_own(number);
    else
        exec_child_forward(number, from, context);
    errno = kept;
}

static void wake(int number, siginfo_t *from, void *context)
{
    int kept = errno;
    (void)number, (void)from, (void)context;
    if (write(wake_fd, "", 1) < 0) errno = 0; /* a full pipe wakes us anyway */
    errno = kept;
}

static void take_signals(void)
{
    for (size_t i = 0; i < HANDLED; i++) {
        struct sigaction action = {.sa_sigaction = handled[i] == SIGCHLD ? wake
                                                   : i < OF_TERMINAL     ? forward_unless_delivered
                                                                         : exec_child_forward,
                                   .sa_flags = SA_RESTART | SA_SIGINFO};
        if (handled[i] == SIGCHLD) action.sa_flags |= SA_NOCLDSTOP;
        sigaction(handled[i], NULL, &before_program[i]);
        /* what the caller ignored is ignored by perjoule and the program alike */
        if (handled[i] == SIGCHLD || before_program[i].sa_handler != SIG_IGN)
            sigaction(handled[i], &action, NULL);
    }
}

static void return_signals(void)
{
    for (size_t i = 0; i < HANDLED; i++) sigaction(handled[i], &before_program[i], NULL);
}

/* After the fork, with signals still blocked: one that arrived before it reached perjoule alone.
 * (One that arrived after it is pending in the program too, and does not count twice.) */
static void hand_over_pending(pid_t program)
{
    sigset_t pending;
    if (program <= 0 || sigpending(&pending) != 0) return;
    for (size_t i = 0; i < OF_TERMINAL; i++)
        if (sigismember(&pending, handled[i]) == 1) {
            handed_over[i] = 1;
            kill(program, handled[i]);
        }
}

/* ---- cgroup ---- */

static bool exec_child_write_text(const char *folder, const char *name, const char *text)
{
    char path[PATH_MAX];
    int fd = pj_path_join(path, sizeof path, folder, name) ? open(path, O_WRONLY | O_CLOEXEC) : -1;
    bool written = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd >= 0) close(fd);
    return written;
}

/* Groups of a perjoule that was killed; one with processes stays. */
static void remove_left_groups(const char *parent)
{
    DIR *folder = opendir(parent);
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        char path[PATH_MAX];
        long pid = strncmp(entry->d_name, "perjoule-", 9) ? 0 : strtol(entry->d_name + 9, NULL, 10);
        if (pid <= 0 || kill((pid_t)pid, 0) == 0 || errno != ESRCH) continue;
        if (pj_path_join(path, sizeof path, parent, entry->d_name)) rmdir(path);
    }
    if (folder) closedir(folder);
}

/* Below our own group (version 2 of control groups), where that is allowed. */
static void make_cgroup(pj_child *c)
{
    char parent[PATH_MAX], procs[PATH_MAX];
    char *text = NULL, *at, own[300];
    size_t bytes;
    if (pj_file_read("/proc/self/cgroup", 1 << 16, &text, &bytes, NULL) != PJ_OK) return;
    at = strstr(text, "0::/");
    if (at && sscanf(at + 3, "%299[^\n]", own) == 1) {
        snprintf(parent, sizeof parent, "/sys/fs/cgroup%s", own);
        remove_left_groups(parent);
        snprintf(c->cgroup, sizeof c->cgroup, "%s/perjoule-%ld", parent, (long)getpid());
        bool made = mkdir(c->cgroup, 0755) == 0;
        /* an ordinary folder where control groups of version 2 are mounted elsewhere */
        bool is_group = made && pj_path_join(procs, sizeof procs, c->cgroup, "cgroup.procs") &&
                        access(procs, W_OK) == 0;
        if (made && !is_group) rmdir(c->cgroup);
        if (!is_group) c->cgroup[0] = 0;
    }
    pj_free(text);
}

static double cgroup_seconds(const pj_child *c)
{
    char path[PATH_MAX], *text = NULL, *at;
    size_t bytes;
    unsigned long long us = 0;
    if (!pj_path_join(path, sizeof path, c->cgroup, "cpu.stat") ||
        pj_file_read(path, 1 << 16, &text, &bytes, NULL) != PJ_OK)
        return -1;
    at = strstr(text, "usage_usec ");
    bool known = at && sscanf(at + 11, "%llu", &us) == 1;
    pj_free(text);
    return known ? (double)us * 1e-6 : -1;
}

/* Moves remaining processes back to their previous group, so that the group can be removed. */
static void remove_cgroup(pj_child *c)
{
    char path[PATH_MAX], parent[512], *text = NULL;
    size_t bytes;
    if (!c->cgroup[0]) return;
    snprintf(parent, sizeof parent, "%s", c->cgroup);
    *strrchr(parent, '/') = 0;
    if (pj_path_join(path, sizeof path, c->cgroup, "cgroup.procs") &&
        pj_file_read(path, 1 << 20, &text, &bytes, NULL) == PJ_OK)
        for (char *save, *pid = strtok_r(text, "\n", &save); pid; pid = strtok_r(NULL, "\n", &save))
            exec_child_write_text(parent, "cgroup.procs", pid);
    pj_free(text);
    rmdir(c->cgroup);
    c->cgroup[0] = 0;
}

/* ---- processes that still run ---- */

typedef struct process {
    pid_t pid, parent;
    double cpu_s;
    char name[20];
    bool ended, ours;
} process;

static bool read_process(const char *pid, process *p)
{
    char path[64], text[1024];
    unsigned long user = 0, kernel = 0;
    int parent = 0;
    char state = 0;
    snprintf(path, sizeof path, "/proc/%.16s/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    if (fd >= 0) close(fd);
    if (got <= 0) return false;
    text[got] = 0;
    const char *after = strrchr(text, ')'); /* the process name may contain any characters */
    const char *name = strchr(text, '(');
    if (!after || !name ||
        sscanf(after + 1, " %c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &state, &parent,
               &user, &kernel) != 4)
        return false;
    *p = (process){.pid = (pid_t)atoi(pid), .parent = (pid_t)parent, .ended = state == 'Z'};
    snprintf(p->name, sizeof p->name, "%.*s", (int)(after - name - 1), name + 1);
    p->cpu_s = (double)(user + kernel) / (double)sysconf(_SC_CLK_TCK);
    return true;
}

static void note_left(pj_child *c, const process *p)
{
    if (p->ended) return;
    if (c->left_count++ == 0) memcpy(c->left_name, p->name, sizeof c->left_name);
}

/* Marks descendants of this process until no more are found. */
static double sum_descendants(pj_child *c, process *all, size_t count)
{
    double sum = 0;
    for (bool more = true; more;) {
        more = false;
        for (size_t i = 0; i < count; i++) {
            bool below = all[i].parent == getpid();
            for (size_t k = 0; k < count && !below; k++)
                below = all[k].ours && all[k].pid == all[i].parent;
            if (!below || all[i].ours) continue;
            all[i].ours = more = true;
            sum += all[i].cpu_s;
            note_left(c, &all[i]);
        }
    }
    return sum;
}

static double seconds_of_the_living(pj_child *c)
{
    enum { MOST = 4096 };
    DIR *folder = opendir("/proc");
    process *all = folder ? pj_alloc(MOST, sizeof *all) : NULL;
    size_t count = 0;
    for (struct dirent *entry; all && count < MOST && (entry = readdir(folder));)
        if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9')
            count += read_process(entry->d_name, &all[count]);
    double sum = all ? sum_descendants(c, all, count) : 0;
    if (folder) closedir(folder);
    pj_free(all);
    return sum;
}

/* ---- starting ---- */

static bool is_program(const char *path)
{
    struct stat s;
    return stat(path, &s) == 0 && !S_ISDIR(s.st_mode);
}

bool pj_program_find(const char *word, char *path, size_t bytes)
{
    const char *folders = getenv("PATH");
    snprintf(path, bytes, "%s", word);
    if (strchr(word, '/')) return is_program(path);
    for (const char *at = folders; at; at = strchr(at, ':') ? strchr(at, ':') + 1 : NULL) {
        size_t length = strcspn(at, ":");
        snprintf(path, bytes, "%.*s/%s", (int)(length ? length : 1), length ? at : ".", word);
        if (is_program(path)) return true;
    }
    return !folders;
}

pj_status pj_child_find(pj_child *c, pj_error *err)
{
    if (pj_program_find(c->words[0], c->path, sizeof c->path)) {
        if (access(c->path, X_OK) == 0) return PJ_OK;
        c->exit_code = PJ_CHILD_NOT_RUNNABLE;
        return pj_fail(err, PJ_E_NOT_FOUND, "cannot run %s: %s", c->words[0], strerror(errno));
    }
    c->exit_code = PJ_CHILD_NOT_FOUND;
    return pj_fail(err, PJ_E_NOT_FOUND, "cannot run %s: %s", c->words[0], strerror(ENOENT));
}

void pj_child_reserve(pj_child *c)
{
    c->reserved_fd = c->markers[0] = c->markers[1] = c->wake[0] = c->wake[1] = -1;
    for (int fd = LOWEST_FD; fd <= HIGHEST_FD && c->reserved_fd < 0; fd++)
        if (fcntl(fd, F_GETFD) < 0) c->reserved_fd = fd;
    int file = c->reserved_fd < 0 ? -1 : open("/dev/null", O_RDWR | O_CLOEXEC);
    if (file >= 0 && file != c->reserved_fd) {
        fcntl(file, F_DUPFD_CLOEXEC, c->reserved_fd);
        close(file);
    }
}

static bool make_pipe(int ends[2])
{
    if (pipe(ends) != 0) return false;
    for (int i = 0; i < 2; i++) {
        fcntl(ends[i], F_SETFD, FD_CLOEXEC);
        fcntl(ends[i], F_SETFL, O_NONBLOCK);
    }
#ifdef F_SETPIPE_SZ
    fcntl(ends[1], F_SETPIPE_SZ, PIPE_BYTES);
#endif
    return true;
}

/* In the child: restores the caller's signals and the signal mask, and executes the program; on
 * failure sends errno through the pipe. */
static void become(const pj_child *c, const char *const *variables, const sigset_t *mask,
                   int failure_pipe)
{
    for (size_t i = 0; i < CHANGED; i++)
        signal(changed[i], ignored_by_caller[i] ? SIG_IGN : SIG_DFL);
    sigprocmask(SIG_SETMASK, mask, NULL);
    if (c->cgroup[0]) exec_child_write_text(c->cgroup, "cgroup.procs", "0");
    if (c->reserved_fd >= 0) dup2(c->markers[1], c->reserved_fd);
    /* The child keeps a read end of the pipe, so that writing markers after perjoule was killed
     * does not raise SIGPIPE. */
    fcntl(c->markers[0], F_SETFD, 0);
    for (; variables && *variables; variables++) {
        char *copy = strdup(*variables);
        if (copy) putenv(copy);
    }
    execvp(c->words[0], c->words);
    int why = errno;
    if (write(failure_pipe, &why, sizeof why) < 0) _exit(PJ_CHILD_NOT_FOUND);
    _exit(why == ENOENT ? PJ_CHILD_NOT_FOUND : PJ_CHILD_NOT_RUNNABLE);
}

bool pj_child_open_markers(pj_child *c)
{
    return c->markers[0] >= 0 || make_pipe(c->markers);
}

pj_status pj_child_start(pj_child *c, const char *const *variables, pj_error *err)
{
    int ends[2], why = 0;
    if (pipe(ends) != 0 || !pj_child_open_markers(c) || !make_pipe(c->wake))
        return pj_fail_errno(err, errno, "cannot start %s", c->words[0]);
    for (int i = 0; i < 2; i++) fcntl(ends[i], F_SETFD, FD_CLOEXEC);
    make_cgroup(c);
#ifdef PR_SET_CHILD_SUBREAPER
    prctl(PR_SET_CHILD_SUBREAPER, 1); /* orphans of the program become our children */
#endif
    fflush(NULL);
    wake_fd = c->wake[1];
    /* Blocked until the program's process is known here and has the caller's dispositions there: a
     * handler of ours in either would swallow a signal that is meant for the program. */
    sigset_t blocked, before;
    sigemptyset(&blocked);
    for (size_t i = 0; i < HANDLED; i++) sigaddset(&blocked, handled[i]);
    pthread_sigmask(SIG_BLOCK, &blocked, &before);
    take_signals();
    c->begin_ns = pj_clock_ns();
    c->energy_mj = NAN;
    c->pid = fork();
    if (c->pid == 0) become(c, variables, &before, ends[1]);
    child_pid = c->pid;
    hand_over_pending(c->pid);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    close(ends[1]);
    ssize_t got = c->pid > 0 ? read(ends[0], &why, sizeof why) : 0;
    close(ends[0]);
    if (c->pid < 0) return pj_fail_errno(err, errno, "cannot start %s", c->words[0]);
    if (got != (ssize_t)sizeof why) return PJ_OK;
    waitpid(c->pid, NULL, 0);
    c->exit_code = why == ENOENT ? PJ_CHILD_NOT_FOUND : PJ_CHILD_NOT_RUNNABLE;
    return pj_fail(err, PJ_E_NOT_FOUND, "cannot run %s: %s", c->words[0], strerror(why));
}

/* ---- waiting ---- */

static double exec_child_seconds(struct timeval t)
{
    return (double)t.tv_sec + (double)t.tv_usec * 1e-6;
}

/* Once the program has ended, and before it is reaped, its energy is final. */
static void read_energy(pj_child *c)
{
    pj_power_env env;
    siginfo_t ended = {.si_pid = 0};
    if (waitid(P_PID, (id_t)c->pid, &ended, WEXITED | WNOHANG | WNOWAIT) != 0 || !ended.si_pid)
        return;
    pj_power_env_get(&env);
    c->energy_mj = pj_process_energy_mj(&env, (int)c->pid);
}

/* Reaps every process that has ended; true if the program itself is among them. */
static bool exec_child_reap(pj_child *c)
{
    struct rusage usage;
    int status = 0;
    read_energy(c);
    for (pid_t done; (done = wait4(-1, &status, WNOHANG, &usage)) > 0;) {
        c->cpu_s += exec_child_seconds(usage.ru_utime) + exec_child_seconds(usage.ru_stime);
        if (done != c->pid) continue;
        c->end_ns = pj_clock_ns();
        c->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
        c->exit_code = c->signal ? PJ_CHILD_SIGNAL + c->signal : WEXITSTATUS(status);
        child_pid = 0;
        return true;
    }
    return false;
}

/* A group may be made where no process may be moved into it: then it has seen nothing. */
static void count_cpu(pj_child *c)
{
    double of_group = c->cgroup[0] ? cgroup_seconds(c) : -1;
    double of_processes = c->cpu_s + seconds_of_the_living(c);
    bool in_group = of_group >= of_processes / 2;
    c->cpu_method = in_group ? "cgroup" : "processes";
    c->cpu_s = in_group ? of_group : of_processes;
}

/* At most what the pipe can hold: a process that writes without end must not keep us from noticing
 * that the program has ended, nor go on after it. */
static void drain_markers(pj_child *c, const pj_child_watch *watch)
{
    char bytes[READ_BYTES];
    size_t taken = 0;
    for (ssize_t got; taken < PIPE_BYTES && (got = read(c->markers[0], bytes, sizeof bytes)) > 0;) {
        watch->take(watch->context, bytes, (size_t)got);
        taken += (size_t)got;
    }
}

void pj_child_wait(pj_child *c, const pj_child_watch *watch)
{
    char bytes[64];
    bool is_looking = false;
    for (bool done = false; !done;) {
        struct pollfd wait[2] = {{.fd = c->wake[0], .events = POLLIN},
                                 {.fd = c->markers[0], .events = POLLIN}};
        poll(wait, 2, is_looking ? 100 : 1000);
        done = exec_child_reap(c);
        drain_markers(c, watch);
        is_looking = watch->look(watch->context);
        while (read(c->wake[0], bytes, sizeof bytes) > 0) {
        }
        if (!done) done = exec_child_reap(c); /* it may have ended between the two */
    }
    drain_markers(c, watch);
    count_cpu(c);
}

void pj_child_close(pj_child *c)
{
    remove_cgroup(c);
    if (wake_fd >= 0) return_signals();
    wake_fd = -1;
    for (int i = 0; i < 2; i++) {
        if (c->markers[i] >= 0) close(c->markers[i]);
        if (c->wake[i] >= 0) close(c->wake[i]);
    }
}
