#include "trace/model_figures.h"

#include "trace/json_member.h"

#include <stdio.h>

static void copy_text(const json_t *object, const char *name, char *text, size_t bytes)
{
    snprintf(text, bytes, "%s", pj_member_text(object, name));
}

void pj_model_figures_read(const char *json, pj_model_figures *f)
{
    json_t *model = json ? json_loads(json, 0, NULL) : NULL;
    const json_t *draft = json_object_get(model, "draft");
    *f = (pj_model_figures){
        .parameters = pj_member_number(model, "parameters"),
        .active_parameters = pj_member_number(model, "active_parameters"),
        .layers = pj_member_number(model, "layers"),
        .hidden_size = pj_member_number(model, "hidden_size"),
        .intermediate_size = pj_member_number(model, "intermediate_size"),
        .heads = pj_member_number(model, "heads"),
        .head_dim = pj_member_number(model, "head_dim"),
        .experts = pj_member_number(model, "experts"),
        .experts_per_token = pj_member_number(model, "experts_per_token"),
        .context = pj_member_number(model, "context"),
        .window = pj_member_number(model, "window"),
        .weight_bytes = pj_member_number(model, "weight_bytes"),
        .decode_weight_bytes = pj_member_number(model, "decode_weight_bytes"),
        .flops_per_token = pj_member_number(model, "flops_per_token"),
        .kv_bytes_per_token = pj_member_number(model, "kv_bytes_per_token"),
        .kv_window_bytes_per_token = pj_member_number(model, "kv_window_bytes_per_token"),
        .draft_proposed = pj_member_number(draft, "proposed"),
        .draft_accepted = pj_member_number(draft, "accepted"),
    };
    copy_text(model, "attention", f->attention, sizeof f->attention);
    copy_text(model, "kv_type", f->kv_type, sizeof f->kv_type);
    copy_text(draft, "model_name", f->draft_name, sizeof f->draft_name);
    json_decref(model);
}
