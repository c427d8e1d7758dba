/* Sharing a memfd with the injected library. */
#include "cli/exec_nvtx.h"

#include "inject/nvtx_shared.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

void pj_nvtx_memory_open(pj_nvtx_memory *m, int pipe_fd)
{
    *m = (pj_nvtx_memory){.fd = -1};
#ifdef __linux__
    struct stat s;
    m->fd = memfd_create("perjoule-nvtx", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (m->fd < 0 || fstat(pipe_fd, &s) != 0 || ftruncate(m->fd, sizeof *m->shared) != 0) return;
    fcntl(m->fd, F_ADD_SEALS, F_SEAL_SHRINK); /* or the program could make our reads fail */
    void *memory =
        mmap(NULL, sizeof *m->shared, PROT_READ | PROT_WRITE, MAP_SHARED, m->fd, 0); /* sparse */
    if (memory == MAP_FAILED) return;
    m->shared = memory;
    m->shared->magic = PJ_NVTX_MAGIC;
    m->shared->pipe_inode = s.st_ino;
    snprintf(m->variable, sizeof m->variable, "PERJOULE_NVTX_BUFFERS=/proc/%ld/fd/%d",
             (long)getpid(), m->fd);
#endif
}

/* The program may have written anything into the memory. */
static void read_slot(const pj_nvtx_slot *slot, void (*take)(void *, const char *, size_t),
                      void *context)
{
    char text[48];
    uint32_t used = atomic_load_explicit(&slot->used, memory_order_acquire);
    uint32_t done = atomic_load_explicit(&slot->done, memory_order_acquire);
    uint64_t lost = atomic_load_explicit(&slot->lost, memory_order_relaxed);
    if (used > PJ_NVTX_TEXT_BYTES) return;
    if (done < used) take(context, slot->text + done, used - done);
    int n = snprintf(text, sizeof text, "lost %llu\n", (unsigned long long)lost);
    if (lost) take(context, text, (size_t)n);
}

bool pj_nvtx_memory_read(const pj_nvtx_memory *m, void (*take)(void *, const char *, size_t),
                         void *context)
{
    uint32_t taken = m->shared ? atomic_load(&m->shared->taken) : 0;
    for (uint32_t i = 0; i < taken && i < PJ_NVTX_SLOTS; i++)
        read_slot(&m->shared->slots[i], take, context);
    return taken && taken <= PJ_NVTX_SLOTS;
}

void pj_nvtx_memory_close(pj_nvtx_memory *m)
{
    if (m->shared) munmap(m->shared, sizeof *m->shared);
    if (m->fd > 0) close(m->fd); /* 0: never opened */
    *m = (pj_nvtx_memory){.fd = -1};
}
