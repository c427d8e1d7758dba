#include "trace/model_figures.h"

#include "trace/json_member.h"

#include <stdio.h>

void pj_model_figures_read(const char *json, pj_model_figures *f)
{
    json_t *model = json ? json_loads(json, 0, NULL) : NULL;
    const json_t *draft = json_object_get(model, "draft");
#define READ(name) f->name = pj_member_number(model, #name);
    PJ_MODEL_NUMBERS(READ)
#undef READ
    f->draft_proposed = pj_member_number(draft, "proposed");
    f->draft_accepted = pj_member_number(draft, "accepted");
    snprintf(f->attention, sizeof f->attention, "%s", pj_member_text(model, "attention"));
    snprintf(f->kv_type, sizeof f->kv_type, "%s", pj_member_text(model, "kv_type"));
    snprintf(f->draft_name, sizeof f->draft_name, "%s", pj_member_text(draft, "model_name"));
    f->knows_attention = pj_attention_work_read(model, &f->attention_work);
    json_decref(model);
}
