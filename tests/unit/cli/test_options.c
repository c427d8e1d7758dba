/* Every option of every command, and of every benchmark, refuses what its values cannot be, in one
 * line that names the option, before the command begins: "--help" stands behind each value, which
 * is printed instead where the value was taken. Options are read from the commands themselves; one
 * whose kind of value is not known here fails. */
#include "cli/options.h"
#include "cli/terminal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define GROUP(title)
#define COMMAND(name) extern const pj_command pj_command_##name;
#include "cli/commands.def"
#undef COMMAND
#define BENCH(name) extern const pj_command pj_bench_##name;
#include "bench/benches.def"
#undef BENCH

const pj_command pj_command_help = {.name = "help"}; /* of the program alone; it has no options */

static const pj_command *const commands[] = {
#define COMMAND(name) &pj_command_##name,
#include "cli/commands.def"
#undef COMMAND
#undef GROUP
#define BENCH(name) &pj_bench_##name,
#include "bench/benches.def"
#undef BENCH
};

/* What values of a kind may be: of an option of this name, or of this name of its values; the first
 * line that fits counts. Whatever the kind, a value must not be empty where there is a bad one. */
#define NUMBERS "abc", "nan", "inf", "1e999", "-1000000", "99999999999999999999999", "1x", "0x"
#define NO_FILE "/nonexistent/x", "."
static const struct kind {
    const char *option, *value_name, *good, *bad[12];
} kinds[] = {
    {"note", "TEXT", "", {NULL}},
    {"system", "TEXT", "", {NULL}},
    {"prompt", "TEXT", "a", {NULL}},
    /* files and folders */
    {"db", "FILE", "none", {".", "/dev/null", ""}},
    {"db", "URL", "postgresql://db/x", {""}},
    {"power", "FILE.csv", "/dev/null", {NO_FILE, ""}},
    {"output", "FILE", "-", {NO_FILE, "/dev/null/x", "new/", ""}},
    {"save", NULL, "new", {NO_FILE, "-", ""}},
    {"keep", "FILE", "new", {NO_FILE, "-", ""}},
    {"junit", NULL, "new", {NO_FILE, "-", ""}},
    {"markdown", NULL, "new", {NO_FILE, "-", ""}},
    {"logits", NULL, "/dev/full", {NO_FILE, "-", ""}},
    {"record", NULL, "new", {NO_FILE, "-", ""}},
    {NULL, "FILE", "/dev/null", {NO_FILE, ""}},
    {NULL, "FILE.json", "/dev/null", {NO_FILE, ""}},
    {NULL, "DIR", ".", {"nosuch", "/dev/null", ""}},
    /* numbers; these have bounds above 1 */
    {"runs", "N", "40", {NUMBERS, ""}},
    {"rounds", "N", "10", {NUMBERS, ""}},
    {"requests", "N", "10", {NUMBERS, ""}},
    {"chunks", "N", "10", {NUMBERS, ""}},
    {"tokens", "N", "2", {NUMBERS, ""}},
    {NULL, "MB", "64", {NUMBERS, ""}},
    {NULL, "MW", "1", {NUMBERS, ""}},
    {"steps", "N", "5", {NUMBERS, ""}},
    {"blocks", "N", "3", {NUMBERS, ""}},
    {NULL, "N", "1", {NUMBERS, ""}},
    {NULL, "M", "1", {NUMBERS, ""}},
    {NULL, "K", "1", {NUMBERS, ""}},
    {NULL, "T", "1", {NUMBERS, ""}},
    {NULL, "P", "1", {NUMBERS, ""}},
    {NULL, "F", "1", {NUMBERS, ""}},
    {NULL, "J", "1", {NUMBERS, ""}},
    {NULL, "W", "1", {NUMBERS, ""}},
    {NULL, "X", "1", {NUMBERS, ""}},
    {NULL, "Y", "1", {NUMBERS, ""}},
    {NULL, "G", "1", {NUMBERS, ""}},
    {NULL, "S", "1", {NUMBERS, ""}},
    {NULL, "MS", "1", {NUMBERS, ""}},
    {NULL, "KG", "1", {NUMBERS, ""}},
    {NULL, "USD", "1", {NUMBERS, ""}},
    {NULL, "PERCENT", "1", {NUMBERS, ""}},
    {NULL, "SHARE", "3%", {NUMBERS, ""}},
    {NULL, "1%", "1%", {NUMBERS, ""}},
    {"from", "TIME", "2026-01-31", {NUMBERS, ""}},
    {"to", "TIME", "2026-01-31T12:00:00Z", {NUMBERS, ""}},
    {NULL, "TIME", "100ms", {NUMBERS, "0", ""}},
    {NULL, "AGE", "30d", {NUMBERS, ""}},
    {NULL, "1,2", "1,2", {NUMBERS, ""}},
    {NULL, "N,M", "1,2", {NUMBERS, ""}},
    {"ids", NULL, "1,2", {NUMBERS, ""}},
    {"decode", NULL, "1,2", {NUMBERS, ""}},
    /* addresses */
    {"url", NULL, "http://127.0.0.1:1/v1", {"ftp://x", "http://", "http://a:99999", "a b", ""}},
    {"join", NULL, "https://fleet.lab", {"ftp://x", "http://", "http://a:99999", "a b", ""}},
    {"otlp",
     NULL,
     "http://u:p@otel.lab:4318",
     {"abc", "http://", "ftp://x", "/", "http://a?b", ""}},
    {"listen", NULL, "127.0.0.1:0", {"abc", "a:99999", "a b:1", ""}},
    {"allow-host", NULL, "energy.lab", {"a b", "http://a", "a/b", ""}},
    {NULL, "ORIGIN", "http://localhost:5173", {"abc", "://a", "http://a b", "http://a/b", ""}},
    /* texts with a form */
    {"power", "LIST", "sim", {"nosuch", "sim,sim", "none,sim", ""}},
    {"columns", NULL, "run,net", {"abc", "run,abc", "run,,net", ","}},
    {"dtypes", NULL, "bf16,f32", {"abc", "bf16,abc", ",", ""}},
    {"tokens", "LIST", "1,512", {NUMBERS, ""}},
    {"threads", "LIST", "1,2", {NUMBERS, ""}},
    {"region", NULL, "eu", {"atlantis", ""}},
    {NULL, "SHA", "0a1b2c", {"a b", "a\nb", ""}},
    {"session", NULL, "a-1", {"a b", "a\nb", ""}},
    {NULL,
     "SHAPE",
     "weights=1e9,context=1e5",
     {"abc", "weights=nan", "weights=-1", "weights=1e999", ""}},
    {NULL, "LINE", "X-A: b", {"abc", ": b", "A: b\r\nC: d", ""}},
    {NULL, "NAME=FIGURE:UNIT", "energy_kwh=total:kWh", {"abc", "a=b", "a=total:parsec", ""}},
    {NULL, "OLD=NEW", "hw.energy=acme.energy", {"abc", "hw.energy=", "no=name", ""}},
    {NULL, "ID=BIAS", "42=-100", {"abc", "42", "42=nan", "42=1e9", "-1=1", "42=1x", ""}},
    {NULL, "NAME=VALUE", "a=", {"abc", "=b", ""}},
    {NULL, "SOURCE=GAIN", "rapl=1.02", {"abc", "=1", ""}},
    /* Only the machine, the database or another program knows them: the command asks before it
       stores anything. */
    {NULL, "MODEL", "x", {""}},
    {NULL, "DEVICE", "cpu", {""}},
    {"by", "FIELD", "x", {""}},
    {NULL, "BASELINE", "x", {""}},
    {NULL, "ENGINE", "perjoule", {""}},
    {NULL, "A,B", "x", {""}},
    {NULL, "LIST", "1,2", {""}},
    /* any text but none */
    {NULL, "ADDRESS", "127.0.0.1", {""}},
    {NULL, "COMMAND", "true", {""}},
    {NULL, "NAME", "x", {""}},
    {NULL, "TYPE", "x", {""}},
    {NULL, "TAG", "x", {""}},
    {NULL, "TEXT", "x", {""}},
    {NULL, "TOKEN", "x", {""}},
    {NULL, "SECRET", "x", {""}},
};

static FILE *answers, *errors; /* where standard output and error go */

/* Runs the command without a process of its own; *text is what it printed, to be freed. */
static int run(const pj_command *command, FILE *from, char **text, const char *a, const char *b,
               const char *c)
{
    char *words[] = {strdup(command->name), strdup(a), b ? strdup(b) : NULL, c ? strdup(c) : NULL,
                     NULL};
    int count = 2 + !!b + !!c, kept[] = {dup(1), dup(2)};
    fflush(stdout);
    rewind(answers), rewind(errors);
    assert_int_equal(ftruncate(fileno(answers), 0) + ftruncate(fileno(errors), 0), 0);
    dup2(fileno(answers), 1), dup2(fileno(errors), 2);
    char *left[5];
    memcpy(left, words, sizeof left); /* parsing moves positional arguments */
    int code = command->run(command, count, left);
    fflush(stdout), fflush(stderr);
    for (int i = 0; i < 2; i++) dup2(kept[i], i + 1), close(kept[i]);
    for (int i = 0; i < 4; i++) free(words[i]);
    long bytes = lseek(fileno(from), 0, SEEK_END);
    *text = calloc(1, (size_t)bytes + 1);
    assert_int_equal(pread(fileno(from), *text, (size_t)bytes, 0), bytes);
    return code;
}

static bool expect(const pj_command *command, const char *option, const char *value, bool is_good)
{
    char name[64], start[128], *said;
    snprintf(name, sizeof name, "--%s", option);
    snprintf(start, sizeof start, "perjoule %s: %s ", command->name, name);
    int code = run(command, errors, &said, name, value, "--help");
    const char *line = strchr(said, '\n');
    bool right = is_good ? code == PJ_EXIT_OK && !*said
                         : code == PJ_EXIT_USAGE && strncmp(said, start, strlen(start)) == 0 &&
                               line && !line[1];
    if (!right)
        print_error("perjoule %s %s '%s': exit code %d: %s\n", command->name, name, value, code,
                    said);
    free(said);
    return right;
}

static const struct kind *kind_of(const char *option, const char *value_name)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if ((!kinds[i].option || strcmp(kinds[i].option, option) == 0) &&
            (!kinds[i].value_name || strcmp(kinds[i].value_name, value_name) == 0))
            return &kinds[i];
    return NULL;
}

static bool check_option(const pj_command *command, const char *name, const char *value_name,
                         const char *choices)
{
    const struct kind *kind = kind_of(name, value_name);
    if (*choices && !(kind && kind->option)) /* the only ones, or suggestions */
        return expect(command, name, "abc", false) & expect(command, name, "", false);
    if (!kind) {
        print_error("perjoule %s --%s %s: which values are refused?\n", command->name, name,
                    value_name);
        return false;
    }
    bool right = expect(command, name, kind->good, true);
    for (int i = 0; kind->bad[i]; i++) right &= expect(command, name, kind->bad[i], false);
    return right;
}

static void values_that_cannot_be_are_refused(void **state)
{
    int options = 0, wrong = 0;
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        char *listed;
        if (!commands[i]->run || strcmp(commands[i]->name, "bench") == 0)
            continue; /* the program whose benchmarks are in the list themselves */
        assert_int_equal(run(commands[i], answers, &listed, "--list-options", NULL, NULL),
                         PJ_EXIT_OK);
        for (char *row = listed, *next; *row; row = next) {
            next = row + strcspn(row, "\n");
            next += *next == '\n';
            const char *name = strsep(&row, "\t"), *value_name = strsep(&row, "\t"),
                       *choices = strsep(&row, "\t");
            if (!*value_name) continue; /* a flag */
            wrong += !check_option(commands[i], name, value_name, choices);
            options++;
        }
        free(listed);
    }
    assert_true(options > 280);
    assert_int_equal(wrong, 0);
}

/* Options that would do nothing: without another one, or beside one that takes their place. */
static const struct idle_option {
    const char *command, *option, *beside, *other; /* `other`: named in the sentence */
} idle_options[] = {
    {"run", "--batch-rule=equal", NULL, "--batch or --prompts"},
    {"run", "--draft-tokens=2", NULL, "--draft"},
    {"run", "--quiet", "--verbose", NULL},
    {"run", "--quiet", "--json", NULL},
    {"run", "--verbose", "--json", NULL},
    {"run", "--db=none", "--no-store", NULL},
    {"attach", "--token=a", NULL, "--listen"},
    {"attach", "--token-file=/dev/null", NULL, "--listen"},
    {"attach", "--allow-host=a", NULL, "--listen"},
    {"attach", "--headers-only", NULL, "--listen"},
    {"attach", "--energy-field=a=total:J", NULL, "--listen"},
    {"attach", "--otlp=http://a", NULL, "--listen"},
    {"attach", "--otlp-name=hw.energy=a", NULL, "--otlp or $PERJOULE_OTLP"},
    {"attach", "--seed=1", NULL, "--input-len"},
    {"attach", "--rule=equal", NULL, "--listen or --concurrency"},
    {"attach", "--model-shape=weights=1,context=1", NULL, "--listen or --concurrency"},
    {"attach", "--model=a", "--listen=127.0.0.1:0", NULL},
    {"attach", "--tokens=1", "--listen=127.0.0.1:0", NULL},
    {"attach", "--concurrency=1", "--listen=127.0.0.1:0", NULL},
    {"attach", "--requests=1", "--listen=127.0.0.1:0", NULL},
    {"attach", "--temp=1", "--listen=127.0.0.1:0", NULL},
    {"attach", "--api=chat", "--listen=127.0.0.1:0", NULL},
    {"attach", "--db=none", "--no-store", NULL},
    {"experiment", "--inputs=1", "--prompt=a", NULL},
    {"experiment", "--again", "--result", NULL},
    {"serve", "--otlp-name=hw.energy=a", NULL, "--otlp or $PERJOULE_OTLP"},
    {"serve", "--token=a", "--token-file=/dev/null", NULL},
    {"ls", "--columns=run", "--json", NULL},
    {"ls", "--columns=run", "--table", NULL},
    {"ls", "--usd-per-kwh=1", NULL, "--json"},
    {"ls", "--region=eu", NULL, "--json"},
    {"show", "--metric=time", NULL, "--heatmap"},
    {"show", "--token=1", "--phases", "--components, --operations or --heatmap"},
    {"show", "--layer=1", "--heatmap", "--components or --operations"},
    {"show", "--component=a", "--layers", "--components or --operations"},
    {"show", "--limit=1", "--phases", "--tokens, --layers, --components or --operations"},
    {"show", "--region=eu", "--g-per-kwh=1", NULL},
    {"session", "--repository=.", NULL, "--commits"},
    {"session", "--repository=.", "--no-commits", "--commits"},
    {"status", "--format=a", "--json", NULL},
    {"compare", "--tag=a", NULL, "--by"},
    {"compare", "--from=2026-01-31", NULL, "--by"},
    {"compare", "--with-disturbed", NULL, "--by"},
    {"compare", "--g-per-kwh=1", NULL, "--json"},
    {"report", "--embodied-kg=1", NULL, "--lifetime-years"},
    {"report", "--lifetime-years=1", NULL, "--embodied-kg"},
    {"report", "--pue=1", NULL, "--format"},
    {"report", "--region=eu", NULL, "--format"},
    {"predict", "--input=1", "--laws", NULL},
    {"predict", "--map", "--laws", NULL},
    {"gate", "--fail-over=3%", NULL, "--baseline or --baseline-command"},
    {"tune", "--device=cpu", NULL, "--apply"},
    {"tune", "--no-warmup", NULL, "--apply"},
    {"tune", "--max-loss=1", NULL, "--apply"},
    {"import", "--torch-trace=/dev/null", NULL, "--power"},
    {"import", "--power=/dev/null", NULL, "--torch-trace"},
    {"rm", "--tagged", NULL, "--older-than or --keep"},
    {"rm", "--dry-run", NULL, "--older-than or --keep"},
    {"tokenize", "--special", "--decode=1", NULL},
    {"tokenize", "--skip-special", NULL, "--decode"},
    {"eval", "--chunk=1", "--one-by-one", NULL},
    {"setup", "--write", "--gain=rapl=1", NULL},
    {"setup", "--gain=rapl=1", "--postgres", NULL},
    {"setup", "--citus", NULL, "--postgres"},
    {"setup", "--schema=a", NULL, "--postgres"},
};

static const pj_command *command_of(const char *name)
{
    size_t i = 0;
    while (strcmp(commands[i]->name, name) != 0) i++;
    return commands[i];
}

static void options_that_would_do_nothing_are_refused(void **state)
{
    unsetenv("PERJOULE_OTLP");
    for (size_t i = 0; i < sizeof idle_options / sizeof *idle_options; i++) {
        const struct idle_option *o = &idle_options[i];
        const char *other = o->other ? o->other : o->beside;
        char expected[256], *said;
        snprintf(expected, sizeof expected,
                 "perjoule %s: %.*s has no effect %s %.*s (see: ", o->command,
                 (int)strcspn(o->option + 2, "=") + 2, o->option, o->other ? "without" : "with",
                 (int)(o->other ? strlen(other) : strcspn(other, "=")), other);
        int code = run(command_of(o->command), errors, &said, o->option, o->beside, NULL);
        char *line = strchr(said, '\n');
        if (code != PJ_EXIT_USAGE || strncmp(said, expected, strlen(expected)) != 0 || !line ||
            line[1])
            fail_msg("perjoule %s %s %s: exit code %d: %s\ninstead of %s", o->command, o->option,
                     o->beside ? o->beside : "", code, said, expected);
        free(said);
    }
}

static void variables_that_cannot_be_are_refused(void **state)
{
    static const struct {
        const char *name, *good, *bad[4];
    } variables[] = {
        {"PERJOULE_BASELINE", "0.2", {"abc", "nan", "-1", "3600"}},
        {"PERJOULE_CLOCK", "system", {"abc"}},
        {"PERJOULE_DB", "none", {"."}},
        {"PERJOULE_FALLBACK", "runs.db", {"."}},
        {"PERJOULE_ISA", "c", {"abc"}},
        {"PERJOULE_MODELS", ".", {"nosuch", "/dev/null"}},
        {"PERJOULE_OTLP", "http://otel.lab:4318", {"abc", "http://"}},
        {"PERJOULE_POWER", "sim", {"nosuch", "sim,sim"}},
        {"PERJOULE_PROCFS", ".", {"nosuch"}},
        {"PERJOULE_SESSION", "a-1", {"a b", "a\nb"}},
        {"PERJOULE_SYSFS", ".", {"nosuch"}},
    };
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        const char *name = variables[i].name, *before = getenv(name);
        char *kept = before ? strdup(before) : NULL, start[64];
        pj_error err = {0};
        snprintf(start, sizeof start, "the environment's %s=", name);
        for (int k = 0; k < 4 && variables[i].bad[k]; k++) {
            setenv(name, variables[i].bad[k], 1);
            assert_int_equal(pj_rules_check_environment(&err), PJ_E_INVALID);
            assert_memory_equal(err.text, start, strlen(start));
        }
        setenv(name, variables[i].good, 1);
        assert_int_equal(pj_rules_check_environment(&err), PJ_OK);
        setenv(name, "", 1);
        assert_int_equal(pj_rules_check_environment(&err), PJ_OK);
        unsetenv(name);
        if (kept) setenv(name, kept, 1);
        free(kept);
    }
}

/* Messages end up in logs, command lines in `ps`. */
static void secrets_are_not_repeated(void **state)
{
    static const struct {
        const char *command, *option;
    } refused[] = {{"attach", "--url=http://user:hunter2@host"},
                   {"attach", "--url=http://hunter2@host/v1"},
                   {"attach", "--url=http://host/v1?key=hunter2"},
                   {"serve", "--join=https://user:hunter2@host"},
                   {"serve", "--otlp=http://host:4318/?key=hunter2"},
                   {"serve", "--power=perjoule:http://host,token=hunter2,sim,sim"}};
    char *said;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        int code =
            run(command_of(refused[i].command), errors, &said, refused[i].option, NULL, NULL);
        if (code != PJ_EXIT_USAGE || strstr(said, "hunter2"))
            fail_msg("perjoule %s: exit code %d: %s", refused[i].command, code, said);
        free(said);
    }
    pj_error err = {0};
    setenv("PERJOULE_OTLP", "http://user:hunter2@host/?key=hunter2", 1);
    assert_int_equal(pj_rules_check_environment(&err), PJ_E_INVALID);
    assert_null(strstr(err.text, "hunter2"));
    unsetenv("PERJOULE_OTLP");
    assert_int_equal(run(command_of("top"), errors, &said,
                         "--power=perjoule:http://host,token=hunter2", "--help", NULL),
                     PJ_EXIT_OK);
    assert_non_null(strstr(said, "the secret of --power is visible to other users"));
    free(said);
}

int main(void)
{
    setenv("COLUMNS", "1000", 1); /* each message is a line */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_that_cannot_be_are_refused),
        cmocka_unit_test(options_that_would_do_nothing_are_refused),
        cmocka_unit_test(variables_that_cannot_be_are_refused),
        cmocka_unit_test(secrets_are_not_repeated),
    };
    answers = tmpfile(), errors = tmpfile();
    if (!answers || !errors) return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
