/* perjoule predict: energy and time of a request before it runs. */
#include "cli/stored.h"
#include "cli/terminal.h"
#include "generate/predict.h"
#include "insight/laws.h"

#include <math.h>
#include <stdio.h>

/* Rows are input lengths, columns output lengths; lengths that cannot be predicted stay empty. */
static void print_map(const json_t *map)
{
    size_t i, k;
    json_t *cells, *cell, *length;
    const json_t *least = json_object_get(map, "least");
    const json_t *inputs = json_object_get(map, "inputs");
    printf("\n%sJ per output token, input down, output across; * within 10 %% of the least%s\n%8s",
           pj_style_on(stdout, PJ_STYLE_BOLD), pj_style_off(stdout), "");
    json_array_foreach(json_object_get(map, "outputs"), i, length)
        printf(" %9.0f", json_number_value(length));
    json_array_foreach(json_object_get(map, "joules_per_token"), i, cells)
    {
        printf("\n%8.0f", json_number_value(json_array_get(inputs, i)));
        json_array_foreach(cells, k, cell)
        {
            double joules = json_is_number(cell) ? json_number_value(cell) : NAN;
            bool good = joules <= 1.1 * pj_member_number(least, "joules_per_token");
            if (isnan(joules))
                printf(" %9s", "");
            else
                printf(" %8.3g%c", joules, good ? '*' : ' ');
        }
    }
    if (json_is_object(least))
        printf("\nleast: %.3g J per output token at input %.0f and output %.0f\n",
               pj_member_number(least, "joules_per_token"), pj_member_number(least, "input"),
               pj_member_number(least, "output"));
    else
        printf("\nnone of these lengths can be predicted\n");
}

static void print_nearest(const json_t *p)
{
    size_t i;
    json_t *run;
    const json_t *all = json_object_get(p, "nearest");
    if (json_array_size(all)) pj_say("the nearest runs:");
    json_array_foreach(all, i, run)
        pj_say("  %s  input %.0f, output %.0f, batch %.0f, weights %.3g MB: %.4g J, %.3g s",
               pj_member_text(run, "run_id"), pj_member_number(run, "input"),
               pj_member_number(run, "output"), pj_member_number(run, "batch"),
               pj_member_number(run, "weight_bytes") / 1e6, pj_member_number(run, "joules"),
               pj_member_number(run, "seconds"));
}

static void print_law(const json_t *law)
{
    const char *refusal = pj_member_text(law, "refusal");
    size_t points = json_array_size(json_object_get(law, "points"));
    printf("%-18s", pj_member_text(law, "over"));
    if (*refusal)
        printf(" no law: %s\n", refusal);
    else
        printf(" J/token ~ x^%.3f (%.3f to %.3f), R2 %.4f, %zu points\n",
               pj_member_number(law, "exponent"), pj_member_number(law, "exponent_lo"),
               pj_member_number(law, "exponent_hi"), pj_member_number(law, "r2"), points);
}

static void print_laws(const json_t *view)
{
    size_t i;
    json_t *item;
    const json_t *attention = json_object_get(view, "attention");
    const char *refusal = pj_member_text(attention, "refusal");
    printf("energy per output token over x, all else equal, from %.0f runs of this machine\n",
           pj_member_number(view, "runs"));
    json_array_foreach(json_object_get(view, "laws"), i, item) print_law(item);
    if (*refusal) {
        printf("%-18s no law: %s\n", "kind of attention", refusal);
        return;
    }
    printf("%-18s R2 %.4f;", "kind of attention", pj_member_number(attention, "r2"));
    json_array_foreach(json_object_get(attention, "kinds"), i, item) printf(
        " %s %.3g J/token per billion parameters (%.0f models)", pj_member_text(item, "attention"),
        pj_member_number(item, "joules_per_token_per_billion"), pj_member_number(item, "models"));
    putchar('\n');
}

static void print_prediction(const json_t *p)
{
    printf("energy     %.4g J (%.4g to %.4g)\n", pj_member_number(p, "joules"),
           pj_member_number(p, "joules_lo"), pj_member_number(p, "joules_hi"));
    printf("per token  %.4g J\n", pj_member_number(p, "joules_per_token"));
    printf("time       %.4g s (%.4g to %.4g)\n", pj_member_number(p, "seconds"),
           pj_member_number(p, "seconds_lo"), pj_member_number(p, "seconds_hi"));
    printf(
        "from       %.0f %s runs of this machine; runs left out were missed by %.1f %% (median)\n",
        pj_member_number(p, "runs"), pj_member_text(p, "rests_on"),
        100 * pj_member_number(p, "median_error"));
    if (json_object_get(p, "map")) print_map(json_object_get(p, "map"));
}

static pj_status show_laws(pj_buffer *out, bool as_json, pj_error *err)
{
    json_t *view = pj_parse_view(out, err);
    if (!view) return err->status;
    if (as_json)
        pj_print_json(out);
    else
        print_laws(view);
    json_decref(view);
    return PJ_OK;
}

static pj_status show(pj_buffer *out, bool as_json, pj_error *err)
{
    json_t *view = pj_parse_view(out, err);
    if (!view) return err->status;
    const char *refusal = pj_member_text(view, "refusal");
    pj_status status = *refusal ? pj_fail(err, PJ_E_UNAVAILABLE, "%s", refusal) : PJ_OK;
    if (status == PJ_OK && as_json)
        pj_print_json(out);
    else if (status == PJ_OK)
        print_prediction(view);
    else
        print_nearest(view);
    json_decref(view);
    return status;
}

static int run_predict(const pj_command *command, int argc, char **argv)
{
    const char *db = NULL, *model = NULL, *dtype = NULL;
    int64_t input = 0, output = 0, batch = 1;
    bool as_json = false, laws = false, map = false;
    const pj_option options[] = {
        PJ_OPTION_MODEL(&model),
        PJ_OPTION_DTYPE(&dtype),
        {"input", 0, PJ_OPTION_INT, &input, "N", "tokens of the prompt", 1, 1e7},
        {"output", 0, PJ_OPTION_INT, &output, "N", "tokens to generate", 1, 1e7},
        {"batch", 0, PJ_OPTION_INT, &batch, "N", "sequences at once (1)", 1, 65536},
        {"map", 0, PJ_OPTION_FLAG, &map, NULL,
         "also energy per token over the range of input and output lengths in the runs"},
        {"laws", 0, PJ_OPTION_FLAG, &laws, NULL,
         "instead: how energy per token follows size, shape, batch and length in the runs"},
        {"json", 0, PJ_OPTION_FLAG, &as_json, NULL, "print one JSON object"},
        PJ_OPTION_DB(&db),
        {0}};
    int positional;
    int code = pj_options_parse(command, options, argc, argv, &positional);
    if (code != PJ_PARSE_GO_ON) return code;
    if (positional) return pj_command_usage(command, "give the model with -m");
    if (!laws && (!input || !output)) return pj_command_usage(command, "give --input and --output");
    pj_predict_ask ask = {.model = model,
                          .dtype = dtype,
                          .input = (uint32_t)input,
                          .output = (uint32_t)output,
                          .batch = (uint32_t)batch,
                          .map = map};
    pj_store *store = NULL;
    pj_error err = {0};
    pj_buffer out;
    pj_json json;
    pj_buffer_init(&out, 1 << 20);
    pj_json_init(&json, &out);
    pj_status status = pj_stored_open(db, &store, &err);
    if (status == PJ_OK)
        status = laws ? pj_insight_laws(store, NULL, &json, &err)
                      : pj_insight_predict(store, &ask, &json, &err);
    if (status == PJ_OK) status = laws ? show_laws(&out, as_json, &err) : show(&out, as_json, &err);
    pj_buffer_fini(&out);
    pj_store_close(store);
    return status == PJ_OK ? PJ_EXIT_OK : pj_command_failed(command, &err);
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
