/* The top level is parsed by hand and every event separately, so that a trace of a gigabyte never
 * becomes a tree in memory. */
#include "import/kineto.h"

#include "base/ids.h"
#include "base/memory.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

enum { FIRST_SLOTS = 64, FIRST_EVENTS = 64, NAME_BYTES = 200 };
#define LEAST_UNIX_US 1e14 /* March 1973: smaller times are not relative to 1970 */
#define MOST_UNIX_NS  4e18

typedef struct reader {
    const char *text;
    size_t bytes, at;
    pj_kineto *trace;
    double base_ns, first_us; /* NAN: none */
    pj_error *err;
} reader;

static pj_status bad(reader *r, const char *what)
{
    return pj_fail(r->err, PJ_E_INVALID, "not a trace of PyTorch's profiler: %s (at byte %zu)",
                   what, r->at);
}

static bool take(reader *r, char c)
{
    while (r->at < r->bytes && strchr(" \t\r\n", r->text[r->at]) && r->text[r->at]) r->at++;
    if (r->at >= r->bytes || r->text[r->at] != c) return false;
    r->at++;
    return true;
}

static json_t *take_value(reader *r)
{
    json_error_t where;
    while (r->at < r->bytes && strchr(" \t\r\n", r->text[r->at]) && r->text[r->at]) r->at++;
    json_t *value = json_loadb(r->text + r->at, r->bytes - r->at,
                               JSON_DECODE_ANY | JSON_DISABLE_EOF_CHECK | JSON_ALLOW_NUL, &where);
    if (value) r->at += (size_t)where.position;
    return value;
}

/* ---- names --------------------------------------------------------------------------------- */

/* The slot of a name, or the empty one where it belongs. */
static uint32_t *slot_of(const pj_kineto *t, const char *text, size_t bytes)
{
    uint64_t at = pj_hash64(0, text, bytes) % t->slot_count;
    for (; t->slots[at]; at = (at + 1) % t->slot_count) {
        const char *known = t->names[t->slots[at] - 1];
        if (strlen(known) == bytes && !memcmp(known, text, bytes)) break;
    }
    return &t->slots[at];
}

/* Makes room for one more name. */
static bool grow_names(pj_kineto *t)
{
    if (t->name_count < t->slot_count / 2) return true;
    uint32_t wanted = t->slot_count ? t->slot_count * 2 : FIRST_SLOTS;
    char **names = pj_resize(t->names, wanted / 2, sizeof *names);
    if (!names) return false;
    t->names = names;
    uint32_t *slots = pj_alloc(wanted, sizeof *slots);
    if (!slots) return false;
    pj_free(t->slots);
    t->slots = slots;
    t->slot_count = wanted;
    for (uint32_t i = 0; i < t->name_count; i++) *slot_of(t, names[i], strlen(names[i])) = i + 1;
    return true;
}

static int64_t intern(pj_kineto *t, const char *text)
{
    size_t bytes = strnlen(text, NAME_BYTES);
    while (bytes && text[bytes] && ((unsigned char)text[bytes] & 0xc0) == 0x80) bytes--;
    if (!grow_names(t)) return -1;
    uint32_t *slot = slot_of(t, text, bytes);
    if (*slot) return *slot - 1;
    if (t->name_count == PJ_KINETO_NAMES - 1 && strcmp(text, "other") != 0) {
        t->unnamed++;
        return intern(t, "other");
    }
    if (t->name_count >= PJ_KINETO_NAMES) return -1;
    char *copy = pj_alloc(bytes + 1, 1);
    if (!copy) return -1;
    memcpy(copy, text, bytes);
    t->names[t->name_count] = copy;
    *slot = ++t->name_count;
    return t->name_count - 1;
}

/* ---- events -------------------------------------------------------------------------------- */

static int kind_of(const char *category)
{
    static const struct {
        const char *name;
        pj_kineto_kind kind;
    } kinds[] = {{"user_annotation", PJ_KINETO_RANGE}, {"gpu_user_annotation", PJ_KINETO_GPU_RANGE},
                 {"cpu_op", PJ_KINETO_OPERATION},      {"operator", PJ_KINETO_OPERATION},
                 {"kernel", PJ_KINETO_KERNEL},         {"Kernel", PJ_KINETO_KERNEL},
                 {"gpu_memcpy", PJ_KINETO_KERNEL},     {"gpu_memset", PJ_KINETO_KERNEL}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(category, kinds[i].name)) return (int)kinds[i].kind;
    return -1;
}

/* A thread is a number, a stream may be a text ("stream 7"). */
static uint64_t key_of(uint64_t seed, const json_t *value)
{
    json_int_t number = json_integer_value(value);
    if (json_is_string(value))
        return pj_hash64(seed, json_string_value(value), json_string_length(value));
    return pj_hash64(seed, &number, sizeof number);
}

static bool add_event(pj_kineto *t, pj_kineto_event e)
{
    if (t->count == t->capacity) {
        size_t wanted = t->capacity ? t->capacity * 2 : FIRST_EVENTS;
        pj_kineto_event *more = pj_resize(t->events, wanted, sizeof *more);
        if (!more) return false;
        t->events = more;
        t->capacity = wanted;
    }
    t->events[t->count++] = e;
    t->of_kind[e.kind]++;
    return true;
}

/* Times stay in microseconds until the base is known, which may be at the end of the file. */
static pj_status take_event(reader *r, const json_t *o)
{
    const char *phase = json_string_value(json_object_get(o, "ph"));
    const char *category = json_string_value(json_object_get(o, "cat"));
    const json_t *ts = json_object_get(o, "ts"), *dur = json_object_get(o, "dur");
    int kind = category ? kind_of(category) : -1;
    if (!json_is_object(o)) r->trace->skipped++;
    if (!phase || strcmp(phase, "X") != 0 || kind < 0) return PJ_OK; /* of another category */
    const char *name = json_string_value(json_object_get(o, "name"));
    double us = json_number_value(ts), long_us = json_number_value(dur);
    if (!name || !json_is_number(ts) || !json_is_number(dur) || !(fabs(us) < MOST_UNIX_NS / 1e3) ||
        !(long_us > 0 && long_us < 1e12)) {
        r->trace->skipped++;
        return PJ_OK;
    }
    if (isnan(r->first_us) || us < r->first_us) r->first_us = us;
    int64_t id = intern(r->trace, name);
    uint64_t thread = key_of(key_of(0, json_object_get(o, "pid")), json_object_get(o, "tid"));
    pj_kineto_event e = {.begin_ns = (int64_t)llround(us * 1e3),
                         .end_ns = (int64_t)llround((us + long_us) * 1e3),
                         .thread = thread,
                         .name = (uint32_t)id,
                         .kind = (pj_kineto_kind)kind};
    if (id >= 0 && e.end_ns <= e.begin_ns) e.end_ns = e.begin_ns + 1;
    return id >= 0 && add_event(r->trace, e) ? PJ_OK : pj_fail_memory(r->err, "a trace");
}

static pj_status take_events(reader *r)
{
    if (!take(r, '[')) return bad(r, "traceEvents is not an array");
    if (take(r, ']')) return PJ_OK;
    do {
        json_t *event = take_value(r);
        if (!event) return bad(r, "an event is not JSON, or the file is cut off");
        pj_status status = take_event(r, event);
        json_decref(event);
        if (status != PJ_OK) return status;
    } while (take(r, ','));
    return take(r, ']') ? PJ_OK : bad(r, "its events do not end");
}

static pj_status take_member(reader *r)
{
    json_t *key = take_value(r);
    pj_status status = PJ_OK;
    if (!json_is_string(key) || !take(r, ':')) {
        json_decref(key);
        return bad(r, "a member has no name");
    }
    if (!strcmp(json_string_value(key), "traceEvents")) {
        status = take_events(r);
    } else {
        json_t *value = take_value(r);
        if (!value) status = bad(r, "a value is not JSON, or the file is cut off");
        if (!strcmp(json_string_value(key), "baseTimeNanoseconds") && json_is_number(value))
            r->base_ns = json_number_value(value);
        json_decref(value);
    }
    json_decref(key);
    return status;
}

static pj_status take_file(reader *r)
{
    pj_status status = PJ_OK;
    if (!take(r, '{')) {
        if (r->at < r->bytes && r->text[r->at] == '[') return take_events(r);
        return bad(r, "it is no JSON object");
    }
    do status = take_member(r);
    while (status == PJ_OK && take(r, ','));
    if (status == PJ_OK && !take(r, '}')) status = bad(r, "it does not end");
    return status;
}

/* ---- times --------------------------------------------------------------------------------- */

static pj_status place(reader *r)
{
    pj_kineto *t = r->trace;
    size_t kept = 0;
    if (t->count == 0) return bad(r, "it has no ranges of a known sort");
    if (isnan(r->base_ns) && r->first_us < LEAST_UNIX_US)
        return bad(r, "its times have no origin (baseTimeNanoseconds is missing)");
    double base_ns = isnan(r->base_ns) ? 0 : r->base_ns;
    if (!(fabs(base_ns) < MOST_UNIX_NS)) return bad(r, "its origin is no time");
    for (size_t i = 0; i < t->count; i++) {
        pj_kineto_event e = t->events[i];
        double end_ns = base_ns + (double)e.end_ns;
        if (base_ns + (double)e.begin_ns < 0 || end_ns > MOST_UNIX_NS) {
            t->skipped++;
            t->of_kind[e.kind]--;
            continue;
        }
        e.begin_ns += (int64_t)base_ns;
        e.end_ns += (int64_t)base_ns;
        t->events[kept++] = e;
    }
    t->count = kept;
    return kept ? PJ_OK : bad(r, "its times are out of range");
}

pj_status pj_kineto_read(const char *text, size_t bytes, pj_kineto *trace, pj_error *err)
{
    reader r = {.text = text, .bytes = bytes, .trace = trace, .err = err};
    r.base_ns = r.first_us = NAN;
    *trace = (pj_kineto){0};
    pj_status status = take_file(&r);
    if (status == PJ_OK) status = place(&r);
    if (status != PJ_OK) pj_kineto_fini(trace);
    return status;
}

void pj_kineto_fini(pj_kineto *t)
{
    for (uint32_t i = 0; i < t->name_count; i++) pj_free(t->names[i]);
    pj_free(t->names);
    pj_free(t->slots);
    pj_free(t->events);
    *t = (pj_kineto){0};
}
