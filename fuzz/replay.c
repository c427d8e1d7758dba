/* Runs a fuzz target on the files and folders given as arguments and on empty input: a regression
 * test of past findings that needs no fuzzer. */
#include "base/file.h"
#include "base/memory.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay_file(const char *path)
{
    char *text;
    size_t bytes;
    pj_error err;
    if (pj_file_read(path, 64u << 20, &text, &bytes, &err) != PJ_OK) {
        fprintf(stderr, "%s\n", err.text);
        return 0;
    }
    LLVMFuzzerTestOneInput((const uint8_t *)text, bytes);
    pj_free(text);
    return 1;
}

static int replay_folder(const char *path)
{
    int count = 0;
    DIR *dir = opendir(path);
    if (!dir) return 0;
    for (struct dirent *e; (e = readdir(dir));) {
        char file[4096];
        if (e->d_name[0] == '.' || !pj_path_join(file, sizeof file, path, e->d_name)) continue;
        count += replay_file(file);
    }
    closedir(dir);
    return count;
}

int main(int argc, char **argv)
{
    int count = 1;
    LLVMFuzzerTestOneInput((const uint8_t *)"", 0);
    for (int i = 1; i < argc; i++)
        count += pj_dir_exists(argv[i]) ? replay_folder(argv[i]) : replay_file(argv[i]);
    printf("%d inputs replayed\n", count);
    return 0;
}
