#include "cli/disturbances.h"

#include "cli/terminal.h"

#include <math.h>
#include <stdlib.h>

enum { SHOWN_EVENTS = 3 };

/* "token 14", "prefill", "gap at 120 ms" */
static void disturbance_place(const pj_disturbance *e, char *text, size_t bytes)
{
    switch (e->kind) {
    case PJ_DISTURBED_PROMPT: snprintf(text, bytes, "prefill"); return;
    case PJ_DISTURBED_LOAD: snprintf(text, bytes, "loading the model"); return;
    case PJ_DISTURBED_GAP: snprintf(text, bytes, "gap at %s", pj_time_text(e->start_ms).s); return;
    default: break;
    }
    if (e->tokens > 1)
        snprintf(text, bytes, "tokens %u to %u", e->token, e->token + e->tokens - 1);
    else
        snprintf(text, bytes, "token %u", e->token);
}

static int by_cost(const void *x, const void *y)
{
    const pj_disturbance *a = x, *b = y;
    bool known = !isnan(a->extra_mj) && !isnan(b->extra_mj);
    double p = known ? a->extra_mj : a->ms - a->expected_ms;
    double q = known ? b->extra_mj : b->ms - b->expected_ms;
    return (p < q) - (p > q);
}

static void print_event(FILE *out, const pj_disturbance *e, const char *next)
{
    char place[64], more[160] = "";
    disturbance_place(e, place, sizeof place);
    if (!isnan(e->extra_mj))
        snprintf(more, sizeof more, ", %s more", pj_interval_text(e->extra_mj, e->extra_sd_mj).s);
    pj_print(out, "%s%s: %s instead of %s%s; %s\n", next, place, pj_time_text(e->ms).s,
             pj_time_text(e->expected_ms).s, more, pj_disturbance_cause_text(e->cause));
}

static void print_sum(FILE *out, const pj_disturbances *list, const char *first)
{
    double mj = 0, ms = 0;
    for (uint32_t i = 0; i < list->count; i++) {
        mj += list->items[i].extra_mj;
        ms += list->items[i].ms - list->items[i].expected_ms;
    }
    pj_print(out, "%s%s%s%s, %u event%s beyond %g times what is expected\n", first,
             isnan(mj) ? "" : pj_energy_text(mj).s, isnan(mj) ? "" : " in ", pj_time_text(ms).s,
             list->count, list->count == 1 ? "" : "s", PJ_DISTURBED_RATIO);
}

void pj_print_disturbances(FILE *out, const pj_run_info *info, const char *first, const char *next)
{
    pj_arena arena;
    pj_disturbances list;
    pj_arena_init(&arena, 0);
    if (pj_disturbances_read(info->disturbances_json, &arena, &list, NULL) == PJ_OK && list.count) {
        print_sum(out, &list, first);
        qsort(list.items, list.count, sizeof *list.items, by_cost);
        for (uint32_t i = 0; i < list.count && i < SHOWN_EVENTS; i++)
            print_event(out, &list.items[i], next);
    }
    pj_arena_fini(&arena);
}
