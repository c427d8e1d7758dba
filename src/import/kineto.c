/* Events are read one by one while scanning, so that a trace of a gigabyte never becomes a tree in
 * memory. */
#include "import/kineto.h"

#include "base/ids.h"
#include "base/json_scan.h"
#include "base/memory.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_SLOTS = 64, NAME_BYTES = 200 };
#define LEAST_UNIX_US 1e14 /* March 1973: smaller times are not relative to 1970 */
#define MOST_UNIX_NS  4e18

typedef struct reader {
    pj_json_scan scan;
    pj_kineto *trace;
    double base_ns, first_us; /* NAN: none */
    pj_error *err;
} reader;

/* The members of an event that are used. */
typedef struct event_members {
    char name[NAME_BYTES + 2]; /* one byte more than is kept, to detect truncation */
    bool has_name, is_complete;
    int kind;           /* -1: of another category */
    double us, long_us; /* NAN: not a number */
    uint64_t process, thread;
    uint32_t process_number;
} event_members;

static pj_status kineto_bad(reader *r, const char *what)
{
    return pj_fail(r->err, PJ_E_INVALID, "not a trace of PyTorch's profiler: %s (at byte %zu)",
                   what, (size_t)(r->scan.at - r->scan.start));
}

/* ---- names --------------------------------------------------------------------------------- */

/* The slot of a name, or the free one for it. */
static uint32_t *kineto_slot_of(const pj_kineto *t, const char *text, size_t bytes)
{
    uint64_t at = pj_hash64(0, text, bytes) % t->slot_count;
    for (; t->slots[at]; at = (at + 1) % t->slot_count) {
        const char *known = t->names[t->slots[at] - 1];
        if (strlen(known) == bytes && !memcmp(known, text, bytes)) break;
    }
    return &t->slots[at];
}

/* Makes room for one more name. */
static bool kineto_grow_names(pj_kineto *t)
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
    for (uint32_t i = 0; i < t->name_count; i++)
        *kineto_slot_of(t, names[i], strlen(names[i])) = i + 1;
    return true;
}

static int64_t kineto_intern(pj_kineto *t, const char *text)
{
    size_t bytes = strnlen(text, NAME_BYTES);
    while (bytes && text[bytes] && ((unsigned char)text[bytes] & 0xc0) == 0x80) bytes--;
    if (!kineto_grow_names(t)) return -1;
    uint32_t *slot = kineto_slot_of(t, text, bytes);
    if (*slot) return *slot - 1;
    if (t->name_count == PJ_KINETO_NAMES - 1 && strcmp(text, "other") != 0) {
        t->unnamed++;
        return kineto_intern(t, "other");
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

static int kind_of(pj_json_text category)
{
    static const struct {
        const char *name;
        pj_kineto_kind kind;
    } kinds[] = {{"user_annotation", PJ_KINETO_RANGE}, {"gpu_user_annotation", PJ_KINETO_GPU_RANGE},
                 {"cpu_op", PJ_KINETO_OPERATION},      {"operator", PJ_KINETO_OPERATION},
                 {"kernel", PJ_KINETO_KERNEL},         {"Kernel", PJ_KINETO_KERNEL},
                 {"gpu_memcpy", PJ_KINETO_KERNEL},     {"gpu_memset", PJ_KINETO_KERNEL}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (pj_json_text_is(category, kinds[i].name)) return (int)kinds[i].kind;
    return -1;
}

/* A thread is a number, a stream may be a text ("stream 7"). */
static void kineto_take_key(pj_json_scan *scan, uint64_t *key, uint32_t *number)
{
    pj_json_text value;
    char digits[12];
    if (!pj_json_scan_skip(scan, &value)) return;
    *key = pj_hash64(0, value.text, value.bytes);
    snprintf(digits, sizeof digits, "%.*s", value.bytes < 10 ? (int)value.bytes : 0, value.text);
    *number = (uint32_t)strtoul(digits, NULL, 10);
}

static void kineto_take_name(pj_json_scan *scan, event_members *e)
{
    pj_json_text text;
    if (!pj_json_scan_text(scan, &text)) return;
    size_t kept = text.bytes < sizeof e->name ? text.bytes : sizeof e->name - 1;
    e->has_name = text.text != NULL;
    if (kept) memcpy(e->name, text.text, kept);
    e->name[kept] = 0;
}

/* Of repeated members the last one counts. */
static void kineto_take_event_member(pj_json_scan *scan, pj_json_text key, event_members *e)
{
    pj_json_text text;
    if (pj_json_text_is(key, "ph"))
        e->is_complete = pj_json_scan_text(scan, &text) && pj_json_text_is(text, "X");
    else if (pj_json_text_is(key, "cat"))
        e->kind = pj_json_scan_text(scan, &text) ? kind_of(text) : -1;
    else if (pj_json_text_is(key, "name"))
        kineto_take_name(scan, e);
    else if (pj_json_text_is(key, "ts"))
        pj_json_scan_number(scan, &e->us);
    else if (pj_json_text_is(key, "dur"))
        pj_json_scan_number(scan, &e->long_us);
    else if (pj_json_text_is(key, "pid"))
        kineto_take_key(scan, &e->process, &e->process_number);
    else if (pj_json_text_is(key, "tid"))
        kineto_take_key(scan, &e->thread, &(uint32_t){0});
    else
        pj_json_scan_skip(scan, NULL);
}

static bool kineto_add_event(pj_kineto *t, pj_kineto_event e)
{
    pj_kineto_event *more = pj_grow(t->events, t->count, &t->capacity, sizeof *more);
    if (!more) return false;
    t->events = more;
    t->events[t->count++] = e;
    t->of_kind[e.kind]++;
    return true;
}

/* Times stay in microseconds until the base is known, which may be at the end of the file. */
static pj_status kineto_keep_event(reader *r, const event_members *m)
{
    if (!m->is_complete || m->kind < 0) return PJ_OK; /* of another category */
    if (!m->has_name || !(fabs(m->us) < MOST_UNIX_NS / 1e3) ||
        !(m->long_us > 0 && m->long_us < 1e12)) {
        r->trace->skipped++;
        return PJ_OK;
    }
    if (isnan(r->first_us) || m->us < r->first_us) r->first_us = m->us;
    int64_t id = kineto_intern(r->trace, m->name);
    pj_kineto_event e = {.begin_ns = (int64_t)llround(m->us * 1e3),
                         .end_ns = (int64_t)llround((m->us + m->long_us) * 1e3),
                         .thread = pj_hash64(m->process, &m->thread, sizeof m->thread),
                         .process = m->process_number,
                         .name = (uint32_t)id,
                         .kind = (pj_kineto_kind)m->kind};
    if (id >= 0 && e.end_ns <= e.begin_ns) e.end_ns = e.begin_ns + 1;
    return id >= 0 && kineto_add_event(r->trace, e) ? PJ_OK : pj_fail_memory(r->err, "a trace");
}

static pj_status kineto_take_event(reader *r)
{
    event_members m = {.kind = -1, .us = NAN, .long_us = NAN};
    pj_json_text key;
    if (pj_json_scan_peek(&r->scan) != '{') {
        r->trace->skipped++;
        pj_json_scan_skip(&r->scan, NULL);
        return PJ_OK;
    }
    pj_json_scan_enter(&r->scan, '{');
    while (pj_json_scan_member(&r->scan, &key)) kineto_take_event_member(&r->scan, key, &m);
    return pj_json_scan_failed(&r->scan) ? PJ_OK : kineto_keep_event(r, &m);
}

static pj_status kineto_take_events(reader *r)
{
    pj_status status = PJ_OK;
    pj_json_scan_enter(&r->scan, '[');
    while (status == PJ_OK && pj_json_scan_next(&r->scan, '[')) status = kineto_take_event(r);
    return status;
}

static pj_status kineto_take_members(reader *r)
{
    pj_status status = PJ_OK;
    pj_json_text key;
    pj_json_scan_enter(&r->scan, '{');
    while (status == PJ_OK && pj_json_scan_member(&r->scan, &key)) {
        if (pj_json_text_is(key, "traceEvents"))
            status = kineto_take_events(r);
        else if (pj_json_text_is(key, "baseTimeNanoseconds"))
            pj_json_scan_number(&r->scan, &r->base_ns);
        else
            pj_json_scan_skip(&r->scan, NULL);
    }
    return status;
}

static pj_status kineto_take_file(reader *r)
{
    bool is_list = pj_json_scan_peek(&r->scan) == '[';
    pj_status status = is_list ? kineto_take_events(r) : kineto_take_members(r);
    return pj_json_scan_failed(&r->scan) ? kineto_bad(r, r->scan.problem) : status;
}

/* ---- times --------------------------------------------------------------------------------- */

static pj_status kineto_resolve_times(reader *r)
{
    pj_kineto *t = r->trace;
    size_t kept = 0;
    if (t->count == 0) return kineto_bad(r, "it has no ranges of a known kind");
    if (isnan(r->base_ns) && r->first_us < LEAST_UNIX_US)
        return kineto_bad(r, "baseTimeNanoseconds is missing");
    double base_ns = isnan(r->base_ns) ? 0 : r->base_ns;
    if (!(fabs(base_ns) < MOST_UNIX_NS))
        return kineto_bad(r, "baseTimeNanoseconds is out of range");
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
    return kept ? PJ_OK : kineto_bad(r, "its times are out of range");
}

pj_status pj_kineto_read(const char *text, size_t bytes, pj_kineto *trace, pj_error *err)
{
    reader r = {.trace = trace, .base_ns = NAN, .first_us = NAN, .err = err};
    pj_json_scan_init(&r.scan, text, bytes);
    *trace = (pj_kineto){0};
    pj_status status = kineto_take_file(&r);
    if (status == PJ_OK) status = kineto_resolve_times(&r);
    pj_json_scan_fini(&r.scan);
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
