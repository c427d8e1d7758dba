#version 450
/* Products with chosen experts of rows of floats. */
#include "product_experts.glsl"
