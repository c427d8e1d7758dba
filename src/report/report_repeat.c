/* Writes commands from the settings of runs and the plan of an experiment. */
#include "report/report_repeat.h"

#include "base/shell.h"
#include "base/utf8.h"
#include "engine/generation/engine.h"
#include "trace/json_member.h"

#include <perjoule.h>

#include <stdlib.h>
#include <string.h>

enum { LONGEST_PROMPT = 2000 };

static void repeat_option(pj_buffer *out, const char *option, const char *value)
{
    if (!*value) return;
    pj_buffer_printf(out, " %s ", option);
    pj_shell_word(out, value);
}

/* Within a comment among commands, which are there to be copied: a text from elsewhere must not end
 * the line. */
static void repeat_comment(pj_buffer *out, const char *text)
{
    char safe[512];
    pj_utf8_safe(text, strlen(text), safe, sizeof safe);
    for (char *c = safe; *c; c++)
        if (*c == '\n' || *c == '\t') *c = ' ';
    pj_buffer_text(out, safe);
}

/* Settings that differ from the defaults. */
static void repeat_settings(pj_buffer *out, const json_t *settings)
{
    static const struct {
        const char *setting, *option, *unit;
        double usual;
    } numbers[] = {{"interval_ms", "--interval", "ms", 0},
                   {"temperature", "--temp", "", 0},
                   {"top_k", "--top-k", "", 0},
                   {"top_p", "--top-p", "", 1},
                   {"min_p", "--min-p", "", 0},
                   {"typical_p", "--typical-p", "", 1},
                   {"repetition_penalty", "--repeat-penalty", "", 1},
                   {"frequency_penalty", "--frequency-penalty", "", 0},
                   {"presence_penalty", "--presence-penalty", "", 0},
                   {"seed", "--seed", "", 0},
                   {"draft_tokens", "--draft-tokens", "", PJ_DRAFT_USUAL}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        double value = pj_member_number(settings, numbers[i].setting);
        if (!isnan(value) && value != numbers[i].usual)
            pj_buffer_printf(out, " %s %.15g%s", numbers[i].option, value, numbers[i].unit);
    }
    if (json_is_true(json_object_get(settings, "chat"))) pj_buffer_text(out, " --chat");
    if (json_is_true(json_object_get(settings, "ignore_eos"))) pj_buffer_text(out, " --ignore-eos");
    if (json_is_true(json_object_get(settings, "no_mmap"))) pj_buffer_text(out, " --no-mmap");
    repeat_option(out, "--dtype", pj_member_text(settings, "dtype"));
    repeat_option(out, "--system", pj_member_text(settings, "system"));
    repeat_option(out, "--draft", pj_member_text(settings, "draft_model"));
    repeat_option(out, "--power", pj_member_text(settings, "power"));
}

/* Token ids are kept as "1,2,3". Private, long or multi-line prompts are omitted. */
static void repeat_prompt(pj_buffer *out, const char *prompt)
{
    size_t length = strlen(prompt);
    if (!length || length > LONGEST_PROMPT || strpbrk(prompt, "\n\r\t"))
        pj_buffer_text(out, " -f prompt.txt");
    else if (prompt[strspn(prompt, "0123456789,")] == 0 && strchr(prompt, ','))
        repeat_option(out, "--ids", prompt);
    else
        repeat_option(out, "-p", prompt);
}

static void repeat_command(pj_buffer *out, const json_t *run)
{
    const json_t *settings = json_object_get(run, "settings");
    double batch = pj_member_number(run, "batch_size");
    pj_buffer_text(out, "perjoule run");
    repeat_option(out, "-m", pj_member_text(run, "model_path"));
    pj_buffer_printf(out, " -n %.0f --threads %.0f", pj_member_number(settings, "max_tokens"),
                     pj_member_number(run, "threads"));
    if (batch > 1) pj_buffer_printf(out, " --batch %.0f", batch);
    repeat_option(out, "--depth", pj_member_text(run, "profiling_depth"));
    const char *kv = pj_member_text(json_object_get(run, "model"), "kv_type");
    if (strcmp(kv, "f32") == 0 || strcmp(kv, "f16") == 0) repeat_option(out, "--kv", kv);
    repeat_settings(out, settings);
    pj_buffer_text(out, " --repeat 5 --warmup 1");
    repeat_prompt(out, pj_member_text(run, "prompt"));
    pj_buffer_char(out, '\n');
}

static void repeat_again(pj_buffer *out, const char *name)
{
    pj_buffer_text(out, "perjoule experiment --name ");
    pj_shell_word(out, name);
    pj_buffer_text(out, " --again\n");
}

static void repeat_run(const json_t *run, pj_buffer *out)
{
    const json_t *settings = json_object_get(run, "settings");
    bool own = strcmp(pj_member_text(run, "engine"), "perjoule") == 0;
    if (json_is_integer(json_object_get(settings, "experiment_cell")))
        repeat_again(out, pj_member_text(run, "experiment_name"));
    else if (own)
        repeat_command(out, run);
    else {
        pj_buffer_text(out, "# the same request to ");
        repeat_comment(out, pj_member_text(run, "engine"));
        pj_buffer_char(out, '\n');
    }
    pj_buffer_printf(out, "# perjoule %s, engine ", pj_version());
    repeat_comment(out, pj_member_text(run, "engine"));
    pj_buffer_text(out, ", instruction set ");
    repeat_comment(out, own ? pj_member_text(run, "isa") : "unknown");
    pj_buffer_text(out, ", power sources ");
    repeat_comment(out, pj_member_text(run, "power_sources"));
    pj_buffer_char(out, '\n');
}

/* The plan with one line per member, and the command that runs it again. */
static void repeat_experiment(const json_t *view, pj_buffer *out)
{
    const char *name, *before = "{";
    json_t *value, *plan = json_object_get(view, "plan");
    json_object_foreach(plan, name, value)
    {
        char *one = json_dumps(value, JSON_ENCODE_ANY);
        pj_buffer_printf(out, "%s\n \"%s\": ", before, name);
        pj_buffer_text(out, one ? one : "null");
        free(one);
        before = ",";
    }
    pj_buffer_text(out, "\n}\n");
    repeat_again(out, pj_member_text(view, "name"));
}

void pj_report_repeat(const json_t *view, pj_buffer *out)
{
    size_t i;
    const json_t *run, *runs = json_object_get(view, "runs");
    if (json_object_get(view, "plan"))
        repeat_experiment(view, out);
    else if (!runs)
        repeat_run(view, out);
    json_array_foreach(runs, i, run) repeat_run(run, out);
}
