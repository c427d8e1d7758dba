/* powermetrics: power of Apple Silicon, from a subprocess that needs root. `perjoule setup` allows
 * `sudo -n` for exactly the arguments used here. The process writes one plist per interval; each
 * becomes one reading per rail, a mean over the interval's true length. The pipe is non-blocking; a
 * document is complete when its end (the NUL or the closing tag) has arrived. When the process dies
 * the source is lost, and the sampler restarts it once. IOReport gives the same figures without
 * root and without a process, so that this source is only used where that gives none. */
#include "power/powermetrics_plist.h"
#include "power/source.h"

#include "base/clock.h"
#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum {
    STREAM_BYTES = 4 << 20, /* a document is 30 to 100 kB */
    MAX_WORDS = 32,
    COMMAND_BYTES = 1024,
    FIRST_SAMPLE_MS = 4000
};

/* The arguments that `perjoule setup` pins; an older macOS may refuse a sampler it does not know.
 */
static const char *const sampler_lists[] = {"cpu_power,gpu_power,ane_power", "cpu_power,gpu_power",
                                            "cpu_power"};

typedef struct powermetrics {
    pid_t pid;
    int output, errors;
    char *stream; /* not parsed yet */
    size_t length;
    char complaint[200]; /* first line of its stderr */
    bool ended;
    int64_t interval_ns;
    uint32_t rail_count;
    pj_pm_rail rails[PJ_PM_RAILS];
    double step_mw[PJ_PM_RAILS];
} powermetrics;

/* ---- the process ---- */

static void make_command(const pj_power_env *env, const char *samplers, int64_t interval_ms,
                         char *text, char **words)
{
    if (env->powermetrics)
        snprintf(text, COMMAND_BYTES, "%s", env->powermetrics);
    else
        snprintf(text, COMMAND_BYTES,
                 "sudo -n /usr/bin/powermetrics --samplers %s -i %lld --format plist", samplers,
                 (long long)interval_ms);
    int count = 0;
    char *rest = NULL;
    for (char *word = strtok_r(text, " ", &rest); word && count < MAX_WORDS;
         word = strtok_r(NULL, " ", &rest))
        words[count++] = word;
    words[count] = NULL;
}

static pj_status powermetrics_spawn(powermetrics *p, char **words, pj_error *err)
{
    int out[2], errors[2];
    posix_spawn_file_actions_t actions;
    if (!words[0]) return pj_fail(err, PJ_E_INVALID, "PERJOULE_POWERMETRICS contains no command");
    if (pipe(out) != 0) return pj_fail_errno(err, errno, "cannot create a pipe for powermetrics");
    if (pipe(errors) != 0) {
        int failure = errno;
        close(out[0]);
        close(out[1]);
        return pj_fail_errno(err, failure, "cannot create a pipe for powermetrics");
    }
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, out[1], 1);
    posix_spawn_file_actions_adddup2(&actions, errors[1], 2);
    for (int i = 0; i < 2; i++) {
        posix_spawn_file_actions_addclose(&actions, out[i]);
        posix_spawn_file_actions_addclose(&actions, errors[i]);
        fcntl(i == 0 ? out[0] : errors[0], F_SETFL, O_NONBLOCK);
        fcntl(i == 0 ? out[0] : errors[0], F_SETFD, FD_CLOEXEC);
    }
    int failure = posix_spawnp(&p->pid, words[0], &actions, NULL, words, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(out[1]);
    close(errors[1]);
    p->output = out[0];
    p->errors = errors[0];
    if (!failure) return PJ_OK;
    close(out[0]);
    close(errors[0]);
    p->pid = 0;
    return pj_fail_errno(err, failure, "cannot start %s", words[0]);
}

/* Keeps the first line of stderr; the rest is drained so that the process never blocks. */
static void drain_errors(powermetrics *p)
{
    char text[512];
    ssize_t got;
    while ((got = read(p->errors, text, sizeof text - 1)) > 0) {
        text[got] = 0;
        if (p->complaint[0]) continue;
        text[strcspn(text, "\n")] = 0;
        snprintf(p->complaint, sizeof p->complaint, "%.190s", text);
    }
}

static void powermetrics_fill(powermetrics *p)
{
    drain_errors(p);
    while (p->length < STREAM_BYTES) {
        ssize_t got = read(p->output, p->stream + p->length, STREAM_BYTES - p->length);
        if (got > 0) {
            p->length += (size_t)got;
            continue;
        }
        if (got == 0 || (errno != EAGAIN && errno != EINTR)) p->ended = true;
        if (got < 0 && errno == EINTR) continue;
        return;
    }
}

static void powermetrics_reap(powermetrics *p)
{
    if (p->pid <= 0) return;
    kill(p->pid, SIGTERM); /* sudo's child runs as root and cannot be signalled: it ends on the
                              broken pipe */
    for (int i = 0; i < 100; i++) {
        if (waitpid(p->pid, NULL, WNOHANG) != 0) {
            p->pid = 0;
            return;
        }
        pj_clock_sleep_until(pj_clock_ns() + 5 * PJ_NS_PER_MS);
    }
    kill(p->pid, SIGKILL);
    waitpid(p->pid, NULL, 0);
    p->pid = 0;
}

static void powermetrics_stop(void *state)
{
    powermetrics *p = state;
    if (p->stream) {
        close(p->output);
        close(p->errors);
    }
    powermetrics_reap(p);
    pj_free(p->stream);
    p->stream = NULL;
    p->length = 0;
}

/* ---- documents ---- */

/* Length of the first complete document in the stream, with its NUL; 0: none. */
static size_t document_end(const powermetrics *p)
{
    static const char tag[] = "</plist>";
    const char *nul = memchr(p->stream, 0, p->length);
    size_t limit = nul ? (size_t)(nul - p->stream) + 1 : p->length;
    if (nul) return limit;
    /* A document's NUL arrives with the next document: the closing tag also completes it. */
    for (size_t i = p->length; i >= sizeof tag - 1; i--)
        if (memcmp(p->stream + i - (sizeof tag - 1), tag, sizeof tag - 1) == 0) return i;
    return 0;
}

/* Parses complete documents until one gives a sample. PJ_E_AGAIN: none now. */
static pj_status powermetrics_next_sample(powermetrics *p, pj_pm_sample *sample)
{
    for (;;) {
        size_t end = document_end(p);
        if (end == 0 && p->length == STREAM_BYTES) p->length = 0; /* longer than any valid plist */
        if (end == 0) return PJ_E_AGAIN;
        pj_status status = pj_pm_parse(p->stream, end, sample, NULL);
        memmove(p->stream, p->stream + end, p->length - end);
        p->length -= end;
        if (status == PJ_OK) return PJ_OK;
    }
}

/* Waits for the first sample, which shows the rails of this macOS and chip. */
static bool learn_rails(powermetrics *p, int64_t wait_ms)
{
    pj_pm_sample sample;
    int64_t until = pj_clock_ns() + wait_ms * PJ_NS_PER_MS;
    while (!p->ended && pj_clock_ns() < until) {
        struct pollfd ready[] = {{p->output, POLLIN, 0}, {p->errors, POLLIN, 0}};
        poll(ready, 2, 50);
        powermetrics_fill(p);
        while (powermetrics_next_sample(p, &sample) == PJ_OK) {
            for (int i = 0; i < PJ_PM_RAILS; i++) {
                if (isnan(sample.mw[i]) && !sample.rejected[i]) continue;
                p->step_mw[p->rail_count] = sample.step_mw[i];
                p->rails[p->rail_count++] = (pj_pm_rail)i;
            }
            if (p->rail_count > 0) return true;
        }
    }
    return false;
}

static pj_status powermetrics_start(powermetrics *p, const pj_power_env *env, size_t list,
                                    pj_error *err)
{
    char text[COMMAND_BYTES], *words[MAX_WORDS + 1];
    int64_t interval_ms = p->interval_ns / PJ_NS_PER_MS;
    p->ended = false;
    p->complaint[0] = 0;
    p->rail_count = 0;
    p->stream = pj_alloc(STREAM_BYTES, 1);
    if (!p->stream) return pj_fail_memory(err, "powermetrics' stream");
    make_command(env, sampler_lists[list], interval_ms > 0 ? interval_ms : 1, text, words);
    pj_status status = powermetrics_spawn(p, words, err);
    if (status != PJ_OK) {
        pj_free(p->stream);
        p->stream = NULL;
        return status;
    }
    if (learn_rails(p, FIRST_SAMPLE_MS + 2 * interval_ms)) return PJ_OK;
    drain_errors(p);
    powermetrics_stop(p);
    if (strstr(p->complaint, "password") || strstr(p->complaint, "sudo") ||
        strstr(p->complaint, "superuser"))
        return pj_fail(err, PJ_E_DENIED, "powermetrics needs root (%s)", p->complaint);
    if (p->complaint[0])
        return pj_fail(err, PJ_E_UNAVAILABLE, "powermetrics reports no power: %s", p->complaint);
    return pj_fail(err, PJ_E_UNAVAILABLE,
                   "powermetrics reports no power; run it by hand: sudo powermetrics --samplers "
                   "cpu_power -n 1");
}

static pj_status powermetrics_open(void *state, const pj_power_env *env, const char *argument,
                                   pj_source_report *report)
{
    static const char ELSEWHERE[] = "use ioreport, or estimate for modelled figures";
    powermetrics *p = state;
    pj_error err = {0};
    p->interval_ns = env->interval_ns > 0 ? env->interval_ns : 100 * PJ_NS_PER_MS;
    if (!env->powermetrics && access("/usr/bin/powermetrics", X_OK) != 0)
        return pj_source_explain(
            report, PJ_E_UNAVAILABLE, PJ_ONLY_MACS,
            "there is no /usr/bin/powermetrics; it is part of macOS on Apple machines");
    size_t lists = env->powermetrics ? 1 : sizeof sampler_lists / sizeof *sampler_lists;
    for (size_t i = 0; i < lists && err.status != PJ_E_DENIED; i++)
        if (powermetrics_start(p, env, i, &err) == PJ_OK) return PJ_OK;
    bool denied = err.status == PJ_E_DENIED;
    return pj_source_explain(report, denied ? PJ_E_DENIED : PJ_E_UNAVAILABLE,
                             denied ? "sudo perjoule setup --write powermetrics" : ELSEWHERE, "%s",
                             err.text);
}

static uint32_t powermetrics_rails(const void *state, pj_rail *rails)
{
    const powermetrics *p = state;
    pj_pm_describe(p->rails, p->rail_count, "powermetrics", "apple", rails);
    for (uint32_t i = 0; i < p->rail_count; i++) {
        rails[i].period_ns = rails[i].window_ns = p->interval_ns;
        rails[i].resolution = p->step_mw[i];
    }
    return p->rail_count;
}

static void fill_reading(const powermetrics *p, const pj_pm_sample *s, uint32_t i, int64_t before,
                         int64_t after, pj_reading *r)
{
    pj_pm_rail kind = p->rails[i];
    *r = (pj_reading){.rail = (uint16_t)i,
                      .before_ns = before,
                      .after_ns = after,
                      .window_ns = s->elapsed_ns,
                      .value = s->mw[kind]};
    if (!isnan(r->value)) return;
    r->status = s->rejected[kind] ? PJ_READING_REJECTED : PJ_READING_GAP;
    r->reason = s->rejected[kind] ? PJ_REASON_NEGATIVE : PJ_REASON_UNSUPPORTED;
}

static pj_status powermetrics_read(void *state, pj_reading *readings, uint32_t max, uint32_t *count)
{
    powermetrics *p = state;
    pj_pm_sample sample;
    int64_t before = pj_clock_ns();
    *count = 0;
    powermetrics_fill(p);
    int64_t after = pj_clock_ns();
    while (*count + p->rail_count <= max && powermetrics_next_sample(p, &sample) == PJ_OK)
        for (uint32_t i = 0; i < p->rail_count; i++)
            fill_reading(p, &sample, i, before, after, &readings[(*count)++]);
    /* Of several samples read at once the last one ended just now, each other one where its
     * successor began. */
    int64_t end = after;
    for (uint32_t i = *count; i > 0; i -= p->rail_count) {
        for (uint32_t k = 0; k < p->rail_count; k++) readings[i - 1 - k].fresh_ns = end;
        end -= readings[i - 1].window_ns;
    }
    return p->ended && *count == 0 ? PJ_E_LOST : PJ_OK;
}

const pj_power_source pj_source_powermetrics = {
    .version = PJ_POWER_SOURCE_VERSION,
    .name = "powermetrics",
    .counts_for = 1u << PJ_RAIL_CPU | 1u << PJ_RAIL_GPU,
    .flags = PJ_SOURCE_STREAM | PJ_SOURCE_SPARE,
    .state_bytes = sizeof(powermetrics),
    .open = powermetrics_open,
    .rails = powermetrics_rails,
    .read = powermetrics_read,
    .close = powermetrics_stop,
};
