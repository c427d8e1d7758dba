/* Counts the commits of a task in a git repository. */
#ifndef PJ_CLI_GIT_COMMITS_H
#define PJ_CLI_GIT_COMMITS_H

#include "base/error.h"

/* A commit's message names its session in this trailer. */
#define PJ_GIT_TRAILER "Perjoule-Session"
/* Without trailers: commits this long after the session's end still belong to it. */
enum { PJ_GIT_GRACE_S = 600 };

typedef struct pj_git_commits {
    uint32_t count;
    bool by_trailer; /* commits that name the session; else by their time */
} pj_git_commits;

/* Of the history of HEAD in `folder`, without merges: those whose trailer names the session, else
 * those committed from its begin (Unix seconds) until a while after its end. Runs git. */
pj_status pj_git_commits_of(const char *folder, const char *session, int64_t begin_s, int64_t end_s,
                            pj_git_commits *commits, pj_error *err);

#endif
