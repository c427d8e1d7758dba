/* Finding the tokens between reasoning marks. */
#include "trace/thinking.h"

#include "base/buffer.h"
#include "base/memory.h"
#include "trace/json_member.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TEXT_BYTES = 256 << 20 };

static const struct {
    const char *open, *close;
} marks[] = {
    {"<think>", "</think>"}, {"<thinking>", "</thinking>"},     {"<reasoning>", "</reasoning>"},
    {"[THINK]", "[/THINK]"}, {"<seed:think>", "</seed:think>"}, {"<|channel|>analysis", "<|end|>"},
};

/* One begins every call. A model uses one kind, or nests one in another. */
static const char *const call_marks[] = {"<tool_call>",
                                         "<function=",
                                         "<invoke name=",
                                         "[TOOL_CALLS]",
                                         "<|python_tag|>",
                                         "<|tool_call|>",
                                         "<|tool_call_start|>",
                                         "<|tool_call_begin|>",
                                         "<\uff5ctool\u2581call\u2581begin\uff5c>",
                                         "<|channel|>commentary to=functions."};

enum { MARKS = sizeof marks / sizeof *marks };

/* One sequence's rows and text. */
typedef struct sequence {
    const uint32_t *rows; /* indices of its rows, by position */
    size_t *ends;         /* of each row's text */
    size_t count;
    pj_buffer text;
} sequence;

typedef struct found {
    double tokens, ms, mj;
    bool any;
    double calls; /* of tools */
} found;

static void take_row(const pj_run_data *d, uint32_t index, found *f)
{
    const pj_token_row *row = &d->tokens[index];
    f->tokens++;
    if (d->phases[row->phase].phase != PJ_PHASE_DECODE) return;
    f->mj += pj_mj_of_nj(row->energy.gross_nj);
    f->ms += row->duration_ms;
}

/* The rows whose text overlaps bytes from `begin` to `end`; a row without text belongs to where it
 * stands. */
static void take_range(const pj_run_data *d, const sequence *s, size_t begin, size_t end, found *f)
{
    for (size_t i = 0; i < s->count; i++) {
        size_t from = i ? s->ends[i - 1] : 0, to = s->ends[i];
        if (from < end && (to > begin || (from == to && from >= begin))) take_row(d, s->rows[i], f);
    }
    f->any = true;
}

/* The first of the marks from `at` on: which one, where; -1: none. */
static int next_mark(const char *text, bool closing, const char **where)
{
    int which = -1;
    for (int m = 0; m < MARKS; m++) {
        const char *at = strstr(text, closing ? marks[m].close : marks[m].open);
        if (!at || (which >= 0 && at >= *where)) continue;
        which = m;
        *where = at;
    }
    return which;
}

static void search(const pj_run_data *d, const sequence *s, found *f)
{
    const char *text = pj_buffer_get(&s->text), *open = NULL, *close = NULL;
    int opened = next_mark(text, false, &open), closed = next_mark(text, true, &close);
    /* "<|end|>" ends every message of its format, not only the analysis */
    if (closed >= 0 && closed != MARKS - 1 && (opened < 0 || close < open)) {
        const char *at = close + strlen(marks[closed].close);
        take_range(d, s, 0, (size_t)(at - text), f);
        opened = next_mark(at, false, &open);
    }
    while (opened >= 0) {
        const char *inside = open + strlen(marks[opened].open);
        const char *end = strstr(inside, marks[opened].close);
        const char *at = end ? end + strlen(marks[opened].close) : text + s->text.length;
        take_range(d, s, (size_t)(open - text), (size_t)(at - text), f);
        opened = next_mark(at, false, &open);
    }
}

static double calls_in(const char *text)
{
    double most = 0;
    for (size_t m = 0; m < sizeof call_marks / sizeof *call_marks; m++) {
        double calls = 0;
        size_t length = strlen(call_marks[m]);
        for (const char *at = text; (at = strstr(at, call_marks[m])); at += length) calls++;
        most = fmax(most, calls);
    }
    return most;
}

static pj_status search_sequence(const pj_run_data *d, sequence *s, found *f, pj_error *err)
{
    pj_buffer_clear(&s->text);
    for (size_t i = 0; i < s->count; i++) {
        const char *text = d->tokens[s->rows[i]].text;
        pj_buffer_text(&s->text, text ? text : "");
        s->ends[i] = s->text.length;
    }
    pj_status status = pj_buffer_status(&s->text, "the text of a run", err);
    if (status != PJ_OK || !s->text.length) return status;
    search(d, s, f);
    f->calls += calls_in(pj_buffer_get(&s->text));
    return PJ_OK;
}

static void count_first(const pj_run_data *d, const sequence *s, double tokens, found *f)
{
    for (size_t i = 0; i < s->count && (double)i < tokens; i++) take_row(d, s->rows[i], f);
    f->any = true;
}

/* A setting; NAN: the run's client did not count. */
static double counted_by_client(const pj_run_info *info, const char *setting)
{
    json_t *settings =
        info->settings_json ? json_loads(info->settings_json, JSON_ALLOW_NUL, NULL) : NULL;
    double tokens = pj_member_number(settings, setting);
    json_decref(settings);
    return tokens;
}

/* Of decoding, relative: its tokens share the sensor's errors. */
static double relative_sd(const pj_run_data *d)
{
    double mj = 0, sd_mj = 0;
    for (uint32_t i = 0; i < d->phase_count; i++) {
        if (d->phases[i].phase != PJ_PHASE_DECODE) continue;
        mj += pj_mj_of_nj(d->phases[i].energy.gross_nj);
        sd_mj += d->phases[i].energy.sd_mj;
    }
    return mj > 0 ? sd_mj / mj : NAN;
}

typedef struct place {
    uint32_t sequence, position, row;
} place;

static int by_place(const void *a, const void *b)
{
    const place *x = a, *y = b;
    if (x->sequence != y->sequence) return x->sequence < y->sequence ? -1 : 1;
    return (x->position > y->position) - (x->position < y->position);
}

static pj_status find_in_rows(const pj_run_data *d, place *places, uint32_t *rows, size_t *ends,
                              found *f, pj_error *err)
{
    sequence s = {.ends = ends};
    pj_status status = PJ_OK;
    double counted = counted_by_client(&d->info, PJ_SETTING_REASONING);
    pj_buffer_init(&s.text, MAX_TEXT_BYTES);
    for (uint32_t i = 0; i < d->token_count; i++)
        places[i] = (place){d->tokens[i].sequence, d->tokens[i].position, i};
    qsort(places, d->token_count, sizeof *places, by_place);
    for (uint32_t i = 0; i < d->token_count; i++) rows[i] = places[i].row;
    for (uint32_t i = 0; i < d->token_count && status == PJ_OK;) {
        uint32_t end = i;
        while (end < d->token_count && places[end].sequence == places[i].sequence) end++;
        s.rows = rows + i;
        s.count = end - i;
        if (isnan(counted))
            status = search_sequence(d, &s, f, err);
        else
            count_first(d, &s, counted, f);
        i = end;
    }
    pj_buffer_fini(&s.text);
    return status;
}

pj_status pj_thinking_find(pj_run_data *d, pj_error *err)
{
    pj_run_info *info = &d->info;
    found f = {0};
    info->thinking_tokens = info->thinking_mj = info->thinking_sd_mj = info->thinking_ms = NAN;
    info->tool_calls = counted_by_client(info, PJ_SETTING_TOOL_CALLS);
    if (!d->token_count) return PJ_OK;
    place *places = pj_alloc(d->token_count, sizeof *places);
    uint32_t *rows = pj_alloc(d->token_count, sizeof *rows);
    size_t *ends = pj_alloc(d->token_count, sizeof *ends);
    pj_status status = places && rows && ends ? find_in_rows(d, places, rows, ends, &f, err)
                                              : pj_fail_memory(err, "the tokens of a run");
    pj_free(places);
    pj_free(rows);
    pj_free(ends);
    /* without a mark a model may have called in a form that is not known here */
    if (isnan(info->tool_calls) && f.calls > 0) info->tool_calls = f.calls;
    if (status != PJ_OK || !f.any) return status;
    info->thinking_tokens = f.tokens;
    info->thinking_mj = f.mj;
    info->thinking_ms = f.ms;
    info->thinking_sd_mj = f.mj * relative_sd(d);
    return PJ_OK;
}
