#version 450
/* product_matrix without cooperative matrices: tests it, and what chooses it, where there are none. */
#define WRITTEN_OUT
#include "product_matrix.glsl"
