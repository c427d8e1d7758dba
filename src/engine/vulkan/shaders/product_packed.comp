#version 450
/* Products of few rows of eight-bit integers. */
#define PACKED
#include "product.glsl"
