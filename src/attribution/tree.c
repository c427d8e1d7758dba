/* Builds the tree from records, and leaves from the tree. */
#include "attribution/tree.h"

#include "trace/lane.h"
#include "trace/run_json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NONE = -1, MAX_LANES = 65536, MAX_OPEN = 16, MAX_NESTING = 40 };
/* Shorter gaps are the recorder's own time between two spans; they are added to the preceding span
 * instead of becoming leaves. */
enum { LEAST_GAP_NS = 500 };

static bool tree_grow(void **array, uint32_t *capacity, uint32_t count, size_t size)
{
    if (count < *capacity) return true;
    if (*capacity > UINT32_MAX / 4) return false;
    uint32_t more = *capacity ? *capacity * 2 : 64;
    void *bigger = pj_resize(*array, more, size);
    if (!bigger) return false;
    *array = bigger;
    *capacity = more;
    return true;
}

static pj_node *tree_add_node(pj_tree *tree)
{
    if (!tree_grow((void **)&tree->nodes, &tree->node_capacity, tree->node_count,
                   sizeof *tree->nodes))
        return NULL;
    pj_node *node = &tree->nodes[tree->node_count++];
    *node = (pj_node){.text = UINT32_MAX};
    return node;
}

uint32_t pj_tree_ancestor(const pj_tree *tree, uint32_t node, pj_span_kind kind)
{
    for (node = tree->nodes[node].parent; node; node = tree->nodes[node].parent)
        if (tree->nodes[node].kind == kind) return node;
    return UINT32_MAX;
}

/* ---- reading ---- */

typedef struct lane_state {
    uint32_t *pending; /* nodes waiting for their enclosing span */
    uint32_t pending_count, pending_capacity;
    const pj_record *open[MAX_OPEN]; /* begun and not ended */
    uint32_t open_count;
    uint32_t first_text, last_text; /* of the open token */
} lane_state;

typedef struct reading_state {
    pj_tree *tree;
    lane_state *lanes;
    uint32_t lane_count, lane_capacity;
    pj_arena *arena;
    uint32_t name_capacity;
    int64_t last_ns; /* latest time of a span */
    int64_t read_ns; /* latest time of a power reading */
    pj_launch_record *launches;
    uint32_t launch_count, launch_capacity;
} reading_state;

static lane_state *tree_lane_of(reading_state *r, uint32_t number)
{
    while (r->lane_count <= number) {
        if (number >= MAX_LANES ||
            !tree_grow((void **)&r->lanes, &r->lane_capacity, r->lane_count, sizeof *r->lanes))
            return NULL;
        r->lanes[r->lane_count++] = (lane_state){.first_text = UINT32_MAX, .last_text = UINT32_MAX};
    }
    return &r->lanes[number];
}

static const pj_span *span_of(const pj_node *node) /* not of one that is synthesised */
{
    return (const pj_span *)node->record->payload;
}

static uint32_t serial_of(const pj_record *record)
{
    return ((const pj_span *)record->payload)->serial;
}

/* Pending nodes that began inside `node` become its children. */
static bool tree_adopt(reading_state *r, lane_state *lane, uint32_t node, uint32_t serial)
{
    while (lane->pending_count) {
        uint32_t child = lane->pending[lane->pending_count - 1];
        if ((int32_t)(span_of(&r->tree->nodes[child])->serial - serial) <= 0) break;
        r->tree->nodes[child].parent = node;
        lane->pending_count--;
    }
    if (!tree_grow((void **)&lane->pending, &lane->pending_capacity, lane->pending_count,
                   sizeof *lane->pending))
        return false;
    lane->pending[lane->pending_count++] = node;
    return true;
}

void pj_tree_add_device(pj_tree *tree, uint32_t device)
{
    tree->devices |= 1u << device;
    if (tree->device_count <= device) tree->device_count = device + 1;
}

static bool take_span(reading_state *r, const pj_record *record, int64_t end_ns)
{
    const pj_span *span = (const pj_span *)record->payload;
    lane_state *lane = tree_lane_of(r, span->lane);
    uint32_t index = r->tree->node_count;
    pj_node *node = lane ? tree_add_node(r->tree) : NULL;
    if (!node) return false;
    node->begin_ns = span->begin_ns;
    node->end_ns = end_ns > span->begin_ns ? end_ns : span->begin_ns;
    node->record = record;
    node->id = span->id;
    node->kind = span->kind;
    node->phase = span->kind == PJ_SPAN_PHASE ? (uint8_t)span->id : span->phase;
    node->device = node->row_device = span->device;
    pj_tree_add_device(r->tree, span->device);
    if (r->last_ns < node->end_ns) r->last_ns = node->end_ns;
    /* of an earlier version: placed by its context later */
    if (span->flags & PJ_SPAN_DEVICE && span->device == PJ_HOST) return true;
    if (span->kind == PJ_SPAN_TOKEN) {
        node->text = lane->first_text;
        lane->first_text = lane->last_text = UINT32_MAX;
    }
    while (lane->open_count && serial_of(lane->open[lane->open_count - 1]) >= span->serial)
        lane->open_count--;
    return tree_adopt(r, lane, index, span->serial);
}

static bool take_begin(reading_state *r, const pj_record *record)
{
    const pj_span *span = (const pj_span *)record->payload;
    lane_state *lane = tree_lane_of(r, span->lane);
    if (!lane) return false;
    if (lane->open_count < MAX_OPEN) lane->open[lane->open_count++] = record;
    if (r->last_ns < span->begin_ns) r->last_ns = span->begin_ns;
    if (span->kind == PJ_SPAN_TOKEN) lane->first_text = lane->last_text = UINT32_MAX;
    return true;
}

/* The clock's error also counts where the launch is not known. */
static bool tree_take_launch(reading_state *r, const pj_record *record)
{
    const pj_launch_record *launch = (const pj_launch_record *)record->payload;
    if (pj_record_bytes(record) < sizeof *launch || launch->device == PJ_HOST ||
        launch->device >= PJ_MAX_DEVICES || launch->clock_error_ns < 0)
        return true;
    int64_t *error_ns = &r->tree->clock_error_ns[launch->device];
    if (*error_ns < launch->clock_error_ns && launch->clock_error_ns < PJ_LATEST_NS)
        *error_ns = launch->clock_error_ns;
    if (launch->host_lane == UINT32_MAX) return true;
    if (!tree_grow((void **)&r->launches, &r->launch_capacity, r->launch_count,
                   sizeof *r->launches))
        return false;
    r->launches[r->launch_count++] = *launch;
    return true;
}

static bool tree_take_text(reading_state *r, const pj_record *record)
{
    pj_tree *tree = r->tree;
    if (pj_record_bytes(record) < sizeof(pj_token_text_record)) return true;
    const pj_token_text_record *head = (const pj_token_text_record *)record->payload;
    if (head->lane >= MAX_LANES) return true; /* no span has such a lane */
    lane_state *lane = tree_lane_of(r, head->lane);
    if (!lane || !tree_grow((void **)&tree->texts, &tree->text_capacity, tree->text_count,
                            sizeof *tree->texts))
        return false;
    uint32_t index = tree->text_count++;
    tree->texts[index] =
        (pj_tree_text){head, pj_record_bytes(record) - (uint32_t)sizeof *head, UINT32_MAX};
    if (lane->last_text != UINT32_MAX)
        tree->texts[lane->last_text].next = index;
    else
        lane->first_text = index;
    lane->last_text = index;
    return true;
}

static bool take_name(reading_state *r, const pj_record *record)
{
    uint32_t id, bytes = pj_record_bytes(record);
    pj_tree *tree = r->tree;
    if (bytes < 4) return true;
    memcpy(&id, record->payload, 4);
    if (id == 0 || id > 65535) return true;
    while (id >= r->name_capacity) {
        uint32_t before = r->name_capacity;
        if (!tree_grow((void **)&tree->names, &r->name_capacity, before, sizeof *tree->names))
            return false;
        memset(tree->names + before, 0, (r->name_capacity - before) * sizeof *tree->names);
    }
    if (tree->name_count < id) tree->name_count = id;
    tree->names[id] = pj_arena_strndup(r->arena, (const char *)record->payload + 4, bytes - 4);
    return tree->names[id] != NULL;
}

static bool take_note(pj_tree *tree, const pj_record *record)
{
    if (!tree_grow((void **)&tree->notes, &tree->note_capacity, tree->note_count,
                   sizeof *tree->notes))
        return false;
    tree->notes[tree->note_count++] = record;
    return true;
}

bool pj_reading_is_sound(const pj_reading *r)
{
    return r->rail < PJ_MAX_RAILS && r->before_ns >= 0 && r->before_ns <= r->after_ns &&
           r->after_ns < PJ_LATEST_NS && r->fresh_ns >= 0 && r->fresh_ns < PJ_LATEST_NS &&
           r->fresh_error_ns >= 0 && r->fresh_error_ns < PJ_LATEST_NS && r->window_ns >= 0 &&
           r->window_ns < PJ_LATEST_NS;
}

static bool tree_take_readings(reading_state *r, const pj_record *record)
{
    const pj_reading *items = (const pj_reading *)record->payload;
    uint32_t count = pj_record_bytes(record) / (uint32_t)sizeof *items;
    for (uint32_t i = 0; i < count; i++)
        if (pj_reading_is_sound(&items[i]) && r->read_ns < items[i].before_ns)
            r->read_ns = items[i].before_ns;
    return take_note(r->tree, record);
}

static bool tree_is_sound(const pj_span *span)
{
    return span->kind < PJ_SPAN_KIND_COUNT && span->phase < PJ_PHASE_COUNT &&
           (span->kind != PJ_SPAN_PHASE || span->id < PJ_PHASE_COUNT) && span->begin_ns >= 0 &&
           span->begin_ns < PJ_LATEST_NS && span->end_ns < PJ_LATEST_NS &&
           span->device < PJ_MAX_DEVICES;
}

static pj_status tree_take_record(reading_state *r, const pj_record *record, pj_error *err)
{
    pj_span_view view;
    bool ok = true;
    switch (pj_record_kind(record)) {
    case PJ_RECORD_SPAN:
        if (!pj_span_view_get(record, &view) || !tree_is_sound(view.span)) break;
        r->tree->extra_count += view.extra_count;
        ok = take_span(r, record, view.span->end_ns);
        break;
    case PJ_RECORD_SPAN_BEGIN:
        if (pj_span_view_get(record, &view) && tree_is_sound(view.span)) ok = take_begin(r, record);
        break;
    case PJ_RECORD_TOKEN_TEXT: ok = tree_take_text(r, record); break;
    case PJ_RECORD_NAME: ok = take_name(r, record); break;
    case PJ_RECORD_END: {
        int64_t end_ns = 0;
        pj_status status = pj_run_end_read((const char *)record->payload, pj_record_bytes(record),
                                           &end_ns, &r->tree->status, err);
        if (status != PJ_OK) return status;
        r->tree->ended = true;
        r->tree->end_ns = end_ns < PJ_LATEST_NS ? end_ns : 0;
        break;
    }
    case PJ_RECORD_LAUNCH: ok = tree_take_launch(r, record); break;
    case PJ_RECORD_READINGS: ok = tree_take_readings(r, record); break;
    default: ok = take_note(r->tree, record); break;
    }
    return ok ? PJ_OK : pj_fail_memory(err, "the spans of a run");
}

/* Spans open when the process died end at the last recorded time, and so does the run: power is
 * also read while no span begins or ends. */
static bool close_open(reading_state *r)
{
    if (!r->tree->ended && r->last_ns < r->read_ns) r->last_ns = r->read_ns;
    for (uint32_t i = 0; i < r->lane_count; i++)
        while (r->lanes[i].open_count) {
            const pj_record *record = r->lanes[i].open[--r->lanes[i].open_count];
            if (!take_span(r, record, r->last_ns)) return false;
        }
    return true;
}

/* ---- placing by context ---- */

/* Hash of nodes by (kind, phase, token, layer, id); equal keys chain to the earlier node. */
typedef struct location_map {
    uint32_t *slots, *earlier;
    uint32_t mask;
} location_map;

typedef struct location {
    int32_t kind, phase, token, layer, id;
} location;

static location location_of(const pj_tree *tree, uint32_t index)
{
    const pj_node *node = &tree->nodes[index];
    const pj_span *span = span_of(node);
    location p = {node->kind, node->phase, NONE, NONE, (int32_t)node->id};
    if (node->kind > PJ_SPAN_TOKEN) p.token = span->token;
    if (node->kind > PJ_SPAN_LAYER) p.layer = span->layer;
    return p;
}

static uint32_t *find_location(const pj_tree *tree, const location_map *map, const location *p)
{
    uint32_t h = (uint32_t)p->kind * 31 + (uint32_t)p->phase;
    h = (h * 0x9e3779b1u ^ (uint32_t)p->token) * 0x85ebca6bu;
    h = ((h ^ (uint32_t)p->layer) * 0xc2b2ae35u ^ (uint32_t)p->id) * 0x27d4eb2fu;
    for (h ^= h >> 15;; h++) {
        uint32_t *slot = &map->slots[h & map->mask];
        if (!*slot) return slot;
        location other = location_of(tree, *slot);
        if (memcmp(&other, p, sizeof other) == 0) return slot;
    }
}

static bool make_places(const pj_tree *tree, location_map *map)
{
    uint32_t capacity = 1024;
    while (capacity < tree->node_count * 2) capacity *= 2;
    map->slots = pj_alloc(capacity, sizeof *map->slots);
    map->earlier = pj_alloc(tree->node_count, sizeof *map->earlier);
    map->mask = capacity - 1;
    if (!map->slots || !map->earlier) return false;
    for (uint32_t i = 1; i < tree->node_count; i++) {
        const pj_span *span = span_of(&tree->nodes[i]);
        if (tree->nodes[i].kind == PJ_SPAN_OPERATION || span->flags & PJ_SPAN_DEVICE) continue;
        location p = location_of(tree, i);
        uint32_t *slot = find_location(tree, map, &p);
        map->earlier[i] = *slot;
        *slot = i;
    }
    return true;
}

/* The last node with that key begun by then, else the first one; 0: none. */
static uint32_t tree_look_up(const pj_tree *tree, const location_map *map, location p,
                             int64_t begin_ns)
{
    uint32_t at = *find_location(tree, map, &p);
    while (at && map->earlier[at] && tree->nodes[at].begin_ns > begin_ns) at = map->earlier[at];
    return at;
}

static uint32_t parent_by_context(const pj_tree *tree, const location_map *map, uint32_t index)
{
    const pj_node *node = &tree->nodes[index];
    const pj_span *s = span_of(node);
    int32_t component = (int32_t)s->component, section = (int32_t)s->section;
    const struct {
        bool applies;
        location at;
    } outer[] = {
        {node->kind > PJ_SPAN_COMPONENT && component,
         {PJ_SPAN_COMPONENT, s->phase, s->token, s->layer, component}},
        {node->kind > PJ_SPAN_LAYER && s->layer >= 0,
         {PJ_SPAN_LAYER, s->phase, s->token, NONE, s->layer}},
        {node->kind > PJ_SPAN_SECTION && section, {PJ_SPAN_SECTION, s->phase, NONE, NONE, section}},
        {node->kind != PJ_SPAN_TOKEN && s->token >= 0,
         {PJ_SPAN_TOKEN, s->phase, NONE, NONE, s->token}},
        {true, {PJ_SPAN_PHASE, s->phase, NONE, NONE, s->phase}},
    };
    for (size_t i = 0; i < sizeof outer / sizeof *outer; i++) {
        if (!outer[i].applies) continue;
        uint32_t found = tree_look_up(tree, map, outer[i].at, node->begin_ns);
        if (!found) continue;
        /* A section in a token is the narrower of the two, unless it is in another token. */
        const pj_span *around = span_of(&tree->nodes[found]);
        if (around->kind == PJ_SPAN_SECTION && around->token >= 0 && around->token != s->token)
            continue;
        return found == index ? 0 : found;
    }
    return 0;
}

/* ---- launches ---- */

static int tree_launch_by_serial(const void *a, const void *b)
{
    const pj_launch_record *x = a, *y = b;
    if (x->lane != y->lane) return x->lane < y->lane ? -1 : 1;
    return x->serial < y->serial ? -1 : x->serial > y->serial;
}

/* The launch of an outermost span of a device; NULL: unknown. Launches are sorted. */
static const pj_launch_record *tree_launch_of(const reading_state *r, const pj_span *span)
{
    uint32_t low = 0, high = r->launch_count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        const pj_launch_record *at = &r->launches[middle];
        bool after = at->lane != span->lane ? at->lane > span->lane : at->serial > span->serial;
        if (after)
            high = middle;
        else
            low = middle + 1;
    }
    const pj_launch_record *found = low ? &r->launches[low - 1] : NULL;
    return found && found->lane == span->lane && found->device == span->device ? found : NULL;
}

/* The host's spans that are named by launches: nodes by lane and serial number. */
typedef struct launcher_map {
    uint32_t *slots;
    uint32_t mask;
} launcher_map;

static uint32_t *tree_find_launcher(const pj_tree *tree, const launcher_map *map, uint32_t lane,
                                    uint32_t serial)
{
    uint32_t h = (serial * 0x9e3779b1u ^ lane) * 0x85ebca6bu;
    for (h ^= h >> 15;; h++) {
        uint32_t *slot = &map->slots[h & map->mask];
        if (!*slot) return slot;
        const pj_span *span = span_of(&tree->nodes[*slot]);
        if (span->lane == lane && span->serial == serial) return slot;
    }
}

static bool tree_map_launchers(const pj_tree *tree, launcher_map *map)
{
    uint32_t capacity = 1024;
    while (capacity < tree->node_count * 2) capacity *= 2;
    map->slots = pj_alloc(capacity, sizeof *map->slots);
    map->mask = capacity - 1;
    for (uint32_t i = 1; map->slots && i < tree->node_count; i++) {
        const pj_span *span = span_of(&tree->nodes[i]);
        if (span->device == PJ_HOST) *tree_find_launcher(tree, map, span->lane, span->serial) = i;
    }
    return map->slots != NULL;
}

/* The span that launched it, or the nearest one around that which can contain it. */
static uint32_t tree_launcher_of(const reading_state *r, const launcher_map *map, uint32_t index)
{
    const pj_tree *tree = r->tree;
    const pj_launch_record *launch = tree_launch_of(r, span_of(&tree->nodes[index]));
    if (!launch) return 0;
    uint32_t at = *tree_find_launcher(tree, map, launch->host_lane, launch->host_serial);
    int steps = 0; /* a spool may come from anywhere: its spans may contain each other */
    while (at && steps++ < MAX_NESTING &&
           !pj_span_may_nest((pj_span_kind)tree->nodes[at].kind,
                             (pj_span_kind)tree->nodes[index].kind))
        at = tree->nodes[at].parent;
    return steps > MAX_NESTING ? 0 : at;
}

static bool tree_attach_launched(reading_state *r)
{
    pj_tree *tree = r->tree;
    launcher_map map = {0};
    if (!r->launch_count) return true;
    qsort(r->launches, r->launch_count, sizeof *r->launches, tree_launch_by_serial);
    if (!tree_map_launchers(tree, &map)) return false;
    for (uint32_t i = 1; i < tree->node_count; i++)
        if (tree->nodes[i].parent == 0 && tree->nodes[i].device != PJ_HOST)
            tree->nodes[i].parent = tree_launcher_of(r, &map, i);
    pj_free(map.slots);
    return true;
}

/* Finds parents for host spans that stayed pending and for device spans. */
static bool attach_roots(reading_state *r)
{
    pj_tree *tree = r->tree;
    bool any = false;
    if (!tree_attach_launched(r)) return false;
    for (uint32_t i = 1; i < tree->node_count && !any; i++)
        any = tree->nodes[i].parent == 0 && tree->nodes[i].kind != PJ_SPAN_PHASE;
    if (!any) return true;
    location_map map = {0};
    bool ok = make_places(tree, &map);
    for (uint32_t i = 1; ok && i < tree->node_count; i++)
        if (tree->nodes[i].parent == 0 && tree->nodes[i].kind != PJ_SPAN_PHASE)
            tree->nodes[i].parent = parent_by_context(tree, &map, i);
    pj_free(map.slots);
    pj_free(map.earlier);
    return ok;
}

/* A spool may come from anywhere: parent chains too long for nesting, or cyclic ones, are cut at
 * the root. After this, recursion over the tree is safe. */
static void cut_long_chains(pj_tree *tree)
{
    for (uint32_t i = 1; i < tree->node_count; i++) {
        uint32_t at = i;
        int steps = 0;
        while (at && steps++ < MAX_NESTING) at = tree->nodes[at].parent;
        if (at) tree->nodes[i].parent = 0;
    }
}

/* ---- spans that a client left out ---- */

/* A span that node lacks around it. */
typedef struct missing {
    pj_span_kind kind; /* PJ_SPAN_KIND_COUNT: none */
    uint32_t id;
    bool alone; /* around this node only */
} missing;

static const missing nothing = {.kind = PJ_SPAN_KIND_COUNT};

/* The layer of a component or operation that names one without being in a layer's span. */
static missing lacks_layer(const pj_tree *tree, uint32_t index)
{
    const pj_node *node = &tree->nodes[index];
    uint8_t outer = tree->nodes[node->parent].kind;
    if (node->kind <= PJ_SPAN_LAYER || !node->record) return nothing;
    if (node->parent && outer >= PJ_SPAN_LAYER && outer < PJ_SPAN_KIND_COUNT) return nothing;
    int32_t layer = span_of(node)->layer;
    return layer >= 0 ? (missing){PJ_SPAN_LAYER, (uint32_t)layer, false} : nothing;
}

/* The component of an operation, the token of a layer. */
static missing lacks_owner(const pj_tree *tree, uint32_t index)
{
    const pj_node *node = &tree->nodes[index];
    if (node->kind == PJ_SPAN_OPERATION &&
        pj_tree_ancestor(tree, index, PJ_SPAN_COMPONENT) == UINT32_MAX)
        return (missing){PJ_SPAN_COMPONENT, node->id, true};
    if (node->kind == PJ_SPAN_LAYER && pj_tree_ancestor(tree, index, PJ_SPAN_TOKEN) == UINT32_MAX)
        return (missing){PJ_SPAN_TOKEN, 0, false};
    return nothing;
}

/* The section of a component that is in no layer, section or token. */
static missing lacks_section(const pj_tree *tree, uint32_t index)
{
    if (tree->nodes[index].kind != PJ_SPAN_COMPONENT) return nothing;
    uint32_t at = tree->nodes[index].parent;
    while (at &&
           (tree->nodes[at].kind == PJ_SPAN_COMPONENT || tree->nodes[at].kind == PJ_SPAN_OPERATION))
        at = tree->nodes[at].parent;
    bool bare = at == 0 || tree->nodes[at].kind == PJ_SPAN_PHASE;
    return bare ? (missing){PJ_SPAN_SECTION, 0, false} : nothing;
}

static missing lacks_phase(const pj_tree *tree, uint32_t index)
{
    const pj_node *node = &tree->nodes[index];
    if (node->parent != 0 || node->kind == PJ_SPAN_PHASE) return nothing;
    return (missing){PJ_SPAN_PHASE, node->phase, false};
}

/* Synthesised spans by parent: the one that its last child was put into, 0 when that child needed
 * none. Consecutive children share a synthesised span; it never extends over a recorded sibling. */
typedef struct made_up {
    uint32_t *last; /* [nodes at the start] */
    uint32_t nodes;
} made_up;

static bool tree_make_up(pj_tree *tree, made_up *m, uint32_t index, missing what)
{
    uint32_t parent = tree->nodes[index].parent;
    uint32_t around = !what.alone && parent < m->nodes ? m->last[parent] : 0;
    /* the time around spans of devices is not the host's, except that of a whole phase */
    uint8_t device = what.kind == PJ_SPAN_PHASE ? PJ_HOST : PJ_NO_DEVICE;
    if (!around || tree->nodes[around].kind != what.kind || tree->nodes[around].id != what.id) {
        pj_node *node = tree_add_node(tree);
        if (!node) return false;
        around = tree->node_count - 1;
        *node = tree->nodes[index];
        if (node->device != PJ_HOST) node->device = device;
        node->record = NULL;
        node->kind = (uint8_t)what.kind;
        node->id = what.id;
        node->text = UINT32_MAX;
        if (parent < m->nodes) m->last[parent] = around;
    }
    pj_node *wrap = &tree->nodes[around], *node = &tree->nodes[index];
    if (node->device != PJ_HOST) wrap->device = device;
    if (wrap->begin_ns > node->begin_ns) wrap->begin_ns = node->begin_ns;
    if (wrap->end_ns < node->end_ns) wrap->end_ns = node->end_ns;
    node->parent = around;
    return true;
}

/* Synthesises what the nodes so far lack. Where they lack nothing the memory is never touched. */
static bool tree_supply(pj_tree *tree, made_up *m, missing (*lacks)(const pj_tree *, uint32_t))
{
    uint32_t nodes = tree->node_count;
    for (uint32_t i = 1; i < nodes; i++) {
        missing what = lacks(tree, i);
        uint32_t parent = tree->nodes[i].parent;
        if (what.kind == PJ_SPAN_KIND_COUNT) {
            if (parent < m->nodes && m->last[parent]) m->last[parent] = 0;
        } else if (!tree_make_up(tree, m, i, what)) {
            return false;
        }
    }
    if (tree->node_count > nodes) memset(m->last, 0, m->nodes * sizeof *m->last);
    return true;
}

/* A token in a section may be inside another token: rare, so it is counted as nested. */
static bool is_nested(const pj_tree *tree, uint32_t index)
{
    uint8_t kind = tree->nodes[index].kind, outer = tree->nodes[tree->nodes[index].parent].kind;
    return pj_tree_stands_apart(outer, kind) || (kind == PJ_SPAN_TOKEN && outer == PJ_SPAN_SECTION);
}

/* Everything must be in a phase, a layer in a token, an operation in a component, a component in a
 * token or a section: parents that a client did not open, or that were lost, are synthesised. */
static bool tree_complete(pj_tree *tree)
{
    made_up m = {pj_alloc(tree->node_count, sizeof *m.last), tree->node_count};
    bool ok = m.last && tree_supply(tree, &m, lacks_layer) && tree_supply(tree, &m, lacks_owner) &&
              tree_supply(tree, &m, lacks_section) && tree_supply(tree, &m, lacks_phase);
    pj_free(m.last);
    for (uint32_t i = 1; ok && i < tree->node_count && !tree->nested; i++)
        tree->nested = is_nested(tree, i);
    return ok;
}

/* ---- children ---- */

static _Thread_local const pj_node *sort_base; /* qsort has no context */

static int tree_by_begin(const void *a, const void *b)
{
    const pj_node *x = &sort_base[*(const uint32_t *)a], *y = &sort_base[*(const uint32_t *)b];
    return x->begin_ns != y->begin_ns ? (x->begin_ns < y->begin_ns ? -1 : 1)
                                      : (*(const uint32_t *)a < *(const uint32_t *)b ? -1 : 1);
}

static uint32_t key_of(const uint32_t *key, size_t stride, uint32_t item)
{
    return *(const uint32_t *)(const void *)((const char *)key + item * stride);
}

bool pj_group(const uint32_t *key, size_t stride, uint32_t first, uint32_t count, uint32_t keys,
              pj_arena *arena, pj_groups *g)
{
    g->begin = pj_arena_alloc(arena, (size_t)keys + 2, sizeof *g->begin);
    g->items = pj_arena_alloc(arena, count, sizeof *g->items);
    if (!g->begin || !g->items) return false;
    uint32_t *at = g->begin + 1; /* counts, then begins, then ends: the next key's begin */
    for (uint32_t i = first; i < count; i++) at[key_of(key, stride, i)]++;
    for (uint32_t k = 0, sum = 0; k < keys; k++) {
        uint32_t own = at[k];
        at[k] = sum;
        sum += own;
    }
    for (uint32_t i = first; i < count; i++) g->items[at[key_of(key, stride, i)]++] = i;
    return true;
}

static bool group_children(pj_tree *tree)
{
    uint32_t n = tree->node_count;
    pj_groups g;
    if (!pj_group(&tree->nodes->parent, sizeof *tree->nodes, 1, n, n, &tree->arena, &g))
        return false;
    tree->child_begin = g.begin;
    tree->children = g.items;
    for (uint32_t p = 0; p < n; p++) {
        uint32_t begin = tree->child_begin[p], end = tree->child_begin[p + 1];
        bool sorted = true;
        for (uint32_t k = begin + 1; k < end && sorted; k++)
            sorted = tree->nodes[tree->children[k - 1]].begin_ns <=
                     tree->nodes[tree->children[k]].begin_ns;
        if (sorted) continue;
        sort_base = tree->nodes;
        qsort(tree->children + begin, end - begin, sizeof *tree->children, tree_by_begin);
    }
    return true;
}

/* ---- classes and leaves ---- */

static bool is_class(const pj_tree *tree, uint32_t index, const pj_tree_class *wanted)
{
    const pj_tree_class *c = &tree->classes[index];
    return c->component == wanted->component && c->operation == wanted->operation &&
           c->phase == wanted->phase && c->device == wanted->device;
}

static uint32_t tree_class_of(pj_tree *tree, uint8_t device, uint8_t phase, uint32_t component,
                              uint32_t operation)
{
    const pj_tree_class wanted = {component, operation, phase, device, NAN, NAN};
    uint32_t at = (component * 31 + operation * 7 + phase + device * 5u) % PJ_RECENT_CLASSES;
    uint32_t *recent = &tree->recent_class[at]; /* cache: most leaves hit it */
    if (*recent < tree->class_count && is_class(tree, *recent, &wanted)) return *recent;
    for (uint32_t i = 0; i < tree->class_count; i++)
        if (is_class(tree, i, &wanted)) return *recent = i;
    if (!tree_grow((void **)&tree->classes, &tree->class_capacity, tree->class_count,
                   sizeof *tree->classes))
        return UINT32_MAX;
    tree->classes[tree->class_count] = wanted;
    return tree->class_count++;
}

/* Class of a span without children. Sections and coarser spans use the section's name. */
static uint32_t class_of_leaf(pj_tree *tree, uint32_t index)
{
    const pj_node *node = &tree->nodes[index];
    uint32_t component = 0, operation = 0;
    if (node->kind == PJ_SPAN_COMPONENT || node->kind == PJ_SPAN_SECTION) component = node->id;
    if (node->kind == PJ_SPAN_LAYER && node->device != PJ_HOST) component = PJ_CLASS_LAYER;
    if (node->kind == PJ_SPAN_OPERATION) {
        uint32_t around = pj_tree_ancestor(tree, index, PJ_SPAN_COMPONENT);
        component = around == UINT32_MAX ? 0 : tree->nodes[around].id;
        operation = node->id;
    }
    return tree_class_of(tree, node->device, node->phase, component, operation);
}

static bool make_room_for_leaf(pj_tree *tree)
{
    void *all = tree->leaves ? tree->leaves - 1 : NULL;
    if (!all) { /* one allocation usually suffices */
        tree->leaf_capacity = tree->node_count + 3;
        all = pj_alloc(tree->leaf_capacity, sizeof *tree->leaves);
    } else if (!tree_grow(&all, &tree->leaf_capacity, tree->leaf_count + 2, sizeof *tree->leaves)) {
        return false;
    }
    if (all) tree->leaves = (pj_leaf *)all + 1;
    return all != NULL;
}

/* The leaves of one device, while the tree is cut. */
typedef struct device_cut {
    pj_tree *tree;
    uint8_t device;
    uint32_t first;  /* its first leaf */
    bool unordered;  /* some leaf begins before its predecessor does */
    int64_t last_ns; /* where the leaf that was added last ends */
} device_cut;

static bool tree_add_leaf(device_cut *cut, int64_t begin_ns, int64_t end_ns, uint32_t node,
                          uint32_t class_)
{
    pj_tree *tree = cut->tree;
    if (class_ == UINT32_MAX || !make_room_for_leaf(tree)) return false;
    if (tree->leaf_count == 0 && tree->begin_ns < begin_ns) begin_ns = tree->begin_ns;
    if (tree->leaf_count > cut->first) {
        tree->overlaps |= cut->last_ns > begin_ns;
        cut->unordered |= tree->leaves[tree->leaf_count - 1].begin_ns > begin_ns;
    }
    cut->last_ns = end_ns;
    tree->leaves[tree->leaf_count++] = (pj_leaf){begin_ns, end_ns, class_, node};
    return true;
}

/* Time of a device's component that no operation covers is the component's; between the components
 * of a layer the device has nothing to do. */
static uint32_t tree_class_of_gap(const device_cut *cut, uint32_t index)
{
    const pj_node *node = &cut->tree->nodes[index];
    bool works = cut->device != PJ_HOST && node->kind != PJ_SPAN_LAYER;
    return works ? class_of_leaf(cut->tree, index)
                 : tree_class_of(cut->tree, cut->device, node->phase, 0, 0);
}

static bool add_gap(device_cut *cut, uint32_t index, int64_t begin_ns, int64_t end_ns)
{
    pj_tree *tree = cut->tree;
    if (end_ns <= begin_ns) return true;
    pj_leaf *last = tree->leaf_count > cut->first ? &tree->leaves[tree->leaf_count - 1] : NULL;
    bool at_begin = !last && cut->device == PJ_HOST; /* then the first leaf starts with the run */
    bool joins = last && last->end_ns == begin_ns &&
                 tree->nodes[last->node].phase == tree->nodes[index].phase;
    if (end_ns - begin_ns < LEAST_GAP_NS && (at_begin || joins)) {
        if (last) last->end_ns = cut->last_ns = end_ns;
        return true;
    }
    return tree_add_leaf(cut, begin_ns, end_ns, index, tree_class_of_gap(cut, index));
}

/* A span without children in it: the work that its record states is that of the leaf. */
static uint32_t tree_class_with_work(pj_tree *tree, uint32_t index)
{
    uint32_t class_ = class_of_leaf(tree, index);
    const pj_node *node = &tree->nodes[index];
    pj_span_view view;
    bool is_whole = tree->child_begin[index] == tree->child_begin[index + 1];
    if (is_whole && class_ != UINT32_MAX && node->record && pj_span_view_get(node->record, &view)) {
        pj_tree_class *c = &tree->classes[class_];
        c->flops = pj_add_known(c->flops, (double)view.span->flops);
        c->bytes = pj_add_known(c->bytes, (double)view.span->bytes);
    }
    return class_;
}

static bool tree_has_children_on(const pj_tree *tree, uint32_t index, uint8_t device)
{
    for (uint32_t k = tree->child_begin[index]; k < tree->child_begin[index + 1]; k++) {
        uint32_t child = tree->children[k];
        if (tree->nodes[child].device == device || tree_has_children_on(tree, child, device))
            return true;
    }
    return false;
}

static bool tree_cut_inside(device_cut *cut, uint32_t index, uint32_t owner, int64_t *covered_ns);

/* The leaves of a span of the device. */
static bool tree_cut_own(device_cut *cut, uint32_t index)
{
    pj_tree *tree = cut->tree;
    const pj_node node = tree->nodes[index];
    int64_t covered_ns = node.begin_ns;
    bool is_leaf = tree->device_count > 1
                       ? !tree_has_children_on(tree, index, cut->device)
                       : tree->child_begin[index] == tree->child_begin[index + 1];
    if (is_leaf)
        return tree_add_leaf(cut, node.begin_ns, node.end_ns, index,
                             tree_class_with_work(tree, index));
    return tree_cut_inside(cut, index, index, &covered_ns) &&
           add_gap(cut, index, covered_ns, node.end_ns);
}

/* What lies inside a span: what is the device's, and the time between that, which is the owner's;
 * UINT32_MAX: nobody's. Recursion is as deep as the spans nest: 16 on a lane and a few more by
 * context. */
static bool tree_cut_inside(device_cut *cut, uint32_t index, uint32_t owner, int64_t *covered_ns)
{
    const pj_tree *tree = cut->tree;
    for (uint32_t k = tree->child_begin[index]; k < tree->child_begin[index + 1]; k++) {
        uint32_t child = tree->children[k];
        if (tree->nodes[child].device != cut->device) {
            if (!tree_cut_inside(cut, child, owner, covered_ns)) return false;
            continue;
        }
        if (owner != UINT32_MAX && !add_gap(cut, owner, *covered_ns, tree->nodes[child].begin_ns))
            return false;
        if (!tree_cut_own(cut, child)) return false;
        if (*covered_ns < tree->nodes[child].end_ns) *covered_ns = tree->nodes[child].end_ns;
    }
    return true;
}

static int tree_leaf_by_begin(const void *a, const void *b)
{
    const pj_leaf *x = a, *y = b;
    return x->begin_ns < y->begin_ns ? -1 : x->begin_ns > y->begin_ns;
}

/* ---- idle time of devices ---- */

/* The run's time by the host's phase, section or token that it lies in. */
typedef struct host_times {
    pj_leaf *items; /* in order, without gaps; class_ is not used */
    uint32_t count, capacity;
    int64_t end_ns; /* of the last, or the run's begin */
} host_times;

/* As with the host's leaves, a short gap belongs to what precedes it, at the begin to what
 * follows. */
static bool tree_add_time(host_times *times, uint32_t node, int64_t begin_ns, int64_t end_ns)
{
    if (end_ns <= times->end_ns) return true;
    if (end_ns - begin_ns < LEAST_GAP_NS) {
        if (times->count) times->items[times->count - 1].end_ns = times->end_ns = end_ns;
        return true;
    }
    begin_ns = times->end_ns;
    times->end_ns = end_ns;
    if (!tree_grow((void **)&times->items, &times->capacity, times->count, sizeof *times->items))
        return false;
    times->items[times->count++] = (pj_leaf){begin_ns, end_ns, 0, node};
    return true;
}

static bool tree_collect_times(const pj_tree *tree, uint32_t index, int64_t *at_ns,
                               host_times *times)
{
    for (uint32_t k = tree->child_begin[index]; k < tree->child_begin[index + 1]; k++) {
        const pj_node *child = &tree->nodes[tree->children[k]];
        bool is_host = child->device == PJ_HOST || child->device == PJ_NO_DEVICE;
        if (child->kind > PJ_SPAN_TOKEN || !is_host) continue;
        if (!tree_add_time(times, index, *at_ns, child->begin_ns)) return false;
        if (*at_ns < child->begin_ns) *at_ns = child->begin_ns;
        if (!tree_collect_times(tree, tree->children[k], at_ns, times)) return false;
    }
    int64_t end_ns = tree->nodes[index].end_ns;
    if (!tree_add_time(times, index, *at_ns, end_ns)) return false;
    if (*at_ns < end_ns) *at_ns = end_ns;
    return true;
}

/* Adds a device's idle time from `begin_ns` to `end_ns`; `at` is the first of the host's times that
 * does not end before it. */
static bool tree_add_idle(device_cut *cut, const host_times *times, uint32_t *at, int64_t begin_ns,
                          int64_t end_ns)
{
    pj_tree *tree = cut->tree;
    while (begin_ns < end_ns && *at < times->count) {
        const pj_leaf *time = &times->items[*at];
        if (time->end_ns <= begin_ns) {
            ++*at;
            continue;
        }
        int64_t until_ns = time->end_ns < end_ns ? time->end_ns : end_ns;
        uint32_t class_ = tree_class_of(tree, cut->device, tree->nodes[time->node].phase, 0, 0);
        if (!tree_add_leaf(cut, begin_ns, until_ns, time->node, class_)) return false;
        begin_ns = until_ns;
    }
    return true;
}

/* The time that the device's leaves, which are sorted, leave out becomes leaves of idle time. */
static bool tree_fill_idle(device_cut *cut, const host_times *times)
{
    pj_tree *tree = cut->tree;
    uint32_t busy_end = tree->leaf_count, at = 0;
    int64_t covered_ns = tree->begin_ns, *busy_ns = &tree->busy_ns[cut->device];
    bool overlaps = tree->overlaps; /* as far as spans do */
    for (uint32_t i = cut->first; i < busy_end; i++) {
        pj_leaf leaf = tree->leaves[i];
        if (!tree_add_idle(cut, times, &at, covered_ns, leaf.begin_ns)) return false;
        int64_t from_ns = leaf.begin_ns > covered_ns ? leaf.begin_ns : covered_ns;
        bool is_idle = pj_tree_class_is_idle(&tree->classes[leaf.class_]);
        if (leaf.end_ns > from_ns && !is_idle) *busy_ns += leaf.end_ns - from_ns;
        if (covered_ns < leaf.end_ns) covered_ns = leaf.end_ns;
    }
    bool ok = tree_add_idle(cut, times, &at, covered_ns, tree->end_ns);
    tree->overlaps = overlaps;
    return ok;
}

static void tree_sort_leaves(pj_tree *tree, uint32_t first)
{
    qsort(tree->leaves + first, tree->leaf_count - first, sizeof *tree->leaves, tree_leaf_by_begin);
}

static bool tree_cut_device(pj_tree *tree, uint8_t device, const host_times *times)
{
    device_cut cut = {.tree = tree, .device = device, .first = tree->leaf_count};
    int64_t covered_ns = 0;
    if (!tree_cut_inside(&cut, 0, UINT32_MAX, &covered_ns)) return false;
    if (cut.unordered) tree_sort_leaves(tree, cut.first);
    return tree_fill_idle(&cut, times);
}

static bool tree_cut_host(pj_tree *tree)
{
    device_cut cut = {.tree = tree, .device = PJ_HOST};
    return tree_cut_own(&cut, 0);
}

static bool tree_cut_devices(pj_tree *tree)
{
    host_times times = {.end_ns = tree->begin_ns};
    int64_t at_ns = tree->begin_ns;
    if (tree->device_count == 1) return true;
    bool ok = tree_collect_times(tree, 0, &at_ns, &times);
    if (ok && !times.count && tree->end_ns > tree->begin_ns) /* shorter than a gap */
        ok = tree_add_time(&times, 0, tree->begin_ns - LEAST_GAP_NS, tree->end_ns);
    for (uint32_t d = 1; ok && d < tree->device_count; d++)
        if (tree->devices >> d & 1) ok = tree_cut_device(tree, (uint8_t)d, &times);
    pj_free(times.items);
    return ok;
}

/* ---- the whole tree ---- */

void pj_tree_class_name(const pj_tree *tree, const pj_tree_class *c, char *text, size_t bytes)
{
    if (!c->component && !c->operation)
        snprintf(text, bytes, "(between)");
    else if (c->component == PJ_CLASS_LAYER)
        snprintf(text, bytes, "(layer)");
    else if (!c->operation)
        snprintf(text, bytes, "%s", pj_tree_name(tree, c->component));
    else if (!c->component)
        snprintf(text, bytes, "%s", pj_tree_name(tree, c->operation));
    else
        snprintf(text, bytes, "%s/%s", pj_tree_name(tree, c->component),
                 pj_tree_name(tree, c->operation));
}

static pj_status read_spans(reading_state *r, pj_spool_reader *reader, pj_error *err)
{
    pj_node *root = tree_add_node(r->tree);
    if (!root) return pj_fail_memory(err, "the spans of a run");
    *root = (pj_node){.kind = PJ_NODE_ROOT, .phase = PJ_PHASE_IDLE, .text = UINT32_MAX};
    pj_spool_rewind(reader);
    for (const pj_record *record; (record = pj_spool_next(reader));) {
        pj_status status = tree_take_record(r, record, err);
        if (status != PJ_OK) return status;
    }
    if (!close_open(r) || !attach_roots(r)) return pj_fail_memory(err, "the spans of a run");
    cut_long_chains(r->tree);
    if (!tree_complete(r->tree)) return pj_fail_memory(err, "the spans of a run");
    return PJ_OK;
}

static int64_t tree_sound_time(int64_t ns)
{
    return ns < 0 || ns >= PJ_LATEST_NS ? 0 : ns;
}

/* A span's record takes at least 64 bytes, with statistics and extras 100 and more. */
static uint32_t likely_nodes(const pj_spool_reader *reader)
{
    size_t nodes = reader->mapping.size / 100 + 1024;
    return nodes < UINT32_MAX / 4 ? (uint32_t)nodes : UINT32_MAX / 4;
}

pj_status pj_tree_init(pj_tree *tree, pj_spool_reader *reader, pj_arena *arena, pj_error *err)
{
    *tree = (pj_tree){.spool_ns = reader->start_ns,
                      .spool_wall_ns = reader->start_wall_ns,
                      .status = PJ_RUN_INTERRUPTED,
                      .device_count = 1};
    reading_state r = {.tree = tree, .arena = arena, .last_ns = tree_sound_time(reader->start_ns)};
    uint32_t likely = likely_nodes(reader); /* avoids reallocation */
    tree->nodes = pj_alloc(likely, sizeof *tree->nodes);
    tree->node_capacity = tree->nodes ? likely : 0;
    pj_status status =
        tree->nodes ? read_spans(&r, reader, err) : pj_fail_memory(err, "the spans of a run");
    for (uint32_t i = 0; i < r.lane_count; i++) pj_free(r.lanes[i].pending);
    pj_free(r.lanes);
    pj_free(r.launches);
    if (!tree->end_ns) tree->end_ns = r.last_ns;
    if (status != PJ_OK) pj_tree_fini(tree);
    return status;
}

static int64_t clipped(const pj_tree *tree, int64_t at_ns)
{
    return at_ns < tree->begin_ns ? tree->begin_ns : at_ns > tree->end_ns ? tree->end_ns : at_ns;
}

/* A program's own times may be wrong: the run has energy from its begin to its end only. */
void pj_tree_begin(pj_tree *tree, int64_t begin_ns)
{
    tree->begin_ns = tree_sound_time(begin_ns);
    if (tree->end_ns < tree->begin_ns) tree->end_ns = tree->begin_ns;
    tree->nodes[0].begin_ns = tree->begin_ns;
    tree->nodes[0].end_ns = tree->end_ns;
    for (uint32_t i = 1; i < tree->node_count; i++) {
        tree->nodes[i].begin_ns = clipped(tree, tree->nodes[i].begin_ns);
        tree->nodes[i].end_ns = clipped(tree, tree->nodes[i].end_ns);
    }
}

static int64_t stretched(const pj_tree *tree, int64_t at_ns, double factor)
{
    return tree->begin_ns + (int64_t)llround((double)(at_ns - tree->begin_ns) * factor);
}

void pj_tree_stretch(pj_tree *tree, double factor)
{
    for (uint32_t i = 0; i < tree->node_count; i++) {
        tree->nodes[i].begin_ns = stretched(tree, tree->nodes[i].begin_ns, factor);
        tree->nodes[i].end_ns = stretched(tree, tree->nodes[i].end_ns, factor);
    }
    tree->end_ns = stretched(tree, tree->end_ns, factor);
}

void pj_tree_move_to_device(pj_tree *tree)
{
    for (uint32_t i = 1; i < tree->node_count; i++)
        if (tree->nodes[i].kind >= PJ_SPAN_LAYER && tree->nodes[i].kind < PJ_SPAN_KIND_COUNT)
            tree->nodes[i].device = tree->nodes[i].row_device = 1;
    pj_tree_add_device(tree, 1);
}

pj_status pj_tree_cut(pj_tree *tree, pj_error *err)
{
    if (!group_children(tree) || !make_room_for_leaf(tree) || !tree_cut_host(tree) ||
        !tree_cut_devices(tree) ||
        (tree->idle_class = tree_class_of(tree, PJ_HOST, PJ_PHASE_IDLE, 0, 0)) == UINT32_MAX)
        return pj_fail_memory(err, "the spans of a run");
    if (tree->overlaps || tree->device_count > 1) tree_sort_leaves(tree, 0);
    return PJ_OK;
}

void pj_tree_fini(pj_tree *tree)
{
    pj_free(tree->names);
    pj_free(tree->nodes);
    pj_free(tree->texts);
    pj_arena_fini(&tree->arena);
    if (tree->leaves) pj_free(tree->leaves - 1);
    pj_free(tree->classes);
    pj_free(tree->notes);
    *tree = (pj_tree){0};
}
