/* What all kernels share. Memory is addressed by 64-bit device addresses in push constants, which are
 * cast to one of the block types below; a kernel states the bounds of everything that it reads. The
 * workgroup's size is the specialisation constant 0. No kernel uses subgroup operations, so results
 * depend on neither the subgroup's size nor its order of summation. */
#ifndef COMMON_GLSL
#define COMMON_GLSL

#extension GL_EXT_buffer_reference : require
#extension GL_EXT_scalar_block_layout : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_8bit_storage : require

layout(local_size_x_id = 0, local_size_x = 64) in; /* a size to validate with; always specialised */

layout(buffer_reference, scalar, buffer_reference_align = 4) buffer floats { float at[]; };
layout(buffer_reference, scalar, buffer_reference_align = 4) buffer words { uint at[]; };
layout(buffer_reference, scalar, buffer_reference_align = 16) buffer vectors { vec4 at[]; };
layout(buffer_reference, scalar, buffer_reference_align = 2) buffer halves { uint16_t at[]; };
layout(buffer_reference, scalar, buffer_reference_align = 1) readonly buffer bytes { uint8_t at[]; };
layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer addresses { uint64_t at[]; };
layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer word_pairs { uvec2 at[]; };
layout(buffer_reference, scalar, buffer_reference_align = 16) readonly buffer word_quads { uvec4 at[]; };

#define thread gl_LocalInvocationIndex
#define threads gl_WorkGroupSize.x
#define INFINITY uintBitsToFloat(0x7f800000u)

/* Address of a row whose distance from the first may exceed 4 GiB. */
uint64_t row_at(uint64_t base, uint row, uint row_bytes)
{
    return base + uint64_t(row) * uint64_t(row_bytes);
}

float float_at(uint64_t base, uint index)
{
    return floats(base).at[index];
}

uint word_at(uint64_t base, uint index)
{
    return words(base).at[index];
}

/* Row `index` of a list, or the index itself without a list. */
uint listed(uint64_t list, uint index)
{
    return list == 0 ? index : word_at(list, index);
}

bool is_finite(float x)
{
    return (floatBitsToUint(x) & 0x7f800000u) != 0x7f800000u;
}

bool is_nan(float x)
{
    return (floatBitsToUint(x) & 0x7fffffffu) > 0x7f800000u;
}

/* tanh that is exact for large magnitudes: the built-in one may overflow to NaN there. */
float bounded_tanh(float x)
{
    return 1 - 2 / (exp(2 * x) + 1);
}

float sigmoid(float x)
{
    return 1 / (1 + exp(-x));
}

float silu(float x)
{
    return x / (1 + exp(-x));
}

/* gelu_new, the form with tanh. */
float gelu(float x)
{
    return 0.5f * x * (1 + bounded_tanh(0.7978845608028654f * (x + 0.044715f * x * x * x)));
}

float softcap(float x, float cap)
{
    return cap * bounded_tanh(x / cap);
}

#endif
