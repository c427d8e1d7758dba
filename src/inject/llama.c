/*
 * libperjoule-llama.so: steps, layers and operations of llama.cpp programs as markers. `perjoule
 * exec` preloads it into programs that are linked with a shared libllama. It exports a few of
 * llama.cpp's and ggml's functions, so that calls from one shared object to another pass through
 * here and then reach the real ones:
 *
 * - llama_decode, llama_encode and, since the middle of 2026, llama_process: each call is a step.
 *   The number of tokens per sequence is read from the batch (llama_batch.h): several tokens of a
 *   sequence are part of a prompt, one is a generated token.
 * - ggml_backend_sched_set_eval_callback: unless the program sets its own callback, ours requests
 *   the last node of each part of a layer (PERJOULE_LLAMA=module) or every node (deep). ggml then
 *   computes up to that node, synchronises and calls back.
 * - ggml_backend_sched_graph_compute_async: a program that has looked llama_decode up itself
 *   (dlsym), as bindings do, does not pass through here, but libllama's own calls of ggml do. A
 *   graph that is computed outside the calls above is a step; how many tokens it has, and how many
 *   results, is the number of rows of its first and its last tensor.
 *
 * No llama.cpp header is used. After each step, marker lines (docs/formats.md) are written to the
 * descriptor in PERJOULE_MARKERS without blocking. While the pipe is full they are buffered; when
 * the buffer is full, the nodes of a step, or whole steps, are dropped and counted in a line `lost
 * N`.
 */
#include "inject/llama_batch.h"
#include "inject/llama_nodes.h"
#include "inject/llama_real.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define GAP_NS  INT64_C(250000000) /* without a step for longer, generation has paused */
#define EXIT_NS INT64_C(500000000) /* wait for a full pipe to be read at exit */

/* Steps leave STEP_BYTES free for a step's own lines and for closing what is open. */
enum { NODES = 1 << 16, LINES_BYTES = 4 << 20, WRITE_BYTES = 4096, STEP_BYTES = 8192 };

/* ---- their interface ---- */

typedef struct tensor tensor;
typedef bool (*eval_callback)(tensor *node, bool ask, void *context);

/* ---- state ---- */

typedef struct node {
    int64_t begin_ns, end_ns;
    pj_node_class class;
} node;

typedef enum step_kind { STEP_NONE, STEP_PROMPT, STEP_TOKEN } step_kind;

static struct {
    pthread_mutex_t mutex;
    int marker_fd;
    bool watches_nodes, every_node, in_warmup, introduced, callback_set;
    const void *context; /* the first one that decoded; others are sections of its steps */
    step_kind phase;
    int open_count;    /* lines of the step in progress that need an end */
    int64_t active_ns; /* when the program last called a function on the context */
    /* The first step may be the warm-up: the length of the lines before it, to discard it later. */
    bool is_undecided;
    size_t decided_bytes;
    int64_t first_ns;
    uint64_t input, output, lost;
    uint32_t token;
    size_t used;
} state = {.mutex = PTHREAD_MUTEX_INITIALIZER, .marker_fd = -1};

/* State of the step in progress on this thread. */
static _Thread_local struct {
    bool is_in, is_bare; /* bare: without a call of llama.cpp's that we have seen */
    uint32_t count;
    int64_t group_ns;
    pj_node_walk walk;
} step;
static _Thread_local node *nodes; /* of the step in progress; allocated at its first */

static char lines[LINES_BYTES]; /* [state.used], under the mutex; not in `state`, so that it stays
                                   out of the file */

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* ---- lines ---- */

/* Pipe capacity is counted in pages, so that not all of it may be usable. */
static size_t room_in_pipe(void)
{
    int waiting = 0;
    int size = fcntl(state.marker_fd, F_GETPIPE_SZ);
    if (size < 0 || ioctl(state.marker_fd, FIONREAD, &waiting) != 0) return SIZE_MAX;
    return waiting < size ? (size_t)(size - waiting) * 3 / 4 : 0;
}

/* Writes whole lines, at most PIPE_BUF bytes per write so that writes are atomic. The rest stays in
 * the buffer. */
static void flush(void)
{
    size_t done = 0;
    int kept = errno;
    while (done < state.used) {
        size_t bytes = state.used - done;
        if (bytes > WRITE_BYTES) {
            char *last = memrchr(lines + done, '\n', WRITE_BYTES);
            bytes = (size_t)(last - (lines + done)) + 1;
        }
        if (write(state.marker_fd, lines + done, bytes) != (ssize_t)bytes) break;
        done += bytes;
    }
    memmove(lines, lines + done, state.used - done);
    state.used -= done;
    errno = kept;
}

/* At exit: waits a moment for the reader to drain the pipe. */
static void flush_at_exit(void)
{
    int64_t until_ns = now_ns() + EXIT_NS, left_ns;
    flush();
    while (state.used && (left_ns = until_ns - now_ns()) > 0) {
        struct pollfd p = {.fd = state.marker_fd, .events = POLLOUT};
        if (poll(&p, 1, (int)(left_ns / 1000000) + 1) <= 0 || !(p.revents & POLLOUT)) return;
        flush();
    }
}

/* "@BEGIN[-END] #LANE TEXT"; 0: no such time. The process is the lane. */
__attribute__((format(printf, 3, 4))) static void report_times(int64_t begin_ns, int64_t end_ns,
                                                               const char *format, ...)
{
    enum { MOST = 512 };
    char *line = lines + state.used, times[64] = "";
    if (state.used + MOST > LINES_BYTES) {
        state.lost++;
        return;
    }
    if (end_ns)
        snprintf(times, sizeof times, "@%" PRId64 "-%" PRId64 " ", begin_ns, end_ns);
    else if (begin_ns)
        snprintf(times, sizeof times, "@%" PRId64 " ", begin_ns);
    int used = snprintf(line, MOST, "%s#%ld ", times, (long)getpid());
    va_list arguments;
    va_start(arguments, format);
    used += vsnprintf(line + used, (size_t)(MOST - 1 - used), format, arguments);
    va_end(arguments);
    if (used > MOST - 2) used = MOST - 2;
    line[used++] = '\n';
    state.used += (size_t)used;
}

#define report(at_ns, ...) report_times(at_ns, 0, __VA_ARGS__)

static void report_lost(void)
{
    uint64_t lost = state.lost;
    if (!lost || state.used + STEP_BYTES > LINES_BYTES) return;
    state.lost = 0;
    report(0, "lost %" PRIu64, lost);
}

/* ---- facts of the model ---- */

static void report_meta(const void *model, const char *fact, const char *key)
{
    REAL(int32_t(*)(const void *, const char *, char *, size_t), "llama_model_meta_val_str");
    char text[200] = "";
    if (!real || real(model, key, text, sizeof text) <= 0) return;
    for (char *c = text; *c; c++)
        if ((unsigned char)*c < ' ') *c = ' ';
    report(0, "fact %s %s", fact, text);
}

static const void *model_of(const void *context)
{
    REAL(const void *(*)(const void *), "llama_get_model");
    return real ? real(context) : NULL;
}

static void report_layers(const void *model)
{
    REAL(int32_t(*)(const void *), "llama_model_n_layer");
    if (real) report(0, "fact layers %d", (int)real(model));
}

static void report_parameters(const void *model)
{
    REAL(uint64_t(*)(const void *), "llama_model_n_params");
    if (real) report(0, "fact parameters %" PRIu64, real(model));
}

static void introduce(const void *context)
{
    state.introduced = true;
    report(0, "fact engine llama.cpp");
    report(0, "fact level %s", state.callback_set ? "fine" : "coarse");
    const void *model = context ? model_of(context) : NULL;
    if (!model) return;
    report_meta(model, "model", "general.name");
    report_meta(model, "architecture", "general.architecture");
    report_layers(model);
    report_parameters(model);
}

/* ---- steps ---- */

static void end_step(int64_t at_ns)
{
    for (; state.open_count > 0; state.open_count--) report(at_ns, "end");
}

static void end_phase(int64_t at_ns)
{
    end_step(at_ns);
    if (state.phase == STEP_NONE) return;
    report(at_ns, "end");
    report(0, "tokens %" PRIu64 " %" PRIu64, state.input, state.output);
    state.phase = STEP_NONE;
}

/* A token ends where the next one begins: sampling, and waiting for the device, is part of it.
 * After a pause it has ended when the program last touched the context. */
static void begin_step(step_kind kind, bool is_mixed, int64_t begin_ns)
{
    bool paused = begin_ns - state.active_ns > GAP_NS;
    int64_t end_ns = paused ? state.active_ns : begin_ns;
    if (paused || kind != state.phase) end_phase(end_ns);
    end_step(end_ns);
    if (kind != state.phase)
        report(begin_ns, "begin phase %s", kind == STEP_PROMPT ? "prefill" : "decode");
    state.phase = kind;
    if (kind == STEP_PROMPT) {
        report(begin_ns, "begin section %s", is_mixed ? "mixed_batch" : "prompt_batch");
        state.open_count++;
    }
    report(begin_ns, "begin token %" PRIu32, state.token++);
    state.open_count++;
}

static const char *section_of(const pj_node_class *c)
{
    if (c->layer == PJ_NODE_EMBEDDING) return "embedding";
    return strcmp(c->component, "logits") ? "final_norm" : "lm_head";
}

typedef struct open_parts {
    int layer; /* or section; INT32_MIN: none */
    const char *section, *component;
} open_parts;

static void close_component(open_parts *open, int64_t at_ns)
{
    if (open->component && state.every_node) report(at_ns, "end");
    open->component = NULL;
}

static void close_part(open_parts *open, int64_t at_ns)
{
    close_component(open, at_ns);
    if (open->layer != INT32_MIN) report(at_ns, "end");
    open->layer = INT32_MIN;
}

static void report_node(open_parts *open, const node *n, int64_t before_ns)
{
    const pj_node_class *c = &n->class;
    const char *section = c->layer < 0 ? section_of(c) : NULL;
    if (c->layer != open->layer || section != open->section) {
        close_part(open, before_ns);
        if (section)
            report(n->begin_ns, "begin section %s", section);
        else
            report(n->begin_ns, "begin layer %d", c->layer);
        open->layer = c->layer;
        open->section = section;
    }
    if (!state.every_node) {
        report_times(n->begin_ns, n->end_ns, "span component %s", c->component);
        return;
    }
    if (!open->component || strcmp(open->component, c->component) != 0) {
        close_component(open, before_ns);
        report(n->begin_ns, "begin component %s", c->component);
        open->component = c->component;
    }
    report_times(n->begin_ns, n->end_ns, "span operation %s", c->operation);
}

/* All or none of a step's nodes are written: with half of them the step would seem cheaper. */
static void report_nodes(void)
{
    enum { MOST = 240, USUAL = 110 }; /* bytes per node, with the ends and begins around it */
    open_parts open = {.layer = INT32_MIN};
    uint32_t count = step.count;
    size_t room = room_in_pipe();
    if (count == 0) return;
    if (!nodes || count > NODES || state.used + (size_t)count * MOST + STEP_BYTES > LINES_BYTES ||
        (size_t)count * USUAL > room) {
        state.lost += count;
        return;
    }
    for (uint32_t i = 0; i < count; i++)
        report_node(&open, &nodes[i], i ? nodes[i - 1].end_ns : nodes[0].begin_ns);
    close_part(&open, nodes[count - 1].end_ns);
}

/* The buffer is full. The previous step is closed, so that it does not seem to last until the next
 * recorded one. */
static void leave_step_out(int64_t begin_ns, int64_t end_ns)
{
    end_step(begin_ns);
    state.token++;
    state.active_ns = end_ns;
    state.lost += 1 + step.count;
}

static void record_step(const void *context, pj_batch_contents c, int64_t begin_ns, int64_t end_ns)
{
    if (!state.introduced) introduce(step.is_bare ? NULL : context);
    bool is_first = !state.context;
    if (is_first) state.context = context;
    if (state.in_warmup || context != state.context) {
        if (is_first) state.context = NULL;
        report_times(begin_ns, end_ns, "span section %s",
                     state.in_warmup ? "warmup" : "another_context");
        return;
    }
    state.is_undecided = is_first;
    state.decided_bytes = state.used;
    state.first_ns = begin_ns;
    bool is_prompt = c.prompt_tokens > c.generated;
    state.input += c.prompt_tokens;
    state.output += c.outputs;
    if (state.used + STEP_BYTES > LINES_BYTES) {
        leave_step_out(begin_ns, end_ns);
        return;
    }
    begin_step(is_prompt ? STEP_PROMPT : STEP_TOKEN, c.prompt_tokens && c.generated, begin_ns);
    state.active_ns = end_ns;
    report_nodes();
}

/* A program that resets the counters after the first step without reading its result was warming
 * up: the convention since llama_set_warmup was removed. */
static void take_back_first_step(void)
{
    state.used = state.decided_bytes;
    state.is_undecided = false;
    state.open_count = 0;
    state.phase = STEP_NONE;
    state.input = state.output = state.token = 0;
    state.context = NULL;
    report_times(state.first_ns, state.active_ns, "span section warmup");
}

static bool is_recording(void)
{
    return state.marker_fd >= 0;
}

typedef struct call { /* one call of a llama.cpp function that computes */
    int32_t (*decode)(void *context, pj_llama_batch);
    int32_t (*process)(void *context, int type, void *batch);
    void *context, *extended;
    const pj_llama_batch *batch;
    int type;
} call;

static int32_t forward(const call *c)
{
    if (c->decode) return c->decode(c->context, *c->batch);
    return c->process ? c->process(c->context, c->type, c->extended) : -1;
}

static int64_t enter_step(bool is_bare)
{
    step.is_in = true;
    step.is_bare = is_bare;
    step.count = 0;
    step.group_ns = 0;
    pj_node_start(&step.walk);
    return now_ns();
}

static void leave_step(const void *context, pj_batch_contents contents, int64_t begin_ns)
{
    int64_t end_ns = now_ns();
    int kept = errno;
    step.is_in = false;
    pthread_mutex_lock(&state.mutex);
    record_step(context, contents, begin_ns, end_ns);
    report_lost();
    if (!state.is_undecided) flush();
    pthread_mutex_unlock(&state.mutex);
    errno = kept;
}

static int32_t run_step(const call *c)
{
    if (!is_recording() || step.is_in) return forward(c);
    pj_batch_contents contents =
        c->batch ? pj_batch_count(c->batch) : pj_batch_ext_count(c->extended);
    int64_t begin_ns = enter_step(false);
    int32_t result = forward(c);
    leave_step(c->context, contents, begin_ns);
    return result;
}

PJ_EXPORT int32_t llama_decode(void *context, pj_llama_batch b)
{
    REAL(int32_t(*)(void *, pj_llama_batch), "llama_decode");
    return run_step(&(call){.decode = real, .context = context, .batch = &b});
}

PJ_EXPORT int32_t llama_encode(void *context, pj_llama_batch b)
{
    REAL(int32_t(*)(void *, pj_llama_batch), "llama_encode");
    return run_step(&(call){.decode = real, .context = context, .batch = &b});
}

PJ_EXPORT int32_t llama_process(void *context, int type, void *batch)
{
    REAL(int32_t(*)(void *, int, void *), "llama_process");
    return run_step(&(call){.process = real, .context = context, .extended = batch, .type = type});
}

/* ---- other calls that show the program's progress ---- */

/* The device may still be computing when llama_decode returns; a later call waits for it or fetches
 * the results. */
static void note_activity(const void *context, bool has_results)
{
    if (!is_recording() || context != state.context) return;
    state.active_ns = now_ns();
    if (has_results) state.is_undecided = false;
}

PJ_EXPORT void llama_perf_context_reset(void *context)
{
    REAL(void (*)(void *), "llama_perf_context_reset");
    if (is_recording() && context == state.context && state.is_undecided) {
        pthread_mutex_lock(&state.mutex);
        take_back_first_step();
        flush();
        pthread_mutex_unlock(&state.mutex);
    }
    if (real) real(context);
}

PJ_EXPORT void llama_synchronize(void *context)
{
    REAL(void (*)(void *), "llama_synchronize");
    if (real) real(context);
    note_activity(context, false);
}

PJ_EXPORT float *llama_get_logits(void *context)
{
    REAL(float *(*)(void *), "llama_get_logits");
    float *logits = real ? real(context) : NULL;
    note_activity(context, true);
    return logits;
}

PJ_EXPORT float *llama_get_logits_ith(void *context, int32_t i)
{
    REAL(float *(*)(void *, int32_t), "llama_get_logits_ith");
    float *logits = real ? real(context, i) : NULL;
    note_activity(context, true);
    return logits;
}

/* A warm-up step computes two dummy tokens. */
PJ_EXPORT void llama_set_warmup(void *context, bool is_warmup)
{
    REAL(void (*)(void *, bool), "llama_set_warmup");
    state.in_warmup = is_warmup;
    if (real) real(context, is_warmup);
}

static void forget_context(const void *context)
{
    if (!is_recording() || !context || context != state.context) return;
    pthread_mutex_lock(&state.mutex);
    end_phase(state.active_ns);
    flush();
    state.context = NULL;
    pthread_mutex_unlock(&state.mutex);
}

PJ_EXPORT void llama_free(void *context)
{
    REAL(void (*)(void *), "llama_free");
    forget_context(context);
    if (real) real(context);
}

/* ---- steps without a call that we have seen ---- */

/* Rows of a tensor of the graph; 0: it has none of that name. */
static int64_t rows_of(void *graph, const char *name)
{
    static _Atomic(void *) tensors, rows;
    if (!atomic_load(&tensors)) atomic_store(&tensors, pj_find_real("ggml_graph_get_tensor"));
    if (!atomic_load(&rows)) atomic_store(&rows, pj_find_real("ggml_nrows"));
    void *find_address = atomic_load(&tensors), *rows_address = atomic_load(&rows);
    tensor *(*find)(void *, const char *);
    int64_t (*count)(const tensor *);
    memcpy(&find, &find_address, sizeof find);
    memcpy(&count, &rows_address, sizeof count);
    const tensor *t = find_address && rows_address ? find(graph, name) : NULL;
    return t ? count(t) : 0;
}

/* Of which sequences they are is unknown: as many results as tokens are one token of each of
 * several sequences, fewer are those of a prompt. */
static pj_batch_contents contents_of_graph(void *graph)
{
    int64_t tokens = rows_of(graph, "inp_embd"), results = rows_of(graph, "result_output");
    if (tokens <= 0) tokens = rows_of(graph, "embd");
    pj_batch_contents c = {.outputs = results > 0 ? (uint32_t)results : 0};
    if (tokens > results && tokens > 1)
        c.prompt_tokens = (uint32_t)tokens;
    else
        c.generated = tokens > 0 ? (uint32_t)tokens : 1;
    return c;
}

PJ_EXPORT int ggml_backend_sched_graph_compute_async(void *scheduler, void *graph)
{
    REAL(int (*)(void *, void *), "ggml_backend_sched_graph_compute_async");
    if (!real) return -1; /* GGML_STATUS_FAILED */
    if (!is_recording() || step.is_in) return real(scheduler, graph);
    pj_batch_contents contents = contents_of_graph(graph);
    int64_t begin_ns = enter_step(true);
    int result = real(scheduler, graph);
    leave_step(scheduler, contents, begin_ns);
    return result;
}

PJ_EXPORT void ggml_backend_sched_synchronize(void *scheduler)
{
    REAL(void (*)(void *), "ggml_backend_sched_synchronize");
    if (real) real(scheduler);
    if (!step.is_in) note_activity(scheduler, false);
}

PJ_EXPORT void ggml_backend_sched_free(void *scheduler)
{
    REAL(void (*)(void *), "ggml_backend_sched_free");
    forget_context(scheduler);
    if (real) real(scheduler);
}

/* ---- nodes ---- */

static const char *text_of(const char *function, const tensor *t)
{
    static _Atomic(void *) names, operations;
    _Atomic(void *) *known = function[5] == 'g' ? &names : &operations;
    void *address = atomic_load(known);
    if (!address) atomic_store(known, address = pj_find_real(function));
    const char *(*real)(const tensor *);
    memcpy(&real, &address, sizeof real);
    const char *text = address ? real(t) : NULL;
    return text ? text : "";
}

static void add_node(pj_node_class class)
{
    if (!nodes) nodes = calloc(NODES, sizeof *nodes);
    if (nodes && step.count < NODES)
        nodes[step.count] = (node){.begin_ns = step.group_ns, .end_ns = now_ns(), .class = class};
    step.count++;
    step.group_ns = 0;
}

/* Called once to ask whether a node is wanted, and again when it has been computed. Returning false
 * the second time would abort the computation. */
static bool watch_node(tensor *t, bool ask, void *context)
{
    (void)context;
    if (!step.is_in) return !ask;
    if (ask && !step.group_ns) step.group_ns = now_ns();
    const char *name = text_of("ggml_get_name", t);
    if (!state.every_node) {
        pj_node_class class = {.operation = "other"};
        class.component = pj_node_boundary(name, &class.layer);
        if (!ask && class.component) add_node(class);
        return !ask || class.component;
    }
    const char *operation = text_of("ggml_op_desc", t);
    if (ask) return pj_node_computes(operation);
    add_node(pj_node_classify(&step.walk, operation, name));
    return true;
}

PJ_EXPORT void ggml_backend_sched_set_eval_callback(void *scheduler, eval_callback callback,
                                                    void *context)
{
    REAL(void (*)(void *, eval_callback, void *), "ggml_backend_sched_set_eval_callback");
    if (is_recording() && state.watches_nodes && !callback) {
        state.callback_set = true;
        callback = watch_node;
    }
    if (real) real(scheduler, callback, context);
}

/* ---- begin and end ---- */

/* After fork the child discards its copy of the buffer, which the parent writes. */
static void forget(void)
{
    state.used = 0;
    state.marker_fd = -1;
}

/* A descendant may have closed the descriptor and opened another file under its number. */
static bool is_pipe(int fd)
{
    struct stat s;
    return fd >= 3 && fstat(fd, &s) == 0 && S_ISFIFO(s.st_mode);
}

__attribute__((constructor)) static void start(void)
{
    const char *fd = getenv("PERJOULE_MARKERS"), *mode = getenv("PERJOULE_LLAMA");
    if (!fd || !mode || !is_pipe(atoi(fd))) return;
    state.every_node = !strcmp(mode, "deep");
    state.watches_nodes = state.every_node || !strcmp(mode, "module");
    pthread_atfork(NULL, NULL, forget);
    pj_batch_follow = true;
    state.marker_fd = atoi(fd);
}

__attribute__((destructor)) static void finish(void)
{
    if (!is_recording() || pthread_mutex_trylock(&state.mutex) != 0) return;
    end_phase(state.active_ns);
    flush_at_exit();
    report_lost();
    flush_at_exit();
    state.marker_fd = -1;
    pthread_mutex_unlock(&state.mutex);
}
