/* CPU feature detection. On x86 the operating system must also save the registers of a set (XCR0),
 * and AMX tiles must be requested (Linux: arch_prctl), because they enlarge every signal frame. */
#include "engine/kernels/cpu.h"

#include <stdint.h>

#if defined(__x86_64__)

#include <cpuid.h>
#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
#endif

enum { EAX, EBX, ECX, EDX };
enum { XCR0_AVX = 0x6, XCR0_AVX512 = 0xe6, XCR0_TILES = 0x60000 };

static bool has_bit(unsigned leaf, unsigned subleaf, int reg, int bit)
{
    unsigned r[4];
    if (!__get_cpuid_count(leaf, subleaf, &r[EAX], &r[EBX], &r[ECX], &r[EDX])) return false;
    return r[reg] >> bit & 1;
}

static bool saves(uint64_t state)
{
    if (!has_bit(1, 0, ECX, 27)) return false; /* OSXSAVE */
    uint32_t low, high;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (((uint64_t)high << 32 | low) & state) == state;
}

bool pj_cpu_has_avx2(void)
{
    return saves(XCR0_AVX) && has_bit(7, 0, EBX, 5) && has_bit(1, 0, ECX, 12) &&
           has_bit(1, 0, ECX, 29);
}

bool pj_cpu_has_avx512(void)
{
    return pj_cpu_has_avx2() && saves(XCR0_AVX512) && has_bit(7, 0, EBX, 16) &&
           has_bit(7, 0, EBX, 17) && has_bit(7, 0, EBX, 30) && has_bit(7, 0, EBX, 31);
}

bool pj_cpu_has_vnni(void)
{
    return pj_cpu_has_avx512() && has_bit(7, 0, ECX, 11);
}

bool pj_cpu_has_vbmi(void)
{
    return pj_cpu_has_vnni() && has_bit(7, 0, ECX, 1);
}

bool pj_cpu_has_bf16(void)
{
    return pj_cpu_has_avx512() && has_bit(7, 1, EAX, 5);
}

bool pj_cpu_has_amx(void)
{
#ifdef __linux__
    enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };
    if (!pj_cpu_has_bf16() || !pj_cpu_has_vnni() || !saves(XCR0_TILES)) return false;
    if (!has_bit(7, 0, EDX, 22) || !has_bit(7, 0, EDX, 24) || !has_bit(7, 0, EDX, 25)) return false;
    return syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
#else
    return false;
#endif
}

#else

bool pj_cpu_has_avx2(void)
{
    return false;
}

bool pj_cpu_has_avx512(void)
{
    return false;
}

bool pj_cpu_has_vnni(void)
{
    return false;
}

bool pj_cpu_has_vbmi(void)
{
    return false;
}

bool pj_cpu_has_bf16(void)
{
    return false;
}

bool pj_cpu_has_amx(void)
{
    return false;
}

#endif

#if defined(__aarch64__)

#if defined(__linux__)
#include <sys/auxv.h>
enum { HWCAP_DOTPROD_BIT = 20, HWCAP2_I8MM_BIT = 13 };
#elif defined(__APPLE__)
#include <sys/sysctl.h>
static bool apple_has(const char *name)
{
    int value = 0;
    size_t bytes = sizeof value;
    return sysctlbyname(name, &value, &bytes, 0, 0) == 0 && value;
}
#endif

bool pj_cpu_has_neon(void)
{
    return true; /* part of the architecture */
}

bool pj_cpu_has_dotprod(void)
{
#if defined(__linux__)
    return getauxval(AT_HWCAP) >> HWCAP_DOTPROD_BIT & 1;
#elif defined(__APPLE__)
    return apple_has("hw.optional.arm.FEAT_DotProd");
#else
    return false;
#endif
}

bool pj_cpu_has_i8mm(void)
{
#if defined(__linux__)
    return getauxval(AT_HWCAP2) >> HWCAP2_I8MM_BIT & 1;
#elif defined(__APPLE__)
    return apple_has("hw.optional.arm.FEAT_I8MM");
#else
    return false;
#endif
}

#else

bool pj_cpu_has_neon(void)
{
    return false;
}

bool pj_cpu_has_dotprod(void)
{
    return false;
}

bool pj_cpu_has_i8mm(void)
{
    return false;
}

#endif
