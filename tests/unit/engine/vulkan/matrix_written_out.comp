#version 450
/* product_matrix without cooperative matrices, which tests it where there are none. */
#define WRITTEN_OUT
#include "../../../../src/engine/vulkan/shaders/product_matrix.glsl"
