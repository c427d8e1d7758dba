/* perjoule predict: energy and time of a request before it runs. */
#include "cli/stored.h"
#include "cli/terminal.h"
#include "generate/predict.h"
#include "insight/laws.h"

#include <math.h>
#include <stdio.h>

/* Rows are input lengths, columns output lengths; lengths that cannot be predicted stay empty. */
static void print_map(const pj_length_map *map)
{
    pj_print(
        stdout,
        "\n%sJ per output token, input down, output across; * within 10 %% of the least%s\n%8s",
        pj_style_on(stdout, PJ_STYLE_BOLD), pj_style_off(stdout), "");
    for (uint32_t k = 0; k < map->output_count; k++) pj_print(stdout, " %9u", map->outputs[k]);
    for (uint32_t i = 0; i < map->input_count; i++) {
        pj_print(stdout, "\n%8u", map->inputs[i]);
        for (uint32_t k = 0; k < map->output_count; k++) {
            double joules = map->joules[i][k];
            if (isnan(joules))
                pj_print(stdout, " %9s", "");
            else
                pj_print(stdout, " %8.3g%c", joules, joules <= 1.1 * map->least ? '*' : ' ');
        }
    }
    if (map->least_output)
        pj_print(stdout, "\nleast: %.3g J per output token at input %u and output %u\n", map->least,
                 map->least_input, map->least_output);
    else
        pj_print(stdout, "\nno prediction is possible for these lengths\n");
}

static void print_nearest(const pj_request_prediction *p)
{
    if (p->figures.nearest_count) pj_say("the nearest runs:");
    for (size_t i = 0; i < p->figures.nearest_count; i++) {
        const pj_known_run *run = &p->known.runs[p->figures.nearest[i]];
        pj_say("  %s  input %.0f, output %.0f, batch %.0f, weights %.3g MB: %.4g J, %.3g s",
               run->id, run->work.input, run->work.output, run->work.batch,
               run->work.weight_bytes / 1e6, run->joules, run->seconds);
    }
}

static void print_law(const pj_run_law *s)
{
    pj_print(stdout, "%-18s", s->over);
    if (s->law.refusal)
        pj_print(stdout, " no law: %s\n", s->law.refusal);
    else
        pj_print(stdout, " J/token ~ x^%.3f (%.3f to %.3f), R2 %.4f, %u points\n", s->law.exponent,
                 s->law.exponent_lo, s->law.exponent_hi, s->law.r2, s->count);
}

static void print_laws(const pj_laws *laws)
{
    pj_print(stdout,
             "energy per output token over x, all else equal, from %u runs of this machine\n",
             laws->run_count);
    for (int i = 0; i < PJ_LAWS; i++) print_law(&laws->laws[i]);
    if (laws->kinds_refusal) {
        pj_print(stdout, "%-18s no law: %s\n", "kind of attention", laws->kinds_refusal);
        return;
    }
    pj_print(stdout, "%-18s R2 %.4f;", "kind of attention", laws->kinds_r2);
    for (uint32_t i = 0; i < laws->kind_count; i++)
        pj_print(stdout, " %s %.3g J/token per billion parameters (%u models)",
                 laws->kinds[i].attention, laws->kinds[i].joules_per_billion,
                 laws->kinds[i].models);
    putchar('\n');
}

static void print_prediction(const pj_request_prediction *p)
{
    const pj_prediction *f = &p->figures;
    double tokens = f->joules / p->joules_per_token;
    pj_bounds joules = {f->joules_lo, f->joules_hi}, seconds = {f->seconds_lo, f->seconds_hi};
    pj_bounds each = {f->joules_lo / tokens, f->joules_hi / tokens};
    char text[96];
    pj_estimate_write(f->joules, joules, text, sizeof text);
    pj_print(stdout, "energy     %s J\n", text);
    pj_estimate_write(p->joules_per_token, each, text, sizeof text);
    pj_print(stdout, "per token  %s J\n", text);
    pj_estimate_write(f->seconds, seconds, text, sizeof text);
    pj_print(stdout, "time       %s s\n", text);
    pj_print(stdout,
             "from       %zu %s runs of this machine; leave-one-out error %.1f %% (median)\n",
             f->runs, pj_quality_name(p->known.quality), 100 * f->median_error);
    if (p->known.partial[0]) pj_print(stdout, "partial    %s\n", p->known.partial);
    if (p->request.map) print_map(&p->map);
}

typedef struct predict_args {
    pj_predict_query query;
    bool json;
} predict_args;

static pj_status show_laws(pj_store *store, void *context, pj_error *err)
{
    const predict_args *a = context;
    pj_laws *laws;
    pj_json_out out;
    pj_status status = pj_laws_get(store, NULL, &laws, err);
    if (laws && a->json) {
        pj_laws_write(laws, pj_json_out_begin(&out));
        status = pj_json_out_end(&out, PJ_OK, err);
    } else if (laws) {
        print_laws(laws);
    }
    pj_laws_free(laws);
    return status;
}

static pj_status show_prediction(pj_store *store, void *context, pj_error *err)
{
    const predict_args *a = context;
    pj_request_prediction p;
    pj_json_out out;
    pj_status status = pj_request_predict(store, &a->query, &p, err);
    if (status == PJ_OK && p.refusal[0]) {
        print_nearest(&p);
        status = pj_fail(err, PJ_E_UNAVAILABLE, "%s", p.refusal);
    } else if (status == PJ_OK && a->json) {
        pj_request_prediction_write(&p, pj_json_out_begin(&out));
        status = pj_json_out_end(&out, PJ_OK, err);
    } else if (status == PJ_OK) {
        print_prediction(&p);
    }
    pj_request_prediction_fini(&p);
    return status;
}

static int run_predict(const pj_command *command, int argc, char **argv)
{
    predict_args a = {0};
    const char *db = NULL;
    int64_t input = 0, output = 0, batch = 1;
    bool laws = false;
    const pj_option options[] = {
        PJ_OPTION_MODEL(&a.query.model),
        PJ_OPTION_DTYPE(&a.query.dtype),
        {"input", 0, PJ_OPTION_INT, &input, "N", "tokens of the prompt", 1, 1e7,
         .excludes = "laws"},
        {"output", 0, PJ_OPTION_INT, &output, "N", "tokens to generate", 1, 1e7,
         .excludes = "laws"},
        {"batch", 0, PJ_OPTION_INT, &batch, "N", "sequences at once (1)", 1, 65536,
         .excludes = "laws"},
        {"map", 0, PJ_OPTION_FLAG, &a.query.map, NULL,
         "also print energy per token over the runs' range of input and output lengths",
         .excludes = "laws"},
        {"laws", 0, PJ_OPTION_FLAG, &laws, NULL,
         "instead: how energy per token scales with size, shape, batch and length"},
        {"json", 0, PJ_OPTION_FLAG, &a.json, NULL, "print one JSON object"},
        PJ_OPTION_WITHOUT,
        PJ_OPTION_DB(&db),
        {0}};
    int code = pj_options_parse(command, options, argc, argv, NULL);
    if (code != PJ_PARSE_GO_ON) return code;
    if (!laws && (!input || !output))
        return pj_command_usage(command, "--input and --output are required");
    a.query.input = (uint32_t)input;
    a.query.output = (uint32_t)output;
    a.query.batch = (uint32_t)batch;
    return pj_stored_command(command, db, laws ? show_laws : show_prediction, &a);
}

const pj_command pj_command_predict = {
    .name = "predict",
    .summary = "energy and time of a request before it runs",
    .run = run_predict,
    .usage = "-m MODEL --input N --output N [--batch N] [--map] | --laws",
    .text =
        "From the model's architecture and the runs that this machine has in the store: FLOPs "
        "and bytes of "
        "prefill and decode, each with a cost fitted to those runs. The 95 % interval comes from "
        "leave-one-out errors. Outside the range of the runs, or with fewer than eight, nothing is "
        "predicted (exit code 3), and the nearest runs are named. --map shows where energy per "
        "token is least over the lengths; --laws fits power laws over runs that are equal in "
        "all else, each with R2 and a 95 % interval, or refuses with fewer than three values.",
    .examples =
        "perjoule predict -m models/demo --input 128 --output 64\n"
        "perjoule predict -m models/demo --input 128 --output 64 --batch 8 --dtype q8_0 --json\n"
        "perjoule predict -m models/demo --input 128 --output 64 --map\n"
        "perjoule predict --laws\n",
};
