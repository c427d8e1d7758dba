/* Merges the windows that lie inside one long leaf. They repeat one observation of its class, the
 * leaf's own power: taken one by one, a leaf that fills a hundred windows would look like a hundred
 * measurements that agree to the last digit, and power would seem never to vary within a class. */
#include "energy/attribute.h"

/* The only leaf of a window, if it covers all of it; SIZE_MAX otherwise. `first` is the first leaf
 * that ends after the window begins. */
static size_t only_leaf(const pj_window *w, const pj_leaf *leaves, size_t count, size_t first)
{
    bool covers =
        first < count && leaves[first].begin_ns <= w->begin_ns && leaves[first].end_ns >= w->end_ns;
    bool alone = first + 1 >= count || leaves[first + 1].begin_ns >= w->end_ns;
    return covers && alone ? first : SIZE_MAX;
}

/* A sensor that sees a part of the time leaves gaps. A window's position in the leaf does not
 * matter: the sum is one window of the length that they have together. */
static void merge_append(pj_window *to, const pj_window *w)
{
    to->parts = (to->parts > 0 ? to->parts : 1) + 1;
    to->end_ns += w->end_ns - w->begin_ns;
    to->energy_mj += w->energy_mj;
    to->sd_mj += w->sd_mj;
    to->end_s = w->end_s;
}

size_t pj_windows_merge(pj_window *windows, size_t count, const pj_leaf *leaves, size_t leaf_count)
{
    size_t used = 0, first = 0, before = SIZE_MAX;
    int64_t last_end = INT64_MIN;
    for (size_t i = 0; i < count; i++) {
        const pj_window w = windows[i];
        while (first < leaf_count && leaves[first].end_ns <= w.begin_ns) first++;
        size_t leaf = only_leaf(&w, leaves, leaf_count, first);
        bool outside = leaf == 0 || leaf + 1 == leaf_count; /* before and after the run */
        bool joins = used > 0 && last_end <= w.begin_ns && !(w.lag_s > 0);
        if (leaf != SIZE_MAX && !outside && leaf == before && joins)
            merge_append(&windows[used - 1], &w);
        else
            windows[used++] = w;
        before = leaf;
        last_end = w.end_ns;
    }
    return used;
}
