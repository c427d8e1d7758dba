/* The guard's process, and the messages to it: lines "file VALUE PATH", "power MILLIWATTS UUID" and
 * "clock 0 UUID", then "go", which it answers with "ready". At its end it answers "restored", or
 * says what failed. */
#include "power/limit_guard.h"

#include "base/buffer.h"
#include "power/sysfs.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0
#endif

enum { MESSAGE_BYTES = 1 << 20, WAIT_MS = 60000 };

static bool send_all(int fd, const char *text, size_t bytes)
{
    while (bytes) {
        ssize_t n = send(fd, text, bytes, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        text += n;
        bytes -= (size_t)n;
    }
    return true;
}

/* ---- the guard ---- */

typedef struct guard {
    const pj_power_env *env;
    pj_nvml_watch *nvml;
    pj_buffer lines; /* up to "go" */
    int fd;
} guard;

static void resist(int keep, int lock)
{
    static const int ignored[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGPIPE, SIGTSTP};
    setsid();
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++) signal(ignored[i], SIG_IGN);
    signal(SIGCHLD, SIG_DFL);
    int none = open("/dev/null", O_RDWR);
    if (none >= 0) { /* standard error stays, to say what failed */
        dup2(none, STDIN_FILENO);
        dup2(none, STDOUT_FILENO);
    }
    for (int fd = STDERR_FILENO + 1; fd < 1024; fd++)
        if (fd != keep && fd != lock) close(fd);
    if (chdir("/") != 0) return; /* it only keeps a folder busy */
}

/* True: armed. False: the other end closed before, so that nothing was changed. */
static bool receive_lines(guard *g)
{
    while (pj_buffer_reserve(&g->lines, 4096)) {
        ssize_t n = recv(g->fd, g->lines.data + g->lines.length, 4096, 0);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        g->lines.length += (size_t)n;
        g->lines.data[g->lines.length] = 0;
        if (g->lines.length >= 3 && strcmp(g->lines.data + g->lines.length - 3, "go\n") == 0)
            return true;
    }
    return false;
}

static pj_status restore_line(const guard *g, char *line, pj_error *err)
{
    char *rest;
    char *word = strtok_r(line, " ", &rest), *value = strtok_r(NULL, " ", &rest);
    if (!word || !value || !*rest) return PJ_OK;
    /* what was never changed needs no permission to be restored */
    if (strcmp(word, "file") == 0) {
        int64_t now, former = strtoll(value, NULL, 10);
        bool same = pj_sysfs_number(pj_sysfs_open_at("%s", rest), &now) && now == former;
        return same ? PJ_OK : pj_limit_file_write(rest, former, err);
    }
    if (strcmp(word, "power") == 0) {
        double former = strtod(value, NULL);
        bool same = fabs(pj_nvml_power_now(g->nvml, rest) - former) < 1;
        return same ? PJ_OK : pj_nvml_power_set(g->nvml, rest, former, err);
    }
    return pj_nvml_clock_set(g->nvml, rest, NAN, err);
}

static void wait_for_end(int fd)
{
    char byte;
    ssize_t n;
    do n = recv(fd, &byte, 1, 0);
    while (n > 0 || (n < 0 && errno == EINTR));
}

static int guard_run(guard *g)
{
    pj_error err = {0};
    char *rest;
    bool failed = false;
    pj_buffer_init(&g->lines, MESSAGE_BYTES);
    if (!receive_lines(g)) return 0;
    if (strncmp(g->lines.data, "file ", 5) != 0) g->nvml = pj_nvml_watch_open(g->env);
    send_all(g->fd, "ready\n", 6);
    wait_for_end(g->fd);
    for (char *line = strtok_r(g->lines.data, "\n", &rest); line;
         line = strtok_r(NULL, "\n", &rest))
        if (restore_line(g, line, &err) != PJ_OK) {
            failed = true;
            fprintf(stderr, "perjoule: a limit was not restored: %s\n", err.text);
        }
    send_all(g->fd, failed ? "failed\n" : "restored\n", failed ? 7 : 9);
    return failed;
}

/* ---- its owner ---- */

/* Held by owner and guard, and released by the system when both have ended. The environment is part
 * of its name: stand-ins of tests are machines of their own. */
static pj_status lock_machine(const pj_power_env *env, int *lock, pj_error *err)
{
    *lock = -1;
#ifdef __linux__
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    int length = snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "perjoule-limits:%s",
                          env->sysfs_root);
    if (length >= (int)sizeof name.sun_path - 1) length = (int)sizeof name.sun_path - 2;
    *lock = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (*lock < 0) return pj_fail_errno(err, errno, "cannot make a socket");
    socklen_t bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
    if (bind(*lock, (const struct sockaddr *)&name, bytes) == 0) return PJ_OK;
    int error = errno;
    close(*lock);
    if (error == EADDRINUSE)
        return pj_fail(err, PJ_E_UNAVAILABLE,
                       "another perjoule tune is changing this machine's limits");
    return pj_fail_errno(err, error, "cannot lock the machine's limits");
#else
    return PJ_OK;
#endif
}

static void unlock(pj_limit_guard *g)
{
    if (g->lock >= 0) close(g->lock);
    g->lock = -1;
}

pj_status pj_limit_guard_start(pj_limit_guard *g, const pj_power_env *env, pj_error *err)
{
    int ends[2];
    *g = (pj_limit_guard){.fd = -1, .lock = -1};
    pj_status status = lock_machine(env, &g->lock, err);
    if (status != PJ_OK) return status;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) {
        status = pj_fail_errno(err, errno, "cannot make a socket");
        unlock(g);
        return status;
    }
    fcntl(ends[0], F_SETFD, FD_CLOEXEC);
    fcntl(ends[1], F_SETFD, FD_CLOEXEC);
    g->pid = fork();
    if (g->pid == 0) {
        resist(ends[1], g->lock);
        guard child = {.env = env, .fd = ends[1]};
        _exit(guard_run(&child));
    }
    close(ends[1]);
    g->fd = ends[0];
    if (g->pid > 0) return PJ_OK;
    status = pj_fail_errno(err, errno, "cannot start the process that restores the limits");
    g->pid = 0;
    close(g->fd);
    unlock(g);
    return status;
}

/* Whether its next message is this one. */
static bool answers(int fd, const char *wanted)
{
    char text[32];
    size_t length = 0;
    while (length < sizeof text - 1 && !memchr(text, '\n', length)) {
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        int ready = poll(&wait, 1, WAIT_MS);
        if (ready < 0 && errno == EINTR) continue;
        ssize_t n = ready > 0 ? recv(fd, text + length, sizeof text - 1 - length, 0) : 0;
        if (n <= 0) return false;
        length += (size_t)n;
    }
    text[length] = 0;
    return strcmp(text, wanted) == 0;
}

pj_status pj_limit_guard_arm(pj_limit_guard *g, const pj_limits *l, const pj_limit *limit,
                             pj_error *err)
{
    pj_buffer text;
    pj_buffer_init(&text, MESSAGE_BYTES);
    for (uint32_t i = 0; i < limit->file_count; i++) {
        const pj_limit_file *f = &l->files[limit->file_begin + i];
        pj_buffer_printf(&text, "file %" PRId64 " %s\n", f->former, f->path);
    }
    if (!limit->file_count)
        pj_buffer_printf(&text, "%s %.0f %s\n", limit->what == PJ_LIMIT_POWER ? "power" : "clock",
                         limit->what == PJ_LIMIT_POWER ? limit->now : 0, limit->uuid);
    pj_buffer_text(&text, "go\n");
    pj_status status = pj_buffer_status(&text, "limits", err);
    if (status == PJ_OK &&
        !(send_all(g->fd, pj_buffer_get(&text), text.length) && answers(g->fd, "ready\n")))
        status = pj_fail(err, PJ_E_UNAVAILABLE,
                         "the process that restores the limits has ended: nothing was changed");
    pj_buffer_fini(&text);
    g->armed = status == PJ_OK;
    return status;
}

pj_status pj_limit_guard_end(pj_limit_guard *g, pj_error *err)
{
    if (!g->pid) return PJ_OK;
    shutdown(g->fd, SHUT_WR);
    bool restored = answers(g->fd, "restored\n");
    while (waitpid(g->pid, NULL, 0) < 0 && errno == EINTR) continue; /* others may have waited */
    close(g->fd);
    unlock(g);
    g->pid = 0;
    if (restored || !g->armed) return PJ_OK;
    return pj_fail(err, PJ_E_UNAVAILABLE, "the process that restores the limits failed");
}
