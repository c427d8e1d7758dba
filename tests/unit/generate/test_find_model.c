/* Models in the caches of other tools, recreated in the test's own folder: found by name, named and
 * listed; missing parts are reported. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../engine/made_gguf.h"
#include "../engine/tiny.h"
#include "base/file.h"
#include "engine/files/locations.h"
#include "engine/generation/engine.h"
#include "engine/model/scan.h"
#include "generate/find_model.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char digest[] = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
static char home[64];
static tiny_model tiny;

/* "home/…" with its folder made. */
static const char *at(const char *path)
{
    static char out[4][PATH_MAX];
    static int next;
    char *full = out[next++ % 4], folder[PATH_MAX];
    snprintf(full, PATH_MAX, "%s/%s", home, path);
    snprintf(folder, sizeof folder, "%s", full);
    *strrchr(folder, '/') = 0;
    assert_int_equal(pj_dir_make(folder, NULL), PJ_OK);
    return full;
}

static void write_text(const char *path, const char *text)
{
    assert_int_equal(pj_file_write(at(path), text, strlen(text), NULL), PJ_OK);
}

static void link_into(const char *folder)
{
    static const char *const names[] = {"config.json", "model.safetensors"};
    for (int i = 0; i < 2; i++) {
        char from[PATH_MAX], to[PATH_MAX];
        snprintf(from, sizeof from, "%s/%s", tiny.folder, names[i]);
        snprintf(to, sizeof to, "%s/%s", folder, names[i]);
        assert_int_equal(symlink(from, at(to)), 0);
    }
}

static void write_gguf(const char *path)
{
    made_gguf g;
    pj_checkpoint *checkpoint;
    assert_int_equal(pj_checkpoint_open(tiny.folder, &checkpoint, NULL), PJ_OK);
    made_gguf_init(&g);
    made_gguf_copy(&g, checkpoint, &(made_gguf_options){.type = -1});
    made_gguf_write(&g, at(path));
    made_gguf_fini(&g);
    pj_checkpoint_close(checkpoint);
}

static int set_up(void **state)
{
    (void)state;
    snprintf(home, sizeof home, "/tmp/perjoule-homes-XXXXXX");
    if (!mkdtemp(home)) return 1;
    static const char *const others[] = {"HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE",
                                         "XDG_CACHE_HOME", "LLAMA_CACHE"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) unsetenv(others[i]);
    setenv("HOME", home, 1);
    setenv("OLLAMA_MODELS", at(".ollama/models/blobs/.."), 1);
    setenv("PERJOULE_MODELS", at("models/."), 1);
    tiny_make(&tiny, tiny_find("llama"), 3);
    tiny_write(&tiny, TINY_F32);
    return 0;
}

static int tear_down(void **state)
{
    char command[128];
    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s'", home);
    tiny_free(&tiny);
    return system(command);
}

static void finds(const char *name, const char *end, const char *noted)
{
    char path[PATH_MAX], note[1024];
    pj_error err = {0};
    if (pj_model_find_noting(name, NULL, path, sizeof path, note, sizeof note, &err) != PJ_OK)
        fail_msg("%s: %s", name, err.text);
    if (strlen(path) < strlen(end) || strcmp(path + strlen(path) - strlen(end), end) != 0)
        fail_msg("%s is at %s, not %s", name, path, end);
    if (noted ? !strstr(note, noted) : note[0]) fail_msg("%s: the note is \"%s\"", name, note);
}

static void refuses(const char *name, const char *why)
{
    char path[PATH_MAX];
    pj_error err = {0};
    pj_status status = pj_model_find(name, NULL, path, sizeof path, &err);
    assert_true(status == PJ_E_NOT_FOUND || status == PJ_E_INVALID);
    if (!strstr(err.text, why)) fail_msg("%s: \"%s\" does not say \"%s\"", name, err.text, why);
}

/* The name that a run is stored under. */
static void is_called(const char *name, const char *stored)
{
    char path[PATH_MAX];
    pj_error err = {0};
    pj_engine *engine;
    assert_int_equal(pj_model_find(name, NULL, path, sizeof path, &err), PJ_OK);
    pj_engine_options options = {.model = path, .threads = 1};
    if (pj_engine_open(&options, &engine, &err) != PJ_OK) fail_msg("%s", err.text);
    assert_string_equal(pj_engine_get_facts(engine)->model_name, stored);
    pj_engine_close(engine);
}

#define HUB ".cache/huggingface/hub/"

static void hugging_face(void **state)
{
    (void)state;
    write_text(HUB "models--org--tiny/refs/main", "abc123\n");
    link_into(HUB "models--org--tiny/snapshots/abc123");
    finds("org/tiny", "snapshots/abc123", NULL);
    is_called("org/tiny", "org/tiny");
    refuses("org/tin", "there is no model org/tin");
    refuses("org/tin", "hf download org/tin");
    refuses("org/tin", "did you mean org/tiny?");
    link_into("models/small");
    refuses("/no/folder/smal", "did you mean small?"); /* by the last part of a path */
    /* GGUF files: by name, by quantisation, alone where there is one */
    write_gguf(HUB "models--org--files-GGUF/snapshots/1/tiny-Q4_K_M.gguf");
    finds("org/files-GGUF", "tiny-Q4_K_M.gguf", NULL);
    write_gguf(HUB "models--org--files-GGUF/snapshots/1/tiny-Q4_K.gguf");
    refuses("org/files-GGUF", "2 GGUF files");
    finds("org/files-GGUF:q4_k", "tiny-Q4_K.gguf", NULL);
    finds("org/files-GGUF:Q4_K_M", "tiny-Q4_K_M.gguf", NULL);
    finds("org/files-GGUF/tiny-Q4_K.gguf", "1/tiny-Q4_K.gguf", NULL);
    refuses("org/files-GGUF:Q8_0", "org/files-GGUF has no Q8_0 here; its files are tiny-Q4_K");
    refuses("org/other-GGUF:Q8_0", "hf download org/other-GGUF fetches");
    is_called("org/files-GGUF:Q4_K", "org/files-GGUF/tiny-Q4_K.gguf");
}

static void what_is_missing(void **state)
{
    (void)state;
    write_text(HUB "models--org--gated/refs/main", "1");
    refuses("org/gated", "gated");
    write_text(HUB "models--org--described/refs/main", "1");
    write_text(HUB "models--org--described/snapshots/1/README.md", "# of a gated model");
    write_text(HUB "models--org--described/snapshots/1/.gitattributes", "");
    refuses("org/described", "gated");
    write_text(HUB "models--org--half/snapshots/1/config.json", "{}");
    refuses("org/half", "no weights in safetensors");
    write_text(HUB "models--org--half/blobs/abc.incomplete", "");
    refuses("org/half", "1 incomplete file");
    /* what is missing is not of this model's weights */
    link_into(HUB "models--org--whole/snapshots/1");
    write_text(HUB "models--org--whole/blobs/abc.incomplete", "");
    finds("org/whole", "snapshots/1", NULL);
    write_text(HUB "models--org--part/snapshots/1/config.json", "{}");
    write_text(HUB "models--org--part/snapshots/1/model-00001-of-00002.safetensors", "");
    write_text(HUB "models--org--part/blobs/abc.incomplete", "");
    refuses("org/part", "1 incomplete file");
    /* an index that names a shard which is not there */
    link_into(HUB "models--org--shards/snapshots/1");
    assert_int_equal(unlink(at(HUB "models--org--shards/snapshots/1/model.safetensors")), 0);
    write_text(HUB "models--org--shards/snapshots/1/model.safetensors.index.json",
               "{\"weight_map\": {\"a\": \"model-00001-of-00002.safetensors\"}}");
    write_text(HUB "models--org--shards/snapshots/1/other.safetensors", "");
    char path[PATH_MAX];
    pj_engine *engine;
    pj_error err = {0};
    assert_int_equal(pj_model_find("org/shards", NULL, path, sizeof path, &err), PJ_OK);
    pj_engine_options options = {.model = path, .threads = 1};
    assert_int_equal(pj_engine_open(&options, &engine, &err), PJ_E_INVALID);
    assert_non_null(strstr(err.text, "lacks model-00001-of-00002.safetensors"));
}

static void write_manifest(const char *path, const char *layer, const char *sha)
{
    char text[512];
    snprintf(text, sizeof text,
             "{\"schemaVersion\":2,\"config\":{\"digest\":\"sha256:00\"},\"layers\":["
             "{\"mediaType\":\"application/vnd.ollama.image.license\",\"digest\":\"sha256:11\"},"
             "{\"mediaType\":\"application/vnd.ollama.image.%s\",\"digest\":\"sha256:%s\","
             "\"size\":5}]}",
             layer, sha);
    write_text(path, text);
}

#define MANIFESTS ".ollama/models/manifests/"

static void ollama(void **state)
{
    char blob[PATH_MAX], text[PATH_MAX];
    (void)state;
    snprintf(blob, sizeof blob, ".ollama/models/blobs/sha256-%s", digest);
    write_gguf(blob);
    write_manifest(MANIFESTS "registry.ollama.ai/library/tiny/latest", "model", digest);
    write_manifest(MANIFESTS "registry.ollama.ai/me/own/3b", "model", digest);
    write_manifest(MANIFESTS "hf.co/org/files-GGUF/Q4_K_M", "model", digest);
    snprintf(text, sizeof text, "sha256-%s", digest);
    finds("ollama:tiny", text, NULL);
    finds("ollama:tiny:latest", text, NULL);
    finds("ollama:me/own:3b", text, NULL);
    finds("ollama:hf.co/org/files-GGUF:Q4_K_M", text, NULL);
    refuses("ollama:tiny:8b", "ollama pull tiny:8b");
    char other[65];
    snprintf(other, sizeof other, "f%s", digest + 1);
    write_manifest(MANIFESTS "registry.ollama.ai/library/gone/latest", "model", other);
    refuses("ollama:gone", "ollama pull gone");
    write_manifest(MANIFESTS "registry.ollama.ai/library/cloud/latest", "params", other);
    refuses("ollama:cloud", "names no weights");
    /* a digest that would leave the store */
    write_manifest(MANIFESTS "registry.ollama.ai/library/evil/latest", "model",
                   "../../../etc/passwd");
    refuses("ollama:evil", "manifest cannot be read");
    write_text(MANIFESTS "registry.ollama.ai/library/broken/latest", "{\"layers\":[{]");
    refuses("ollama:broken", "manifest cannot be read");
    /* all three names stand for one blob; whichever is met first is its name */
    char name[256], path[PATH_MAX];
    assert_int_equal(pj_model_find("ollama:tiny", NULL, path, sizeof path, NULL), PJ_OK);
    pj_model_name_of_path(path, name, sizeof name);
    assert_int_equal(strncmp(name, "ollama:", 7), 0);
}

static void others(void **state)
{
    (void)state;
    write_gguf(".lmstudio/models/maker/repo-GGUF/studio-Q8_0.gguf");
    finds("maker/repo-GGUF", "studio-Q8_0.gguf", NULL);
    finds("maker/repo-GGUF:q8_0", "studio-Q8_0.gguf", NULL);
    is_called("maker/repo-GGUF", "maker/repo-GGUF/studio-Q8_0.gguf");
    write_gguf(".cache/llama.cpp/maker_two-GGUF_two-Q4_0.gguf");
    write_text(".cache/llama.cpp/maker_two-GGUF_mmproj-two.gguf.downloadInProgress", "");
    finds("maker/two-GGUF", "two-Q4_0.gguf", NULL);
    finds("maker/two-GGUF:Q4_0", "two-Q4_0.gguf", NULL);
    finds("maker_two-GGUF_two-Q4_0.gguf", "two-Q4_0.gguf", NULL);
    refuses("maker/two", "there is no model");
}

static void twice(void **state)
{
    (void)state;
    link_into("models/org/tiny");
    finds("org/tiny", "models/./org/tiny", "is in the models folder and in the Hugging Face cache");
    char path[PATH_MAX], note[1024];
    assert_int_equal(pj_model_find_noting(at("models/org/tiny"), NULL, path, sizeof path, note,
                                          sizeof note, NULL),
                     PJ_OK);
    assert_string_equal(note, ""); /* a path is no name */
}

static const pj_model_entry *entry_of(const pj_model_list *list, const char *name, size_t which)
{
    for (size_t i = 0; i < list->count; i++)
        if (strcmp(list->items[i].name, name) == 0 && which-- == 0) return &list->items[i];
    fail_msg("%s is not listed", name);
    return NULL;
}

/* Runs last: everything that the others made. */
static void listed(void **state)
{
    pj_model_list list;
    (void)state;
    assert_int_equal(pj_models_scan(NULL, true, &list, NULL), PJ_OK);
    const pj_model_entry *first = entry_of(&list, "org/tiny", 0);
    const pj_model_entry *second = entry_of(&list, "org/tiny", 1);
    assert_true(first->usable && !first->first);
    assert_string_equal(first->location, "the models folder");
    assert_string_equal(second->location, "the Hugging Face cache");
    assert_string_equal(second->first, first->path);
    assert_true(entry_of(&list, "ollama:me/own:3b", 0)->usable);
    assert_true(entry_of(&list, "maker/repo-GGUF/studio-Q8_0.gguf", 0)->usable);
    const pj_model_entry *gated = entry_of(&list, "org/gated", 0);
    assert_false(gated->usable);
    assert_non_null(strstr(gated->reason.text, "gated"));
    assert_non_null(strstr(entry_of(&list, "org/shards", 0)->reason.text, "lacks model-00001"));
    pj_model_list_fini(&list);
}

/* What is listed as usable opens: a model that lacks a tensor is not. */
static void lacking(void **state)
{
    pj_model_list list;
    char config[PATH_MAX], *text;
    size_t bytes;
    (void)state;
    snprintf(config, sizeof config, "%s/config.json", tiny.folder);
    assert_int_equal(pj_file_read(config, 1 << 16, &text, &bytes, NULL), PJ_OK);
    char *layers = strstr(text, "\"num_hidden_layers\"");
    assert_non_null(layers);
    layers = strchr(layers, ':') + 1;
    layers += *layers == ' ';
    *layers = '9'; /* more layers than there are tensors of */
    write_text("models/lacking/config.json", text);
    char from[PATH_MAX];
    snprintf(from, sizeof from, "%s/model.safetensors", tiny.folder);
    assert_int_equal(symlink(from, at("models/lacking/model.safetensors")), 0);
    assert_int_equal(pj_models_scan(NULL, false, &list, NULL), PJ_OK);
    const pj_model_entry *entry = entry_of(&list, "lacking", 0);
    assert_false(entry->usable);
    assert_non_null(strstr(entry->reason.text, "has no tensor model.layers."));
    pj_model_list_fini(&list);
    pj_free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hugging_face), cmocka_unit_test(what_is_missing), cmocka_unit_test(ollama),
        cmocka_unit_test(others),       cmocka_unit_test(twice),           cmocka_unit_test(listed),
        cmocka_unit_test(lacking),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
