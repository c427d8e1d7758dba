#version 450
/* Products with chosen experts of rows of eight-bit integers. */
#define PACKED
#include "product_experts.glsl"
