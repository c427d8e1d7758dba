/*
 * perjoule setup: grants users of this machine the right to read power, and nothing more.
 *
 *   powermetrics  a sudoers entry for exactly the command line that perjoule uses. Allowing the
 *                 program with any arguments would be unsafe: its -u option writes files as root.
 *   rapl          a udev rule that lets a group read the energy counters.
 *   --gain        stores the calibration of a sensor against a reference meter, for later runs.
 *
 * Without --write the text is printed with its path, for which --root is a prefix.
 */
#include "cli/options.h"
#include "cli/terminal.h"

#include "base/file.h"
#include "base/nearest.h"
#include "power/gain.h"
#include "power/source.h"
#include "store/driver.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

typedef struct setup_options {
    bool write;
    const char *user, *group, *root, *gain, *schema;
    bool postgres, citus;
    int64_t interval_ns;
} setup_options;

/* Runs a program with its output discarded; returns its exit code, or -1. */
static int run_quietly(char *const *words)
{
    posix_spawn_file_actions_t actions;
    pid_t pid;
    int status = -1;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", 1, 0);
    posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", 1, 0);
    if (posix_spawnp(&pid, words[0], &actions, NULL, words, environ) == 0)
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
        }
    posix_spawn_file_actions_destroy(&actions);
    return status >= 0 && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static bool setup_is_plain_name(const char *name)
{
    size_t length =
        strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-");
    return name[0] && name[0] != '-' && name[length] == 0;
}

/* Writes the file with the given mode, or prints it. */
static int setup_deliver(const pj_command *command, const setup_options *o,
                         const char *path_in_root, const char *text, mode_t mode)
{
    char path[4096];
    pj_error err;
    snprintf(path, sizeof path, "%s%s", o->root, path_in_root);
    if (!o->write) {
        pj_print(stdout, "# %s (mode %04o)\n%s", path, (unsigned)mode, text);
        return PJ_EXIT_OK;
    }
    if (pj_file_write(path, text, strlen(text), &err) != PJ_OK) {
        if (err.status == PJ_E_DENIED) pj_say("perjoule setup: run it with sudo");
        return pj_command_failed(command, &err);
    }
    if (chmod(path, mode) != 0) {
        pj_fail_errno(&err, errno, "cannot set the mode of %s", path);
        return pj_command_failed(command, &err);
    }
    pj_print(stdout, "wrote %s\n", path);
    return PJ_EXIT_OK;
}

/* ---- powermetrics ---- */

static const char *const samplers[] = {"cpu_power,gpu_power,ane_power", "cpu_power,gpu_power",
                                       "cpu_power"};

/* One line per sampler list; in sudoers a comma ends a command, so it is escaped. */
static void sudoers_text(const setup_options *o, char *text, size_t bytes)
{
    size_t used = (size_t)snprintf(
        text, bytes, "# perjoule may read power, with exactly these arguments and no others.\n");
    for (size_t i = 0; i < sizeof samplers / sizeof *samplers; i++) {
        char escaped[128];
        size_t length = 0;
        for (const char *p = samplers[i]; *p; p++) {
            if (*p == ',') escaped[length++] = '\\';
            escaped[length++] = *p;
        }
        escaped[length] = 0;
        used += (size_t)snprintf(
            text + used, bytes - used,
            "%s ALL=(root) NOPASSWD: /usr/bin/powermetrics --samplers %s -i %lld --format plist\n",
            o->user, escaped, (long long)(o->interval_ns / 1000000));
    }
}

static int check_sudoers(const pj_command *command, const char *text)
{
    char path[] = "/tmp/perjoule-sudoers-XXXXXX";
    pj_error err;
    int fd = mkstemp(path);
    if (fd < 0) return PJ_EXIT_OK; /* the check is optional */
    close(fd);
    if (pj_file_write(path, text, strlen(text), &err) != PJ_OK)
        return pj_command_failed(command, &err);
    char *words[] = {(char[]){"visudo"}, (char[]){"-cf"}, path, NULL};
    int code = run_quietly(words);
    unlink(path);
    if (code <= 0) return PJ_EXIT_OK; /* valid, or no visudo here */
    pj_say("perjoule setup: visudo refuses the entry; nothing was written");
    return PJ_EXIT_FAILED;
}

static const char *present_user(void)
{
    const char *sudo_user = getenv("SUDO_USER");
    const struct passwd *entry = getpwuid(getuid());
    if (sudo_user && sudo_user[0]) return sudo_user;
    return entry ? entry->pw_name : "root";
}

static int setup_powermetrics(const pj_command *command, setup_options *o)
{
    char text[1024];
    if (!o->user) o->user = present_user();
    if (!o->interval_ns) o->interval_ns = 100000000;
    if (!setup_is_plain_name(o->user))
        return pj_command_usage(command, "the user name %s cannot be used in sudoers", o->user);
    sudoers_text(o, text, sizeof text);
    int code = check_sudoers(command, text);
    if (code == PJ_EXIT_OK) code = setup_deliver(command, o, "/etc/sudoers.d/perjoule", text, 0440);
    if (code == PJ_EXIT_OK && o->write)
        pj_print(stdout, "test it as %s with: perjoule sensors\n", o->user);
    return code;
}

/* ---- RAPL ---- */

/* No distribution has a group for this; creates a system group if it is missing. */
static bool make_group(const char *name)
{
    char group[64];
    if (getgrnam(name)) return true;
    snprintf(group, sizeof group, "%s", name);
    char *words[] = {(char[]){"groupadd"}, (char[]){"--system"}, group, NULL};
    if (run_quietly(words) != 0 || !getgrnam(name)) return false;
    pj_print(stdout, "created the group %s\n", name);
    return true;
}

static int setup_rapl(const pj_command *command, setup_options *o)
{
    char text[1024];
    if (!o->group) o->group = "perjoule";
    if (!setup_is_plain_name(o->group))
        return pj_command_usage(command, "the group name %s cannot be used in a udev rule",
                                o->group);
    if (o->write && !o->root[0] && !make_group(o->group))
        return pj_command_usage(command, "there is no group %s; create it with: sudo groupadd %s",
                                o->group, o->group);
    snprintf(
        text, sizeof text,
        "# perjoule: members of %s may read RAPL energy counters. The kernel hides them because\n"
        "# fine-grained power lets a local program guess secrets (PLATYPUS, CVE-2020-8694).\n"
        "SUBSYSTEM==\"powercap\", ACTION==\"add|change\", TEST==\"energy_uj\", "
        "RUN+=\"/bin/chgrp %s /sys%%p/energy_uj\", RUN+=\"/bin/chmod g+r /sys%%p/energy_uj\"\n",
        o->group, o->group);
    int code = setup_deliver(command, o, "/etc/udev/rules.d/70-perjoule-rapl.rules", text, 0644);
    if (code != PJ_EXIT_OK || !o->write || o->root[0]) return code;
    char *reload[] = {(char[]){"udevadm"}, (char[]){"control"}, (char[]){"--reload"}, NULL};
    char *trigger[] = {(char[]){"udevadm"}, (char[]){"trigger"},
                       (char[]){"--subsystem-match=powercap"}, NULL};
    if (run_quietly(reload) != 0 || run_quietly(trigger) != 0)
        pj_print(stdout,
                 "reload the rules with: sudo udevadm control --reload && sudo udevadm trigger "
                 "--subsystem-match=powercap\n");
    pj_print(stdout, "members of %s can read RAPL now; add one with: sudo usermod -aG %s USER\n",
             o->group, o->group);
    return code;
}

/* Refuses what is not a power source, with the nearest one. */
static pj_status setup_check_source(const char *assignment, pj_error *err)
{
    pj_power_list named;
    size_t length = strcspn(assignment, "=");
    char source[64];
    if (length == 0 || length >= sizeof source || !assignment[length])
        return PJ_OK; /* its form is refused */
    snprintf(source, sizeof source, "%.*s", (int)length, assignment);
    pj_status status = pj_power_list_parse(source, &named, err);
    if (status != PJ_OK) return status;
    if (!pj_power_source_find(source, length))
        return pj_fail(err, PJ_E_INVALID, "%s is not a power source", source);
    return PJ_OK;
}

/* Stored for the user; every later run divides that source's readings by it. */
static int setup_gain(const pj_command *command, const char *assignment)
{
    char path[4096];
    pj_error err;
    if (setup_check_source(assignment, &err) != PJ_OK || pj_gain_store(assignment, &err) != PJ_OK)
        return pj_command_failed(command, &err);
    if (pj_gain_path(path, sizeof path)) pj_print(stdout, "%s: written to %s\n", assignment, path);
    return PJ_EXIT_OK;
}

static int setup_postgres(const pj_command *command, const setup_options *o)
{
    pj_buffer out;
    const pj_store_driver *driver = NULL;
    if (pj_store_driver_find("postgresql:", &driver, NULL) != PJ_OK || !driver->setup)
        return pj_command_usage(command, "this build does not support PostgreSQL");
    if (!*o->schema || o->schema[strspn(o->schema, "abcdefghijklmnopqrstuvwxyz0123456789_")])
        return pj_command_usage(command, "a schema name may contain a-z, 0-9 and _ only");
    pj_buffer_init(&out, 1 << 20);
    driver->setup(&out, o->schema, o->citus);
    fputs(pj_buffer_get(&out), stdout);
    pj_buffer_fini(&out);
    return PJ_EXIT_OK;
}

static int run_setup(const pj_command *command, int argc, char **argv)
{
    setup_options o = {.root = "", .schema = "public"};
    const pj_option options[] = {
        {"write", 'w', PJ_OPTION_FLAG, &o.write, NULL, "write the file instead of printing it",
         .excludes = "gain postgres"},
        {"user", 0, PJ_OPTION_TEXT, &o.user, "NAME", "user who may run powermetrics (default: you)",
         0, 0, .old_letter = 'u', .excludes = "gain postgres"},
        {"group", 'g', PJ_OPTION_TEXT, &o.group, "NAME",
         "group that may read RAPL (default: perjoule, created if missing)",
         .excludes = "gain postgres"},
        {"interval", 0, PJ_OPTION_DURATION, &o.interval_ns, "TIME",
         "sampling interval to allow (default 100ms)", 1e6, 60e9, .excludes = "gain postgres"},
        {"gain", 0, PJ_OPTION_TEXT, &o.gain, "SOURCE=GAIN",
         "reading / true value of a source, e.g. rapl=1.02+-0.01; SOURCE=none removes it",
         .rule = pj_rule_assignment, .excludes = "postgres"},
        {"postgres", 0, PJ_OPTION_FLAG, &o.postgres, NULL,
         "print the statements that prepare a PostgreSQL server: roles, tables, rights"},
        {"citus", 0, PJ_OPTION_FLAG, &o.citus, NULL, "with --postgres: distribute tables by run",
         .needs = "postgres"},
        {"schema", 0, PJ_OPTION_TEXT, &o.schema, "NAME", "with --postgres (default public)",
         .needs = "postgres"},
        {"root", 0, PJ_OPTION_TEXT, &o.root, "DIR", "prefix for the written paths",
         .rule = pj_rule_folder, .excludes = "gain postgres"},
        {0}};
    int positional;
    int code = pj_options_parse(command, options, argc, argv, &positional);
    if (code != PJ_PARSE_GO_ON) return code;
    if (o.postgres && positional == 0) return setup_postgres(command, &o);
    if (o.gain && positional == 0) return setup_gain(command, o.gain);
    if (positional != 1 || o.postgres || o.gain)
        return pj_command_usage(command, "give what to set up: rapl or powermetrics");
    bool is_rapl = strcmp(argv[1], "rapl") == 0;
    if (is_rapl && (o.user || o.interval_ns))
        return pj_command_usage(command, "--user and --interval are for powermetrics");
    if (is_rapl) return setup_rapl(command, &o);
    if (strcmp(argv[1], "powermetrics") == 0 && o.group)
        return pj_command_usage(command, "--group is for rapl");
    if (strcmp(argv[1], "powermetrics") == 0) return setup_powermetrics(command, &o);
    char hint[80];
    pj_nearest_hint(argv[1], "rapl powermetrics", hint, sizeof hint);
    return pj_command_usage(command, "unknown setup %s (use rapl or powermetrics)%s", argv[1],
                            hint);
}

const pj_command pj_command_setup = {
    .name = "setup",
    .summary = "grant the right to read power: sudoers entry, udev rule",
    .run = run_setup,
    .usage = "[options] rapl|powermetrics, --gain SOURCE=GAIN, or --postgres [--citus]",
    .text =
        "Prints (or with --write installs) the configuration that lets a normal user read power. "
        "For powermetrics (macOS) that is a sudoers entry that allows exactly the arguments "
        "perjoule uses; for rapl (Linux) a udev rule that makes the energy counters readable to "
        "a group. Reading RAPL lets a local program guess secrets of others (PLATYPUS): use it on "
        "machines of your own.\n\n"
        "--gain stores the result of calibrating a source against a reference meter: its readings "
        "are divided by the gain, and intervals use the uncertainty given after +- instead of the "
        "usual one of that source.\n\n"
        "--postgres prints what the owner of a PostgreSQL database gives to psql once: roles for "
        "the owner, for machines that write and for people who read, the tables, and their "
        "rights. With --citus the tables are distributed over the nodes by run.",
    .examples = "perjoule setup rapl\n"
                "sudo perjoule setup --write --group adm rapl\n"
                "sudo perjoule setup --write powermetrics\n"
                "perjoule setup --gain rapl=1.02+-0.01\n"
                "perjoule setup --postgres | psql perjoule\n",
};
