/* Builds the design matrix in one sweep: windows and leaves are both sorted by begin, so the first
 * leaf that can overlap a window only moves forward. A running maximum of the ends bounds how far
 * back an overlapping (parallel) leaf may reach. */
#include "energy/design.h"

#include "base/memory.h"

#include <math.h>

void pj_design_fini(pj_design *design)
{
    pj_free(design->row_begin);
    pj_free(design->column);
    pj_free(design->seconds);
    pj_free(design->total_s);
    *design = (pj_design){0};
}

typedef struct sweep {
    const pj_fit_input *input;
    size_t knots;
    int64_t *reach;  /* [leaves] maximum end of leaves 0..i */
    double *scratch; /* [classes] seconds in the current window */
    uint32_t *touched;
    size_t capacity;
} sweep;

static bool reserve(pj_design *d, size_t *capacity, size_t needed)
{
    if (needed <= *capacity) return true;
    size_t larger = *capacity * 2 > needed ? *capacity * 2 : needed + 1024;
    uint32_t *column = pj_resize(d->column, larger, sizeof *column);
    if (!column) return false;
    d->column = column;
    double *seconds = pj_resize(d->seconds, larger, sizeof *seconds);
    if (!seconds) return false;
    d->seconds = seconds;
    *capacity = larger;
    return true;
}

/* Writes the (at most two) hat functions that overlap a window. A piecewise linear hat is
 * integrated by its value at the window's middle: windows are short compared to hats. */
static size_t add_hats(pj_design *d, const sweep *s, const pj_window *w, size_t at)
{
    if (s->knots == 0) return 0;
    const pj_fit_input *in = s->input;
    double length = (double)(w->end_ns - w->begin_ns);
    double position = ((double)(w->begin_ns - in->begin_ns) + length / 2) /
                      (double)(in->end_ns - in->begin_ns) * (double)(s->knots - 1);
    size_t count = 0, before = position > 0 ? (size_t)position : 0;
    for (size_t k = before; k < before + 2 && k < s->knots; k++) {
        double height = 1 - fabs(position - (double)k);
        if (!(height > 0)) continue;
        d->column[at + count] = in->class_count + (uint32_t)k;
        d->seconds[at + count++] = height * length * 1e-9;
    }
    return count;
}

/* Adds one window's row; `first` is the first leaf that can overlap it. */
static bool add_row(pj_design *d, sweep *s, size_t row, size_t first)
{
    const pj_window *w = &s->input->windows[row];
    size_t count = 0, at = d->row_begin[row];
    for (size_t i = first; i < s->input->leaf_count; i++) {
        const pj_leaf *leaf = &s->input->leaves[i];
        if (leaf->begin_ns >= w->end_ns) break;
        int64_t begin = leaf->begin_ns > w->begin_ns ? leaf->begin_ns : w->begin_ns;
        int64_t end = leaf->end_ns < w->end_ns ? leaf->end_ns : w->end_ns;
        if (end <= begin) continue;
        if (s->scratch[leaf->class_] == 0) s->touched[count++] = leaf->class_;
        s->scratch[leaf->class_] += (double)(end - begin) * 1e-9;
    }
    if (!reserve(d, &s->capacity, at + count + 2)) return false;
    for (size_t k = 0; k < count; k++) {
        d->column[at + k] = s->touched[k];
        d->seconds[at + k] = s->scratch[s->touched[k]];
        s->scratch[s->touched[k]] = 0;
    }
    count += add_hats(d, s, w, at + count);
    d->row_begin[row + 1] = at + count;
    return true;
}

static void add_totals(pj_design *d, const pj_fit_input *in, size_t knots)
{
    double length = (double)(in->end_ns - in->begin_ns) * 1e-9;
    for (size_t i = 0; i < in->leaf_count; i++) {
        int64_t begin = in->leaves[i].begin_ns, end = in->leaves[i].end_ns;
        if (begin < in->begin_ns) begin = in->begin_ns;
        if (end > in->end_ns) end = in->end_ns;
        if (end > begin) d->total_s[in->leaves[i].class_] += (double)(end - begin) * 1e-9;
    }
    for (size_t k = 0; k < knots; k++) /* area of a hat; at the run's ends half of it */
        d->total_s[in->class_count + k] =
            length / (double)(knots - 1) * (k == 0 || k + 1 == knots ? .5 : 1);
}

pj_status pj_design_init(pj_design *design, const pj_fit_input *in, size_t knots, pj_error *err)
{
    sweep s = {.input = in, .knots = knots};
    pj_status status = PJ_OK;
    size_t first = 0;
    *design = (pj_design){.rows = in->window_count, .columns = in->class_count + knots};
    design->row_begin = pj_alloc(in->window_count + 1, sizeof *design->row_begin);
    design->total_s = pj_alloc(design->columns, sizeof *design->total_s);
    s.reach = pj_alloc(in->leaf_count, sizeof *s.reach);
    s.scratch = pj_alloc(in->class_count, sizeof *s.scratch);
    s.touched = pj_alloc(in->class_count, sizeof *s.touched);
    if (!design->row_begin || !design->total_s || !s.reach || !s.scratch || !s.touched) goto fail;
    for (size_t i = 0; i < in->leaf_count; i++) {
        int64_t end = in->leaves[i].end_ns;
        s.reach[i] = i > 0 && s.reach[i - 1] > end ? s.reach[i - 1] : end;
    }
    for (size_t row = 0; row < in->window_count; row++) {
        while (first < in->leaf_count && s.reach[first] <= in->windows[row].begin_ns) first++;
        if (!add_row(design, &s, row, first)) goto fail;
    }
    add_totals(design, in, knots);
    goto done;
fail:
    status = pj_fail_memory(err, "the attribution's design matrix");
    pj_design_fini(design);
done:
    pj_free(s.reach);
    pj_free(s.scratch);
    pj_free(s.touched);
    return status;
}
