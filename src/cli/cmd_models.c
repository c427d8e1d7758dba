/* perjoule models: lists the models on this machine, with the properties that matter for energy. */
#include "cli/json_out.h"
#include "cli/options.h"
#include "cli/terminal.h"
#include "engine/model/scan.h"

#include <stdio.h>

static void print_usable(const pj_model_entry *entry)
{
    const pj_model_facts *f = &entry->facts;
    pj_print(stdout, "%s%s%s  (%s)\n", pj_style_on(stdout, PJ_STYLE_BOLD), entry->name,
             pj_style_off(stdout), f->arch);
    pj_print(stdout, "  parameters %s", pj_count_text((double)f->parameters).s);
    if (f->active_parameters != f->parameters)
        pj_print(stdout, ", active %s", pj_count_text((double)f->active_parameters).s);
    pj_print(stdout, "; %u layers, hidden %u, heads %u/%u (%s) of %u, %s\n", f->layers, f->hidden,
             f->heads, f->kv_heads, f->attention, f->head_dim, pj_dtype_get(f->dtype)->name);
    pj_print(stdout, "  per token: reads %sB, %sFLOP",
             pj_count_text((double)f->decode_weight_bytes).s,
             pj_count_text((double)f->flops_per_token).s);
    if (f->experts) pj_print(stdout, "; %u of %u experts", f->experts_per_token, f->experts);
    if (f->window) pj_print(stdout, "; window %u", f->window);
    pj_print(stdout, "; context %u%s\n", f->context, entry->has_tokenizer ? "" : "; no tokenizer");
    pj_print(stdout, "  %s\n", entry->path);
    if (entry->first)
        pj_print(stdout, "  -m %s selects %s; to use this one, give its path\n", entry->name,
                 entry->first);
}

static void models_print_list(const pj_model_list *list, const char *folder)
{
    if (list->count == 0) {
        pj_print(
            stdout,
            "No models in %s or in the caches of Hugging Face, Ollama, LM Studio and llama.cpp. "
            "Put a model's folder there, name another folder with --models, or use -m "
            "synthetic:llama-3.2-1b.\n",
            folder);
        return;
    }
    for (size_t i = 0; i < list->count; i++) {
        const pj_model_entry *entry = &list->items[i];
        if (entry->usable)
            print_usable(entry);
        else
            pj_print(stdout, "%s%s%s\n  cannot be used: %s\n", pj_style_on(stdout, PJ_STYLE_DIM),
                     entry->name, pj_style_off(stdout), entry->reason.text);
    }
}

static int run(const pj_command *command, int argc, char **argv)
{
    const char *folder = NULL;
    bool json = false, cache = true;
    const pj_option options[] = {{"models", 0, PJ_OPTION_TEXT, &folder, "DIR",
                                  "where models are (default $PERJOULE_MODELS, else ./models)",
                                  .rule = pj_rule_folder},
                                 {"cache", 0, PJ_OPTION_FLAG, &cache, NULL,
                                  "also list models of other tools (default; --no-cache: do not)"},
                                 {"json", 0, PJ_OPTION_FLAG, &json, NULL, "print JSON"},
                                 {0}};
    int code = pj_options_parse(command, options, argc, argv, NULL);
    if (code != PJ_PARSE_GO_ON) return code;
    pj_model_list list;
    pj_error err;
    if (!folder) folder = pj_models_default_folder();
    if (pj_models_scan(folder, cache, &list, &err) != PJ_OK)
        return pj_command_failed(command, &err);
    pj_json_out out;
    pj_status status = PJ_OK;
    if (json) {
        pj_model_list_json(&list, pj_json_out_begin(&out));
        status = pj_json_out_end(&out, status, &err);
    } else {
        models_print_list(&list, folder);
    }
    pj_model_list_fini(&list);
    return status == PJ_OK ? PJ_EXIT_OK : pj_command_failed(command, &err);
}

const pj_command pj_command_models = {
    .name = "models",
    .summary = "list the models on this machine, with what matters for energy",
    .run = run,
    .usage = "[options]",
    .text =
        "A model is a folder as Hugging Face publishes it, or a GGUF file. Besides --models, the "
        "Hugging Face cache, Ollama's store, LM Studio's folder and llama.cpp's cache are "
        "searched; -m accepts every listed name. Bytes per token are the weights that decoding one "
        "token of one sequence reads; FLOPs per token are those of its matrices.\n\n"
        "Models that cannot be used are listed with the reason.",
    .examples = "perjoule models\nperjoule models --models ~/models --json\n",
};
