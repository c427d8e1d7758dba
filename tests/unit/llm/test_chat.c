/* Chat formats: recognised by their templates, written as the families write them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "llm/chat.h"

#include <string.h>

static const pj_chat_message talk[] = {
    {"system", "S"}, {"user", "U"}, {"assistant", "A"}, {"user", "V"}};

static void assert_chat(const char *template, const char *bos, const char *eos, pj_chat_kind kind,
                        size_t first, const char *want)
{
    pj_chat_format format;
    pj_error err;
    pj_buffer text;
    pj_text_span literals[4];
    pj_buffer_init(&text, 1 << 16);
    assert_int_equal(pj_chat_recognise(template, bos, eos, &format, &err), PJ_OK);
    assert_string_equal(pj_chat_name(format.kind), pj_chat_name(kind));
    assert_int_equal(pj_chat_render(&format, talk + first, 4 - first, &text, literals, &err),
                     PJ_OK);
    assert_string_equal(pj_buffer_get(&text), want);
    for (size_t i = 0; i < 4 - first; i++)
        assert_memory_equal(text.data + literals[i].begin, talk[first + i].content,
                            literals[i].end - literals[i].begin);
    pj_buffer_fini(&text);
}

static void test_families(void **state)
{
    (void)state;
    assert_chat(
        "{{ '<|im_start|>' + role }}", "", "", PJ_CHAT_CHATML, 0,
        "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\n"
        "A<|im_end|>\n<|im_start|>user\nV<|im_end|>\n<|im_start|>assistant\n");
    assert_chat("{{ '<|im_start|>system\\nBe good.<|im_end|>\\n' }}", "", "", PJ_CHAT_CHATML, 3,
                "<|im_start|>system\nBe good.<|im_end|>\n<|im_start|>user\nV<|im_end|>\n"
                "<|im_start|>assistant\n");
    assert_chat("<|im_start|>user<|im_sep|>", "", "", PJ_CHAT_PHI4, 3,
                "<|im_start|>user<|im_sep|>V<|im_end|><|im_start|>assistant<|im_sep|>");
    assert_chat("bos_token <|start_header_id|>", "<B>", "", PJ_CHAT_LLAMA3, 3,
                "<B><|start_header_id|>user<|end_header_id|>\n\nV<|eot_id|>"
                "<|start_header_id|>assistant<|end_header_id|>\n\n");
    assert_chat("<|user|>\\n <|assistant|> <|end|>", "", "", PJ_CHAT_PHI3, 3,
                "<|user|>\nV<|end|>\n<|assistant|>\n");
    assert_chat("<|user|> <|assistant|> <|end|>", "", "", PJ_CHAT_PHI3, 3,
                "<|user|>V<|end|><|assistant|>");
    assert_chat("bos_token + '[INST] ' + '<<SYS>>'", "<s>", "</s>", PJ_CHAT_LLAMA2, 0,
                "<s>[INST] <<SYS>>\nS\n<</SYS>>\n\nU [/INST] A </s><s>[INST] V [/INST]");
    assert_chat("bos_token '[INST] ' ' [/INST]'", "<s>", "</s>", PJ_CHAT_MISTRAL_V1, 0,
                "<s>[INST] S\n\nU [/INST] A</s>[INST] V [/INST]");
    assert_chat("bos_token '[INST] ' '[/INST]'", "<s>", "</s>", PJ_CHAT_MISTRAL_V3, 0,
                "<s>[INST] S\n\nU[/INST] A</s>[INST] V[/INST]");
    assert_chat("bos_token \"[INST]\" \"[/INST]\"", "<s>", "</s>", PJ_CHAT_MISTRAL_TEKKEN, 0,
                "<s>[INST]S\n\nU[/INST]A</s>[INST]V[/INST]");
    assert_chat("bos_token [INST] [SYSTEM_PROMPT]", "<s>", "</s>", PJ_CHAT_MISTRAL_V7, 0,
                "<s>[SYSTEM_PROMPT] S[/SYSTEM_PROMPT][INST] U[/INST] A</s>[INST] V[/INST]");
}

static void test_unknown(void **state)
{
    (void)state;
    pj_chat_format format;
    pj_error err;
    assert_int_equal(pj_chat_recognise("### Human:", "", "", &format, &err), PJ_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "--chat"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_families),
        cmocka_unit_test(test_unknown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
