/* Opens and renders a template: limits, and the input from JSON. */
#include "engine/text/jinja/jinja.h"

#include "engine/text/jinja/evaluate.h"

#include <jansson.h>
#include <string.h>

enum { MAX_TEMPLATE_BYTES = 4 << 20, TREE_BYTES = 256 << 20, BYTES_PER_INPUT_BYTE = 64 };
#ifdef FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION
/* Loops up to the usual limits would take all the time. */
enum { MAX_STEPS = 10000, BASE_BYTES = 1 << 20 };
#else
enum { MAX_STEPS = 20 << 20, BASE_BYTES = 64 << 20 };
#endif

struct pj_jinja {
    pj_arena arena;
    const ji_node *root;
    char name[200];
};

pj_status pj_jinja_open(const char *text, size_t bytes, const char *name, pj_jinja **jinja,
                        pj_error *err)
{
    *jinja = NULL;
    if (bytes > MAX_TEMPLATE_BYTES) return pj_fail(err, PJ_E_FULL, "%s has more than 4 MB", name);
    pj_jinja *made = pj_alloc(1, sizeof *made);
    if (!made) return pj_fail_memory(err, "a chat template");
    pj_arena_init(&made->arena, TREE_BYTES);
    snprintf(made->name, sizeof made->name, "%s", name);
    ji_token *tokens;
    size_t count;
    ji_node *root = NULL;
    pj_status status = ji_scan(text, bytes, made->name, &made->arena, &tokens, &count, err);
    if (status == PJ_OK) status = ji_parse(tokens, count, made->name, &made->arena, &root, err);
    made->root = root;
    if (status != PJ_OK) {
        pj_jinja_close(made);
        return status;
    }
    *jinja = made;
    return PJ_OK;
}

void pj_jinja_close(pj_jinja *jinja)
{
    if (!jinja) return;
    pj_arena_fini(&jinja->arena);
    pj_free(jinja);
}

/* ---- input ---- */

static jv data_string(jv_run *run, const char *text, size_t bytes, bool trusted)
{
    const char *copy = pj_arena_strndup(&run->arena, text, bytes);
    uint8_t *marks = trusted || !bytes ? NULL : jv_alloc(run, bytes, 1);
    if (!copy) return jv_fail(run, PJ_E_FULL, "it needs too much memory");
    if (marks) memset(marks, 1, bytes);
    return jv_bytes(run, copy, marks, bytes);
}

static jv from_json(jv_run *run, json_t *value, bool trusted, int depth)
{
    const char *key;
    json_t *item;
    size_t i;
    jv made;
    if (depth > 100) return jv_fail(run, PJ_E_FULL, "its input is nested too deeply");
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        made = jv_dict_new(run);
        json_object_foreach(value, key, item)
        {
            if (run->failed) break;
            jv_dict_set(run, made, data_string(run, key, strlen(key), trusted),
                        from_json(run, item, trusted, depth + 1));
        }
        return made;
    case JSON_ARRAY:
        made = jv_list_new(run, json_array_size(value));
        json_array_foreach(value, i, item)
            jv_list_add(run, made, from_json(run, item, trusted, depth + 1));
        return made;
    case JSON_STRING:
        return data_string(run, json_string_value(value), json_string_length(value), trusted);
    case JSON_INTEGER: return jv_int(json_integer_value(value));
    case JSON_REAL: return jv_float(json_real_value(value));
    case JSON_TRUE:
    case JSON_FALSE: return jv_bool(json_is_true(value));
    default: return jv_none();
    }
}

static bool is_trusted(const pj_jinja_input *input, const char *key)
{
    for (const char *const *name = input->trusted; name && *name; name++)
        if (strcmp(*name, key) == 0) return true;
    return false;
}

static jv read_input(jv_run *run, const pj_jinja_input *input)
{
    json_error_t where;
    json_t *root = json_loadb(input->json, input->bytes, JSON_ALLOW_NUL, &where), *item;
    const char *key;
    jv variables = jv_dict_new(run);
    if (!json_is_object(root)) {
        json_decref(root);
        return jv_fail(run, PJ_E_INVALID, "its input is not a JSON object");
    }
    json_object_foreach(root, key, item)
    {
        if (run->failed) break;
        bool trusted = is_trusted(input, key);
        jv_dict_set(run, variables, data_string(run, key, strlen(key), true),
                    from_json(run, item, trusted, 0));
    }
    json_decref(root);
    return variables;
}

/* ---- rendering ---- */

static pj_status take_output(const jv_builder *text, pj_jinja_output *output, pj_error *err)
{
    output->text = pj_strndup(text->text ? text->text : "", text->bytes);
    output->marks = pj_alloc(text->bytes + 1, 1);
    output->bytes = text->bytes;
    if (!output->text || !output->marks) {
        pj_jinja_output_fini(output);
        return pj_fail_memory(err, "a conversation");
    }
    if (text->marks) memcpy(output->marks, text->marks, text->bytes);
    return PJ_OK;
}

pj_status pj_jinja_render(const pj_jinja *jinja, const pj_jinja_input *input,
                          pj_jinja_output *output, pj_error *err)
{
    pj_error own;
    jv_run run = {.template_name = jinja->name,
                  .steps = MAX_STEPS + input->bytes,
                  .now = input->now,
                  .line = 1,
                  .err = err ? err : &own};
    jv_builder text = {.run = &run};
    *output = (pj_jinja_output){0};
    pj_arena_init(&run.arena, BASE_BYTES + BYTES_PER_INPUT_BYTE * input->bytes);
    jv variables = read_input(&run, input);
    if (!run.failed) jv_execute(&run, jinja->root, variables, &text);
    pj_status status = run.failed ? run.err->status : take_output(&text, output, err);
    pj_arena_fini(&run.arena);
    return status;
}

void pj_jinja_output_fini(pj_jinja_output *output)
{
    pj_free(output->text);
    pj_free(output->marks);
    *output = (pj_jinja_output){0};
}
