/* Builds the design matrix in one sweep: windows and leaves are both sorted by begin, so the first
 * leaf that can overlap a window only moves forward. A running maximum of the ends bounds how far
 * back an overlapping (parallel) leaf may reach. */
#include "energy/design.h"

#include "base/interval.h"

#include <math.h>

void pj_design_fini(pj_design *design)
{
    pj_arena_fini(&design->arena);
    pj_free(design->column);
    pj_free(design->seconds);
    pj_free(design->squares);
    pj_free(design->bound);
    *design = (pj_design){0};
}

typedef struct sweep {
    const pj_fit_input *input;
    size_t knots;
    int64_t *reach;  /* [leaves] maximum end of leaves 0..i */
    double *seen_s;  /* [leaves] time in all windows */
    double *scratch; /* [3][classes] seconds, squares, bound of the current window */
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
    double **const arrays[] = {&d->seconds, &d->squares, &d->bound};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) {
        double *array = pj_resize(*arrays[i], larger, sizeof *array);
        if (!array) return false;
        *arrays[i] = array;
    }
    *capacity = larger;
    return true;
}

/* The interval between knots that contains a time. */
static double position_of(const pj_fit_input *in, int64_t begin_ns, int64_t end_ns, size_t knots)
{
    double middle = (double)(begin_ns - in->begin_ns) + (double)(end_ns - begin_ns) / 2;
    return middle / (double)(in->end_ns - in->begin_ns) * (double)(knots - 1);
}

/* Writes the (at most two) hat functions that overlap a window. A piecewise linear hat is
 * integrated by its value at the window's middle: windows are short compared to hats. */
static size_t add_hats(pj_design *d, const sweep *s, const pj_window *w, double work, size_t at)
{
    if (s->knots == 0 || !(work > 0)) return 0;
    const pj_fit_input *in = s->input;
    double position = position_of(in, w->begin_ns, w->end_ns, s->knots);
    size_t count = 0, before = position > 0 ? (size_t)position : 0;
    for (size_t k = before; k < before + 2 && k < s->knots; k++) {
        double height = 1 - fabs(position - (double)k);
        if (!(height > 0)) continue;
        d->column[at + count] = in->class_count + (uint32_t)k;
        d->squares[at + count] = d->bound[at + count] = 0;
        d->seconds[at + count++] = height * work;
    }
    return count;
}

/* Time of every leaf in all windows together. */
static void add_seen(sweep *s)
{
    const pj_fit_input *in = s->input;
    size_t first = 0;
    for (size_t w = 0; w < in->window_count; w++) {
        while (first < in->leaf_count && s->reach[first] <= in->windows[w].begin_ns) first++;
        for (size_t i = first; i < in->leaf_count; i++) {
            if (in->leaves[i].begin_ns >= in->windows[w].end_ns) break;
            s->seen_s[i] += pj_window_part_s(&in->windows[w], &in->leaves[i]);
        }
    }
}

/* Adds one window's row; `first` is the first leaf that can overlap it. */
static bool design_add_row(pj_design *d, sweep *s, size_t row, size_t first)
{
    const pj_window *w = &s->input->windows[row];
    size_t count = 0, at = d->row_begin[row], classes = s->input->class_count;
    double *seconds = s->scratch, *squares = seconds + classes, *bound = squares + classes;
    for (size_t i = first; i < s->input->leaf_count; i++) {
        const pj_leaf *leaf = &s->input->leaves[i];
        if (leaf->begin_ns >= w->end_ns) break;
        double part_s = pj_window_part_s(w, leaf);
        if (!(part_s > 0)) continue;
        if (seconds[leaf->class_] == 0) s->touched[count++] = leaf->class_;
        seconds[leaf->class_] += part_s;
        squares[leaf->class_] += part_s * part_s;
        bound[leaf->class_] += part_s * s->seen_s[i];
    }
    if (!reserve(d, &s->capacity, at + count + 2)) return false;
    double work = 0;
    for (size_t k = 0; k < count; k++) {
        work += seconds[s->touched[k]];
        uint32_t c = s->touched[k];
        d->column[at + k] = c;
        d->seconds[at + k] = seconds[c];
        d->squares[at + k] = squares[c];
        d->bound[at + k] = bound[c];
        seconds[c] = squares[c] = bound[c] = 0;
    }
    count += add_hats(d, s, w, work, at + count);
    d->work[row] = work;
    d->row_begin[row + 1] = at + count;
    return true;
}

static void design_add_totals(pj_design *d, const pj_fit_input *in)
{
    for (size_t i = 0; i < in->leaf_count; i++) {
        int64_t begin = in->leaves[i].begin_ns, end = in->leaves[i].end_ns;
        if (begin < in->begin_ns) begin = in->begin_ns;
        if (end > in->end_ns) end = in->end_ns;
        if (end <= begin) continue;
        double leaf_s = (double)(end - begin) * 1e-9;
        d->total_s[in->leaves[i].class_] += leaf_s;
        d->total_squares[in->leaves[i].class_] += leaf_s * leaf_s;
    }
}

/* The hats' entries of the whole run. */
static void add_hat_totals(pj_design *d, const pj_fit_input *in, const double *powers)
{
    size_t knots = d->columns - in->class_count;
    double *total = d->total_s + in->class_count;
    for (size_t k = 0; k < knots; k++) total[k] = 0;
    for (size_t i = 0; knots && i < in->leaf_count; i++) {
        const pj_leaf *leaf = &in->leaves[i];
        int64_t begin = leaf->begin_ns > in->begin_ns ? leaf->begin_ns : in->begin_ns;
        int64_t end = leaf->end_ns < in->end_ns ? leaf->end_ns : in->end_ns;
        if (end <= begin) continue;
        double work = (double)(end - begin) * 1e-9 * (powers ? powers[leaf->class_] : 1);
        double position = position_of(in, begin, end, knots);
        size_t before = (size_t)position;
        if (before > knots - 2) before = knots - 2;
        total[before] += work * (1 - (position - (double)before));
        total[before + 1] += work * (position - (double)before);
    }
}

void pj_design_set_powers(pj_design *d, const pj_fit_input *in, const double *powers)
{
    if (d->columns == in->class_count) return;
    for (size_t w = 0; w < d->rows; w++) {
        double work = 0;
        if (!(d->work[w] > 0)) continue;
        for (size_t i = d->row_begin[w]; i < d->row_begin[w + 1]; i++)
            if (d->column[i] < in->class_count)
                work += fmax(powers[d->column[i]], 0) * d->seconds[i];
        work = fmax(work, 1e-6 * d->work[w]);
        for (size_t i = d->row_begin[w]; i < d->row_begin[w + 1]; i++)
            if (d->column[i] >= in->class_count) d->seconds[i] *= work / d->work[w];
        d->work[w] = work;
    }
    add_hat_totals(d, in, powers);
}

static bool design_allocate(pj_design *d, sweep *s, pj_arena *scratch)
{
    size_t leaves = s->input->leaf_count, classes = s->input->class_count;
    d->row_begin = pj_arena_alloc(&d->arena, d->rows + 1, sizeof *d->row_begin);
    d->work = pj_arena_alloc(&d->arena, d->rows + 1, sizeof *d->work);
    d->total_s = pj_arena_alloc(&d->arena, d->columns, sizeof *d->total_s);
    d->total_squares = pj_arena_alloc(&d->arena, d->columns, sizeof *d->total_squares);
    s->reach = pj_arena_alloc(scratch, leaves, sizeof *s->reach);
    s->seen_s = pj_arena_alloc(scratch, leaves, sizeof *s->seen_s);
    s->scratch = pj_arena_alloc(scratch, classes, 3 * sizeof *s->scratch);
    s->touched = pj_arena_alloc(scratch, classes, sizeof *s->touched);
    return d->row_begin && d->work && d->total_s && d->total_squares && s->reach && s->seen_s &&
           s->scratch && s->touched;
}

static bool design_add_rows(pj_design *d, sweep *s)
{
    const pj_fit_input *in = s->input;
    size_t first = 0;
    for (size_t i = 0; i < in->leaf_count; i++) {
        int64_t end = in->leaves[i].end_ns;
        s->reach[i] = i > 0 && s->reach[i - 1] > end ? s->reach[i - 1] : end;
    }
    add_seen(s);
    for (size_t row = 0; row < d->rows; row++) {
        while (first < in->leaf_count && s->reach[first] <= in->windows[row].begin_ns) first++;
        if (!design_add_row(d, s, row, first)) return false;
    }
    return true;
}

pj_status pj_design_init(pj_design *design, const pj_fit_input *in, size_t knots, pj_error *err)
{
    sweep s = {.input = in, .knots = knots};
    pj_arena scratch = {0};
    *design = (pj_design){.rows = in->window_count, .columns = in->class_count + knots};
    bool ok = design_allocate(design, &s, &scratch) && design_add_rows(design, &s);
    pj_arena_fini(&scratch);
    if (!ok) {
        pj_design_fini(design);
        return pj_fail_memory(err, "the attribution's design matrix");
    }
    design_add_totals(design, in);
    add_hat_totals(design, in, NULL);
    return PJ_OK;
}
