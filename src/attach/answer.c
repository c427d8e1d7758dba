#include "attach/answer.h"

#include "attach/skim.h"
#include "base/decimal.h"
#include "base/memory.h"
#include "base/utf8.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

/* ---- small parts ---------------------------------------------------------------------------- */

static void set_text(char *to, size_t size, const char *text, size_t bytes)
{
    size_t n = pj_utf8_cut(text, bytes, size - 1);
    for (size_t i = 0; i < n; i++)
        to[i] = (unsigned char)text[i] < ' ' || text[i] == 127 ? ' ' : text[i];
    to[n] = 0;
}

static void set_json_text(char *to, size_t size, const json_t *value)
{
    if (json_is_string(value) && json_string_length(value))
        set_text(to, size, json_string_value(value), json_string_length(value));
}

/* Reads a count within bounds; anything else leaves the old value. */
static bool get_count(const json_t *object, const char *key, int64_t *count)
{
    const json_t *value = json_object_get(object, key);
    double number = json_is_number(value) ? json_number_value(value) : -1;
    if (!(number >= 0 && number <= PJ_TOKENS_MOST)) return false;
    *count = (int64_t)number;
    return true;
}

static void get_time(const json_t *object, const char *key, double factor, double *ms)
{
    const json_t *value = json_object_get(object, key);
    double number = json_is_number(value) ? json_number_value(value) * factor : -1;
    if (number >= 0 && number < 1e12) *ms = number;
}

void pj_answer_init(pj_answer *a)
{
    *a = (pj_answer){.prompt_tokens = -1,
                     .cached_tokens = -1,
                     .completion_tokens = -1,
                     .reasoning_tokens = -1,
                     .total_tokens = -1,
                     .draft_tokens = -1,
                     .draft_accepted = -1,
                     .call_index = -1,
                     .progress_total = -1,
                     .progress_processed = -1,
                     .progress_cached = -1,
                     .timings = {NAN, NAN, NAN, NAN}};
}

/* ---- errors --------------------------------------------------------------------------------- */

static void take_error(pj_answer *a, const json_t *error)
{
    a->has_error = true;
    if (json_is_string(error)) set_json_text(a->error, sizeof a->error, error);
    if (json_is_object(error)) {
        const json_t *message = json_object_get(error, "message");
        set_json_text(a->error, sizeof a->error, message);
        if (!json_is_string(message))
            set_json_text(a->error, sizeof a->error, json_object_get(error, "detail"));
    }
    if (!a->error[0]) set_text(a->error, sizeof a->error, "an error without a message", 26);
}

void pj_answer_take_error_text(pj_answer *a, const char *text, size_t bytes)
{
    const char *line_end = memchr(text, '\n', bytes);
    if (a->has_error) return;
    a->has_error = true;
    set_text(a->error, sizeof a->error, text, line_end ? (size_t)(line_end - text) : bytes);
}

/* "error", and what FastAPI ("detail"), vLLM ("object": "error") and Anthropic-like servers say. */
static bool find_error(pj_answer *a, const char *name, const json_t *event)
{
    const json_t *error = json_object_get(event, "error");
    const char *kind = json_string_value(json_object_get(event, "object"));
    if (json_is_object(error) || (json_is_string(error) && json_string_length(error))) {
        take_error(a, error);
    } else if (strcmp(name, "error") == 0 || (kind && strcmp(kind, "error") == 0)) {
        take_error(a, event);
    } else if (json_object_get(event, "detail") && !json_object_get(event, "choices")) {
        const json_t *detail = json_object_get(event, "detail");
        const json_t *first = json_is_array(detail) ? json_array_get(detail, 0) : detail;
        const json_t *words = json_is_object(first) ? json_object_get(first, "msg") : first;
        take_error(a, words);
    } else {
        return false;
    }
    return true;
}

/* ---- usage and timings ---------------------------------------------------------------------- */

static void take_usage(pj_answer *a, const json_t *usage)
{
    if (!json_is_object(usage)) return;
    const json_t *details = json_object_get(usage, "prompt_tokens_details");
    if (!json_is_object(details)) details = json_object_get(usage, "input_tokens_details");
    const json_t *spent = json_object_get(usage, "completion_tokens_details");
    if (!json_is_object(spent)) spent = json_object_get(usage, "output_tokens_details");
    a->has_usage = true;
    get_count(spent, "reasoning_tokens", &a->reasoning_tokens);
    if (!get_count(usage, "prompt_tokens", &a->prompt_tokens))
        get_count(usage, "input_tokens", &a->prompt_tokens);
    if (!get_count(usage, "completion_tokens", &a->completion_tokens))
        get_count(usage, "output_tokens", &a->completion_tokens);
    get_count(usage, "total_tokens", &a->total_tokens);
    if (!get_count(details, "cached_tokens", &a->cached_tokens))
        get_count(usage, "cache_read_input_tokens", &a->cached_tokens);
}

/* llama-server. Before the first token prompt_n is 0 and rates are null: ignore that. */
static void take_llama_timings(pj_answer *a, const json_t *t)
{
    int64_t cached = -1, prompt = -1, decoded = -1;
    if (!json_is_object(t)) return;
    get_count(t, "cache_n", &cached);
    get_count(t, "prompt_n", &prompt);
    get_count(t, "predicted_n", &decoded);
    get_count(t, "draft_n", &a->draft_tokens);
    get_count(t, "draft_n_accepted", &a->draft_accepted);
    if (prompt <= 0 && decoded <= 0) return;
    get_time(t, "prompt_ms", 1, &a->timings.prompt_ms);
    get_time(t, "predicted_ms", 1, &a->timings.decode_ms);
    if (prompt >= 0) a->timings.prompt_tokens = (double)prompt;
    if (cached >= 0) a->cached_tokens = cached;
    if (prompt >= 0 && a->prompt_tokens < 0) a->prompt_tokens = prompt + (cached > 0 ? cached : 0);
}

static void take_progress(pj_answer *a, const json_t *p)
{
    get_count(p, "total", &a->progress_total);
    get_count(p, "processed", &a->progress_processed);
    get_count(p, "cache", &a->progress_cached);
}

/* Ollama's last line; durations in ns. A prompt that was cached whole has no prompt_eval_count. */
static void take_ollama_end(pj_answer *a, const json_t *e)
{
    if (!json_is_true(json_object_get(e, "done"))) return;
    a->is_done = true;
    bool counted = get_count(e, "prompt_eval_count", &a->prompt_tokens);
    get_count(e, "prompt_eval_cached_count", &a->cached_tokens);
    counted |= get_count(e, "eval_count", &a->completion_tokens);
    a->has_usage |= counted;
    get_time(e, "load_duration", 1e-6, &a->timings.load_ms);
    get_time(e, "prompt_eval_duration", 1e-6, &a->timings.prompt_ms);
    get_time(e, "eval_duration", 1e-6, &a->timings.decode_ms);
    if (a->prompt_tokens >= 0) a->timings.prompt_tokens = (double)a->prompt_tokens;
    set_json_text(a->finish_reason, sizeof a->finish_reason, json_object_get(e, "done_reason"));
}

/* llama-server's own /completion. */
static void take_llama_native(pj_answer *a, const json_t *e)
{
    int64_t evaluated = -1;
    if (get_count(e, "tokens_evaluated", &evaluated) && evaluated > 0) {
        a->prompt_tokens = evaluated;
        a->has_usage = true;
    }
    if (json_is_true(json_object_get(e, "stop"))) {
        a->is_done = true;
        get_count(e, "tokens_predicted", &a->completion_tokens);
        set_json_text(a->finish_reason, sizeof a->finish_reason, json_object_get(e, "stop_type"));
    }
}

/* ---- pieces --------------------------------------------------------------------------------- */

typedef struct reading {
    pj_answer *answer;
    pj_answer_piece_fn *piece;
    void *context;
    int64_t event_tokens; /* from the running count, not yet assigned to a piece; -1: there is no
                             such count */
    uint32_t pieces;
    bool reasoning; /* what is given now */
} reading;

static void answer_give(reading *r, uint32_t choice, const char *text, size_t bytes, int64_t tokens,
                        int32_t id)
{
    if (r->event_tokens >= 0 && tokens < 0) { /* all are assigned to the event's first piece */
        tokens = r->event_tokens;
        r->event_tokens = 0;
    } else if (r->event_tokens >= 0) { /* ids are more precise than the count */
        r->event_tokens -= tokens < r->event_tokens ? tokens : r->event_tokens;
    }
    if (!bytes && tokens <= 0) return;
    r->pieces++;
    r->piece(r->context,
             &(pj_answer_piece){choice, text, bytes, tokens, tokens == 1 ? id : -1, r->reasoning});
}

static void answer_give_text(reading *r, uint32_t choice, const json_t *text, int64_t tokens,
                             int32_t id)
{
    const char *words = json_string_value(text);
    answer_give(r, choice, words ? words : "", words ? json_string_length(text) : 0, tokens, id);
}

/* Number of a choice's tokens from their ids, else from their log probabilities; -1: neither is
 * given. */
static int64_t count_ids(const json_t *choice, int32_t *id)
{
    const json_t *ids = json_object_get(choice, "token_ids");
    const json_t *logprobs = json_object_get(choice, "logprobs");
    if (!json_is_array(ids)) ids = json_object_get(choice, "tokens");
    if (json_is_array(ids)) {
        const json_t *first = json_array_get(ids, 0);
        json_int_t value = json_is_integer(first) ? json_integer_value(first) : -1;
        *id = value >= 0 && value <= INT32_MAX ? (int32_t)value : -1;
        return (int64_t)json_array_size(ids);
    }
    const json_t *list = json_object_get(logprobs, "content");
    if (!json_is_array(list)) list = json_object_get(logprobs, "tokens");
    return json_is_array(list) && json_array_size(list) ? (int64_t)json_array_size(list) : -1;
}

/* A stream names a call in its first piece; a server that repeats the name repeats the index. */
static void count_call(pj_answer *a, uint32_t choice, const json_t *call, const json_t *function)
{
    int64_t index = -1;
    if (!json_string_length(json_object_get(function, "name"))) return;
    get_count(call, "index", &index);
    if (index >= 0 && index == a->call_index && choice == a->call_choice) return;
    a->call_index = index;
    a->call_choice = choice;
    a->tool_calls++;
}

static void give_calls(reading *r, uint32_t choice, const json_t *calls)
{
    size_t i;
    const json_t *call;
    json_array_foreach(calls, i, call)
    {
        const json_t *function = json_object_get(call, "function");
        count_call(r->answer, choice, call, function);
        answer_give_text(r, choice, json_object_get(function, "name"), -1, -1);
        answer_give_text(r, choice, json_object_get(function, "arguments"), -1, -1);
    }
}

/* Calls of the responses and messages APIs: an item of the answer of its own. */
static void count_item(pj_answer *a, const json_t *item)
{
    const char *type = json_string_value(json_object_get(item, "type"));
    a->tool_calls +=
        type && (strcmp(type, "function_call") == 0 || strcmp(type, "custom_tool_call") == 0 ||
                 strcmp(type, "tool_use") == 0);
}

/* A delta or a whole message. Reasoning text counts as output; a role alone is not a token. */
static void give_message(reading *r, uint32_t choice, const json_t *message, int64_t tokens,
                         int32_t id)
{
    static const char *const keys[] = {"reasoning_content", "reasoning", "thinking", "content",
                                       "refusal"};
    enum { REASONING_KEYS = 3 };
    uint32_t before = r->pieces;
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
        const json_t *text = json_object_get(message, keys[k]);
        if (!json_is_string(text) || !json_string_length(text)) continue;
        if (k == 1 && json_string_length(json_object_get(message, keys[0])))
            continue; /* the same */
        r->reasoning = k < REASONING_KEYS;
        answer_give_text(r, choice, text, r->pieces == before ? tokens : tokens < 0 ? -1 : 0, id);
        r->reasoning = false;
    }
    give_calls(r, choice, json_object_get(message, "tool_calls"));
    if (r->pieces == before && tokens > 0) answer_give(r, choice, "", 0, tokens, id);
}

static void take_choices(reading *r, const json_t *choices)
{
    size_t i;
    const json_t *choice;
    json_array_foreach(choices, i, choice)
    {
        int64_t index = (int64_t)i;
        int32_t id = -1;
        get_count(choice, "index", &index);
        int64_t tokens = count_ids(choice, &id);
        const json_t *delta = json_object_get(choice, "delta");
        if (!json_is_object(delta)) delta = json_object_get(choice, "message");
        if (json_is_object(delta))
            give_message(r, (uint32_t)index, delta, tokens, id);
        else
            answer_give_text(r, (uint32_t)index, json_object_get(choice, "text"), tokens, id);
        set_json_text(r->answer->finish_reason, sizeof r->answer->finish_reason,
                      json_object_get(choice, "finish_reason"));
    }
}

/* The responses API, and the messages API that some servers also offer: typed events. */
static void take_typed(reading *r, const char *type, const json_t *event)
{
    pj_answer *a = r->answer;
    size_t length = strlen(type);
    const json_t *delta = json_object_get(event, "delta");
    bool is_delta = length > 6 && strcmp(type + length - 6, ".delta") == 0;
    r->reasoning = strstr(type, "reasoning") != NULL;
    if (is_delta && json_is_string(delta)) answer_give_text(r, 0, delta, -1, -1);
    r->reasoning = false;
    if (strcmp(type, "response.output_item.added") == 0)
        count_item(a, json_object_get(event, "item"));
    if (strcmp(type, "content_block_start") == 0)
        count_item(a, json_object_get(event, "content_block"));
    if (strcmp(type, "content_block_delta") == 0) {
        answer_give_text(r, 0, json_object_get(delta, "text"), -1, -1);
        r->reasoning = true;
        answer_give_text(r, 0, json_object_get(delta, "thinking"), -1, -1);
        r->reasoning = false;
        answer_give_text(r, 0, json_object_get(delta, "partial_json"), -1, -1);
    }
    const json_t *inner = json_object_get(event, "response");
    if (!json_is_object(inner)) inner = json_object_get(event, "message");
    take_usage(a, json_object_get(inner, "usage"));
    const json_t *error = json_object_get(inner, "error");
    if (json_is_object(error)) take_error(a, error);
    if (strcmp(type, "response.completed") == 0 || strcmp(type, "response.incomplete") == 0 ||
        strcmp(type, "message_stop") == 0)
        a->is_done = true;
}

/* A whole object of the responses or messages API: "output" or "content" holds parts with text. */
static void give_parts(reading *r, const json_t *parts, int depth)
{
    size_t i;
    const json_t *part;
    json_array_foreach(parts, i, part)
    {
        count_item(r->answer, part);
        answer_give_text(r, 0, json_object_get(part, "text"), -1, -1);
        if (depth < 2) give_parts(r, json_object_get(part, "content"), depth + 1);
    }
}

/* Tokens added by this event according to a running count: llama-server's predicted_n
 * (timings_per_token), or usage on every chunk (continuous_usage_stats). */
static void set_event_tokens(reading *r, const json_t *event)
{
    pj_answer *a = r->answer;
    int64_t count = -1;
    bool running = get_count(json_object_get(event, "timings"), "predicted_n", &count) ||
                   get_count(json_object_get(event, "usage"), "completion_tokens", &count);
    r->event_tokens = -1;
    if (!running) return;
    const json_t *choices = json_object_get(event, "choices");
    const json_t *first = json_array_get(choices, 0);
    const json_t *reason = json_object_get(first, "finish_reason");
    bool is_last = !first || (reason && !json_is_null(reason));
    /* A usage object on the last event only is the total and does not describe single chunks. */
    if (is_last && !a->runs_count) return;
    if (!is_last) a->runs_count = true;
    r->event_tokens = count > a->counted ? count - a->counted : 0;
    if (count > a->counted) a->counted = count;
}

static void answer_take_object(reading *r, const char *name, const json_t *event)
{
    pj_answer *a = r->answer;
    const char *type = json_string_value(json_object_get(event, "type"));
    const json_t *choices = json_object_get(event, "choices");
    const json_t *response = json_object_get(event, "response");
    find_error(a, name, event);
    set_json_text(a->model, sizeof a->model, json_object_get(event, "model"));
    set_event_tokens(r, event);
    if (json_is_array(choices)) {
        take_choices(r, choices);
    } else if (type && strcmp(type, "message") != 0) {
        take_typed(r, type, event);
    } else if (json_is_string(response)) {
        r->reasoning = true;
        answer_give_text(r, 0, json_object_get(event, "thinking"), -1, -1);
        r->reasoning = false;
        answer_give_text(r, 0, response, -1, -1);
    } else if (json_is_object(json_object_get(event, "message")) &&
               json_object_get(event, "done")) {
        give_message(r, 0, json_object_get(event, "message"), -1, -1);
    } else if (json_is_string(json_object_get(event, "content"))) {
        int32_t id = -1;
        int64_t tokens = count_ids(event, &id);
        if (json_object_get(event, "stop") && !json_is_true(json_object_get(event, "stop")))
            answer_give_text(r, 0, json_object_get(event, "content"), tokens, id);
        else
            answer_give_text(r, 0, json_object_get(event, "content"), -1, -1);
    } else {
        give_parts(r, json_object_get(event, "output"), 0);
        give_parts(r, json_object_get(event, "content"), 1);
    }
    if (r->event_tokens > 0)
        answer_give(r, 0, "", 0, r->event_tokens, -1); /* tokens without text */
    take_usage(a, json_object_get(event, "usage"));
    take_llama_timings(a, json_object_get(event, "timings"));
    take_progress(a, json_object_get(event, "prompt_progress"));
    take_ollama_end(a, event);
    take_llama_native(a, event);
}

/* ---- almost valid JSON ------------------------------------------------------------ */

static int answer_hex4(const char *s, size_t left)
{
    int value = 0;
    for (int i = 0; i < 4; i++) {
        int digit = i < (int)left ? pj_hex_digit(s[i]) : -1;
        if (digit < 0) return -1;
        value = value * 16 + digit;
    }
    return value;
}

/* Replaces invalid UTF-8 and escapes of unpaired surrogates by U+FFFD; servers send these when
 * several tokens form one character. Returns the length. */
static size_t mend(const char *text, size_t bytes, char *out)
{
    size_t n = 0;
    for (size_t i = 0; i < bytes;) {
        if (text[i] == '\\' && i + 1 < bytes) {
            int code = text[i + 1] == 'u' ? answer_hex4(text + i + 2, bytes - i - 2) : -1;
            bool high = code >= 0xd800 && code < 0xdc00, low = code >= 0xdc00 && code < 0xe000;
            int next = high && i + 7 < bytes && text[i + 6] == '\\' && text[i + 7] == 'u'
                           ? answer_hex4(text + i + 8, bytes - i - 8)
                           : -1;
            size_t take = high && next >= 0xdc00 && next < 0xe000 ? 12 : code >= 0 ? 6 : 2;
            memcpy(out + n, take == 6 && (high || low) ? "\\ufffd" : text + i, take);
            n += take;
            i += take;
            continue;
        }
        uint32_t character;
        size_t length = pj_utf8_next(text + i, bytes - i, &character);
        memcpy(out + n, length ? text + i : "\xef\xbf\xbd", length ? length : 3);
        n += length ? length : 3;
        i += length ? length : 1;
    }
    return n;
}

static json_t *answer_parse(const char *data, size_t bytes)
{
    json_t *event = pj_skim_load(data, bytes, false);
    if (event) return event;
    char *mended = pj_alloc(bytes + 1, 3);
    if (!mended) return NULL;
    size_t length = mend(data, bytes, mended);
    event = json_loadb(mended, length, JSON_ALLOW_NUL, NULL);
    pj_free(mended);
    return event;
}

void pj_answer_take(pj_answer *a, const char *name, const char *data, size_t bytes,
                    pj_answer_piece_fn *piece, void *context)
{
    reading r = {.answer = a, .piece = piece, .context = context, .event_tokens = -1};
    while (bytes && (data[bytes - 1] == ' ' || data[bytes - 1] == '\r')) bytes--;
    if (bytes == 6 && memcmp(data, "[DONE]", 6) == 0) {
        a->is_done = true;
        return;
    }
    a->events++;
    json_t *event = answer_parse(data, bytes);
    if (json_is_object(event))
        answer_take_object(&r, name, event);
    else if (strcmp(name, "error") == 0)
        pj_answer_take_error_text(a, data, bytes);
    else
        a->malformed++;
    json_decref(event);
}
