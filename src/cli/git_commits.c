/* Reads the output of `git log`. */
#include "cli/git_commits.h"

#include "base/file.h"
#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_LOG_BYTES = 64 << 20 };

extern char **environ;

static pj_status git_start(const char *folder, int *output, pid_t *pid, pj_error *err)
{
    char git[] = "git", in[] = "-C", log[] = "log", merges[] = "--no-merges",
         signature[] = "--no-show-signature", colour[] = "--no-color",
         format[] = "--format=%ct %(trailers:key=" PJ_GIT_TRAILER ",valueonly,separator=%x20)";
    char where[4096];
    char *const words[] = {git, in, where, log, merges, signature, colour, format, NULL};
    snprintf(where, sizeof where, "%s", folder);
    int ends[2];
    posix_spawn_file_actions_t actions;
    if (pipe(ends) != 0) return pj_fail_errno(err, errno, "cannot create a pipe for git");
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    posix_spawn_file_actions_addclose(&actions, ends[0]);
    posix_spawn_file_actions_addclose(&actions, ends[1]);
    int failure = posix_spawnp(pid, words[0], &actions, NULL, words, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    *output = ends[0];
    if (!failure) return PJ_OK;
    close(ends[0]);
    return pj_fail_errno(err, failure, "cannot start git");
}

static pj_status git_wait(pid_t pid, const char *folder, pj_error *err)
{
    int how = 0;
    while (waitpid(pid, &how, 0) < 0 && errno == EINTR) {
    }
    if (WIFEXITED(how) && WEXITSTATUS(how) == 0) return PJ_OK;
    return pj_fail(err, PJ_E_INVALID, "git log failed: is %s in a repository with commits?",
                   folder);
}

/* One line: the time of the commit, then the sessions that it names. */
static void git_take_line(char *line, const char *session, int64_t begin_s, int64_t end_s,
                          uint32_t *named, uint32_t *in_time)
{
    char *rest = NULL, *word = strtok_r(line, " ", &rest);
    int64_t at_s = word ? strtoll(word, NULL, 10) : -1;
    *in_time += at_s >= begin_s && at_s <= end_s + PJ_GIT_GRACE_S;
    while (word && (word = strtok_r(NULL, " ", &rest)))
        if (strcmp(word, session) == 0) {
            ++*named;
            return;
        }
}

pj_status pj_git_commits_of(const char *folder, const char *session, int64_t begin_s, int64_t end_s,
                            pj_git_commits *commits, pj_error *err)
{
    int output = -1;
    pid_t pid = 0;
    char *text = NULL, *rest = NULL;
    size_t bytes;
    uint32_t named = 0, in_time = 0;
    *commits = (pj_git_commits){0};
    pj_status status = git_start(folder, &output, &pid, err);
    if (status != PJ_OK) return status;
    status = pj_file_read_fd(output, "the output of git", MAX_LOG_BYTES, &text, &bytes, err);
    close(output);
    pj_error failed;
    pj_status ended = git_wait(pid, folder, &failed);
    if (status == PJ_OK && ended != PJ_OK) {
        status = ended;
        *err = failed;
    }
    char *line = status == PJ_OK ? strtok_r(text, "\n", &rest) : NULL;
    for (; line; line = strtok_r(NULL, "\n", &rest))
        git_take_line(line, session, begin_s, end_s, &named, &in_time);
    pj_free(text);
    *commits = (pj_git_commits){named ? named : in_time, named > 0};
    return status;
}
