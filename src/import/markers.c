/* Turns events into spans. Each lane of the markers has its own lane of the recorder, so that
 * threads of the program nest separately. */
#include "import/markers.h"

#include "import/lane_history.h"
#include "import/marker_event.h"

#include <string.h>
#include <strings.h>

enum { MAX_PHASES = 4096 };
#define MAX_EVENTS UINT64_C(20000000)

typedef struct marker_lane {
    uint64_t number;
    pj_lane *lane;
    uint32_t depth; /* open spans of the program on this lane */
    int64_t last_ns;
    pj_lane_history history;
} marker_lane;

typedef struct phase_change {
    int64_t at_ns;
    pj_phase phase;
} phase_change;

struct pj_markers {
    pj_run *run;
    marker_lane lanes[PJ_MARKER_LANES];
    uint32_t lane_count;
    phase_change phases[MAX_PHASES];
    uint32_t phase_count;
    uint32_t open_phases;
    bool in_prologue; /* the phase before the first marker is open on lane 0 */
    bool has_phases;  /* reported as such */
    int64_t phase_ended_ns;
    uint32_t last_name, name_count; /* the run has names of others, too */
    pj_markers_counts counts;
    pj_markers_facts facts;
    uint64_t token_spans;
    int64_t patience_ns;
    char line[PJ_MARKER_LINE_BYTES];
    size_t length;
    bool overflown;
    char first_bad[80];
};

/* ---- spans --------------------------------------------------------------------------------- */

/* The lane of a number, created on first use; NULL if there are too many. */
static marker_lane *markers_lane_of(pj_markers *m, uint64_t number)
{
    for (uint32_t i = 0; i < m->lane_count; i++)
        if (m->lanes[i].number == number) return &m->lanes[i];
    if (m->lane_count == PJ_MARKER_LANES) return NULL;
    pj_lane *lane = pj_run_new_lane(m->run);
    if (!lane) return NULL;
    m->lanes[m->lane_count] = (marker_lane){.number = number, .lane = lane};
    return &m->lanes[m->lane_count++];
}

static pj_phase markers_phase_at(const pj_markers *m, int64_t at_ns)
{
    uint32_t i = m->phase_count;
    while (i > 0 && m->phases[i - 1].at_ns > at_ns) i--;
    return i ? m->phases[i - 1].phase : PJ_PHASE_IDLE;
}

static void note_phase(pj_markers *m, pj_phase phase, int64_t at_ns)
{
    if (m->phase_count < MAX_PHASES) m->phases[m->phase_count++] = (phase_change){at_ns, phase};
}

/* The phase before the first marker, and the one after the last, lie on lane 0. */
static void end_prologue(pj_markers *m, int64_t at_ns)
{
    if (!m->in_prologue || m->lanes[0].depth) return;
    pj_lane_end(m->lanes[0].lane, NULL, at_ns, 0);
    m->in_prologue = false;
}

static bool identify(pj_markers *m, const pj_marker_event *e, uint32_t *id)
{
    char name[PJ_MARKER_LINE_BYTES];
    *id = (uint32_t)e->number;
    if (e->kind == PJ_SPAN_TOKEN) return e->number <= INT32_MAX;
    if (e->kind == PJ_SPAN_LAYER) return e->number <= INT16_MAX;
    if (e->kind == PJ_SPAN_PHASE) return true;
    size_t bytes = e->bytes < sizeof name ? e->bytes : sizeof name - 1;
    memcpy(name, e->text, bytes);
    name[bytes] = 0;
    if (m->name_count >= PJ_MARKER_NAMES) return false;
    *id = pj_run_name(m->run, name);
    if (*id > m->last_name) {
        m->last_name = *id;
        m->name_count++;
    }
    return *id != 0;
}

static void markers_open_span(pj_markers *m, marker_lane *l, const pj_marker_event *e, uint32_t id,
                              int64_t at_ns)
{
    if (e->kind == PJ_SPAN_PHASE) {
        end_prologue(m, at_ns);
        note_phase(m, (pj_phase)id, at_ns);
        m->open_phases++;
    }
    bool outermost = l->depth == 0 && !(l == m->lanes && m->in_prologue);
    pj_lane_wait_for_room(l->lane, &m->patience_ns);
    pj_lane_begin(l->lane, e->kind, id, at_ns);
    if (outermost && e->kind != PJ_SPAN_PHASE)
        pj_lane_set_phase(l->lane, e->kind, markers_phase_at(m, at_ns));
    l->depth++;
    if (e->kind != PJ_SPAN_TOKEN) return;
    m->token_spans++;
    pj_token_text(l->lane, 0, -1, e->text, e->bytes);
}

/* A span that others may lie in, as opposed to one that is reported when it has ended. */
static void markers_note(marker_lane *l, const pj_marker_event *e, int64_t at_ns)
{
    if (e->verb == PJ_MARKER_BEGIN) pj_lane_history_begin(&l->history, l->lane, at_ns);
    if (e->verb == PJ_MARKER_END) pj_lane_history_end(&l->history, l->lane, at_ns);
}

static void markers_close_span(pj_markers *m, marker_lane *l, int64_t at_ns)
{
    pj_lane_wait_for_room(l->lane, &m->patience_ns);
    l->depth--;
    if (pj_lane_end(l->lane, NULL, at_ns, 0) != PJ_SPAN_PHASE) return;
    if (m->open_phases) m->open_phases--;
    m->phase_ended_ns = at_ns;
    note_phase(m, PJ_PHASE_IDLE, at_ns);
}

/* Uses the program's own time if it is within the run and not before the lane's last one. */
static int64_t markers_sound_time(const pj_markers *m, const marker_lane *l, int64_t at_ns,
                                  int64_t now_ns)
{
    int64_t first_ns = pj_lane_begun_ns(m->lanes[0].lane);
    if (at_ns < 0 || at_ns > now_ns) at_ns = now_ns;
    if (at_ns < first_ns) at_ns = first_ns;
    return at_ns < l->last_ns ? l->last_ns : at_ns;
}

/* An outermost range that is called like a phase is one, in programs that know ranges only. */
static pj_marker_event markers_with_phase(pj_markers *m, const marker_lane *l, pj_marker_event e)
{
    static const pj_phase phases[] = {PJ_PHASE_PREFILL, PJ_PHASE_DECODE};
    m->has_phases |= e.kind == PJ_SPAN_PHASE;
    if (e.verb != PJ_MARKER_BEGIN || e.kind != PJ_SPAN_SECTION || l->depth || m->has_phases)
        return e;
    for (size_t i = 0; i < sizeof phases / sizeof *phases; i++) {
        const char *name = pj_phase_name(phases[i]);
        if (strlen(name) != e.bytes || strncasecmp(name, e.text, e.bytes) != 0) continue;
        e.kind = PJ_SPAN_PHASE;
        e.number = phases[i];
    }
    return e;
}

static bool markers_apply(pj_markers *m, const pj_marker_event *reported, int64_t now_ns)
{
    uint32_t id;
    const pj_marker_event *e = reported;
    if (e->verb == PJ_MARKER_TOKENS) {
        m->counts.input_tokens = e->number;
        m->counts.output_tokens = e->output;
        return m->counts.has_tokens = true;
    }
    if (e->verb == PJ_MARKER_FACT) return pj_marker_keep_fact(&m->facts, e);
    if (e->verb == PJ_MARKER_LOST) {
        m->counts.lost += e->number;
        return true;
    }
    marker_lane *l = markers_lane_of(m, e->lane);
    if (!l) return false;
    int64_t at_ns = markers_sound_time(m, l, e->begin_ns, now_ns);
    m->counts.has_times |= e->begin_ns >= 0;
    if (e->verb == PJ_MARKER_END) {
        if (!l->depth) return false;
        markers_close_span(m, l, l->last_ns = at_ns);
        markers_note(l, e, at_ns);
        return true;
    }
    const pj_marker_event meant = markers_with_phase(m, l, *reported);
    e = &meant;
    if (e->kind == PJ_SPAN_PHASE && l->depth) return false; /* phases are outermost spans */
    if (!identify(m, e, &id) || l->depth >= PJ_MAX_OPEN_SPANS - 1) return false;
    if (e->verb == PJ_MARKER_SPAN) { /* a finished span, which siblings may overlap */
        int64_t end_ns = e->end_ns > now_ns ? now_ns : e->end_ns;
        markers_open_span(m, l, e, id, at_ns);
        markers_close_span(m, l, end_ns > at_ns ? end_ns : at_ns);
        return true;
    }
    markers_open_span(m, l, e, id, l->last_ns = at_ns);
    markers_note(l, e, at_ns);
    return true;
}

/* ---- launches ------------------------------------------------------------------------------ */

/* Lanes of a thread have its number in their lower half; NVTX's domains are in the upper one. */
static bool is_lane_of(const marker_lane *l, uint32_t thread)
{
    return thread && (uint32_t)l->number == thread && l->number >> 62 == 0;
}

/* Lane 0 is that of programs that do not say which thread they speak of. */
bool pj_markers_launch(const pj_markers *m, uint32_t thread, int64_t at_ns, pj_launch *launch)
{
    const pj_lane_entry *innermost = NULL;
    bool is_settled = false;
    for (uint32_t i = 0; i < m->lane_count; i++) {
        const marker_lane *l = &m->lanes[i];
        if (!is_lane_of(l, thread)) continue;
        const pj_lane_entry *open = pj_lane_history_at(&l->history, at_ns);
        is_settled |= pj_lane_history_until(&l->history) >= at_ns;
        if (open && (!innermost || open->begin_ns > innermost->begin_ns)) innermost = open;
    }
    pj_launch_place place = {.noted = 1, .token = -1, .layer = -1};
    place.phase = (int32_t)markers_phase_at(m, at_ns);
    if (!innermost) innermost = pj_lane_history_at(&m->lanes[0].history, at_ns);
    if (innermost) place = innermost->place;
    memcpy(launch, &place, sizeof place);
    return is_settled;
}

bool pj_markers_has_spans(const pj_markers *m)
{
    for (uint32_t i = 0; i < m->lane_count; i++)
        if (m->lanes[i].history.count) return true;
    return false;
}

/* ---- lines --------------------------------------------------------------------------------- */

static void markers_reject(pj_markers *m, const char *line, size_t bytes)
{
    if (m->counts.malformed++) return;
    if (bytes >= sizeof m->first_bad) bytes = sizeof m->first_bad - 1;
    for (size_t i = 0; i < bytes; i++)
        m->first_bad[i] = line[i] >= ' ' && line[i] < 127 ? line[i] : '?';
}

static void take_line(pj_markers *m, const char *line, size_t bytes, int64_t now_ns)
{
    pj_marker_event e = {.begin_ns = -1, .end_ns = -1};
    json_t *object = NULL;
    if (bytes && line[bytes - 1] == '\r') bytes--;
    if (!bytes) return;
    bool good = m->counts.events < MAX_EVENTS;
    if (good && line[0] == '{') {
        object = json_loadb(line, bytes, JSON_REJECT_DUPLICATES, NULL);
        good = object && pj_marker_read(object, &e);
    } else if (good) {
        good = pj_marker_parse(line, bytes, &e);
    }
    if (good && markers_apply(m, &e, now_ns))
        m->counts.events++;
    else
        markers_reject(m, line, bytes);
    json_decref(object);
}

void pj_markers_feed(pj_markers *m, const char *bytes, size_t count, int64_t now_ns)
{
    m->patience_ns = PJ_LANE_PATIENCE_NS;
    for (size_t i = 0; i < count; i++) {
        if (bytes[i] != '\n') {
            if (m->length < sizeof m->line)
                m->line[m->length++] = bytes[i];
            else
                m->overflown = true;
            continue;
        }
        if (m->overflown)
            markers_reject(m, m->line, m->length);
        else
            take_line(m, m->line, m->length, now_ns);
        m->length = 0;
        m->overflown = false;
    }
}

/* ---- from begin to end --------------------------------------------------------------------- */

pj_status pj_markers_new(pj_run *run, pj_markers **out, pj_error *err)
{
    pj_markers *m = *out = pj_alloc(1, sizeof *m);
    pj_lane *lane = m ? pj_run_lane(run) : NULL;
    if (!lane) {
        pj_free(m);
        *out = NULL;
        return pj_fail_memory(err, "markers");
    }
    m->run = run;
    m->lanes[m->lane_count++] = (marker_lane){.lane = lane};
    m->in_prologue = true;
    pj_span_begin(lane, PJ_SPAN_PHASE, PJ_PHASE_PRE_INFERENCE);
    note_phase(m, PJ_PHASE_PRE_INFERENCE, 0);
    return PJ_OK;
}

static void add_epilogue(pj_markers *m, int64_t now_ns)
{
    if (m->in_prologue || m->open_phases || now_ns <= m->phase_ended_ns) return;
    pj_lane_begin(m->lanes[0].lane, PJ_SPAN_PHASE, PJ_PHASE_POST_INFERENCE, m->phase_ended_ns);
    pj_lane_end(m->lanes[0].lane, NULL, now_ns, 0);
}

void pj_markers_finish(pj_markers *m, int64_t now_ns)
{
    m->patience_ns = PJ_LANE_PATIENCE_NS;
    if (m->length) markers_reject(m, m->line, m->length); /* an incomplete line */
    add_epilogue(m, now_ns);
    for (uint32_t i = m->lane_count; i-- > 0;)
        while (m->lanes[i].depth) markers_close_span(m, &m->lanes[i], now_ns);
    end_prologue(m, now_ns);
    if (!m->counts.has_tokens) m->counts.output_tokens = m->token_spans;
    if (m->counts.has_tokens || m->token_spans)
        pj_run_set_tokens(m->run, m->counts.input_tokens, m->counts.output_tokens);
    if (m->counts.lost)
        pj_run_warn(m->run, "markers_lost",
                    "%llu spans of the program were lost: its markers came faster than they could "
                    "be read",
                    (unsigned long long)m->counts.lost);
    if (m->counts.malformed)
        pj_run_warn(m->run, "markers_ignored",
                    "%llu invalid marker lines of the program were ignored; the first "
                    "begins with: %s",
                    (unsigned long long)m->counts.malformed, m->first_bad);
}

pj_markers_counts pj_markers_count(const pj_markers *m)
{
    return m->counts;
}

const pj_markers_facts *pj_markers_fact(const pj_markers *m)
{
    return &m->facts;
}

void pj_markers_free(pj_markers *m)
{
    for (uint32_t i = 0; m && i < m->lane_count; i++) pj_lane_history_fini(&m->lanes[i].history);
    pj_free(m);
}
