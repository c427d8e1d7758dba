/* perjoule mcp: stored runs for agents, by the Model Context Protocol: messages of JSON-RPC 2.0
 * over standard input and output, one per line. */
#include "cli/mcp.h"
#include "cli/options.h"
#include "cli/terminal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* JSON-RPC 2.0 */
enum { RPC_PARSE = -32700, RPC_INVALID = -32600, RPC_NO_METHOD = -32601, RPC_PARAMS = -32602 };
enum { LINE_BYTES = 4 << 20, RESULT_BYTES = 64 << 20 };

/* Revisions of the protocol, newest first: those that a client may ask for. */
static const char *const revisions[] = {"2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"};

/* ---- messages ---- */

static void begin_answer(const json_t *id, pj_json *out)
{
    pj_json_object_begin(out);
    pj_json_kv_string(out, "jsonrpc", "2.0");
    if (json_is_string(id)) {
        pj_json_key(out, "id");
        pj_json_string_n(out, json_string_value(id), json_string_length(id));
    } else if (json_is_integer(id)) {
        pj_json_kv_int(out, "id", json_integer_value(id));
    } else {
        pj_json_kv_null(out, "id");
    }
}

static void answer_error(const json_t *id, int code, const char *text, pj_json *out)
{
    begin_answer(id, out);
    pj_json_kv_object_begin(out, "error");
    pj_json_kv_int(out, "code", code);
    pj_json_kv_string(out, "message", text);
    pj_json_object_end(out);
    pj_json_object_end(out);
}

static void answer_initialize(const json_t *id, const json_t *params, pj_json *out)
{
    const char *asked = json_string_value(json_object_get(params, "protocolVersion"));
    const char *revision = revisions[0];
    for (size_t i = 0; asked && i < sizeof revisions / sizeof *revisions; i++)
        if (strcmp(revisions[i], asked) == 0) revision = revisions[i];
    begin_answer(id, out);
    pj_json_kv_object_begin(out, "result");
    pj_json_kv_string(out, "protocolVersion", revision);
    pj_json_kv_object_begin(out, "capabilities");
    pj_json_kv_object_begin(out, "tools");
    pj_json_object_end(out);
    pj_json_object_end(out);
    pj_json_kv_object_begin(out, "serverInfo");
    pj_json_kv_string(out, "name", "perjoule");
    pj_json_kv_string(out, "title", "perjoule: energy of transformer inference");
    pj_json_kv_string(out, "version", pj_version());
    pj_json_object_end(out);
    pj_json_kv_string(out, "instructions",
                      "Energy of inference runs that were measured on this machine. Energies are "
                      "millijoules (mj) unless a name says joules, powers milliwatts, times "
                      "milliseconds. null is unavailable, never zero. State intervals, and "
                      "whether a figure is measured or modelled.");
    pj_json_object_end(out);
    pj_json_object_end(out);
}

static void answer_text(const json_t *id, const char *text, size_t bytes, bool failed, pj_json *out)
{
    begin_answer(id, out);
    pj_json_kv_object_begin(out, "result");
    pj_json_kv_array_begin(out, "content");
    pj_json_object_begin(out);
    pj_json_kv_string(out, "type", "text");
    pj_json_key(out, "text");
    pj_json_string_n(out, text, bytes);
    pj_json_object_end(out);
    pj_json_array_end(out);
    pj_json_kv_bool(out, "isError", failed);
    pj_json_object_end(out);
    pj_json_object_end(out);
}

/* A failure of the tool is a result that the model sees, not an error of the protocol. */
static void answer_call(const pj_mcp *mcp, const json_t *id, const json_t *params, pj_json *out)
{
    const char *name = json_string_value(json_object_get(params, "name"));
    json_t *arguments = json_object_get(params, "arguments");
    pj_error err = {0};
    pj_json result;
    char text[160];
    if (!name || !pj_mcp_tool_exists(name)) {
        snprintf(text, sizeof text, "there is no tool %.100s", name ? name : "without a name");
        answer_error(id, RPC_PARAMS, text, out);
        return;
    }
    if (arguments && !json_is_object(arguments)) {
        answer_error(id, RPC_PARAMS, "arguments must be an object", out);
        return;
    }
    pj_json_open(&result, RESULT_BYTES);
    pj_status status = pj_mcp_tool_call(mcp, name, arguments, &result, &err);
    const char *whole = status == PJ_OK ? pj_json_whole(&result) : NULL;
    if (status == PJ_OK && !whole) pj_fail_memory(&err, "the result");
    if (!whole) whole = err.text;
    answer_text(id, whole, strlen(whole), whole == err.text, out);
    pj_json_close(&result);
}

static void answer_object(const pj_mcp *mcp, const json_t *message, pj_json *out)
{
    const json_t *id = json_object_get(message, "id"), *params = json_object_get(message, "params");
    const char *method = json_string_value(json_object_get(message, "method"));
    const char *version = json_string_value(json_object_get(message, "jsonrpc"));
    bool answerable = json_is_string(id) || json_is_integer(id);
    if (!version || strcmp(version, "2.0") != 0 || (id && !answerable) || (!method && !id)) {
        answer_error(answerable ? id : NULL, RPC_INVALID, "not a request of JSON-RPC 2.0", out);
        return;
    }
    if (!method || !id) return; /* an answer, or a notification */
    if (strcmp(method, "initialize") == 0) {
        answer_initialize(id, params, out);
    } else if (strcmp(method, "ping") == 0) {
        begin_answer(id, out);
        pj_json_kv_object_begin(out, "result");
        pj_json_object_end(out);
        pj_json_object_end(out);
    } else if (strcmp(method, "tools/list") == 0) {
        begin_answer(id, out);
        pj_json_kv_object_begin(out, "result");
        pj_json_key(out, "tools");
        pj_mcp_tools_write(out);
        pj_json_object_end(out);
        pj_json_object_end(out);
    } else if (strcmp(method, "tools/call") == 0) {
        answer_call(mcp, id, params, out);
    } else {
        answer_error(id, RPC_NO_METHOD, "there is no such method", out);
    }
}

static void answer_batch(const pj_mcp *mcp, const json_t *batch, pj_json *out)
{
    size_t i;
    json_t *message;
    pj_buffer *text = out->buffer;
    pj_json_array_begin(out);
    size_t empty = text->length;
    json_array_foreach(batch, i, message) answer_object(mcp, message, out);
    bool answered = text->length > empty;
    pj_json_array_end(out);
    if (!answered) pj_buffer_clear(text); /* notifications alone */
}

/* JSON with a number that no integer of 64 bits holds, which an id or a length cannot be. */
static bool has_large_number(const char *text, size_t bytes)
{
    json_t *message =
        json_loadb(text, bytes, JSON_DECODE_ANY | JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, NULL);
    json_decref(message);
    return message != NULL;
}

/* What answers one message; nothing for a notification. The text need not be valid. */
static void answer_message(const pj_mcp *mcp, const char *text, size_t bytes, pj_json *out)
{
    json_error_t where;
    json_t *message = json_loadb(text, bytes, JSON_DECODE_ANY | JSON_ALLOW_NUL, &where);
    if (!message && has_large_number(text, bytes))
        answer_error(NULL, RPC_INVALID, "a whole number needs more than 64 bits", out);
    else if (!message)
        answer_error(NULL, RPC_PARSE, "not JSON", out);
    else if (json_is_object(message) || (json_is_array(message) && !json_array_size(message)))
        answer_object(mcp, message, out);
    else if (json_is_array(message))
        answer_batch(mcp, message, out);
    else
        answer_error(NULL, RPC_INVALID, "not a request of JSON-RPC 2.0", out);
    json_decref(message);
}

/* ---- the loop ---- */

/* One line without its end. False: the input has ended. A line that is too long is consumed and
 * kept in part, which is not JSON. */
static bool read_line(FILE *in, pj_buffer *line)
{
    int c;
    pj_buffer_clear(line);
    while ((c = getc_unlocked(in)) != EOF && c != '\n') pj_buffer_char(line, (char)c);
    return c != EOF || line->length;
}

static pj_status serve(const pj_mcp *mcp, pj_error *err)
{
    pj_buffer line;
    pj_json answer;
    pj_status status = PJ_OK;
    pj_buffer_init(&line, LINE_BYTES);
    while (status == PJ_OK && read_line(stdin, &line)) {
        if (!line.failed && strspn(pj_buffer_get(&line), " \t\r") == line.length) continue;
        pj_json_open(&answer, RESULT_BYTES * 2);
        if (line.failed)
            answer_error(NULL, RPC_PARSE, "a message is longer than 4 MB", &answer);
        else
            answer_message(mcp, line.data, line.length, &answer);
        const char *text = pj_json_whole(&answer);
        if (!text) {
            pj_json_close(&answer);
            pj_json_open(&answer, RESULT_BYTES);
            answer_error(NULL, RPC_INVALID, "the answer is too large", &answer);
            text = pj_json_whole(&answer);
        }
        if (text && *text &&
            !(pj_write_output(stdout, text, strlen(text)) && pj_write_output(stdout, "\n", 1) &&
              fflush(stdout) == 0))
            status = pj_fail_errno(err, errno, "cannot write an answer");
        pj_json_close(&answer);
    }
    pj_buffer_fini(&line);
    return status;
}

static int run_mcp(const pj_command *command, int argc, char **argv)
{
    pj_mcp mcp = {0};
    pj_error err = {0};
    const pj_option options[] = {
        {"db", 0, PJ_OPTION_TEXT, &mcp.db, "FILE",
         "the database (default: $PERJOULE_DB, else in the user's data folder)",
         .rule = pj_rule_database},
        {"models", 0, PJ_OPTION_TEXT, &mcp.models, "DIR", "folder of models, for predictions",
         .rule = pj_rule_folder},
        {0}};
    int code = pj_options_parse(command, options, argc, argv, NULL);
    if (code != PJ_PARSE_GO_ON) return code;
    pj_status status = serve(&mcp, &err);
    return status == PJ_OK ? PJ_EXIT_OK : pj_command_failed(command, &err);
}

const pj_command pj_command_mcp = {
    .name = "mcp",
    .summary = "offer stored runs to agents (Model Context Protocol)",
    .run = run_mcp,
    .usage = "[options]",
    .text =
        "A server of the Model Context Protocol over standard input and output, for coding agents "
        "and\nassistants. Its tools only read: runs, run, sessions, compare, why, advice,\npredict. A client "
        "starts\nit by itself; its configuration names the command \"perjoule mcp\".",
    .examples =
        "perjoule mcp    # \"mcpServers\": {\"perjoule\": {\"command\": \"perjoule\", \"args\": [\"mcp\"]}}\n"
        "perjoule mcp --db lab.db\n",
};
