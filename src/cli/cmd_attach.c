/* perjoule attach: the energy of requests to another engine's server, one by one. */
#include "cli/attach_client.h"

#include "attach/energy_fields.h"
#include "base/memory.h"
#include "cli/interrupt.h"
#include "http/socket.h"
#include "serve/otlp.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* "Name: value" lines of the head; control characters are rejected. */
static pj_status attach_rule_header(const char *line, pj_error *err)
{
    if (strchr(line, ':') && !strpbrk(line, "\r\n") && *line != ':' && *line != ' ') return PJ_OK;
    return pj_fail(err, PJ_E_INVALID, "must be a header, \"Name: value\"");
}

static pj_status join_headers(pj_attach_args *a, pj_error *err)
{
    pj_buffer lines;
    pj_buffer_init(&lines, 32 << 10);
    const char *key = getenv("OPENAI_API_KEY");
    bool has_key = false;
    pj_status status = pj_secrets_open(&a->headers, a->header_file, &a->header_secrets, err);
    if (status != PJ_OK) return status;
    for (int i = 0; i < a->header_secrets.count; i++) {
        const char *line = a->header_secrets.items[i];
        if (attach_rule_header(line, err) != PJ_OK) {
            pj_error_prefix(err, "%s: %.100s", a->header_file, line);
            return PJ_E_INVALID;
        }
        has_key |= strncasecmp(line, "authorization:", 14) == 0;
        pj_buffer_printf(&lines, "%s\r\n", line);
    }
    if (key && *key && !has_key && !strpbrk(key, "\r\n"))
        pj_buffer_printf(&lines, "Authorization: Bearer %s\r\n", key);
    pj_buffer_text(&lines, "");
    a->header_lines = pj_buffer_take(&lines);
    return a->header_lines ? PJ_OK : pj_fail(err, PJ_E_INVALID, "more than 32 kB of headers");
}

/* "weights=2.3e9,context=131072": bytes that a step reads, and of a token's keys and values. */
static pj_status parse_shape(pj_attach_args *a, pj_error *err)
{
    const char *at = a->shape;
    while (at && *at) {
        char *end;
        size_t name = strcspn(at, "=");
        double value = at[name] == '=' ? strtod(at + name + 1, &end) : NAN;
        bool weights = name == 7 && strncmp(at, "weights", 7) == 0;
        bool context = name == 7 && strncmp(at, "context", 7) == 0;
        if (!(value > 0) || isinf(value) || (!weights && !context) || (*end && *end != ','))
            return pj_fail(err, PJ_E_INVALID,
                           "must be weights=BYTES,context=BYTES (what a step reads of the weights, "
                           "and keys and values of one token)");
        *(weights ? &a->recorded.weight_bytes : &a->recorded.context_bytes) = value;
        at = *end ? end + 1 : end;
    }
    return PJ_OK;
}

static pj_status attach_rule_shape(const char *shape, pj_error *err)
{
    pj_attach_args any = {.shape = shape};
    return parse_shape(&any, err);
}

static pj_status attach_rule_field(const char *field, pj_error *err)
{
    pj_energy_fields any = {0};
    return pj_energy_fields_add(&any, field, err);
}

/* Sensors of this machine do not cover a server on another one. */
static void check_remote_server(pj_attach_args *a)
{
    bool borrowed = a->session.power && pj_power_is_remote(a->session.power);
    if (borrowed || (a->session.power && strcmp(a->session.power, "none") == 0) ||
        pj_url_is_here(&a->address))
        return;
    snprintf(a->no_power_text, sizeof a->no_power_text,
             "the server runs on another machine (%s), which this machine's sensors do not see; "
             "start perjoule serve there and give --power perjoule:http://%s:8000.",
             a->address.host, a->address.host);
    a->recorded.no_power = a->no_power_text;
    a->session.power = "none";
}

static pj_status attach_prepare(pj_attach_args *a, pj_error *err)
{
    if (!a->session.power) a->session.power = pj_power_default();
    pj_status status = pj_url_parse(a->url, PJ_URL_HTTP_PORT, &a->address, err);
    if (status == PJ_OK) status = join_headers(a, err);
    if (status == PJ_OK) status = parse_shape(a, err);
    if (status != PJ_OK) return status;
    if (a->token_file) {
        status = pj_secrets_open(NULL, a->token_file, &a->token_secret, err);
        if (status == PJ_OK) a->token = pj_secrets_only(&a->token_secret, a->token_file, err);
        if (status != PJ_OK || !a->token) return PJ_E_INVALID;
    }
    check_remote_server(a);
    pj_requests_options *r = &a->recorded;
    r->rule = a->rule ? (pj_batch_rule)pj_batch_rule_parse(a->rule) : PJ_BATCH_BYTES;
    if (a->rule && r->rule == PJ_BATCH_BYTES && !(r->weight_bytes > 0 && r->context_bytes > 0))
        return pj_fail(err, PJ_E_INVALID,
                       "--rule bytes needs --model-shape weights=...,context=...");
    return PJ_OK;
}

static int check_words(const pj_command *command, const pj_attach_args *a, int positional)
{
    bool load = a->input_tokens || a->output_tokens;
    int sources = !!positional + !!a->file + !!a->prompts_file + (load && !a->prompts_file);
    if (!a->url)
        return pj_command_usage(command, "give the server's address: --url http://HOST:PORT");
    if (a->listen && sources)
        return pj_command_usage(command, "--listen takes prompts from its clients");
    if (!a->listen && sources != 1)
        return pj_command_usage(command,
                                "give exactly one of: a prompt, -f, --prompts, --input-len with "
                                "--output-len, or --listen");
    return PJ_EXIT_OK;
}

static int attach_execute(const pj_command *command, pj_attach_args *a, const char *positional)
{
    pj_error err = {0};
    pj_status status = attach_prepare(a, &err);
    int code;
    pj_interrupt_catch();
    if (status != PJ_OK)
        code = pj_command_failed(command, &err);
    else
        code = a->listen ? pj_attach_proxy(command, a) : pj_attach_client(command, a, positional);
    pj_free(a->header_lines);
    pj_secrets_close(&a->header_secrets);
    pj_secrets_close(&a->token_secret);
    return code;
}

static bool is_secret_header(const char *line)
{
    static const char *const names[] = {
        "authorization:", "proxy-authorization:", "x-api-key:", "api-key:", "cookie:", NULL};
    for (int i = 0; names[i]; i++)
        if (strncasecmp(line, names[i], strlen(names[i])) == 0) return true;
    return false;
}

static void warn_of_secrets(const pj_attach_args *a)
{
    bool is_secret = false;
    for (int i = 0; i < a->headers.count; i++) is_secret |= is_secret_header(a->headers.items[i]);
    if (is_secret) pj_secrets_warn("--header", "--header-file or OPENAI_API_KEY");
    if (a->token) pj_secrets_warn("--token", "--token-file or PERJOULE_TOKEN");
}

static int run_attach(const pj_command *command, int argc, char **argv)
{
    pj_attach_args a = {.concurrency = 1, .temperature = NAN, .otlp = getenv("PERJOULE_OTLP")};
    const char *session_id = NULL;
    const pj_option options[] = {
        {"url", 'u', PJ_OPTION_TEXT, &a.url, "URL",
         "the server: http://HOST:PORT, with /v1 if its API is there", .rule = pj_rule_server},
        {"model", 'm', PJ_OPTION_TEXT, &a.model, "MODEL",
         "model to request (default: the first that the server lists)", .excludes = "listen"},
        {"file", 'f', PJ_OPTION_TEXT, &a.file, "FILE",
         "read the prompt from a file; - is standard input", .rule = pj_rule_file_or_input},
        {"prompts", 0, PJ_OPTION_TEXT, &a.prompts_file, "FILE", "a file of prompts, one per line",
         .rule = pj_rule_file_or_input},
        {"tokens", 'n', PJ_OPTION_INT, &a.max_tokens, "N",
         "output tokens at most (default: the server's)", 1, 10000000, .excludes = "listen"},
        {"concurrency", 'c', PJ_OPTION_INT, &a.concurrency, "N", "requests in flight at once (1)",
         1, 1024, .excludes = "listen"},
        {"requests", 'r', PJ_OPTION_INT, &a.requests, "M",
         "total number of requests (default: each prompt once)", 1, 1000000, .excludes = "listen"},
        {"input-len", 0, PJ_OPTION_INT, &a.input_tokens, "N",
         "synthetic prompts of about N tokens, all different", 1, 1000000},
        {"output-len", 0, PJ_OPTION_INT, &a.output_tokens, "N",
         "N output tokens for each, ignoring end tokens if the server supports that", 1, 1000000},
        {"temp", 0, PJ_OPTION_DOUBLE, &a.temperature, "T", "temperature (default: the server's)", 0,
         100, .excludes = "listen"},
        {"seed", 0, PJ_OPTION_INT, &a.seed, "N", "seed of synthetic prompts", 0,
         (double)(1LL << 53), .needs = "input-len"},
        {"api", 0, PJ_OPTION_CHOICE, &a.api, "API",
         "chat (a message to answer; default) or completions (a text to continue)",
         .choices = "chat completions", .excludes = "listen"},
        {"header", 0, PJ_OPTION_LIST, &a.headers, "LINE",
         "a header of every request, \"Name: value\"; $OPENAI_API_KEY is sent as a bearer token",
         .rule = attach_rule_header},
        {"header-file", 0, PJ_OPTION_TEXT, &a.header_file, "FILE",
         "read such headers from a file, one per line; other users cannot see them there",
         .rule = pj_rule_file},
        {"listen", 'l', PJ_OPTION_TEXT, &a.listen, "HOST:PORT",
         "run a proxy at this address: every request becomes a run and its answer contains its "
         "energy",
         .rule = pj_rule_listen},
        {"token", 0, PJ_OPTION_TEXT, &a.token, "TOKEN",
         "token that clients of the proxy must send (X-Perjoule-Token, or as a bearer token); "
         "required except on loopback",
         .needs = "listen", .excludes = "token-file"},
        {"token-file", 0, PJ_OPTION_TEXT, &a.token_file, "FILE",
         "read that token from a file ($PERJOULE_TOKEN otherwise)", .rule = pj_rule_file,
         .needs = "listen"},
        {"allow-host", 0, PJ_OPTION_LIST, &a.hosts, "NAME",
         "an additional host name that clients may use for the proxy", .rule = pj_rule_host,
         .needs = "listen"},
        {"headers-only", 0, PJ_OPTION_FLAG, &a.headers_only, NULL,
         "do not change bodies of answers: energy in headers only", .needs = "listen"},
        {"energy-field", 0, PJ_OPTION_LIST, &a.fields, "NAME=FIGURE:UNIT",
         "also add this member to usage, as other meters name it, e.g. energy_kwh=total:kWh; "
         "figures are total, input, output, lo, hi; units J, mJ, uJ, kJ, Wh, mWh, kWh; may be "
         "repeated",
         .rule = attach_rule_field, .needs = "listen"},
        {"otlp", 0, PJ_OPTION_TEXT, &a.otlp, "URL",
         "with --listen: send metrics and a span per request to this OpenTelemetry collector "
         "($PERJOULE_OTLP)",
         .rule = pj_otlp_check_url, .needs = "listen"},
        {"otlp-name", 0, PJ_OPTION_LIST, &a.otlp_names, "OLD=NEW",
         "send a metric or attribute under another name, e.g. "
         "gen_ai.infrastructure.energy=acme.energy; may be repeated",
         .rule = pj_otlp_check_rename, .needs = "otlp $PERJOULE_OTLP"},
        {"rule", 0, PJ_OPTION_CHOICE, &a.rule, "RULE",
         "how energy is divided between requests in flight: bytes (default where --model-shape is "
         "given), tokens or equal",
         .choices = "bytes tokens equal", .needs = "listen concurrency"},
        {"model-shape", 0, PJ_OPTION_TEXT, &a.shape, "SHAPE",
         "weights=BYTES,context=BYTES: what a decode step reads of the weights, and the keys and "
         "values of one token of context",
         .rule = attach_rule_shape, .needs = "listen concurrency"},
        PJ_OPTION_POWER(&a.session.power),
        PJ_OPTION_INTERVAL(&a.session.interval_ns, 0, "sampling interval, e.g. 10ms"),
        {"tag", 0, PJ_OPTION_LIST, &a.tags, "TAG", "a tag to find the runs by; may be repeated"},
        PJ_OPTION_SESSION(&session_id),
        {"experiment", 0, PJ_OPTION_TEXT, &a.recorded.experiment_name, "NAME",
         "the experiment that the runs belong to"},
        {"db", 0, PJ_OPTION_TEXT, &a.session.database, "FILE", "database of runs",
         .rule = pj_rule_database, .excludes = "no-store"},
        {"private", 0, PJ_OPTION_FLAG, &a.recorded.is_private, NULL,
         "store a hash, length and simple features of prompts and answers, not the texts"},
        {"no-store", 0, PJ_OPTION_FLAG, &a.no_store, NULL, "keep nothing"},
        {"json", 0, PJ_OPTION_FLAG, &a.json, NULL, "print one JSON object"},
        {0}};
    int positional;
    int code = pj_options_parse(command, options, argc, argv, &positional);
    if (code != PJ_PARSE_GO_ON) return code;
    if (positional > 1)
        return pj_command_usage(command, "put the prompt in quotes: it was split into %d arguments",
                                positional);
    pj_session_option(session_id);
    warn_of_secrets(&a);
    if (!a.token && a.listen && !a.token_file) a.token = getenv("PERJOULE_TOKEN");
    if (a.otlp && !a.otlp[0]) a.otlp = NULL;
    if (pj_secrets_in_url(a.otlp) && a.otlp != getenv("PERJOULE_OTLP"))
        pj_secrets_warn("--otlp", "PERJOULE_OTLP");
    if (a.no_store) a.session.database = "none";
    code = check_words(command, &a, positional);
    return code != PJ_EXIT_OK ? code : attach_execute(command, &a, positional ? argv[1] : NULL);
}

const pj_command pj_command_attach = {
    .name = "attach",
    .summary = "measure requests to another engine's server",
    .run = run_attach,
    .shows_progress = true,
    .usage = "--url URL [options] PROMPT",
    .text =
        "Sends requests to a server with an OpenAI-like streaming API (llama-server, vLLM, SGLang, "
        "transformers and others) or to Ollama, and stores every request as a run: prefill until "
        "the first token, decode from there, each token with its time, and the machine's energy "
        "during the request. Cached prompt tokens are counted separately.\n\n"
        "With --requests and --concurrency it generates a load and prints the cost of a token in "
        "the steady state: from the N-th first token to the (M-N)-th. Requests in flight at the "
        "same time share the machine's energy by a rule; such figures are marked allocated.\n\n"
        "With --listen it is a proxy: clients use its address instead of the server's, their "
        "requests pass through unchanged, and answers contain their energy (usage.energy_joules, "
        "X-Energy-Joules).\n\n"
        "The sensors are those of this machine. For a server on another one, start perjoule serve "
        "there and give --power perjoule:http://HOST:PORT; otherwise energy is unavailable and "
        "timing is complete.",
    .examples =
        "perjoule attach --url http://127.0.0.1:8080/v1 \"Why is the sky blue?\"\n"
        "perjoule attach --url http://127.0.0.1:11434 -m llama3.2 -f prompt.txt -n 100\n"
        "perjoule attach --url http://127.0.0.1:8000/v1 --concurrency 8 --requests 64 --input-len "
        "512 --output-len 128\n"
        "perjoule attach --url http://127.0.0.1:8080 --listen 127.0.0.1:8081\n",
};
