/* Names of GPU kernels. The symbols are like those of PyTorch, vLLM, CUTLASS and llama.cpp. */
#include "import/kernel_name.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char *const names[][2] = {
    {"ampere_sgemm_128x64_tn", "ampere_sgemm_128x64_tn"},
    {"_Z9my_kernelPfi", "my_kernel"},
    {"_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_addIfEESt5arrayIPcLm3EEEEv"
     "iT0_T1_",
     "at::native::vectorized_elementwise_kernel"},
    {"_ZN7cutlass7Kernel2I32cutlass_80_tensorop_bf16_gemm_tnEEvNT_6ParamsE",
     "cutlass_80_tensorop_bf16_gemm_tn"},
    {"_ZN7cutlass13device_kernelIN5flash20enable_sm90_or_laterINS1_16FlashAttnFwdSm90IiEEEEEEvNT_6Pa"
     "ramsE",
     "flash::enable_sm90_or_later"},
    {"_Z13mul_mat_vec_qIL9ggml_type2ELi1ELb0ELb0EEvPKvS2_", "mul_mat_vec_q"},
    {"_ZN4vllm32rms_norm_static_fp8_quant_kernelIN3c108BFloat16ENS1_13Float8_e4m3fnEEEvPT0_PKT_i",
     "vllm::rms_norm_static_fp8_quant_kernel"},
    {"_ZN12_GLOBAL__N_16kernelEv", "kernel"},
    {"_ZN2at6native13reduce_kernelILi512ELi1EZNS0_4sumsEvEUlfE12_NS0_3OpsEEEvT1_",
     "at::native::reduce_kernel"},
    {"void at::native::(anonymous namespace)::softmax<float, 4>(float*, int)",
     "at::native::softmax"},
    {"plain<1>", "plain"},
    {"", "unnamed kernel"},
    {"<>", "unnamed kernel"},
    {"a\nb\xff", "a?b?"},
    {"_Z", "_Z"},
    {"_Z9999999999999999999999999999999999a", "_Z9999999999999999999999999999999999a"},
    {"_ZN2at6nat", "at"},
    {"_ZN2at3fooILi4", "at::foo"},
    {"_ZN2at3fooIN2at1bI", "at::foo"},
};

static void names_are_cut(void **state)
{
    char name[PJ_KERNEL_NAME_BYTES];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        pj_kernel_name(names[i][0], name);
        assert_string_equal(name, names[i][1]);
    }
}

/* Every beginning of each, and each with one byte changed: a name, and nothing else happens. */
static void any_bytes_are_allowed(void **state)
{
    char name[PJ_KERNEL_NAME_BYTES], symbol[256];
    srand(1);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (size_t length = strlen(names[i][0]), n = 0; n < length; n++) {
            strcpy(symbol, names[i][0]);
            symbol[n] = 0;
            pj_kernel_name(symbol, name);
            assert_in_range(strlen(name), 1, sizeof name - 1);
            strcpy(symbol, names[i][0]);
            symbol[n] = "EILNSTUDZA9_"[rand() % 12];
            pj_kernel_name(symbol, name);
            assert_in_range(strlen(name), 1, sizeof name - 1);
        }
    char deep[4096] = "_Z1aI";
    memset(deep + 5, 'I', sizeof deep - 6);
    pj_kernel_name(deep, name);
    assert_string_equal(name, "a");
    memset(deep, 'x', sizeof deep - 1);
    pj_kernel_name(deep, name);
    assert_int_equal(strlen(name), sizeof name - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_cut),
        cmocka_unit_test(any_bytes_are_allowed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
