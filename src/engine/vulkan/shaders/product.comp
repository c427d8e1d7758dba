#version 450
/* Products of few rows of floats. */
#include "product.glsl"
