/* Preloaded into perjoule: holds its first fork where PERJOULE_TEST_HOLD says (before: the parent,
 * not forked yet; after: the child; exec: the child, about to execute the program) until the test
 * lets it go, so that a signal can be sent at exactly that moment. The variable names two FIFOs:
 * "after:/path/reached:/path/go". */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PRELOADED __attribute__((visibility("default")))

static void hold_at(const char *where)
{
    char text[512], *save, byte;
    const char *wanted = getenv("PERJOULE_TEST_HOLD");
    if (!wanted || strlen(wanted) >= sizeof text) return;
    strcpy(text, wanted);
    if (strcmp(strtok_r(text, ":", &save), where) != 0) return;
    int reached = open(strtok_r(NULL, ":", &save), O_WRONLY | O_CLOEXEC);
    close(reached);
    int go = open(strtok_r(NULL, ":", &save), O_RDONLY | O_CLOEXEC);
    while (read(go, &byte, 1) > 0) {
    }
    close(go);
    unsetenv("PERJOULE_TEST_HOLD");
}

PRELOADED pid_t fork(void)
{
    pid_t (*real)(void) = (pid_t(*)(void))dlsym(RTLD_NEXT, "fork");
    hold_at("before");
    pid_t pid = real();
    if (pid == 0) hold_at("after");
    return pid;
}

PRELOADED int execvp(const char *file, char *const words[])
{
    int (*real)(const char *, char *const[]) =
        (int (*)(const char *, char *const[]))dlsym(RTLD_NEXT, "execvp");
    hold_at("exec");
    unsetenv("LD_PRELOAD");
    return real(file, words);
}
