/* Sends prompts or a load and prints the energy of the requests. */
#include "cli/attach_client.h"

#include "attach/client.h"
#include "base/memory.h"
#include "cli/attach_report.h"
#include "cli/inputs.h"
#include "cli/interrupt.h"
#include "cli/stored.h"
#include "cli/terminal.h"
#include "requests/requests.h"

#include <stdio.h>
#include <string.h>

enum { MAX_PROMPTS = 100000 };

typedef struct attached {
    const pj_command *command;
    const pj_attach_args *args;
    pj_remote_server server;
    pj_session *session;
    pj_requests *requests;
    char *texts;
    pj_prompt *prompts;
    uint32_t prompt_count;
    bool plain;        /* extensions are disabled because the server rejected them */
    bool streams_text; /* a single prompt without --json: the text is printed as it is generated */
    size_t printed;
    const pj_exchange *exchange;                   /* the request that began last */
    pj_buffer body[PJ_CLIENT_CONCURRENCY_MAX + 1]; /* by index modulo */
    pj_load load;
} attached;

/* ---- prompts ---- */

static pj_status client_get_prompts(attached *s, const char *positional, pj_error *err)
{
    const pj_attach_args *a = s->args;
    const char *file = a->file ? a->file : positional && strcmp(positional, "-") == 0 ? "-" : NULL;
    if (a->prompts_file)
        return pj_input_prompts(a->prompts_file, MAX_PROMPTS, &s->texts, &s->prompts,
                                &s->prompt_count, err);
    s->prompts = pj_alloc(1, sizeof *s->prompts);
    if (!s->prompts) return pj_fail_memory(err, "the prompts");
    s->prompt_count = 1;
    *s->prompts = (pj_prompt){.text = positional, .bytes = positional ? strlen(positional) : 0};
    if (!file) return PJ_OK;
    pj_status status =
        pj_input_read(file, PJ_INPUT_PROMPT_BYTES, &s->texts, &s->prompts->bytes, err);
    s->prompts->text = s->texts;
    return status;
}

/* ---- hooks of the client ---- */

static const char *body(void *context, uint32_t index, size_t *bytes)
{
    attached *s = context;
    const pj_attach_args *a = s->args;
    pj_buffer *to = &s->body[index % (PJ_CLIENT_CONCURRENCY_MAX + 1)], made;
    const pj_prompt *p = &s->prompts[index % s->prompt_count];
    pj_buffer_init(&made, 64 << 20);
    pj_random random = {(uint64_t)a->seed * 0x9e3779b97f4a7c15ull + index + 1};
    pj_input_make_up(&random, a->input_tokens, &made); /* no prefix of another is cached */
    pj_ask request = {.model = a->model ? a->model : s->server.model,
                      .prompt = a->input_tokens ? pj_buffer_get(&made) : p->text,
                      .prompt_bytes = a->input_tokens ? made.length : p->bytes,
                      .completion = a->api && strcmp(a->api, "completions") == 0,
                      .plain = s->plain,
                      .ignore_end = a->output_tokens > 0,
                      .max_tokens = a->output_tokens ? a->output_tokens : a->max_tokens,
                      .temperature = a->temperature};
    pj_buffer_fini(to);
    pj_buffer_init(to, 256 << 20);
    pj_request_write(&s->server, &request, to);
    pj_buffer_fini(&made);
    *bytes = to->length;
    return pj_buffer_get(to);
}

static void *client_begin_request(void *context, uint32_t index, pj_exchange *exchange)
{
    attached *s = context;
    s->printed = 0;
    s->exchange = exchange;
    return pj_request_begin(s->requests, exchange, NULL);
}

static void progress(void *context, void *request)
{
    attached *s = context;
    if (!request) return;
    pj_request_progress(request);
    if (!s->streams_text) return;
    const char *text = pj_exchange_text(s->exchange);
    size_t bytes = strlen(text + s->printed);
    pj_print_safe(stdout, text + s->printed, bytes);
    fflush(stdout);
    s->printed += bytes;
}

static void client_end_request(void *context, void *request, pj_exchange *exchange)
{
    attached *s = context;
    if (s->streams_text && s->printed) putchar('\n');
    if (request)
        pj_request_end(request, false);
    else
        pj_exchange_free(exchange);
}

/* On the storing thread. */
static void client_request_done(void *context, void *user, const pj_exchange *exchange,
                                const pj_run_data *data, const pj_error *err)
{
    attached *s = context;
    pj_load_add(&s->load, exchange, data, err);
}

/* ---- a load ---- */

static pj_status client_send_all(attached *s, uint32_t count, pj_error *err)
{
    const pj_attach_args *a = s->args;
    pj_ask request = {.completion = a->api && strcmp(a->api, "completions") == 0};
    pj_client_options options = {.url = &a->address,
                                 .path = pj_request_path(&s->server, &request),
                                 .headers = a->header_lines,
                                 .requests = count,
                                 .concurrency = (uint32_t)a->concurrency,
                                 .cancel = &pj_interrupted,
                                 .hooks = {.context = s,
                                           .body = body,
                                           .begin = client_begin_request,
                                           .progress = progress,
                                           .end = client_end_request}};
    pj_status status = pj_client_run(&options, err);
    pj_requests_drain(s->requests);
    return status;
}

/* If a server rejects a member of the request, the request is repeated without extensions. */
static bool was_refused(const attached *s)
{
    static const char *const members[] = {
        "stream_options", "timings_per_token", "return_progress", "ignore_eos",
        "extra",          "unexpected",        "unknown"};
    const char *failure = s->load.first_failure;
    if (s->plain || s->load.failed == 0 || s->load.failed < s->load.count) return false;
    if (!strstr(failure, " 400") && !strstr(failure, " 422")) return false;
    for (size_t i = 0; i < sizeof members / sizeof *members; i++)
        if (strstr(failure, members[i])) return true;
    return false;
}

static pj_status client_run_all(attached *s, pj_error *err)
{
    const pj_attach_args *a = s->args;
    uint32_t count = a->requests ? (uint32_t)a->requests : s->prompt_count;
    s->streams_text = !a->json && count == 1;
    s->load.keeps_data = count == 1 || a->json;
    pj_status status = client_send_all(s, count, err);
    if (status == PJ_OK && was_refused(s)) {
        pj_load_clear(&s->load);
        s->plain = true;
        status = client_send_all(s, count, err);
    }
    return status;
}

pj_requests_options pj_attach_requests(const pj_attach_args *a, const pj_remote_server *server,
                                       pj_session *session)
{
    pj_requests_options requests = a->recorded;
    requests.session = session;
    requests.engine = server->engine;
    requests.url = a->url;
    requests.model_name = a->model ? a->model : server->model;
    requests.tags = a->tags.items;
    return requests;
}

static pj_status client_open_all(attached *s, pj_error *err)
{
    const pj_attach_args *a = s->args;
    pj_status status = pj_server_find(&a->address, a->header_lines, &s->server, err);
    if (status == PJ_OK) status = pj_stored_session(s->command, &a->session, &s->session, err);
    if (status != PJ_OK) return status;
    pj_requests_options requests = pj_attach_requests(a, &s->server, s->session);
    requests.keeps_all = true;
    requests.concurrency = (uint32_t)a->concurrency;
    requests.done = client_request_done;
    requests.context = s;
    return pj_requests_open(&requests, &s->requests, err);
}

static void client_release(attached *s)
{
    pj_requests_close(s->requests);
    pj_session_close(s->session);
    for (size_t i = 0; i < PJ_CLIENT_CONCURRENCY_MAX + 1; i++) pj_buffer_fini(&s->body[i]);
    pj_load_clear(&s->load);
    pj_free(s->texts);
    pj_free(s->prompts);
    pj_free(s);
}

static void client_report(attached *s)
{
    const pj_attach_args *a = s->args;
    pj_load_window window;
    pj_load_steady(&s->load, (uint32_t)a->concurrency, s->requests, &window);
    if (a->json)
        pj_load_print_json(&s->load, &s->server, (uint32_t)a->concurrency, &window);
    else if (s->load.count == 1)
        pj_load_print_one(&s->load);
    else
        pj_load_print(&s->load, &s->server, (uint32_t)a->concurrency, &window);
}

int pj_attach_client(const pj_command *command, const pj_attach_args *args, const char *positional)
{
    pj_error err = {0};
    attached *s = pj_alloc(1, sizeof *s);
    if (!s) {
        pj_fail_memory(&err, "a client");
        return pj_command_failed(command, &err);
    }
    s->command = command;
    s->args = args;
    pj_status status = client_get_prompts(s, positional, &err);
    if (status == PJ_OK) status = client_open_all(s, &err);
    if (status == PJ_OK) status = client_run_all(s, &err);
    if (s->load.count) client_report(s);
    fflush(stdout);
    if (status == PJ_OK && s->load.failed)
        status = pj_fail(&err, PJ_E_IO, "%s", s->load.first_failure);
    else if (status == PJ_OK && s->load.unstored)
        status = pj_fail(&err, PJ_E_IO, "%u runs could not be stored: %.300s", s->load.unstored,
                         s->load.store_failure);
    client_release(s);
    if (status == PJ_E_CANCELLED) return PJ_EXIT_INTERRUPTED;
    return status == PJ_OK ? PJ_EXIT_OK : pj_command_failed(command, &err);
}
