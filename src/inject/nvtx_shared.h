/*
 * Memory that libperjoule-nvtx.so shares with `perjoule exec`, so that ranges which a process had
 * not written when it ended without running destructors (_exit, a signal, exec) are not lost: the
 * buffers of its threads lie in it, and perjoule reads what is left in them. perjoule creates it as
 * a memfd and passes its path under /proc in PERJOULE_NVTX_BUFFERS.
 *
 * A thread takes a slot for good and is the only one that writes it. Text is whole lines between
 * `done` and `used`; `used` is stored after the text, so that a reader never sees half a line.
 */
#ifndef PJ_INJECT_NVTX_SHARED_H
#define PJ_INJECT_NVTX_SHARED_H

#include <stdatomic.h>
#include <stdint.h>

enum { PJ_NVTX_TEXT_BYTES = 32 << 10, PJ_NVTX_SLOTS = 512 };
#define PJ_NVTX_MAGIC UINT64_C(0x706a6e7674783031)

typedef struct pj_nvtx_slot {
    _Atomic uint32_t done, used; /* bytes */
    _Atomic uint64_t lost;       /* ranges that did not fit */
    char text[PJ_NVTX_TEXT_BYTES];
} pj_nvtx_slot;

typedef struct pj_nvtx_shared {
    uint64_t magic, pipe_inode; /* of the marker pipe */
    _Atomic uint32_t taken;     /* requested slots; those beyond PJ_NVTX_SLOTS were private */
    pj_nvtx_slot slots[PJ_NVTX_SLOTS];
} pj_nvtx_shared;

#endif
