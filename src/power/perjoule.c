/*
 * Rails of another machine, read from a perjoule server there: `perjoule:http://HOST:PORT`,
 * followed by `,token=...` if the server requires one. Polls /api/profiling/power/now and uses the
 * mean power of each whole second.
 *
 * Seconds are those of the other machine's clock. Every answer bounds the clock offset: the last
 * whole second ended before the answer was sent, at most one second earlier. The intersection of
 * the bounds of many answers at irregular times is narrow; its midpoint is the offset, and its half
 * width the uncertainty of every reading's time. Old bounds are dropped, because clocks drift.
 *
 * No thread: `read` is called every 10 ms and advances a non-blocking HTTP exchange.
 */
#include "power/source.h"

#include "base/clock.h"
#include "base/memory.h"
#include "http/call.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    REMOTE_RAILS = 16,
    REMOTE_SECONDS = 8, /* seconds per request */
    REMOTE_PORT = 8000, /* the default */
    REMOTE_ANSWER_BYTES = 1 << 20,
    REMOTE_BOUNDS = 64 /* number of answers whose bounds are kept */
};
#define ASK_EVERY_NS \
    (330 * PJ_NS_PER_MS) /* does not divide a second, so that answers come at irregular phases */
#define PATIENCE_NS  (3 * PJ_NS_PER_S)  /* timeout of an answer */
#define LOST_NS      (30 * PJ_NS_PER_S) /* without an answer: the source is lost */
#define DELAY_NS     (2500 * PJ_NS_PER_MS)
#define LAST_WALL_MS 4e12 /* the year 2096: later timestamps are invalid */

typedef struct remote_bound {
    int64_t low_ns, high_ns; /* their wall clock minus our monotonic one */
} remote_bound;

typedef struct remote {
    pj_url url;
    char token[256];
    char authority[PJ_URL_AUTHORITY_BYTES]; /* host and port as in a URL */
    pj_rail rails[REMOTE_RAILS];
    uint32_t rail_count;
    pj_call call;
    int64_t requested_ns, answered_ns;
    pj_buffer answer;
    /* clocks */
    remote_bound bounds[REMOTE_BOUNDS];
    uint32_t bound_count;
    int64_t last_end_ms; /* end of the last second returned */
    pj_reading waiting[REMOTE_RAILS * REMOTE_SECONDS];
    uint32_t waiting_count;
} remote;

/* ---- the argument ---- */

static pj_status remote_take_url(remote *r, const char *text, size_t length, pj_error *err)
{
    char url[PJ_URL_HOST_BYTES + PJ_URL_PATH_BYTES];
    snprintf(url, sizeof url, "%.*s", (int)length, text);
    if (length < sizeof url && strncmp(url, "http://", 7) == 0 &&
        pj_url_parse(url, REMOTE_PORT, &r->url, NULL) == PJ_OK) {
        pj_url_authority(&r->url, r->authority, sizeof r->authority);
        return PJ_OK;
    }
    return pj_fail(err, PJ_E_INVALID, "%s is not a server address: use perjoule:http://HOST:PORT",
                   url);
}

static pj_status parse_argument(remote *r, const char *argument, pj_error *err)
{
    const char *comma = strchr(argument, ',');
    pj_status status = remote_take_url(r, argument, strcspn(argument, ","), err);
    if (status != PJ_OK) return status;
    const char *token = getenv("PERJOULE_TOKEN");
    if (comma && strncmp(comma, ",token=", 7) == 0)
        token = comma + 7;
    else if (comma)
        return pj_fail(err, PJ_E_INVALID, "unknown setting %.*s (known: token=)",
                       (int)strcspn(comma + 1, "=,"), comma + 1);
    if (token && (strlen(token) >= sizeof r->token || strpbrk(token, "\r\n")))
        return pj_fail(err, PJ_E_INVALID, "the token is too long or contains a line break");
    if (token) snprintf(r->token, sizeof r->token, "%s", token);
    return PJ_OK;
}

/* ---- requests ---- */

static bool remote_keep(void *context, const char *bytes, size_t count)
{
    remote *r = context;
    return pj_buffer_append(&r->answer, bytes, count);
}

static void remote_open_call(remote *r)
{
    pj_buffer_init(&r->answer, REMOTE_ANSWER_BYTES);
    pj_call_init(&r->call, &r->url);
    r->call.context = r;
    r->call.take_body = remote_keep;
}

static void remote_close_call(void *state)
{
    remote *r = state;
    pj_call_fini(&r->call);
    pj_buffer_fini(&r->answer);
}

static void remote_ask(remote *r)
{
    char path[64];
    snprintf(path, sizeof path, "/api/profiling/power/now?seconds=%d", REMOTE_SECONDS);
    pj_call_write(&r->call, "GET", path);
    if (r->token[0]) pj_buffer_printf(&r->call.out, "Authorization: Bearer %s\r\n", r->token);
    pj_buffer_text(&r->call.out, "Connection: close\r\n\r\n");
    pj_buffer_clear(&r->answer);
    r->requested_ns = pj_clock_ns();
    pj_call_begin(&r->call);
}

/* The JSON of an answer that has come with status 200, else NULL. */
static json_t *remote_parse(remote *r)
{
    if (r->call.state != PJ_CALL_DONE || r->call.head.status != 200) return NULL;
    json_t *answer = json_loadb(pj_buffer_get(&r->answer), r->answer.length, 0, NULL);
    if (answer) r->answered_ns = r->call.heard_ns;
    return answer;
}

/* ---- clocks ---- */

/* `end_ms`: the last whole second before the answer was made, on their clock. */
static void bound_offset(remote *r, int64_t end_ms)
{
    int64_t end_ns = end_ms * PJ_NS_PER_MS;
    r->bounds[r->bound_count++ % REMOTE_BOUNDS] = (remote_bound){
        .low_ns = end_ns - r->answered_ns, .high_ns = end_ns + PJ_NS_PER_S - r->call.sent_ns};
}

/* Their clock minus ours, and its uncertainty as a half width. */
static int64_t offset_of(const remote *r, int64_t *half_ns)
{
    uint32_t count = r->bound_count < REMOTE_BOUNDS ? r->bound_count : REMOTE_BOUNDS;
    int64_t low = INT64_MIN, high = INT64_MAX;
    for (uint32_t i = 0; i < count; i++) {
        if (r->bounds[i].low_ns > low) low = r->bounds[i].low_ns;
        if (r->bounds[i].high_ns < high) high = r->bounds[i].high_ns;
    }
    if (high < low) { /* a clock was set: only the last answer is valid */
        const remote_bound *last = &r->bounds[(r->bound_count - 1) % REMOTE_BOUNDS];
        low = last->low_ns;
        high = last->high_ns;
    }
    *half_ns = (high - low) / 2;
    return low + (high - low) / 2;
}

/* ---- rails ---- */

static const char *word(const json_t *rail, const char *key)
{
    const char *text = json_string_value(json_object_get(rail, key));
    return text ? text : "";
}

static pj_rail_scope perjoule_scope_of(const char *name)
{
    for (int s = 0; s <= PJ_SCOPE_MACHINE; s++)
        if (strcmp(pj_rail_scope_name((pj_rail_scope)s), name) == 0) return (pj_rail_scope)s;
    return PJ_SCOPE_DOMAIN;
}

/* Platform rails contain others and are skipped. */
static void take_rail(remote *r, const json_t *from)
{
    int rail_class = pj_rail_class_parse(word(from, "class"));
    if (rail_class < 0 || rail_class == PJ_RAIL_PLATFORM || r->rail_count == REMOTE_RAILS ||
        !word(from, "name")[0])
        return;
    char host[48];
    bool measured = strcmp(word(from, "quality"), "measured") == 0;
    snprintf(host, sizeof host, "%.40s", r->url.host);
    pj_rail *rail = &r->rails[r->rail_count++];
    *rail = (pj_rail){.source = "perjoule",
                      .rail_class = (pj_rail_class)rail_class,
                      .kind = PJ_RAIL_INSTANT,
                      .scope = perjoule_scope_of(word(from, "scope")),
                      .quality = measured ? PJ_MEASURED : PJ_MODELLED,
                      .parent = -1,
                      .period_ns = PJ_NS_PER_S,
                      .window_ns = PJ_NS_PER_S,
                      .delay_ns = DELAY_NS};
    snprintf(rail->name, sizeof rail->name, "%s", word(from, "name"));
    snprintf(rail->device, sizeof rail->device, "%.46s", r->authority);
    snprintf(rail->field, sizeof rail->field, "%.20s of %s", word(from, "source"), host);
}

static void take_rails(remote *r, const json_t *answer)
{
    size_t i;
    const json_t *rail;
    json_array_foreach(json_object_get(answer, "rails"), i, rail) take_rail(r, rail);
}

static int rail_named(const remote *r, const json_t *rail)
{
    const char *name = json_string_value(json_object_get(rail, "name"));
    for (uint32_t i = 0; name && i < r->rail_count; i++)
        if (strncmp(r->rails[i].name, name, sizeof r->rails[i].name - 1) == 0) return (int)i;
    return -1;
}

/* ---- readings ---- */

static void add_reading(remote *r, uint32_t rail, double mw, int64_t end_ns, int64_t error_ns)
{
    int64_t now_ns = pj_clock_ns();
    if (r->waiting_count == sizeof r->waiting / sizeof *r->waiting) return;
    r->waiting[r->waiting_count++] =
        (pj_reading){.before_ns = now_ns,
                     .after_ns = now_ns,
                     .fresh_ns = end_ns + DELAY_NS,
                     .fresh_error_ns = error_ns,
                     .window_ns = PJ_NS_PER_S,
                     .value = mw,
                     .rail = (uint16_t)rail,
                     .status = isnan(mw) ? PJ_READING_GAP : PJ_READING_OK,
                     .reason = isnan(mw) ? PJ_REASON_IO : PJ_REASON_NONE};
}

/* Readings of all rails for one second, `back` seconds before the last. */
static void take_second(remote *r, const json_t *rails, size_t back, int64_t end_ms)
{
    int64_t error_ns, offset_ns = offset_of(r, &error_ns);
    size_t i;
    const json_t *rail;
    json_array_foreach(rails, i, rail)
    {
        const json_t *series = json_object_get(rail, "power_mw");
        size_t count = json_array_size(series);
        int index = rail_named(r, rail);
        const json_t *value = count > back ? json_array_get(series, count - 1 - back) : NULL;
        if (index < 0) continue;
        double mw = json_is_number(value) ? json_number_value(value) : NAN;
        add_reading(r, (uint32_t)index, mw, end_ms * PJ_NS_PER_MS - offset_ns, error_ns);
    }
}

/* The last second may still be incomplete there, so only earlier ones are used, each once. */
static void take_seconds(remote *r, const json_t *answer)
{
    const json_t *end = json_object_get(answer, "end_unix_ms");
    const json_t *rails = json_object_get(answer, "rails");
    double wall_ms = json_is_number(end) ? json_number_value(end) : -1;
    if (!(wall_ms > 0 && wall_ms < LAST_WALL_MS)) return;
    int64_t end_ms = (int64_t)wall_ms;
    bound_offset(r, end_ms);
    for (size_t back = REMOTE_SECONDS - 1; back >= 1; back--) {
        int64_t second_ms = end_ms - (int64_t)back * 1000;
        if (r->last_end_ms && second_ms <= r->last_end_ms) continue;
        take_second(r, rails, back, second_ms);
        r->last_end_ms = second_ms;
    }
}

/* ---- the source ---- */

static pj_status refuse(const remote *r, int http, pj_source_report *report)
{
    if (http == 401)
        return pj_source_explain(report, PJ_E_DENIED, "",
                                 "the server at %s requires a token: append ,token=... "
                                 "or set PERJOULE_TOKEN",
                                 r->authority);
    if (http == 200)
        return pj_source_explain(report, PJ_E_UNAVAILABLE, "", "the server at %s has no rails",
                                 r->authority);
    return pj_source_explain(report, PJ_E_UNAVAILABLE, "",
                             "no perjoule server answers at %s%s; start perjoule serve there",
                             r->authority, http ? " (it is another one)" : "");
}

static pj_status open_remote(void *state, const pj_power_env *env, const char *argument,
                             pj_source_report *report)
{
    remote *r = state;
    pj_error err = {0};
    pj_status status = parse_argument(r, argument, &err);
    if (status != PJ_OK) return pj_source_explain(report, status, "", "%s", err.text);
    remote_open_call(r);
    status = pj_address_resolve(&r->url, &r->call.address, &err);
    if (status == PJ_OK) {
        remote_ask(r);
        pj_call_wait(&r->call, r->requested_ns + PATIENCE_NS);
    }
    json_t *answer = remote_parse(r);
    if (answer) {
        take_rails(r, answer);
        take_seconds(r, answer);
    }
    json_decref(answer);
    if (r->rail_count) return PJ_OK;
    int http = r->call.head.status;
    remote_close_call(r);
    if (status != PJ_OK) return pj_source_explain(report, status, "", "%s", err.text);
    return refuse(r, http, report);
}

static void describe_remote(const pj_power_env *env, pj_source_report *report)
{
    pj_source_explain(report, PJ_OK, "perjoule ... --power perjoule:http://HOST:PORT",
                      "rails of another machine, through its perjoule server");
}

static uint32_t remote_rails(const void *state, pj_rail *rails)
{
    const remote *r = state;
    memcpy(rails, r->rails, r->rail_count * sizeof *rails);
    return r->rail_count;
}

static void remote_carry_on(remote *r, int64_t now_ns)
{
    if (pj_call_is_running(&r->call)) {
        pj_call_poll(&r->call, 0);
        if (pj_call_is_running(&r->call) && now_ns - r->requested_ns > PATIENCE_NS)
            pj_call_fail(&r->call, "nothing came from", 0);
        json_t *answer = remote_parse(r);
        if (answer) take_seconds(r, answer);
        json_decref(answer);
    } else if (now_ns - r->requested_ns >= ASK_EVERY_NS) {
        remote_ask(r);
    }
}

static pj_status read_remote(void *state, pj_reading *readings, uint32_t max, uint32_t *count)
{
    remote *r = state;
    int64_t now_ns = pj_clock_ns();
    remote_carry_on(r, now_ns);
    *count = r->waiting_count < max ? r->waiting_count : max;
    memcpy(readings, r->waiting, *count * sizeof *readings);
    r->waiting_count -= *count;
    memmove(r->waiting, r->waiting + *count, r->waiting_count * sizeof *readings);
    return now_ns - r->answered_ns > LOST_NS ? PJ_E_LOST : PJ_OK;
}

extern const pj_power_source pj_source_perjoule;
const pj_power_source pj_source_perjoule = {
    .version = PJ_POWER_SOURCE_VERSION,
    .name = "perjoule",
    .flags = PJ_SOURCE_REMOTE | PJ_SOURCE_STREAM | PJ_SOURCE_BY_NAME,
    .state_bytes = sizeof(remote),
    .open = open_remote,
    .describe = describe_remote,
    .rails = remote_rails,
    .read = read_remote,
    .close = remote_close_call,
};
