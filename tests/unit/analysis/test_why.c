/* Parts of two sides are matched by units of work, by values and by role, and their differences are
 * split exactly. Certainty on runs with noise is tested on planted ones (bench/planted_why.c). */
#include "../assertions.h"
#include "analysis/why.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { TOKENS = 4, LAYERS = 2, MOST = 12 };

/* A component of every layer: figures of one call. */
typedef struct planned {
    const char *name;
    double ms, watts, flops, bytes;
    float values;  /* 0: none */
    bool once;     /* a single call, which is no part of a step */
    uint8_t phase; /* that, around the steps; 0: a part of them */
} planned;

typedef struct made {
    pj_run_data data;
    pj_phase_row phases[1];
    pj_token_row tokens[TOKENS];
    pj_layer_row layers[TOKENS * LAYERS];
    pj_component_row components[TOKENS * LAYERS * MOST];
    pj_class_row classes[MOST];
} made;

static double blur = 0.02; /* relative standard deviation of a part's energy */
static double stall_ms;    /* by which one token is held up */
static double longer = 1;  /* times as long, at less power */
static double disturbed_share;
static bool same_model = true;
static uint32_t threads[2];
static bool counts_tokens = true;
static uint32_t sequences[2] = {1, 1}, prompts[2] = {1, 1}, at_a_time[2] = {1, 1}; /* by side */

static pj_class_row *class_of(made *m, const char *name, uint8_t phase)
{
    for (uint32_t i = 0; i < m->data.class_count; i++)
        if (strcmp(m->classes[i].name, name) == 0 && m->classes[i].phase == phase)
            return &m->classes[i];
    pj_class_row *c = &m->classes[m->data.class_count++];
    *c = (pj_class_row){.name = name, .phase = phase};
    return c;
}

static void add_call(made *m, const planned *p, uint32_t token, uint32_t layer)
{
    pj_class_row *c = class_of(m, p->name, p->phase ? p->phase : PJ_PHASE_DECODE);
    c->time_ms += longer * p->ms;
    c->energy_mj += p->ms * p->watts;
    c->energy_sd.random_mj = (float)(blur * c->energy_mj);
    c->flops += p->flops;
    c->bytes += p->bytes;
    m->data.info.request_mj += p->ms * p->watts;
    if (!p->once && !p->phase) m->tokens[token].duration_ms += longer * p->ms;
    if (p->name[0] == '(') return; /* time between components */
    float v = p->values * (1 + 0.1F * (float)layer + 0.01F * (float)token);
    m->components[m->data.component_count++] = (pj_component_row){
        .name = p->name,
        .layer = token * LAYERS + layer,
        .section = PJ_NO_PARENT,
        .token = token,
        .step = PJ_NO_PARENT,
        .class_ = PJ_NO_PARENT,
        .duration_ms = longer * p->ms,
        .has_stats = p->values > 0,
        .stats = {.mean_abs = v, .std = 2 * v, .max_abs = 5 * v, .mean = v / 10}};
}

static void make_run(made *m, const planned *plan)
{
    *m = (made){.data = {.info = {.output_tokens = TOKENS, .input_tokens = 1, .batch_size = 1},
                         .phases = m->phases,
                         .tokens = m->tokens,
                         .layers = m->layers,
                         .components = m->components,
                         .classes = m->classes,
                         .phase_count = 1,
                         .token_count = TOKENS,
                         .layer_count = TOKENS * LAYERS}};
    m->data.info.request_disturbed.mj = NAN;
    m->data.info.disturbed_share = disturbed_share;
    m->phases[0].phase = PJ_PHASE_DECODE;
    for (uint32_t t = 0; t < TOKENS; t++) {
        m->tokens[t] = (pj_token_row){
            .position = t, .step = PJ_NO_PARENT, .duration_ms = t == 2 ? stall_ms : 0};
        for (uint32_t l = 0; l < LAYERS; l++) {
            m->layers[t * LAYERS + l] =
                (pj_layer_row){.token = t, .step = PJ_NO_PARENT, .layer_index = l};
            for (const planned *p = plan; p->name; p++)
                if (!(p->once || p->phase) || t + l == 0) add_call(m, p, t, l);
        }
    }
}

static void explain(const planned *plan_a, const planned *plan_b, pj_why *why)
{
    static made runs[2];
    pj_why_side *sides[2];
    for (int i = 0; i < 2; i++) {
        make_run(&runs[i], i ? plan_b : plan_a);
        runs[i].data.info.threads = threads[i];
        runs[i].data.info.batch_size = sequences[i];
        runs[i].data.info.output_tokens *= counts_tokens ? sequences[i] : 0;
        runs[i].data.info.input_tokens = prompts[i];
        assert_int_equal(pj_why_side_new(&sides[i], NULL), PJ_OK);
        pj_why_side_at_a_time(sides[i], at_a_time[i]);
        assert_int_equal(pj_why_side_add(sides[i], &runs[i].data, NULL), PJ_OK);
    }
    assert_int_equal(pj_why_find(sides[0], sides[1], same_model, why, NULL), PJ_OK);
    for (int i = 0; i < 2; i++) pj_why_side_free(sides[i]);
    double sum = 0;
    for (uint32_t i = 0; i < why->row_count; i++) {
        const pj_why_row *r = &why->rows[i];
        const pj_why_split *s = &r->split;
        double split = s->calls + s->bytes + s->flops + s->time + s->power;
        assert_near(split + r->from.mj - r->a.mj, r->difference_mj, 1e-9);
        sum += r->difference_mj;
    }
    assert_true(why->per_run == !counts_tokens);
    assert_near(sum, why->request_b_mj - why->request_a_mj, 1e-9);
}

static const pj_why_row *row_of(const pj_why *why, const char *name)
{
    for (uint32_t i = 0; i < why->row_count; i++)
        if (strcmp(why->rows[i].name, name) == 0) return &why->rows[i];
    fail_msg("no part %s", name);
    return NULL;
}

static void assert_named(const pj_why *why, const char *name, pj_why_kind kind, double mj)
{
    const pj_why_row *r = row_of(why, name);
    assert_int_equal(r->kind, kind);
    assert_near(r->explained_mj, mj, 1e-6 + 1e-3 * fabs(mj));
}

static const planned norm = {"input_layernorm", 1, 20, 10, 10, 0.5F};
static const planned q = {"q_proj", 4, 40, 400, 400, 1.5F};
static const planned mlp = {"down_proj", 10, 50, 1000, 1000, 2.5F};

static void a_repeated_part_is_named_by_values(void **state)
{
    (void)state;
    pj_why why;
    const planned other = {"my_norm", 1, 20, 10, 10, 0.5F};
    const planned a[] = {norm, q, mlp, {0}}, b[] = {norm, other, q, mlp, {0}};
    const planned twice[] = {norm, norm, q, mlp, {0}};
    explain(a, b, &why);
    assert_named(&why, "my_norm", PJ_WHY_REPEATED, LAYERS * 20);
    assert_string_equal(row_of(&why, "my_norm")->equals, "input_layernorm");
    assert_int_equal(why.named_count, 1);
    pj_why_fini(&why);
    explain(a, twice, &why);
    assert_named(&why, "input_layernorm", PJ_WHY_REPEATED, LAYERS * 20);
    pj_why_fini(&why);
    explain(twice, a, &why); /* and as a saving */
    assert_named(&why, "input_layernorm", PJ_WHY_REPEATED, -LAYERS * 20);
    pj_why_fini(&why);
}

static void other_values_are_no_repetition(void **state)
{
    (void)state;
    pj_why why;
    const planned other = {"my_norm", 1, 20, 10, 10, 0.7F}, copy = {"y", 1, 20, 0, 10, 1.5F},
                  cast = {"z", 1, 20, 0, 10, 1.505F};
    const planned a[] = {norm, q, mlp, {0}}, b[] = {norm, other, q, copy, cast, mlp, {0}};
    explain(a, b, &why);
    assert_named(&why, "my_norm", PJ_WHY_EXTRA, LAYERS * 20);
    assert_named(&why, "y", PJ_WHY_COPY, LAYERS * 20);
    assert_named(&why, "z", PJ_WHY_CONVERSION, LAYERS * 20);
    pj_why_fini(&why);
}

static void parts_are_matched_across_programs(void **state)
{
    (void)state;
    pj_why why;
    const planned k = {"k_proj", 2, 40, 200, 200, 1.1F}, v = {"v_proj", 2, 40, 200, 200, 1.2F};
    const planned qkv = {"qkv_proj", 8, 40, 800, 800, 0}, act = {"act", 1, 30, 20, 20, 3.5F};
    const planned named = {"aten_silu", 1.5, 30, 20, 20, 3.5F};
    const planned dense = {"self_attn_core", 3, 30, 0, 0, 0}, flash = {"flash_fwd", 2, 30, 0, 0, 0};
    const planned a[] = {norm, q, k, v, act, dense, mlp, {0}},
                  b[] = {norm, qkv, named, flash, mlp, {0}};
    explain(a, b, &why);
    const pj_why_row *r = row_of(&why, "q_proj+k_proj+v_proj");
    assert_string_equal(r->other, "qkv_proj");
    assert_near(r->difference_mj, 0, 1e-9);
    assert_int_equal(row_of(&why, "act")->match, PJ_WHY_BY_VALUES);
    assert_int_equal(row_of(&why, "act")->same_values, 1);
    assert_int_equal(row_of(&why, "self_attn_core")->match, PJ_WHY_BY_ROLE);
    for (uint32_t i = 0; i < why.row_count; i++)
        assert_int_not_equal(why.rows[i].match, PJ_WHY_ALONE);
    pj_why_fini(&why);
}

/* A program that records whole blocks is compared with one that records each step of them. */
static void coarse_parts_stand_for_finer_ones(void **state)
{
    (void)state;
    pj_why why;
    const planned core = {"attention", 3, 30, 0, 0, 0}, out = {"o_proj", 2, 30, 0, 0, 0},
                  norm_2 = {"post_attention_layernorm", 1, 20, 0, 0, 0},
                  gate = {"gate_up_proj", 5, 40, 0, 0, 0}, head = {"lm_head", 2, 40, 0, 0, 0};
    const planned block = {"attention", 9, 30, 0, 0, 0}, ffn = {"mlp", 15, 45, 0, 0, 0},
                  logits = {"logits", 2, 40, 0, 0, 0};
    const planned a[] = {norm, q, core, out, norm_2, gate, mlp, head, {0}};
    const planned b[] = {block, out, ffn, logits, {0}};
    explain(a, b, &why);
    assert_string_equal(row_of(&why, "input_layernorm+q_proj+attention")->other, "attention");
    assert_string_equal(row_of(&why, "post_attention_layernorm+gate_up_proj+down_proj")->other,
                        "mlp");
    assert_string_equal(row_of(&why, "lm_head")->other, "logits");
    assert_int_equal(why.row_count, 4);
    pj_why_fini(&why);
}

/* As compiled ones are: A's parts of layers are no work that B does without. */
static void layers_without_parts_are_compared_as_a_whole(void **state)
{
    (void)state;
    pj_why why;
    const planned head = {"lm_head", 3, 40, 100, 100, 6};
    const planned a[] = {norm, q, mlp, head, {"(between)", 1, 30, 0, 0, 0}, {0}};
    const planned b[] = {head, {"(between)", 12, 40, 0, 0, 0}, {0}};
    explain(a, b, &why);
    assert_int_equal(why.row_count, 2);
    const pj_why_row *layers = row_of(&why, "layers");
    assert_near(layers->a.mj, LAYERS * (20 + 160 + 500 + 30), 1e-6);
    assert_near(layers->b.mj, LAYERS * 480, 1e-6);
    assert_false(layers->is_gap);
    assert_int_equal(row_of(&why, "lm_head")->match, PJ_WHY_BY_NAME);
    pj_why_fini(&why);
}

/* Depth off records "layers" where deep runs have parts: neither is work that the other side lacks.
 */
static void layers_that_were_not_recorded_are_compared_as_a_whole(void **state)
{
    (void)state;
    pj_why why;
    char text[200];
    const planned layers = {"layers", 32, 40, 0, 0, 0}, head = {"lm_head", 3, 40, 100, 100, 6},
                  odd = {"my_gate", 1, 40, 0, 0, 3}, logits = {"logits", 3, 40, 100, 100, 0};
    const planned a[] = {norm, q, odd, mlp, head, {"(between)", 1, 30, 0, 0, 0}, {0}};
    const planned b[] = {layers, logits, {"(between)", 0.5, 30, 0, 0, 0}, {0}};
    explain(a, b, &why);
    assert_int_equal(why.row_count, 2);
    const pj_why_row *row = row_of(&why, "layers");
    assert_true(row->whole);
    assert_int_equal(row->match, PJ_WHY_BY_NAME);
    assert_near(row->a.mj, LAYERS * (20 + 160 + 40 + 500 + 30), 1e-6);
    assert_near(row->b.mj, LAYERS * (32 * 40 + 15), 1e-6);
    assert_int_equal(row->kind, PJ_WHY_TIME);
    pj_why_row_text(row, text, sizeof text);
    assert_string_equal(text, "1.91 times the time: 65 ms per token instead of 34");
    pj_why_fini(&why);
    explain(b, b, &why); /* where neither recorded them, they are a part like others */
    assert_false(row_of(&why, "layers")->whole);
    pj_why_fini(&why);
}

/* A part of one name does other work in a model of another shape. */
static void parts_of_other_models_are_not_matched(void **state)
{
    (void)state;
    pj_why why;
    planned b[] = {norm, q, mlp, {0}};
    const planned a[] = {norm, q, mlp, {0}};
    for (int i = 0; i < 3; i++) b[i].ms *= 3;
    same_model = false;
    explain(a, b, &why);
    same_model = true;
    assert_int_equal(why.row_count, 1);
    assert_int_equal(why.common_count, 0);
    const pj_why_row *row = row_of(&why, "all parts");
    assert_int_equal(row->kind, PJ_WHY_TIME);
    assert_near(row->difference_mj, 2 * LAYERS * (20 + 160 + 500), 1e-6);
    pj_why_fini(&why);
}

/* Of a server's request only the times of its tokens are known. */
static void what_no_side_divides_is_no_gap(void **state)
{
    (void)state;
    pj_why why;
    const planned a[] = {{"(between)", 10, 30, 0, 0, 0}, {0}};
    planned b[] = {{"(between)", 10, 34, 0, 0, 0}, {0}};
    explain(a, b, &why); /* 13 % in power are within what such requests vary by */
    assert_false(row_of(&why, "all parts")->is_gap);
    assert_int_equal(why.named_count, 0);
    assert_false(why.unplaced_mj != 0);
    pj_why_fini(&why);
    b[0].watts = 90;
    explain(a, b, &why);
    assert_named(&why, "all parts", PJ_WHY_POWER, LAYERS * 600);
    pj_why_fini(&why);
    /* of what happens once, such as a prompt, nothing tells how its power varies */
    const planned cool[] = {
        {"(between)", 10, 30}, {"(between)", 20, 30, .phase = PJ_PHASE_PREFILL}, {0}};
    const planned warm[] = {
        {"(between)", 10, 30}, {"(between)", 20, 90, .phase = PJ_PHASE_PREFILL}, {0}};
    explain(cool, warm, &why);
    assert_int_equal(why.row_count, 2);
    assert_int_equal(why.named_count, 0);
    pj_why_fini(&why);
    /* what one side does not have at all, as decode after a single token, is no whole */
    const planned first[] = {{"q_proj", 4, 40, .phase = PJ_PHASE_PREFILL}, {0}};
    const planned more[] = {{"q_proj", 4, 40, .phase = PJ_PHASE_PREFILL}, norm, q, {0}};
    explain(first, more, &why);
    for (uint32_t i = 0; i < why.row_count; i++) assert_false(why.rows[i].whole);
    pj_why_fini(&why);
    /* what surrounds the steps of one is in those of a server */
    const planned own[] = {{"tokenization", 1, 10, .phase = PJ_PHASE_PRE_INFERENCE},
                           {"q_proj", 4, 40, .phase = PJ_PHASE_PREFILL},
                           norm,
                           q,
                           {"cleanup", 2, 20, .phase = PJ_PHASE_POST_INFERENCE},
                           {0}};
    explain(own, cool, &why);
    assert_int_equal(why.row_count, 2);
    for (uint32_t i = 0; i < 2; i++)
        assert_near(why.rows[i].a.mj * TOKENS,
                    why.rows[i].phase == PJ_PHASE_PREFILL ? 170 : TOKENS * LAYERS * 180 + 40, 1e-6);
    pj_why_fini(&why);
    /* and is no other kernel where one side divides it */
    b[0].ms = 40;
    const planned parts[] = {norm, q, mlp, {0}};
    explain(parts, b, &why);
    assert_int_equal(why.row_count, 1);
    assert_int_equal(row_of(&why, "all parts")->kind, PJ_WHY_TIME);
    pj_why_fini(&why);
}

static void time_is_told_from_bytes_and_power(void **state)
{
    (void)state;
    pj_why why;
    char text[200];
    planned wide = mlp, slow = mlp, hot = mlp;
    wide.bytes *= 2, wide.ms *= 1.8;
    slow.ms *= 1.5;
    hot.watts *= 1.3;
    const planned a[] = {norm, q, mlp, {0}};
    const planned b[] = {norm, q, wide, {0}}, c[] = {norm, q, slow, {0}}, d[] = {norm, q, hot, {0}};
    explain(a, b, &why);
    assert_named(&why, "down_proj", PJ_WHY_TYPE, LAYERS * 50 * 8);
    pj_why_row_text(row_of(&why, "down_proj"), text, sizeof text);
    assert_string_equal(text, "2.00 times the bytes for the same FLOPs and equal values, in 1.80 "
                              "times the time: another type");
    pj_why_fini(&why);
    explain(a, c, &why);
    assert_named(&why, "down_proj", PJ_WHY_KERNEL, LAYERS * 50 * 5);
    pj_why_fini(&why);
    slow.ms /= 1.5F * 300;
    const planned fast[] = {norm, q, slow, {0}};
    explain(a, fast, &why);
    pj_why_row_text(row_of(&why, "down_proj"), text, sizeof text);
    assert_string_equal(text, "faster kernel: 0.0033 times the time for the same work and equal "
                              "values");
    pj_why_fini(&why);
    explain(a, d, &why);
    assert_named(&why, "down_proj", PJ_WHY_POWER, LAYERS * 15 * 10);
    assert_int_equal(why.named_count, 1);
    pj_why_fini(&why);
}

/* What surrounds the steps of a program is no waiting between its parts. */
static void a_gap_is_told_from_what_surrounds_the_steps(void **state)
{
    (void)state;
    static const struct {
        pj_phase phase;
        const char *text;
    } cases[] = {{PJ_PHASE_DECODE, "nothing computes for 1.5 ms per token instead of 0.5"},
                 {PJ_PHASE_PRE_INFERENCE, "before the first step: 1.5 ms per token instead of 0.5"},
                 {PJ_PHASE_POST_INFERENCE, "after the last step: 1.5 ms per token instead of 0.5"}};
    char text[200];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const pj_why_row row = {.phase = (uint8_t)cases[i].phase,
                                .kind = PJ_WHY_GAP,
                                .from = {.ms = 0.5},
                                .b = {.ms = 1.5}};
        pj_why_row_text(&row, text, sizeof text);
        assert_string_equal(text, cases[i].text);
    }
}

static void a_clock_says_what_differs(void **state)
{
    (void)state;
    char text[200];
    pj_why_common c = {.kind = PJ_WHY_CLOCK,
                       .device = "cpu",
                       .time_factor = 1.2,
                       .power_factor = 1,
                       .clock_a_mhz = 3000.2,
                       .clock_b_mhz = 2999.9,
                       .throttled_a = 0,
                       .throttled_b = 0.5};
    pj_why_common_text(&c, text, sizeof text);
    assert_string_equal(text, "clock of cpu, throttled for 50 % of the time instead of 0 %; parts "
                              "take 1.20 times the time at 1.00 times the power");
    c.clock_b_mhz = 2500;
    c.throttled_a = c.throttled_b = NAN;
    pj_why_common_text(&c, text, sizeof text);
    assert_string_equal(text, "clock of cpu: 2500 MHz instead of 3000; parts take 1.20 times the "
                              "time at 1.00 times the power");
}

static void a_pace_that_all_parts_share_has_an_interval(void **state)
{
    (void)state;
    pj_why why;
    planned a[] = {norm, q, mlp, {0}}, b[] = {norm, q, mlp, {0}};
    for (int i = 0; i < 3; i++) b[i].ms *= 1.5;
    longer = 10;
    explain(a, b, &why);
    longer = 1;
    assert_int_equal(why.common_count, 1);
    const pj_why_common *common = &why.commons[0];
    assert_int_equal(common->kind, PJ_WHY_PACE);
    assert_near(common->explained_mj, why.request_b_mj - why.request_a_mj, 1e-6);
    /* 2 % from run to run and of each part's energy */
    assert_that(common->explained.lo, >, 0.7 * common->explained_mj);
    assert_that(common->explained.lo, <, 0.9 * common->explained_mj);
    assert_near(common->explained.hi - common->explained_mj,
                common->explained_mj - common->explained.lo, 1e-6);
    char text[200];
    pj_why_common_text(common, text, sizeof text);
    assert_non_null(strstr(text, "no condition that was recorded says why"));
    pj_why_fini(&why);
    threads[0] = 2, threads[1] = 1, longer = 10;
    explain(a, b, &why);
    longer = 1, threads[0] = threads[1] = 0;
    pj_why_common_text(&why.commons[0], text, sizeof text);
    assert_non_null(strstr(text, "power; the sides differ in threads"));
    pj_why_fini(&why);
}

/* What a program does before its first step, however long, has no part in the pace of its steps;
 * and what a pace explains is not listed again. */
static void waiting_hides_no_pace(void **state)
{
    (void)state;
    pj_why why;
    const planned start = {"(between)", 3000, 30, 0, 0, 0, false, PJ_PHASE_PRE_INFERENCE};
    planned a[] = {norm, q, mlp, start, {0}}, b[] = {norm, q, mlp, start, {0}};
    for (int i = 0; i < 3; i++) b[i].ms *= 1.2;
    explain(a, b, &why);
    assert_int_equal(why.named_count, 0);
    assert_int_equal(why.common_count, 1);
    assert_int_equal(why.commons[0].kind, PJ_WHY_PACE);
    assert_that(row_of(&why, "down_proj")->difference_mj, >, 0);
    for (uint32_t i = 0; i < why.row_count; i++) assert_near(why.rows[i].left_mj, 0, 1e-6);
    pj_why_fini(&why);
}

/* Two sequences share calls and weights, and double the arithmetic of a step. */
static void sequences_that_share_steps_are_one_cause(void **state)
{
    (void)state;
    pj_why why;
    char text[200];
    const planned a[] = {norm, q, mlp, {0}};
    planned b[] = {norm, q, mlp, {0}, {0}};
    for (int i = 0; i < 3; i++) b[i].flops *= 2;
    b[0].ms *= 4;
    b[1].ms *= 1.2;
    sequences[1] = 2;
    explain(a, b, &why);
    assert_int_equal(why.named_count, 0);
    assert_int_equal(why.common_count, 1);
    assert_int_equal(why.commons[0].kind, PJ_WHY_BATCH);
    assert_near(why.commons[0].explained_mj, why.request_b_mj - why.request_a_mj, 1e-6);
    pj_why_common_text(&why.commons[0], text, sizeof text);
    assert_string_equal(text, "sequences that share a step: 2 instead of 1; other changes of these "
                              "parts are in this");
    pj_why_fini(&why);
    b[3] = b[0];
    explain(a, b, &why);
    assert_int_equal(why.named_count, 1);
    assert_named(&why, "input_layernorm", PJ_WHY_REPEATED, LAYERS * 4 * 10);
    pj_why_fini(&why);
    b[3] = (planned){0};
    disturbed_share = 0.5; /* where it may as well be other load, the sum is told as uncertain */
    explain(a, b, &why);
    disturbed_share = 0;
    assert_int_equal(why.named_count + why.common_count, 0);
    assert_true(pj_why_unplaced_text(&why, text, sizeof text));
    assert_non_null(strstr(text, "sequences that share a step: 2 instead of 1: together -"));
    pj_why_fini(&why);
    sequences[1] = 1;
}

/* Requests that share a machine draw less power each, and no kernel is the cause. */
static void requests_that_share_a_machine_are_one_cause(void **state)
{
    (void)state;
    pj_why why;
    char text[200];
    const planned a[] = {norm, q, mlp, {0}};
    planned b[] = {norm, q, mlp, {0}};
    for (int i = 0; i < 3; i++) b[i].watts /= 3;
    longer = 10, at_a_time[1] = 4;
    explain(a, b, &why);
    assert_int_equal(why.named_count, 0);
    assert_int_equal(why.common_count, 1);
    assert_near(why.commons[0].explained_mj, why.request_b_mj - why.request_a_mj, 1e-6);
    pj_why_common_text(&why.commons[0], text, sizeof text);
    assert_string_equal(text,
                        "requests at a time: 4 instead of 1; other changes of these parts are "
                        "in this");
    pj_why_fini(&why);
    at_a_time[1] = 0;
    explain(a, b, &why);
    longer = 1, at_a_time[1] = 1;
    pj_why_common_text(&why.commons[0], text, sizeof text);
    assert_non_null(strstr(text, "requests at a time: several instead of 1; "));
    pj_why_fini(&why);
}

/* What one run a side does not tell is printed with the interval that says so. */
static void what_is_not_certain_has_an_interval_around_nothing(void **state)
{
    (void)state;
    pj_why why;
    planned a[] = {norm, q, mlp, {0}}, b[] = {norm, q, mlp, {0}};
    b[2].ms *= 1.03;
    blur = 1e-6;
    explain(a, b, &why);
    blur = 0.02;
    const pj_why_row *r = row_of(&why, "down_proj");
    assert_int_equal(r->kind, PJ_WHY_NOTHING);
    assert_near(r->left_mj, 0.03 * LAYERS * 10 * 50, 1e-6);
    assert_that(r->left.lo, <, 0);
    assert_that(r->left.hi, >, 2 * r->left_mj);
    assert_that(r->bounds.hi - r->bounds.lo, >, r->difference_mj);
    assert_that(r->bounds.hi, <, r->left.hi);
    pj_why_fini(&why);
}

static void a_length_below_a_hundredth_is_none(void **state)
{
    (void)state;
    pj_why why;
    planned a[] = {norm, q, mlp, {"prefill", 1, 20, 0, 0, 0, false, PJ_PHASE_PREFILL}, {0}};
    planned b[] = {norm, q, mlp, {"prefill", 2, 20, 0, 0, 0, false, PJ_PHASE_PREFILL}, {0}};
    prompts[1] = 2;
    explain(a, b, &why);
    assert_int_equal(why.common_count, 0);
    pj_why_fini(&why);
    a[3].ms *= 20;
    b[3].ms *= 20;
    explain(a, b, &why);
    assert_int_equal(why.common_count, 1);
    assert_int_equal(why.commons[0].kind, PJ_WHY_LENGTH);
    pj_why_fini(&why);
    prompts[1] = 1;
}

/* Twice the output tokens share what a program does once. */
static void what_happens_once_is_shared_by_the_tokens(void **state)
{
    (void)state;
    pj_why why;
    char text[200];
    const planned start = {"(between)", 40, 30, 0, 0, 0, false, PJ_PHASE_PRE_INFERENCE};
    const planned end = {"(between)", 20, 30, 0, 0, 0, false, PJ_PHASE_POST_INFERENCE};
    const planned plan[] = {norm, q, mlp, start, end, {0}};
    longer = 10, sequences[1] = 2, prompts[1] = 2;
    explain(plan, plan, &why);
    longer = 1, sequences[1] = 1, prompts[1] = 1;
    assert_int_equal(why.named_count, 0);
    assert_int_equal(why.common_count, 2); /* and the batch */
    assert_int_equal(why.commons[0].kind, PJ_WHY_LENGTH);
    assert_near(why.commons[0].explained_mj, -0.5 * 60 * 30 / TOKENS, 1e-6);
    assert_null(pj_why_common_phase(&why.commons[0]));
    assert_string_equal(pj_why_common_part(&why.commons[0]), "around the steps");
    pj_why_common_text(&why.commons[0], text, sizeof text);
    assert_string_equal(text, "what happens once is shared by 2.00 times the output tokens");
    pj_why_fini(&why);
    longer = 10, sequences[1] = 2, prompts[1] = 2, blur = 1;
    explain(plan, plan, &why);
    longer = 1, sequences[1] = 1, prompts[1] = 1, blur = 0.02;
    for (uint32_t i = 0; i < why.common_count; i++)
        assert_int_not_equal(why.commons[i].kind, PJ_WHY_LENGTH); /* not certain */
    pj_why_fini(&why);
    /* Starting and ending vary more from run to run than what steps repeat. */
    planned slower[] = {norm, q, mlp, start, end, {0}};
    longer = 10;
    slower[4].ms *= 1.9;
    explain(plan, slower, &why);
    assert_int_equal(why.named_count, 0);
    pj_why_fini(&why);
    slower[4].ms *= 10;
    explain(plan, slower, &why);
    longer = 1;
    assert_named(&why, "between parts", PJ_WHY_GAP, 18 * 20 * 30.0 / TOKENS);
    pj_why_fini(&why);
}

static void runs_without_tokens_are_compared_as_they_are(void **state)
{
    (void)state;
    pj_why why;
    char text[200];
    const planned start = {"(between)", 3, 30, 0, 0, 0, false, PJ_PHASE_PRE_INFERENCE};
    planned a[] = {norm, q, mlp, start, {0}}, b[] = {norm, q, mlp, start, {0}};
    b[1].ms *= 1.5;
    b[3].ms *= 50;
    counts_tokens = false;
    explain(a, b, &why);
    counts_tokens = true;
    assert_near(why.request_a_mj, TOKENS * LAYERS * (20 + 4 * 40 + 10 * 50) + 3 * 30, 1e-6);
    assert_named(&why, "q_proj", PJ_WHY_KERNEL, TOKENS * LAYERS * 2 * 40);
    pj_why_row_text(row_of(&why, "between parts"), text, sizeof text);
    assert_string_equal(text, "in no part: 150 ms instead of 3");
    pj_why_fini(&why);
}

/* A side that counts tokens, and one that does not. */
static void unlike_sides_are_refused(void **state)
{
    (void)state;
    static made run;
    pj_why_side *sides[2];
    pj_why why;
    pj_error err = {0};
    const planned plan[] = {norm, q, mlp, {0}};
    for (int i = 0; i < 2; i++) {
        make_run(&run, plan);
        if (i) run.data.info.output_tokens = 0;
        assert_int_equal(pj_why_side_new(&sides[i], NULL), PJ_OK);
        assert_int_equal(pj_why_side_add(sides[i], &run.data, NULL), PJ_OK);
    }
    assert_int_equal(pj_why_find(sides[0], sides[1], true, &why, &err), PJ_E_UNAVAILABLE);
    assert_non_null(strstr(err.text, "the runs of B count no output tokens"));
    pj_why_fini(&why);
    assert_int_equal(pj_why_side_add(sides[0], &run.data, NULL), PJ_OK);
    assert_int_equal(pj_why_side_runs(sides[0]), 1);
    for (int i = 0; i < 2; i++) pj_why_side_free(sides[i]);
}

static void a_single_token_is_a_length(void **state)
{
    (void)state;
    const pj_why_row rows[] = {{.kind = PJ_WHY_LENGTH, .match = PJ_WHY_ALONE, .b = {.ms = 1}},
                               {.kind = PJ_WHY_LENGTH, .match = PJ_WHY_ALONE, .a = {.ms = 1}},
                               {.kind = PJ_WHY_LENGTH, .match = PJ_WHY_BY_NAME, .b = {.ms = 1}}};
    static const char *const texts[] = {"only in B: A has one output token, which prefill gives",
                                        "only in A: B has one output token, which prefill gives",
                                        "another length of the context"};
    char text[200];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        pj_why_row_text(&rows[i], text, sizeof text);
        assert_string_equal(text, texts[i]);
    }
}

/* Five equal parts, of which B's draw `more` of a fifth of the request in addition. */
static void explain_powers(const double more[5], pj_why *why)
{
    static const char *const names[] = {"q_proj", "o_proj", "gate_proj", "up_proj", "down_proj"};
    planned a[6] = {{0}}, b[6] = {{0}};
    for (int i = 0; i < 5; i++) {
        a[i] = b[i] = (planned){names[i], 4, 40, 400, 400, 1 + (float)i};
        b[i].watts *= 1 + more[i];
    }
    blur = 0.05;
    explain(a, b, why);
    blur = 0.02;
}

/* Where the sensor blurs the parts, their sum still tells which one can be hotter. */
static void one_part_explains_what_is_spread_over_several(void **state)
{
    (void)state;
    pj_why why;
    char text[200];
    double request = 5 * LAYERS * 4 * 40, part = request / 5;
    explain_powers((const double[]){0.005, 0.225, -0.005, 0.005, 0.005}, &why);
    assert_named(&why, "o_proj", PJ_WHY_POWER, 0.235 * part);
    assert_int_equal(why.named_count, 1);
    assert_that(row_of(&why, "o_proj")->explained.lo, >, 0);
    pj_why_row_text(row_of(&why, "o_proj"), text, sizeof text);
    assert_string_equal(text, "hotter kernel: 49.4 W instead of 40 W for the same work");
    pj_why_fini(&why);
    explain_powers((const double[]){-0.005, 0.005, 0, -0.185, -0.01}, &why);
    assert_named(&why, "up_proj", PJ_WHY_POWER, -0.195 * part);
    pj_why_fini(&why);
    static const double not_one[][5] = {
        {0.06, 0.06, 0.06, 0.06, 0.06},      /* all alike */
        {0.15, 0.15, 0, 0, 0},               /* one of two */
        {0.09, 0.15, 0.06, 0.04, 0.03},      /* one of several */
        {0.004, 0.015, 0.004, 0.004, 0.004}, /* below a hundredth */
        {0.15, -0.15, 0.15, -0.15, 0}};      /* which add up to nothing: shares, not power */
    for (int i = 0; i < 5; i++) {
        explain_powers(not_one[i], &why);
        assert_int_equal(why.named_count, 0);
        /* the change of the whole phase is told, where there is one */
        assert_int_equal(pj_why_unplaced_text(&why, text, sizeof text), i < 3);
        if (i == 0) assert_non_null(strstr(text, "decode takes 96 mJ more per token ("));
        pj_why_fini(&why);
    }
}

/* What held up one token may as well have held up what happens only once. */
static void a_stall_is_no_slower_kernel(void **state)
{
    (void)state;
    pj_why why;
    const planned quick = {"kv_cache_init", 0.1, 20, 0, 400, 0, true};
    planned slow = quick;
    slow.ms = 20;
    const planned a[] = {norm, q, mlp, quick, {0}}, b[] = {norm, q, mlp, slow, {0}};
    longer = 10;
    explain(a, b, &why);
    assert_int_equal(row_of(&why, "kv_cache_init")->kind, PJ_WHY_KERNEL);
    pj_why_fini(&why);
    stall_ms = 80;
    explain(a, b, &why);
    stall_ms = 0, longer = 1;
    assert_int_equal(why.named_count, 0);
    pj_why_fini(&why);
}

/* Other programs may have slowed all of a run that is short, or that they stalled often. */
static void what_other_programs_may_have_slowed_is_not_named(void **state)
{
    (void)state;
    pj_why why;
    const planned once = {"kv_cache_init", 0.1, 20, 0, 400, 0, true};
    const planned extra = {"o_proj", 4, 40, 400, 400, 3};
    const planned a[] = {norm, q, mlp, once, {0}};
    planned parts[] = {norm, q, mlp, once, {0}}, all[] = {norm, q, mlp, once, {0}};
    const planned counted[] = {norm, q, mlp, once, extra, {0}};
    parts[1].ms *= 1.8;
    parts[3].ms *= 40;
    for (int i = 0; i < 3; i++) all[i].ms *= 1.5;
    static const struct {
        double longer, disturbed_share;
        uint32_t parts, common; /* that are named */
    } of[] = {{10, 0, 2, 1}, {0.01, 0, 0, 0}, {10, 0.5, 0, 0}};
    for (int i = 0; i < 3; i++) {
        longer = of[i].longer, disturbed_share = of[i].disturbed_share;
        explain(a, parts, &why);
        assert_int_equal(why.named_count, of[i].parts);
        pj_why_fini(&why);
        explain(a, all, &why);
        assert_int_equal(why.common_count, of[i].common);
        pj_why_fini(&why);
        explain(a, counted, &why); /* that is no matter of time */
        assert_int_equal(row_of(&why, "o_proj")->kind, PJ_WHY_EXTRA);
        assert_int_equal(why.named_count, 1);
        pj_why_fini(&why);
    }
    longer = 1, disturbed_share = 0;
}

static void nothing_is_named_where_nothing_differs(void **state)
{
    (void)state;
    pj_why why;
    const planned a[] = {norm, q, mlp, {0}};
    explain(a, a, &why);
    assert_int_equal(why.named_count, 0);
    assert_int_equal(why.common_count, 0);
    assert_false(why.unplaced_mj != 0);
    pj_why_fini(&why);
}

static void runs_without_energy_are_refused(void **state)
{
    (void)state;
    pj_why_side *a, *b;
    pj_why why;
    pj_error err = {0};
    assert_int_equal(pj_why_side_new(&a, &err), PJ_OK);
    assert_int_equal(pj_why_side_new(&b, &err), PJ_OK);
    assert_int_equal(pj_why_find(a, b, true, &why, &err), PJ_E_UNAVAILABLE);
    pj_why_fini(&why);
    pj_why_side_free(a);
    pj_why_side_free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_repeated_part_is_named_by_values),
        cmocka_unit_test(other_values_are_no_repetition),
        cmocka_unit_test(parts_are_matched_across_programs),
        cmocka_unit_test(coarse_parts_stand_for_finer_ones),
        cmocka_unit_test(layers_without_parts_are_compared_as_a_whole),
        cmocka_unit_test(layers_that_were_not_recorded_are_compared_as_a_whole),
        cmocka_unit_test(parts_of_other_models_are_not_matched),
        cmocka_unit_test(what_no_side_divides_is_no_gap),
        cmocka_unit_test(time_is_told_from_bytes_and_power),
        cmocka_unit_test(a_gap_is_told_from_what_surrounds_the_steps),
        cmocka_unit_test(a_clock_says_what_differs),
        cmocka_unit_test(a_pace_that_all_parts_share_has_an_interval),
        cmocka_unit_test(waiting_hides_no_pace),
        cmocka_unit_test(sequences_that_share_steps_are_one_cause),
        cmocka_unit_test(requests_that_share_a_machine_are_one_cause),
        cmocka_unit_test(what_is_not_certain_has_an_interval_around_nothing),
        cmocka_unit_test(a_length_below_a_hundredth_is_none),
        cmocka_unit_test(what_happens_once_is_shared_by_the_tokens),
        cmocka_unit_test(runs_without_tokens_are_compared_as_they_are),
        cmocka_unit_test(unlike_sides_are_refused),
        cmocka_unit_test(a_single_token_is_a_length),
        cmocka_unit_test(one_part_explains_what_is_spread_over_several),
        cmocka_unit_test(a_stall_is_no_slower_kernel),
        cmocka_unit_test(what_other_programs_may_have_slowed_is_not_named),
        cmocka_unit_test(nothing_is_named_where_nothing_differs),
        cmocka_unit_test(runs_without_energy_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
