/* A program's run from begin to end: start, markers, CPU time. */
#include "cli/exec_run.h"

#include "base/json.h"
#include "cli/exec_inject.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

double pj_exec_cpu_share(const pj_exec_run *e)
{
    double busy = (e->busy_after.busy - e->busy_before.busy) / (double)sysconf(_SC_CLK_TCK);
    if (e->busy_after.total <= e->busy_before.total || !(busy > 0)) return NAN;
    return fmin(1, e->child.cpu_s / busy);
}

void pj_exec_command_json(const pj_exec_run *e, pj_json *json)
{
    pj_json_kv_array_begin(json, "command");
    for (char **w = e->child.words; *w; w++) pj_json_string(json, *w);
    pj_json_array_end(json);
    pj_json_kv_int(json, "exit_code", e->child.exit_code);
}

void pj_exec_cpu_json(const pj_exec_run *e, pj_json *json)
{
    pj_json_kv_double(json, "cpu_time_ms", e->child.cpu_s * 1e3);
    pj_json_kv_string(json, "cpu_time_method", e->child.cpu_method);
    pj_json_kv_double(json, "process_cpu_share", pj_exec_cpu_share(e));
}

pj_status pj_exec_begin(pj_exec_run *e, pj_error *err)
{
    char words[4096] = "";
    size_t used = 0;
    const pj_exec_request *a = &e->request;
    for (char **w = e->child.words; *w && used < sizeof words; w++)
        used += (size_t)snprintf(words + used, sizeof words - used, "%s%s", used ? " " : "", *w);
    pj_run_options options = {.size = sizeof options,
                              .prompt = words,
                              .model_name = a->model,
                              .engine = a->engine ? a->engine : "exec",
                              .experiment_name = a->experiment,
                              .tags = a->tags,
                              .depth = a->depth};
    pj_status status = pj_run_begin(e->session, &options, &e->run, err);
    if (status == PJ_OK) status = pj_markers_new(e->run, &e->markers, err);
    return status;
}

static void take_markers(void *context, const char *bytes, size_t count)
{
    pj_exec_run *e = context;
    pj_markers_feed(e->markers, bytes, count, pj_clock_ns());
}

static bool take_gpu_work(void *context)
{
    pj_exec_run *e = context;
    return e->cuda && pj_exec_cuda_take(e->cuda);
}

/* The model facts reported by the program, as a JSON object. */
static const char *model_json(const pj_markers_facts *f, pj_buffer *text)
{
    pj_json json;
    pj_json_init(&json, text);
    pj_json_object_begin(&json);
    if (f->architecture[0]) pj_json_kv_string(&json, "architecture", f->architecture);
    if (f->layers) pj_json_kv_int(&json, "layers", (int64_t)f->layers);
    if (f->parameters) pj_json_kv_int(&json, "parameters", (int64_t)f->parameters);
    pj_json_object_end(&json);
    bool any = f->architecture[0] || f->layers || f->parameters;
    return pj_json_finish(&json) && any ? pj_buffer_get(text) : NULL;
}

/* The user's options take precedence over facts reported by the program. */
static void describe_model(pj_exec_run *e)
{
    pj_buffer text;
    const pj_markers_facts *f = pj_markers_fact(e->markers);
    pj_buffer_init(&text, 1 << 16);
    pj_run_facts facts = {.size = sizeof facts, .model_json = model_json(f, &text)};
    if (f->level[0]) facts.level = f->level;
    if (f->model[0] && !e->request.model) facts.model_name = f->model;
    if (f->layers <= INT16_MAX) facts.layer_count = (uint32_t)f->layers;
    if (f->engine[0] && !e->request.engine) pj_run_set_engine(e->run, f->engine);
    pj_run_describe(e->run, &facts, NULL);
    pj_run_add_cpu(e->run, e->child.cpu_s);
    pj_run_set_process_energy(e->run, e->child.energy_mj);
    pj_buffer_fini(&text);
}

/* The run ends with the program: what a server that it left behind draws is in no run. */
static void warn_of_orphans(pj_exec_run *e)
{
    const pj_child *c = &e->child;
    if (c->left_count)
        pj_run_warn(e->run, "left_running",
                    "%u process%s that the program started run%s on after its end (%s): from then "
                    "on %s energy is in no run",
                    c->left_count, c->left_count == 1 ? "" : "es", c->left_count == 1 ? "s" : "",
                    c->left_name, c->left_count == 1 ? "its" : "their");
}

static void describe_run(pj_exec_run *e)
{
    pj_buffer text;
    pj_json json;
    pj_buffer_init(&text, 1 << 20);
    pj_json_init(&json, &text);
    pj_json_object_begin(&json);
    pj_exec_command_json(e, &json);
    pj_exec_cpu_json(e, &json);
    pj_experiment_cell_write(e->request.cell_id, &json);
    pj_json_object_end(&json);
    pj_run_facts facts = {.size = sizeof facts, .scope = "machine", .level = "coarse"};
    if (pj_json_finish(&json)) facts.settings_json = pj_buffer_get(&text);
    pj_run_describe(e->run, &facts, NULL);
    pj_buffer_fini(&text);
    describe_model(e);
}

/* Programs that timestamp their events may write them in batches, the last one at exit. What the
 * library for NVTX had not written is known. */
static void read_the_rest(pj_exec_run *e)
{
    bool is_whole = pj_nvtx_memory_read(&e->nvtx, take_markers, e);
    if (e->cuda) pj_exec_cuda_finish(e->cuda);
    if (is_whole || !e->child.signal || !pj_markers_count(e->markers).has_times) return;
    pj_run_warn(e->run, "markers_cut",
                "the program was killed by signal %d: spans that it had recorded but not yet "
                "written are missing; their number is unknown",
                e->child.signal);
}

static pj_run_status exec_run_status_of(const pj_child *child)
{
    if (child->signal == SIGINT) return PJ_RUN_CANCELLED;
    return child->exit_code ? PJ_RUN_FAILED : PJ_RUN_COMPLETED;
}

static pj_status end_run(pj_exec_run *e, pj_run_status status, const char *why, pj_error *err)
{
    pj_error problem = {0};
    pj_status stored = pj_run_finish(e->run, status, why, &e->data, &problem);
    e->run = NULL;
    if (stored == PJ_OK) return PJ_OK;
    if (!e->data.info.id[0]) return pj_fail(err, stored, "%s", problem.text);
    memcpy(e->store_problem, problem.text, sizeof e->store_problem);
    return PJ_OK;
}

/* Our library tells the engine at the first step that it sees. */
static void warn_of_unseen_llama(const pj_exec_run *e, const pj_injection *injection)
{
    if (!injection->llama[0] || strcmp(pj_markers_fact(e->markers)->engine, "llama.cpp") == 0)
        return;
    pj_run_warn(
        e->run, "llama_unseen",
        "no step of llama.cpp was seen: the program computed none, or its llama.cpp is linked "
        "statically, whose calls cannot be intercepted");
}

pj_status pj_exec_measure(pj_exec_run *e, pj_error *err)
{
    char fd[48], why[64];
    pj_nvtx_memory *nvtx = &e->nvtx;
    const pj_power_env *env = &e->session->power_env;
    snprintf(fd, sizeof fd, "PERJOULE_MARKERS=%d", e->child.reserved_fd);
    pj_injection injection = {0};
    const char *variables[10] = {fd};
    if (e->child.reserved_fd >= 0)
        pj_injection_choose(&injection, e->run, e->child.path, e->request.depth, e->request.llama);
    memcpy(variables + 1, injection.variables, sizeof injection.variables);
    if (injection.nvtx[0] && pj_child_open_markers(&e->child))
        pj_nvtx_memory_open(nvtx, e->child.markers[0]);
    size_t count = 1;
    while (variables[count]) count++;
    if (nvtx->shared) variables[count++] = nvtx->variable;
    if (injection.cuda[0])
        e->cuda = pj_exec_cuda_open(e->run, e->markers, e->request.depth == PJ_DEPTH_DEEP);
    if (e->cuda) variables[count] = pj_exec_cuda_variable(e->cuda);
    if (injection.cuda[0] && !e->cuda && access("/dev/nvidiactl", F_OK) == 0)
        pj_run_warn(e->run, "cuda_memory",
                    "GPU kernels are not recorded: no memory can be shared with the program");
    pj_busy_get(env, &e->busy_before);
    pj_status status = pj_child_start(&e->child, e->child.reserved_fd >= 0 ? variables : NULL, err);
    if (status != PJ_OK) {
        pj_markers_finish(e->markers, pj_clock_ns());
        end_run(e, PJ_RUN_FAILED, err->text, NULL);
        return status;
    }
    const pj_child_watch watch = {e, take_markers, take_gpu_work};
    pj_child_wait(&e->child, &watch);
    pj_busy_get(env, &e->busy_after);
    read_the_rest(e);
    pj_markers_finish(e->markers, e->child.end_ns);
    describe_run(e);
    warn_of_orphans(e);
    warn_of_unseen_llama(e, &injection);
    snprintf(why, sizeof why, e->child.signal ? "killed by signal %d" : "exit code %d",
             e->child.signal ? e->child.signal : e->child.exit_code);
    pj_run_status ended = exec_run_status_of(&e->child);
    if (ended == PJ_RUN_COMPLETED && e->request.cell_id &&
        pj_markers_count(e->markers).output_tokens == 0) {
        snprintf(why, sizeof why, "the program reported no tokens");
        ended = PJ_RUN_FAILED;
    }
    return end_run(e, ended, ended == PJ_RUN_FAILED ? why : NULL, err);
}

void pj_exec_close(pj_exec_run *e)
{
    pj_run_data_fini(&e->data);
    pj_exec_cuda_close(e->cuda);
    pj_markers_free(e->markers);
    pj_nvtx_memory_close(&e->nvtx);
    pj_child_close(&e->child);
}
