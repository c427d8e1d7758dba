/* A chat template from a hostile file, over a fixed conversation. */
#include "engine/text/jinja/jinja.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char json[] =
        "{\"messages\":[{\"role\":\"system\",\"content\":\" S \"},{\"role\":\"user\",\"content\":"
        "\"U <s> "
        "\\u00e9\"},{\"role\":\"assistant\",\"content\":[{\"type\":\"text\",\"text\":\"A\"}]}],"
        "\"tools\":[{\"function\":{\"name\":\"f\",\"parameters\":{\"a\":[1,2.5,null]}}}],"
        "\"add_generation_prompt\":true,\"bos_token\":\"<s>\",\"n\":3}";
    static const char *const trusted[] = {"bos_token", NULL};
    pj_jinja *jinja;
    pj_jinja_output output;
    pj_error err;
    if (size > 1 << 16 || pj_jinja_open((const char *)data, size, "fuzz", &jinja, &err) != PJ_OK)
        return 0;
    pj_jinja_input input = {json, sizeof json - 1, trusted, 1750000000};
    if (pj_jinja_render(jinja, &input, &output, &err) == PJ_OK)
        for (size_t i = 0; i < output.bytes; i++)
            if (output.marks[i] > 1) abort();
    pj_jinja_output_fini(&output);
    pj_jinja_close(jinja);
    return 0;
}
