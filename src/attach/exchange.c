#include "attach/exchange.h"

#include "attach/skim.h"
#include "base/median.h"
#include "base/memory.h"
#include "base/utf8.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

/* Bounds of what is believed. Tokens without text exist (reasoning that is not shown, special
 * tokens), but no engine decodes a sequence, or reads a prompt, faster than this. */
enum { TEXTLESS_TOKENS = 64, UNSEEN_PROMPT_TOKENS = 1 << 16 };
enum { LEAST_TOKEN_NS = 100000, LEAST_PROMPT_TOKEN_NS = 100 };

/* ---- the request ---------------------------------------------------------------------------- */

static bool exchange_ends_with(const char *path, size_t length, const char *end)
{
    size_t n = strlen(end);
    return length >= n && memcmp(path + length - n, end, n) == 0;
}

bool pj_exchange_is_inference(const char *method, const char *target)
{
    static const char *const ends[] = {
        "/completions",  "/completion", "/responses",  "/messages",
        "/api/generate", "/api/chat",   "/embeddings", "/embedding",
        "/infill",       "/api/embed",  "/rerank",     "/generate",
        "/score",        "/pooling",    "/classify",   "/generate_stream"};
    size_t length = strcspn(target, "?#");
    if (strcmp(method, "POST") != 0) return false;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (exchange_ends_with(target, length, ends[i])) return true;
    return false;
}

static void add_content(pj_buffer *to, const json_t *content)
{
    size_t i;
    const json_t *part;
    if (json_is_string(content))
        pj_buffer_append(to, json_string_value(content), json_string_length(content));
    json_array_foreach(content, i, part)
    {
        const json_t *text = json_is_object(part) ? json_object_get(part, "text") : part;
        if (i) pj_buffer_char(to, '\n');
        if (json_is_string(text))
            pj_buffer_append(to, json_string_value(text), json_string_length(text));
    }
}

static void add_messages(pj_buffer *to, const json_t *messages)
{
    size_t i;
    const json_t *message;
    bool alone = json_array_size(messages) == 1;
    json_array_foreach(messages, i, message)
    {
        const char *role = json_string_value(json_object_get(message, "role"));
        if (i) pj_buffer_char(to, '\n');
        if (role && !alone) pj_buffer_printf(to, "%.64s: ", role);
        add_content(to, json_object_get(message, "content"));
    }
}

/* Truncates the prompt to what is kept, between characters. */
static char *keep_prompt(pj_buffer *text, size_t *bytes)
{
    const char *all = pj_buffer_get(text);
    *bytes = text->length;
    return pj_strndup(all, pj_utf8_cut(all, text->length, PJ_EXCHANGE_PROMPT_MAX_BYTES));
}

static void read_request(pj_exchange_request *asked, const char *body, size_t bytes)
{
    json_t *o = pj_skim_load(body, bytes, true);
    const json_t *messages = json_object_get(o, "messages");
    const json_t *prompt = json_object_get(o, "prompt");
    const json_t *input = json_object_get(o, "input");
    const json_t *stream = json_object_get(o, "stream");
    const json_t *model = json_object_get(o, "model");
    static const char *const limits[] = {"max_completion_tokens", "max_tokens", "max_output_tokens",
                                         "n_predict"};
    pj_buffer text;
    pj_buffer_init(&text, bytes + 4096 + 128 * json_array_size(messages));
    if (json_is_string(model))
        snprintf(asked->model, sizeof asked->model, "%s", json_string_value(model));
    asked->wants_stream = json_is_true(stream);
    asked->offers_tools = json_array_size(json_object_get(o, "tools")) > 0;
    for (size_t i = 0; i < 4 && asked->max_tokens < 0; i++) {
        const json_t *limit = json_object_get(o, limits[i]);
        if (json_is_integer(limit) && json_integer_value(limit) >= 0)
            asked->max_tokens = json_integer_value(limit);
    }
    if (json_is_array(messages)) {
        add_content(&text, json_object_get(o, "system"));
        if (text.length) pj_buffer_char(&text, '\n');
        add_messages(&text, messages);
    } else {
        add_content(&text, prompt ? prompt : input);
        if (!prompt && json_is_array(input) && text.length < json_array_size(input))
            add_messages(&text, input);
    }
    asked->prompt = keep_prompt(&text, &asked->prompt_bytes);
    pj_buffer_fini(&text);
    json_decref(o);
}

/* ---- the answer ----------------------------------------------------------------------------- */

/* Whether an answer of so many bytes can have so many tokens. */
static bool is_possible(const pj_exchange *x, uint64_t tokens, uint64_t bytes, int64_t at_ns)
{
    uint64_t choices = x->choices ? x->choices : 1;
    double of_time = (double)(at_ns - x->sent_ns) / LEAST_TOKEN_NS * (double)choices;
    return tokens <= bytes + TEXTLESS_TOKENS * choices || (double)tokens <= of_time;
}

/* The reported token count of a piece, if it is plausible; -1: unknown. */
static int64_t exchange_tokens_of(pj_exchange *x, const pj_answer_piece *given)
{
    uint64_t choice = (uint64_t)given->choice + 1;
    if (choice > x->choices) x->choices = choice <= x->count ? choice : x->count + 1;
    if (given->tokens > 0 && !is_possible(x, x->counted + (uint64_t)given->tokens,
                                          x->text.length + given->bytes, x->now_ns))
        x->doubts = true;
    if (!x->doubts) return given->tokens;
    return given->bytes ? -1 : 0;
}

static void exchange_take_piece(void *context, const pj_answer_piece *given)
{
    pj_exchange *x = context;
    int64_t tokens = exchange_tokens_of(x, given);
    if (tokens != 0) {
        if (!x->first_ns) x->first_ns = x->now_ns;
        x->last_ns = x->now_ns;
    }
    if (tokens >= 0)
        x->counted += (uint64_t)tokens;
    else
        x->uncounted++;
    if (x->count == x->capacity && x->capacity < PJ_EXCHANGE_PIECES_MAX) {
        size_t wanted = x->capacity ? x->capacity * 2 : 64;
        pj_exchange_piece *bigger = pj_resize(x->pieces, wanted, sizeof *bigger);
        if (bigger) {
            x->pieces = bigger;
            x->capacity = wanted;
        }
    }
    if (x->count == x->capacity) {
        x->unkept++;
        x->overflowed = true;
        return;
    }
    pj_exchange_piece *p = &x->pieces[x->count++];
    *p = (pj_exchange_piece){.at_ns = x->now_ns,
                             .text = x->text.length,
                             .choice = given->choice,
                             .tokens = (int32_t)tokens,
                             .id = given->token_id,
                             .reasoning = given->reasoning};
    if (x->text.length + given->bytes > PJ_EXCHANGE_TEXT_MAX_BYTES)
        x->overflowed = true;
    else if (given->bytes && pj_buffer_append(&x->text, given->text, given->bytes))
        p->bytes = (uint32_t)given->bytes;
}

/* What an event gave. */
typedef struct giving {
    pj_exchange *exchange;
    pj_answer_piece last;
    uint32_t pieces;
} giving;

static void take_given(void *context, const pj_answer_piece *given)
{
    giving *g = context;
    g->last = *given;
    g->pieces++;
    exchange_take_piece(g->exchange, given);
}

static void parse_event(pj_exchange *x, const char *name, const char *data, size_t bytes)
{
    giving g = {.exchange = x};
    pj_answer before;
    memcpy(&before, &x->answer, sizeof before);
    size_t text = x->text.length;
    pj_answer_take(&x->answer, name, data, bytes, take_given, &g);
    before.events = x->answer.events;
    /* compared as bytes: padding that differs merely costs a parse of the next event */
    /* NOLINTNEXTLINE(bugprone-suspicious-memory-comparison) */
    if (memcmp(&before, &x->answer, sizeof before) != 0)
        pj_answer_template_forget(&x->usual);
    else if (g.pieces == 1 && g.last.tokens < 0 && x->text.length == text + g.last.bytes && !*name)
        pj_answer_template_learn(&x->usual, data, bytes, pj_buffer_get(&x->text) + text,
                                 g.last.bytes, g.last.choice, g.last.reasoning);
}

/* True: the event is like the one before it but for its text. */
static bool take_usual(pj_exchange *x, const char *name, const char *data, size_t bytes)
{
    pj_answer_piece given = {
        .choice = x->usual.choice, .tokens = -1, .token_id = -1, .reasoning = x->usual.reasoning};
    if (*name || !pj_answer_template_match(&x->usual, data, bytes, &given.text, &given.bytes))
        return false;
    x->answer.events++;
    if (given.bytes) exchange_take_piece(x, &given);
    return true;
}

static void exchange_take_event(void *context, const char *name, const char *data, size_t bytes)
{
    pj_exchange *x = context;
    bool failed = x->status >= 400;
    uint64_t malformed = x->answer.malformed;
    if (take_usual(x, name, data, bytes)) return;
    parse_event(x, name, data, bytes);
    if (failed && x->answer.malformed > malformed)
        pj_answer_take_error_text(&x->answer, data, bytes);
}

pj_exchange *pj_exchange_new(const char *method, const char *target, const char *body, size_t bytes,
                             int64_t sent_ns)
{
    pj_exchange *x = pj_alloc(1, sizeof *x);
    if (!x) return NULL;
    x->sent_ns = sent_ns;
    x->asked.max_tokens = -1;
    x->asked.is_inference = pj_exchange_is_inference(method, target);
    pj_answer_init(&x->answer);
    pj_answer_template_init(&x->usual);
    pj_hidden_init(&x->hidden);
    pj_buffer_init(&x->text, PJ_EXCHANGE_TEXT_MAX_BYTES);
    if (x->asked.is_inference) read_request(&x->asked, body, bytes);
    return x;
}

static bool is_identifier(const char *id, size_t most)
{
    size_t bytes = strlen(id);
    for (size_t i = 0; i < bytes; i++)
        if (id[i] <= ' ' || id[i] > '~') return false;
    return bytes <= most;
}

void pj_exchange_set_session(pj_exchange *x, const char *id)
{
    if (pj_session_id_is_valid(id)) memcpy(x->asked.session, id, strlen(id) + 1);
}

void pj_exchange_set_client(pj_exchange *x, const char *name, bool named)
{
    if (!name[0] || !is_identifier(name, PJ_EXCHANGE_CLIENT_MAX_BYTES)) return;
    memcpy(x->asked.client, name, strlen(name) + 1);
    x->asked.names_client = named;
}

void pj_exchange_free(pj_exchange *x)
{
    if (!x) return;
    if (x->has_head) pj_events_fini(&x->events);
    pj_hidden_fini(&x->hidden);
    pj_buffer_fini(&x->text);
    pj_answer_template_fini(&x->usual);
    pj_free(x->pieces);
    pj_free(x->asked.prompt);
    pj_free(x);
}

void pj_exchange_head(pj_exchange *x, int status, const char *content_type, size_t type_bytes,
                      bool encoded)
{
    if (x->has_head) return;
    x->has_head = true;
    x->status = status;
    x->encoded = encoded;
    pj_events_init(&x->events, pj_events_mode_of(content_type, type_bytes), exchange_take_event, x);
}

void pj_exchange_payload(pj_exchange *x, const char *bytes, size_t count, int64_t at_ns)
{
    x->now_ns = at_ns;
    if (x->has_head && !x->encoded && x->asked.is_inference)
        pj_events_feed(&x->events, bytes, count);
}

static void exchange_check(pj_exchange *x, const char *why)
{
    if (x->outcome == PJ_EXCHANGE_CANCELLED) {
        if (why) snprintf(x->failure, sizeof x->failure, "%s", why);
    } else if (x->answer.has_error || x->status >= 300) {
        x->outcome = PJ_EXCHANGE_FAILED;
        snprintf(x->failure, sizeof x->failure, "the server answered %d%s%s", x->status,
                 x->answer.error[0] ? ": " : "", x->answer.error);
    } else if (x->outcome == PJ_EXCHANGE_FAILED) {
        snprintf(x->failure, sizeof x->failure, "%s", why ? why : "the answer broke off");
    } else if (x->must_be_read && (x->encoded || x->answer.events <= x->answer.malformed)) {
        x->outcome = PJ_EXCHANGE_FAILED;
        snprintf(x->failure, sizeof x->failure, "the server answered %d with %s", x->status,
                 x->encoded         ? "compressed data that was not requested"
                 : x->answer.events ? "something that is not JSON: is this the address of its API?"
                                    : "nothing");
    }
}

enum { HIDE_IN_ERRORS_BYTES = 4, HIDE_IN_TEXT_BYTES = 16 };

static void hide_secrets(pj_exchange *x)
{
    char *const errors[] = {x->failure, x->answer.error, x->answer.model, x->answer.finish_reason};
    for (int i = 0; i < 4; i++)
        pj_hidden_mask(&x->hidden, errors[i], strlen(errors[i]), HIDE_IN_ERRORS_BYTES);
    pj_hidden_mask(&x->hidden, x->text.data, x->text.length, HIDE_IN_TEXT_BYTES);
}

void pj_exchange_end(pj_exchange *x, pj_exchange_outcome outcome, const char *why, int64_t at_ns)
{
    if (x->end_ns) return;
    if (x->has_head) {
        /* an event without its end came with the last bytes */
        if (!x->now_ns || x->events.mode == PJ_EVENTS_WHOLE) x->now_ns = at_ns;
        pj_events_end(&x->events);
    }
    x->end_ns = at_ns;
    x->outcome = outcome;
    exchange_check(x, why);
    hide_secrets(x);
}

/* ---- what is known -------------------------------------------------------------------------- */

uint64_t pj_exchange_tokens_so_far(const pj_exchange *x)
{
    return x->counted + x->uncounted;
}

const char *pj_exchange_text(const pj_exchange *x)
{
    return pj_buffer_get(&x->text);
}

/* ---- counting tokens ------------------------------------------------------------------------ */

/* Rejects an implausible usage: more tokens than the answer has bytes, and more than were requested
 * or can have been generated. */
static bool is_absurd(const pj_exchange *x, int64_t usage)
{
    uint64_t bytes = x->text.length + x->count + x->unkept;
    int64_t choices = x->choices ? (int64_t)x->choices : 1;
    int64_t most =
        x->asked.max_tokens >= 0 && x->asked.max_tokens < 1 << 20 ? x->asked.max_tokens : 1 << 20;
    int64_t until_ns = x->end_ns ? x->end_ns : x->now_ns;
    if (usage > (most + 1) * choices && (uint64_t)usage > bytes + 1) return true;
    return !is_possible(x, (uint64_t)usage, bytes, until_ns);
}

/* More tokens than the prompt has bytes and could be read until the first token came. (What the
 * server adds to a prompt, and images, are not seen here.) */
static bool is_absurd_prompt(const pj_exchange *x, int64_t computed)
{
    int64_t until_ns = x->first_ns ? x->first_ns : x->end_ns ? x->end_ns : x->now_ns;
    return (uint64_t)computed > x->asked.prompt_bytes + UNSEEN_PROMPT_TOKENS &&
           computed > (until_ns - x->sent_ns) / LEAST_PROMPT_TOKEN_NS;
}

pj_exchange_counts pj_exchange_count(const pj_exchange *x)
{
    const pj_answer *a = &x->answer;
    pj_exchange_counts c = {.input = a->prompt_tokens, .cached = a->cached_tokens};
    int64_t usage = a->completion_tokens;
    if (c.input < 0 && a->progress_total >= 0) c.input = a->progress_total;
    if (c.cached < 0 && a->progress_cached >= 0) c.cached = a->progress_cached;
    /* llama-server before August 2025 reports how many prompt tokens it computed, not how many it
     * had
     */
    if (c.cached < 0 && a->timings.prompt_tokens >= 1 && a->timings.prompt_tokens < (double)c.input)
        c.cached = c.input - (int64_t)a->timings.prompt_tokens;
    if (c.cached > c.input && c.input >= 0) {
        c.contradictory = true;
        c.cached = -1;
    }
    if (c.input >= 0 && is_absurd_prompt(x, c.input - (c.cached > 0 ? c.cached : 0))) {
        c.contradictory = true;
        c.input = c.cached = -1;
    }
    if (a->total_tokens >= 0 && a->prompt_tokens >= 0 && usage >= 0 &&
        a->total_tokens != a->prompt_tokens + usage)
        c.contradictory = true;
    c.contradictory |= x->doubts;
    if (usage >= 0 && is_absurd(x, usage)) {
        c.contradictory = true;
        usage = -1;
    }
    c.output = x->counted + x->uncounted;
    if (x->uncounted == 0 && x->counted > 0) { /* counted from ids */
        if (usage >= 0 && (uint64_t)usage < x->counted) c.contradictory = true;
        if (usage >= 0 && (uint64_t)usage > x->counted)
            c.output = (uint64_t)usage; /* tokens without text */
    } else if (usage >= 0 && (usage > 0 || x->text.length == 0)) {
        c.output = (uint64_t)usage;
    } else if (usage == 0) {
        c.contradictory = c.approximate = true;
    } else {
        c.approximate = x->uncounted > 0;
    }
    if (c.approximate && x->events.mode == PJ_EVENTS_WHOLE) c.output = 0; /* of unknown length */
    c.spread = c.output > x->count + x->unkept && x->count > 0;
    return c;
}

/* Tokens of each piece when only the sum is known: spread evenly over the pieces. */
static uint64_t exchange_share_of(uint64_t sum, size_t index, size_t count)
{
    return (uint64_t)((double)sum * (double)(index + 1) / (double)count) -
           (uint64_t)((double)sum * (double)index / (double)count);
}

typedef struct filling {
    const pj_exchange *x;
    pj_exchange_token *tokens;
    size_t count, capacity;
} filling;

/* Tokens of one piece arrive together but were generated one after another since the previous
 * piece, so their times are interpolated. */
static void exchange_add_tokens(filling *f, const pj_exchange_piece *p, uint64_t tokens,
                                int64_t since_ns)
{
    for (uint64_t i = 0; i < tokens && f->count < f->capacity; i++) {
        int64_t width = p->at_ns - since_ns;
        pj_exchange_token *t = &f->tokens[f->count++];
        *t = (pj_exchange_token){
            .at_ns = since_ns + (int64_t)((double)width * (double)(i + 1) / (double)tokens),
            .text = pj_buffer_get(&f->x->text) + p->text,
            .bytes = i == 0 ? p->bytes : 0,
            .choice = p->choice,
            .id = tokens == 1 ? p->id : -1};
        if (i + 1 == tokens) t->at_ns = p->at_ns;
    }
}

/* The text of a piece without a token is appended to the previous token. */
static void join_text(filling *f, const pj_exchange_piece *p)
{
    pj_exchange_token *last = f->count ? &f->tokens[f->count - 1] : NULL;
    if (last && last->choice == p->choice && last->text + last->bytes == f->x->text.data + p->text)
        last->bytes += p->bytes;
}

static uint64_t tokens_of_piece(const pj_exchange *x, const pj_exchange_counts *c, size_t piece)
{
    int32_t tokens = x->pieces[piece].tokens;
    if (x->uncounted > 0 && !c->approximate) return exchange_share_of(c->output, piece, x->count);
    return tokens < 0 ? 1 : (uint64_t)tokens;
}

int64_t pj_exchange_reasoning(const pj_exchange *x)
{
    pj_exchange_counts c = pj_exchange_count(x);
    uint64_t tokens = 0, content = 0;
    size_t i = 0;
    if (x->choices > 1) return -1;
    for (; i < x->count && !content; i++) {
        uint64_t given = tokens_of_piece(x, &c, i);
        if (x->pieces[i].reasoning)
            tokens += given;
        else if (x->pieces[i].bytes)
            content += given;
        else
            tokens += tokens ? given : 0;
    }
    /* The server knows better how many (0: it may just not count them). When it generated those
     * that it does not show is not known. */
    int64_t told = x->answer.reasoning_tokens;
    if (tokens && told > 0 && (uint64_t)told <= c.output) return told;
    return tokens ? (int64_t)tokens : -1;
}

/* Arrivals as near as a twentieth of a usual step (the ninth decile, as most of them may be near)
 * are one: drafts are accepted several at a time, and networks deliver several events at once. */
static int64_t near_ns(const pj_exchange_token *tokens, size_t count)
{
    double *steps = pj_alloc(count, sizeof *steps);
    if (!steps) return 0;
    for (size_t i = 1; i < count; i++)
        steps[i - 1] = (double)(tokens[i].at_ns - tokens[i - 1].at_ns);
    pj_sort_doubles(steps, count - 1);
    double usual = steps[(count - 1) * 9 / 10];
    pj_free(steps);
    return (int64_t)(usual / 20);
}

static size_t burst_end(const pj_exchange_token *tokens, size_t count, size_t begin, int64_t near)
{
    size_t end = begin + 1;
    while (end < count && tokens[end].at_ns <= tokens[begin].at_ns + near) end++;
    return end;
}

/* Tokens that arrive as one were generated one after another since the arrival before. Those that
 * arrived with the first token take part in the next arrival's time. */
static void part_bursts(pj_exchange_token *tokens, size_t count)
{
    if (count < 3) return;
    int64_t near = near_ns(tokens, count), since_ns = tokens[0].at_ns;
    for (size_t i = 1, end; i < count; i = end) {
        end = burst_end(tokens, count, i, near);
        if (i == 1 && tokens[i].at_ns <= since_ns + near && end < count)
            end = burst_end(tokens, count, end, near);
        int64_t until_ns = tokens[end - 1].at_ns;
        double each = (double)(until_ns - since_ns) / (double)(end - i);
        for (size_t k = i; k + 1 < end; k++)
            tokens[k].at_ns = since_ns + (int64_t)(each * (double)(k + 1 - i));
        since_ns = until_ns;
    }
}

pj_exchange_token *pj_exchange_tokens(const pj_exchange *x, size_t *count)
{
    pj_exchange_counts c = pj_exchange_count(x);
    filling f = {.x = x};
    *count = 0;
    f.capacity = c.output < PJ_EXCHANGE_PIECES_MAX ? (size_t)c.output : PJ_EXCHANGE_PIECES_MAX;
    f.tokens = x->count && f.capacity ? pj_alloc(f.capacity, sizeof *f.tokens) : NULL;
    if (!f.tokens) return NULL;
    int64_t since_ns = x->pieces[0].at_ns;
    for (size_t i = 0; i < x->count; i++) {
        const pj_exchange_piece *p = &x->pieces[i];
        uint64_t tokens = tokens_of_piece(x, &c, i);
        if (tokens)
            exchange_add_tokens(&f, p, tokens, since_ns);
        else
            join_text(&f, p);
        if (tokens) since_ns = p->at_ns;
    }
    while (f.count && f.count < f.capacity) { /* tokens counted in usage that no piece contained */
        f.tokens[f.count] = (pj_exchange_token){.at_ns = x->pieces[x->count - 1].at_ns,
                                                .text = "",
                                                .choice = f.tokens[f.count - 1].choice,
                                                .id = -1};
        f.count++;
    }
    part_bursts(f.tokens, f.count);
    *count = f.count;
    return f.tokens;
}
