#version 450
/* The same with cooperative matrices of f16 and sums in f32: 4 x 8192 operations per subgroup and round;
 * compiled with glslangValidator. */
#include "common.glsl"

#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require

layout(constant_id = 1) const uint SUBGROUP = 32;

layout(push_constant, scalar) uniform parameters {
    uint64_t sink;
    uint rounds;
    float factor, summand;
};

shared float stored[4 * 256];

void main()
{
    coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseA> a =
        coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseA>(float16_t(factor));
    coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseB> b =
        coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseB>(float16_t(summand));
    coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator> sums[4];
    [[unroll]] for (uint i = 0; i < 4; i++)
        sums[i] = coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator>(float(i));
    for (uint round = 0; round < rounds; round++)
        [[unroll]] for (uint i = 0; i < 4; i++) sums[i] = coopMatMulAdd(a, b, sums[i]);
    float all = 0;
    [[unroll]] for (uint i = 0; i < 4; i++) {
        coopMatStore(sums[i], stored, gl_SubgroupID % 4 * 256, 16, gl_CooperativeMatrixLayoutRowMajor);
        barrier();
        all += stored[thread];
        barrier();
    }
    if (all == -1) floats(sink).at[0] = all;
}
