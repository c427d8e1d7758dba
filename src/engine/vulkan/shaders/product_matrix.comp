#version 450
/* Products of many rows with cooperative matrices, compiled with glslangValidator. */
#include "product_matrix.glsl"
