/* perjoule predict: energy and time of a request before it runs. */
#include "cli/stored.h"
#include "profile/predict.h"

#include <math.h>
#include <stdio.h>

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
    json_decref(view);
    return status;
}

static int run_predict(const pj_command *command, int argc, char **argv)
{
    const char *db = NULL, *model = NULL, *dtype = NULL;
    int64_t input = 0, output = 0, batch = 1;
    bool as_json = false;
    const pj_option options[] = {
        PJ_OPTION_MODEL(&model),
        PJ_OPTION_DTYPE(&dtype),
        {"input", 0, PJ_OPTION_INT, &input, "N", "tokens of the prompt", 1, 1e7},
        {"output", 0, PJ_OPTION_INT, &output, "N", "tokens to generate", 1, 1e7},
        {"batch", 0, PJ_OPTION_INT, &batch, "N", "sequences at once (1)", 1, 65536},
        {"json", 0, PJ_OPTION_FLAG, &as_json, NULL, "print one JSON object"},
        PJ_OPTION_DB(&db),
        {0}};
    int positional;
    int code = pj_options_parse(command, options, argc, argv, &positional);
    if (code != PJ_PARSE_GO_ON) return code;
    if (positional) return pj_command_usage(command, "give the model with -m");
    if (!input || !output) return pj_command_usage(command, "give --input and --output");
    pj_predict_ask ask = {.model = model,
                          .dtype = dtype,
                          .input = (uint32_t)input,
                          .output = (uint32_t)output,
                          .batch = (uint32_t)batch};
    pj_store *store = NULL;
    pj_error err = {0};
    pj_buffer out;
    pj_json json;
    pj_buffer_init(&out, 1 << 20);
    pj_json_init(&json, &out);
    pj_status status = pj_stored_open(db, &store, &err);
    if (status == PJ_OK) status = pj_insight_predict(store, &ask, &json, &err);
    if (status == PJ_OK) status = show(&out, as_json, &err);
    pj_buffer_fini(&out);
    pj_store_close(store);
    return status == PJ_OK ? PJ_EXIT_OK : pj_command_failed(command, &err);
}

const pj_command pj_command_predict = {
    .name = "predict",
    .summary = "energy and time of a request before it runs",
    .run = run_predict,
    .usage = "-m MODEL --input N --output N [--batch N]",
    .text = "From the model's architecture and the runs that this machine has in the store: FLOPs "
            "and bytes of "
            "prefill and decode, each with a cost fitted to those runs. The 95 % interval is the "
            "spread of "
            "errors for runs left out. Outside of what was seen, or with fewer than eight runs, "
            "nothing is "
            "predicted (exit code 3).",
    .examples =
        "perjoule predict -m models/demo --input 128 --output 64\n"
        "perjoule predict -m models/demo --input 128 --output 64 --batch 8 --dtype q8_0 --json\n",
};
