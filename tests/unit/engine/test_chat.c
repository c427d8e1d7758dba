/* Conversations through a model's chat template: where the template is found, its variables, and
 * which bytes are marked as data. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/text/chat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char plain[] =
    "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content }}{{ eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
    "{% if think is defined %}{{ think }}{% endif %}{{ tools is none }}";

static void assert_renders(const char *template, const pj_conversation *c, const char *want)
{
    pj_chat *chat;
    pj_jinja_output output;
    pj_error err = {0};
    assert_int_equal(pj_chat_parse(template, strlen(template), "it", "<s>", "</s>", &chat, &err),
                     PJ_OK);
    if (pj_chat_render(chat, c, &output, &err) != PJ_OK) fail_msg("%s", err.text);
    assert_string_equal(output.text, want);
    pj_jinja_output_fini(&output);
    pj_chat_close(chat);
}

static pj_conversation talk(const char *text, bool messages)
{
    return (pj_conversation){.text = text, .bytes = strlen(text), .messages = messages};
}

static void test_conversations(void **state)
{
    (void)state;
    pj_conversation c = talk("Hi <s>", false);
    assert_renders(plain, &c, "<s><user>Hi <s></s><assistant>True");
    c.system = "Be brief.";
    c.variables = "{\"think\": false}";
    assert_renders(plain, &c, "<s><system>Be brief.</s><user>Hi <s></s><assistant>FalseTrue");
    c = talk("[{\"role\":\"user\",\"content\":\"U\"},{\"role\":\"assistant\",\"content\":\"A\"},"
             "{\"role\":\"user\",\"content\":\"V\"}]",
             true);
    assert_renders(plain, &c, "<s><user>U</s><assistant>A</s><user>V</s><assistant>True");
    c = talk("{\"messages\":[{\"role\":\"user\",\"content\":\"U\"}],\"think\":3,\"tools\":[]}",
             true);
    assert_renders(plain, &c, "<s><user>U</s><assistant>3False");
    c = talk("a\xff"
             "b\xc3",
             false);
    assert_renders("{{ messages[0].content }}", &c,
                   "a\xef\xbf\xbd"
                   "b\xef\xbf\xbd");
}

static void assert_refused(const pj_conversation *c, const char *says)
{
    pj_chat *chat;
    pj_jinja_output output;
    pj_error err = {0};
    assert_int_equal(pj_chat_parse(plain, strlen(plain), "it", "", "", &chat, &err), PJ_OK);
    assert_int_equal(pj_chat_render(chat, c, &output, &err), PJ_E_INVALID);
    if (!strstr(err.text, says)) fail_msg("%s", err.text);
    pj_chat_close(chat);
}

static void test_bad_conversations(void **state)
{
    (void)state;
    pj_conversation c = talk("[{\"content\":\"U\"}]", true);
    assert_refused(&c, "message 1 of the conversation has no role");
    c = talk("3", true);
    assert_refused(&c, "JSON array");
    c = talk("{\"a\": 1}", true);
    assert_refused(&c, "JSON array");
    c = talk("[{", true);
    assert_refused(&c, "not valid JSON");
    c = talk("[{\"role\":\"system\",\"content\":\"S\"}]", true);
    c.system = "T";
    assert_refused(&c, "leave out --system");
    c = talk("U", false);
    c.variables = "[1]";
    assert_refused(&c, "not a JSON object");
}

/* ---- model folders ---- */

static void write_file(const char *folder, const char *name, const char *text)
{
    char path[300];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void remove_files(const char *folder)
{
    static const char *const names[] = {"tokenizer_config.json",
                                        "chat_template.jinja",
                                        "special_tokens_map.json",
                                        "chat_template.json",
                                        "additional_chat_templates/tool_use.jinja",
                                        "additional_chat_templates"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[300];
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        remove(path);
    }
}

static void assert_conversation(const char *folder, const pj_conversation *c, const char *want)
{
    pj_chat *chat;
    pj_jinja_output output;
    pj_error err = {0};
    if (pj_chat_open(folder, &chat, &err) != PJ_OK) fail_msg("%s", err.text);
    assert_int_equal(pj_chat_render(chat, c, &output, &err), PJ_OK);
    assert_string_equal(output.text, want);
    pj_jinja_output_fini(&output);
    pj_chat_close(chat);
}

static void assert_folder(const char *folder, const char *want)
{
    pj_conversation c = talk("U", false);
    assert_conversation(folder, &c, want);
}

static void assert_with_tools(const char *folder, const char *tools, const char *want)
{
    char text[200];
    snprintf(text, sizeof text,
             "{\"messages\":[{\"role\":\"user\",\"content\":\"U\"}],\"tools\":%s}", tools);
    pj_conversation c = talk(text, true);
    assert_conversation(folder, &c, want);
}

static void test_folders(void **state)
{
    char folder[] = "/tmp/pj-chat-XXXXXX";
    pj_chat *chat;
    pj_error err;
    (void)state;
    assert_non_null(mkdtemp(folder));
    assert_int_equal(pj_chat_open(folder, &chat, &err), PJ_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "no chat template"));
    write_file(folder, "tokenizer_config.json",
               "{\"bos_token\":{\"content\":\"<B>\"},\"eos_token\":null,\"chat_template\":"
               "\"{{ bos_token }}{{ messages[0].content }}{{ eos_token }}\"}");
    assert_folder(folder, "<B>U");
    write_file(folder, "special_tokens_map.json", "{\"bos_token\":\"<C>\",\"eos_token\":\"<E>\"}");
    assert_folder(folder, "<B>U<E>");
    write_file(folder, "tokenizer_config.json",
               "{\"chat_template\":[{\"name\":\"tool_use\",\"template\":\"T\"},"
               "{\"name\":\"default\",\"template\":\"D{{ bos_token }}\"}]}");
    assert_folder(folder, "D<C>");
    assert_with_tools(folder, "[{\"name\":\"f\"}]", "T");
    assert_with_tools(folder, "[]", "T");
    assert_with_tools(folder, "null", "D<C>");
    write_file(folder, "chat_template.jinja", "file {{ messages|length }}\n");
    assert_folder(folder, "file 1");
    assert_with_tools(folder, "[1]", "file 1");
    char more[300];
    snprintf(more, sizeof more, "%s/additional_chat_templates", folder);
    assert_int_equal(mkdir(more, 0700), 0);
    write_file(more, "tool_use.jinja", "tools {{ tools|length }}");
    assert_folder(folder, "file 1");
    assert_with_tools(folder, "[1]", "tools 1");
    /* one that is not used does not matter */
    write_file(more, "tool_use.jinja", "{% frob %}");
    assert_folder(folder, "file 1");
    write_file(folder, "chat_template.jinja", "{% frob %}");
    assert_int_equal(pj_chat_open(folder, &chat, &err), PJ_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "\"frob\""));
    assert_non_null(strstr(err.text, folder));
    remove_files(folder);
    write_file(folder, "tokenizer_config.json",
               "{\"chat_template\":[{\"name\":\"rag\",\"template\":\"R\"},"
               "{\"name\":\"tool_use\",\"template\":\"T\"}]}");
    assert_int_equal(pj_chat_open(folder, &chat, &err), PJ_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "none of which is named default"));
    write_file(folder, "tokenizer_config.json", "{}");
    write_file(folder, "chat_template.json", "{\"chat_template\":\"P{{ messages|length }}\"}");
    assert_folder(folder, "P1");
    write_file(folder, "tokenizer_config.json", "{");
    assert_int_equal(pj_chat_open(folder, &chat, &err), PJ_E_INVALID);
    remove_files(folder);
    rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_conversations),
        cmocka_unit_test(test_bad_conversations),
        cmocka_unit_test(test_folders),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
