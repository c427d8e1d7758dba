/* Inspects the program's file and finds our libraries next to perjoule or where it is installed. */
#include "cli/exec_inject.h"

#include "base/file.h"
#include "base/process.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- our libraries ---- */

static bool find_library(const char *name, char *path, size_t bytes)
{
    static const char *const folders[] = {"%s/%s", "%s/../lib/perjoule/%s"};
    char folder[PATH_MAX];
    if (pj_process_path(folder, sizeof folder, NULL) != PJ_OK) folder[0] = 0;
    char *slash = strrchr(folder, '/');
    if (slash) *slash = 0;
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        snprintf(path, bytes, i ? folders[1] : folders[0], folder, name);
        if (access(path, R_OK) == 0) return true;
    }
    snprintf(path, bytes, "%s/%s", PJ_INJECTED_DIR, name);
    return access(path, R_OK) == 0;
}

/* ---- the program's file ---- */

enum { ELF_IDENT_BYTES = 16, ELF_MACHINE_AT = 18, ELF_HEAD_BYTES = 20 };

static bool contains(const pj_mapping *file, const char *text)
{
    return file->size && memmem(file->data, file->size, text, strlen(text));
}

/* Whether an ELF file has our word size, byte order and machine, which the loader checks too. */
static bool is_of_our_kind(const pj_mapping *program)
{
    enum { CLASS_AT = 4, ORDER_AT = 5 };
    char path[PATH_MAX];
    pj_mapping own = {0};
    if (program->size < ELF_HEAD_BYTES || memcmp(program->data, "\177ELF", 4) != 0 ||
        pj_process_path(path, sizeof path, NULL) != PJ_OK || pj_file_map(path, &own, NULL) != PJ_OK)
        return false;
    const unsigned char *a = program->data, *b = own.data;
    bool same = own.size >= ELF_HEAD_BYTES && a[CLASS_AT] == b[CLASS_AT] &&
                a[ORDER_AT] == b[ORDER_AT] && !memcmp(a + ELF_MACHINE_AT, b + ELF_MACHINE_AT, 2);
    pj_file_unmap(&own);
    return same;
}

typedef enum kinship { NOT_LLAMA, LLAMA_SHARED, LLAMA_STATIC } kinship;

/* A dynamic executable names the libraries that it needs; one with llama.cpp linked into it has the
 * names of its functions in its messages, stripped or not. */
static kinship kinship_of(const char *path)
{
    pj_mapping program = {0};
    kinship found = NOT_LLAMA;
    if (pj_file_map(path, &program, NULL) != PJ_OK) return NOT_LLAMA;
    if (is_of_our_kind(&program)) {
        if (contains(&program, "libllama"))
            found = LLAMA_SHARED;
        else if (contains(&program, "llama_model_load") && contains(&program, "ggml_backend"))
            found = LLAMA_STATIC;
    }
    pj_file_unmap(&program);
    return found;
}

/* ---- choices ---- */

static void choose_nvtx(pj_injection *i, pj_run *run)
{
    char path[PATH_MAX];
    const char *theirs = getenv("NVTX_INJECTION64_PATH");
    if (theirs && *theirs)
        pj_run_warn(run, "nvtx_taken",
                    "NVTX ranges are not recorded: NVTX_INJECTION64_PATH names another library");
    else if (find_library("libperjoule-nvtx.so", path, sizeof path))
        snprintf(i->nvtx, sizeof i->nvtx, "NVTX_INJECTION64_PATH=%s", path);
}

/* With depth off no part of the program's work is recorded. */
static void choose_cuda(pj_injection *i, pj_run *run, pj_depth depth)
{
    char path[PATH_MAX];
    const char *theirs = getenv("CUDA_INJECTION64_PATH");
    if (depth == PJ_DEPTH_OFF) return;
    if (theirs && *theirs)
        pj_run_warn(run, "cuda_taken",
                    "GPU kernels are not recorded: CUDA_INJECTION64_PATH names another library");
    else if (find_library("libperjoule-cuda.so", path, sizeof path))
        snprintf(i->cuda, sizeof i->cuda, "CUDA_INJECTION64_PATH=%s", path);
}

static void choose_llama(pj_injection *i, pj_run *run, const char *program, pj_depth depth,
                         bool is_llama)
{
    char path[PATH_MAX];
    const char *theirs = getenv("LD_PRELOAD");
    kinship kin = is_llama ? LLAMA_SHARED : kinship_of(program);
    if (kin == LLAMA_STATIC)
        pj_run_warn(
            run, "llama_static",
            "llama.cpp is linked into %s statically and cannot be intercepted: its steps and layers "
            "are not recorded (build it with -DBUILD_SHARED_LIBS=ON)",
            pj_path_name(program));
    if (kin != LLAMA_SHARED || !find_library("libperjoule-llama.so", path, sizeof path)) return;
    bool others = theirs && *theirs;
    snprintf(i->preload, sizeof i->preload, "LD_PRELOAD=%s%s%s", path, others ? ":" : "",
             others ? theirs : "");
    snprintf(i->llama, sizeof i->llama, "PERJOULE_LLAMA=%s",
             depth == PJ_DEPTH_DEEP  ? "deep"
             : depth == PJ_DEPTH_OFF ? "off"
                                     : "module");
}

void pj_injection_choose(pj_injection *i, pj_run *run, const char *path, pj_depth depth,
                         bool is_llama)
{
    size_t count = 0;
    memset(i, 0, sizeof *i);
    choose_nvtx(i, run);
    choose_cuda(i, run, depth);
    choose_llama(i, run, path, depth, is_llama);
    if (i->nvtx[0]) i->variables[count++] = i->nvtx;
    if (i->cuda[0]) i->variables[count++] = i->cuda;
    if (i->preload[0]) i->variables[count++] = i->preload;
    if (i->llama[0]) i->variables[count++] = i->llama;
}
