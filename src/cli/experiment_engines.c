/* Runs a cell of an experiment on a server or with a program. */
#include "cli/experiment_engines.h"

#include "attach/client.h"
#include "attach/dialect.h"
#include "base/shell.h"
#include "cli/exec_run.h"
#include "cli/inputs.h"
#include "http/socket.h"
#include "requests/requests.h"
#include "trace/summary.h"

#include <math.h>
#include <string.h>

enum { WARM_TOKENS = 4 };

/* The plan's prompt, or words, others in each block, so that a server has not cached the previous
 * block's prompt. */
static bool make_prompt(const pj_foreign_cell *c, pj_buffer *text)
{
    pj_random random = {(c->plan->seed * 1000003 + c->cell_id.block) * 1000003 + c->cell_id.round};
    if (c->plan->prompt)
        pj_buffer_text(text, c->plan->prompt);
    else
        pj_input_make_up(&random, c->cell.input, text);
    return !text->failed;
}

static pj_status engines_figure_of(const pj_run_info *info, double *joules, pj_error *err)
{
    pj_run_ratios ratios;
    pj_run_ratios_get(info, &ratios);
    *joules = pj_run_ratios_primary(&ratios);
    if (info->status == PJ_RUN_COMPLETED) return PJ_OK;
    return pj_fail(err, info->status == PJ_RUN_CANCELLED ? PJ_E_CANCELLED : PJ_E_IO, "%s",
                   info->failure ? info->failure : "the run did not complete");
}

/* ---- servers ---- */

typedef struct visit {
    const pj_foreign_cell *cell;
    pj_remote_server server;
    pj_requests *requests; /* NULL: a request that is not recorded */
    pj_buffer body;
    double joules;
    pj_error problem;
} visit;

static const char *body_of(void *context, uint32_t index, size_t *bytes)
{
    visit *v = context;
    *bytes = v->body.length;
    return pj_buffer_get(&v->body);
}

static void *engines_begin_request(void *context, uint32_t index, pj_exchange *exchange)
{
    visit *v = context;
    return v->requests ? pj_request_begin(v->requests, exchange, NULL) : NULL;
}

static void progress_request(void *context, void *request)
{
    if (request) pj_request_progress(request);
}

static void engines_end_request(void *context, void *request, pj_exchange *exchange)
{
    visit *v = context;
    if (request) {
        pj_request_end(request, false);
        return;
    }
    if (exchange->outcome == PJ_EXCHANGE_FAILED)
        pj_fail(&v->problem, PJ_E_IO, "%s", exchange->failure);
    pj_exchange_free(exchange);
}

/* On the storing thread, which has ended when the requests are closed. */
static void engines_take_run(void *context, void *user, const pj_exchange *exchange,
                             const pj_run_data *data, const pj_error *err)
{
    visit *v = context;
    if (err->status != PJ_OK)
        v->problem = *err;
    else
        engines_figure_of(&data->info, &v->joules, &v->problem);
}

static pj_status write_body(visit *v, const pj_ask *request, pj_error *err)
{
    pj_buffer_fini(&v->body);
    pj_buffer_init(&v->body, 256 << 20);
    pj_request_write(&v->server, request, &v->body);
    return pj_buffer_status(&v->body, "a request", err);
}

static pj_status send_one(visit *v, const pj_url *url, const char *headers, const pj_ask *request,
                          pj_error *err)
{
    pj_client_options options = {.url = url,
                                 .path = pj_request_path(&v->server, request),
                                 .headers = headers ? headers : "",
                                 .requests = 1,
                                 .concurrency = 1,
                                 .cancel = v->cell->cancel,
                                 .hooks = {.context = v,
                                           .body = body_of,
                                           .begin = engines_begin_request,
                                           .progress = progress_request,
                                           .end = engines_end_request}};
    pj_status status = write_body(v, request, err);
    if (status == PJ_OK) status = pj_client_run(&options, err);
    if (status == PJ_OK && v->problem.status != PJ_OK)
        status = pj_fail(err, v->problem.status, "%s", v->problem.text);
    return status;
}

/* One unrecorded request that loads the model. */
static pj_status engines_warm(visit *v, const pj_engines *e, const pj_url *url, pj_ask request,
                              pj_error *err)
{
    if (e->last_cell == v->cell->cell_id.cell) return PJ_OK;
    request.max_tokens = WARM_TOKENS;
    return send_one(v, url, e->headers, &request, err);
}

static bool reads_another_machine(const pj_session *session)
{
    return session->power_requested && pj_power_is_remote(session->power_requested);
}

static pj_status engines_record(visit *v, const pj_engines *e, const char *address,
                                const pj_url *url, const pj_ask *request, pj_error *err)
{
    pj_requests_options options = {.session = e->session,
                                   .concurrency = 1,
                                   .engine = v->server.engine,
                                   .url = address,
                                   .model_name = request->model,
                                   .experiment_name = v->cell->plan->name,
                                   .cell_id = &v->cell->cell_id,
                                   .done = engines_take_run,
                                   .context = v};
    if (!reads_another_machine(e->session) && !pj_url_is_here(url))
        options.no_power =
            "The server runs on another machine, whose sensors are not read from here; "
            "--power perjoule:http://HOST:PORT reads them.";
    pj_status status = pj_requests_open(&options, &v->requests, err);
    if (status == PJ_OK) status = send_one(v, url, e->headers, request, err);
    pj_requests_close(v->requests);
    if (status == PJ_OK && v->problem.status != PJ_OK)
        status = pj_fail(err, v->problem.status, "%s", v->problem.text);
    return status;
}

static pj_status visit_server(pj_engines *e, const pj_foreign_cell *c, const char *address,
                              double *joules, pj_error *err)
{
    pj_url url;
    pj_buffer prompt;
    visit v = {.cell = c, .joules = NAN};
    pj_buffer_init(&prompt, 64 << 20);
    pj_status status = make_prompt(c, &prompt) ? pj_url_parse(address, PJ_URL_HTTP_PORT, &url, err)
                                               : pj_fail_memory(err, "a prompt");
    if (status == PJ_OK) status = pj_server_find(&url, e->headers, &v.server, err);
    pj_ask request = {.model = c->cell.model[0] ? c->cell.model : v.server.model,
                      .prompt = pj_buffer_get(&prompt),
                      .prompt_bytes = prompt.length,
                      .ignore_end = true,
                      .max_tokens = c->cell.output,
                      .temperature = 0};
    if (status == PJ_OK) status = engines_warm(&v, e, &url, request, err);
    if (status == PJ_OK) status = engines_record(&v, e, address, &url, &request, err);
    if (status == PJ_OK) e->last_cell = c->cell_id.cell;
    *joules = v.joules;
    pj_buffer_fini(&v.body);
    pj_buffer_fini(&prompt);
    return status;
}

/* ---- programs ---- */

/* The command with {model}, {batch}, {input}, {output} and {prompt} filled in; texts are quoted for
 * the shell. Its output is discarded. */
static pj_status write_command(const pj_foreign_cell *c, const char *command, pj_buffer *out,
                               pj_error *err)
{
    pj_buffer prompt;
    pj_buffer_init(&prompt, 64 << 20);
    bool ok = make_prompt(c, &prompt);
    pj_buffer_text(out, "exec >/dev/null; ");
    while (*command && ok) {
        const struct {
            const char *name, *text;
            uint32_t number;
        } values[] = {{"{model}", c->cell.model, 0},
                      {"{prompt}", pj_buffer_get(&prompt), 0},
                      {"{batch}", NULL, c->cell.batch},
                      {"{input}", NULL, c->cell.input},
                      {"{output}", NULL, c->cell.output}};
        size_t i = 0, n = sizeof values / sizeof *values;
        while (i < n && strncmp(command, values[i].name, strlen(values[i].name)) != 0) i++;
        if (i == n) {
            pj_buffer_char(out, *command++);
            continue;
        }
        if (values[i].text)
            pj_shell_word(out, values[i].text);
        else
            pj_buffer_printf(out, "%u", values[i].number);
        command += strlen(values[i].name);
    }
    pj_buffer_fini(&prompt);
    return ok ? pj_buffer_status(out, "a command", err) : pj_fail_memory(err, "a prompt");
}

static pj_status engines_run_program(pj_engines *e, const pj_foreign_cell *c, const char *command,
                                     double *joules, pj_error *err)
{
    pj_buffer text;
    pj_buffer_init(&text, 1 << 20);
    pj_exec_run r = {.session = e->session,
                     .child = e->blank,
                     .request = {.model = c->cell.model[0] ? c->cell.model : NULL,
                                 .experiment = c->plan->name,
                                 .depth = (pj_depth)pj_depth_parse(c->plan->depth),
                                 .llama = true,
                                 .cell_id = &c->cell_id}};
    pj_status status = write_command(c, command, &text, err);
    char shell[] = "sh", option[] = "-c";
    char *words[] = {shell, option, text.data, NULL};
    r.child.words = words;
    if (status == PJ_OK) status = pj_child_find(&r.child, err);
    if (status == PJ_OK) status = pj_exec_begin(&r, err);
    if (status == PJ_OK) status = pj_exec_measure(&r, err);
    if (status == PJ_OK) status = engines_figure_of(&r.data.info, joules, err);
    if (status == PJ_OK && r.store_problem[0])
        status = pj_fail(err, PJ_E_IO, "%s", r.store_problem);
    pj_exec_close(&r);
    pj_buffer_fini(&text);
    return status;
}

void pj_engines_init(pj_engines *e)
{
    *e = (pj_engines){.last_cell = UINT32_MAX};
    pj_child_reserve(&e->blank);
}

/* ---- both ---- */

static pj_status engines_measure(pj_engines *e, const pj_foreign_cell *c, double *joules,
                                 pj_error *err)
{
    const char *engine = c->cell.engine, *address = strchr(engine, ':') + 1;
    if (!address[strspn(address, " \t\r\n\v\f")])
        return pj_fail(err, PJ_E_INVALID,
                       "--engine %s is incomplete: use attach:URL or exec:COMMAND", engine);
    if (strncmp(engine, "attach:", 7) == 0) {
        if (c->cell.batch == 1) return visit_server(e, c, address, joules, err);
        return pj_fail(err, PJ_E_INVALID,
                       "a server chooses its own batches: leave batches at 1, or generate load on "
                       "it with perjoule attach --concurrency");
    }
    if (strncmp(engine, "exec:", 5) == 0) return engines_run_program(e, c, address, joules, err);
    return pj_fail(err, PJ_E_INVALID, "unknown engine %s: use perjoule, attach:URL or exec:COMMAND",
                   engine);
}

pj_status pj_engines_measure(void *context, const pj_foreign_cell *c, double *joules, pj_error *err)
{
    pj_error why = {0};
    *joules = NAN;
    pj_status status = engines_measure(context, c, joules, &why);
    if (status == PJ_OK || status == PJ_E_CANCELLED) return status;
    return pj_fail(err, status, "%.200s: %s", c->cell.engine, why.text);
}
