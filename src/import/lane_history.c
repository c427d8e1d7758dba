#include "import/lane_history.h"

enum { FIRST_ENTRIES = 64, MOST_ENTRIES = 1 << 16 };

/* While the ring grows its entries are in order from the beginning. Without memory it stays as it
 * is and forgets earlier. */
static bool history_grow(pj_lane_history *h)
{
    if (h->count < h->capacity || h->capacity == MOST_ENTRIES) return h->capacity > 0;
    uint32_t more = h->capacity ? 2 * h->capacity : FIRST_ENTRIES;
    void *bigger = h->count > h->capacity ? NULL : pj_resize(h->entries, more, sizeof *h->entries);
    if (!bigger) return h->capacity > 0;
    h->entries = bigger;
    h->capacity = more;
    return true;
}

static void history_add(pj_lane_history *h, const pj_lane *lane, int64_t at_ns)
{
    if (!history_grow(h)) return;
    pj_lane_entry *e = &h->entries[h->count++ % h->capacity];
    uint32_t depth = h->depth < PJ_MAX_OPEN_SPANS ? h->depth : PJ_MAX_OPEN_SPANS;
    e->at_ns = at_ns;
    e->begin_ns = depth ? h->begins_ns[depth - 1] : INT64_MIN;
    pj_lane_locate(lane, &e->place);
}

void pj_lane_history_begin(pj_lane_history *h, const pj_lane *lane, int64_t at_ns)
{
    if (h->depth < PJ_MAX_OPEN_SPANS) h->begins_ns[h->depth] = at_ns;
    h->depth++;
    history_add(h, lane, at_ns);
}

void pj_lane_history_end(pj_lane_history *h, const pj_lane *lane, int64_t at_ns)
{
    if (h->depth) h->depth--;
    history_add(h, lane, at_ns);
}

const pj_lane_entry *pj_lane_history_at(const pj_lane_history *h, int64_t at_ns)
{
    uint64_t low = h->count > h->capacity ? h->count - h->capacity : 0, high = h->count;
    const uint64_t first = low;
    while (low < high) { /* the first entry after that time */
        uint64_t middle = (low + high) / 2;
        if (h->entries[middle % h->capacity].at_ns > at_ns)
            high = middle;
        else
            low = middle + 1;
    }
    if (low == first) return NULL;
    const pj_lane_entry *found = &h->entries[(low - 1) % h->capacity];
    return found->begin_ns == INT64_MIN ? NULL : found;
}

int64_t pj_lane_history_until(const pj_lane_history *h)
{
    return h->count ? h->entries[(h->count - 1) % h->capacity].at_ns : INT64_MIN;
}

void pj_lane_history_fini(pj_lane_history *h)
{
    pj_free(h->entries);
    *h = (pj_lane_history){0};
}
