/* The SPIR-V of the kernels, and the sizes of their dispatches. */
#include "engine/vulkan/shaders.h"

#include <stddef.h>

static const uint32_t product_code[] = {
#include "engine/vulkan/shaders/product.inc"
};
static const uint32_t product_tiled_code[] = {
#include "engine/vulkan/shaders/product_tiled.inc"
};
static const uint32_t product_experts_code[] = {
#include "engine/vulkan/shaders/product_experts.inc"
};
static const uint32_t norm_code[] = {
#include "engine/vulkan/shaders/norm.inc"
};
static const uint32_t gather_code[] = {
#include "engine/vulkan/shaders/gather.inc"
};
static const uint32_t rows_code[] = {
#include "engine/vulkan/shaders/rows.inc"
};
static const uint32_t rope_code[] = {
#include "engine/vulkan/shaders/rope.inc"
};
static const uint32_t attention_code[] = {
#include "engine/vulkan/shaders/attention.inc"
};
static const uint32_t attention_merge_code[] = {
#include "engine/vulkan/shaders/attention_merge.inc"
};
static const uint32_t index_scores_code[] = {
#include "engine/vulkan/shaders/index_scores.inc"
};
static const uint32_t index_choose_code[] = {
#include "engine/vulkan/shaders/index_choose.inc"
};
static const uint32_t slide_code[] = {
#include "engine/vulkan/shaders/slide.inc"
};

static const uint32_t route_code[] = {
#include "engine/vulkan/shaders/route.inc"
};
static const uint32_t sort_code[] = {
#include "engine/vulkan/shaders/sort.inc"
};
static const uint32_t combine_code[] = {
#include "engine/vulkan/shaders/combine.inc"
};
static const uint32_t convolve_code[] = {
#include "engine/vulkan/shaders/convolve.inc"
};
static const uint32_t delta_rule_code[] = {
#include "engine/vulkan/shaders/delta_rule.inc"
};
static const uint32_t cut_code[] = {
#include "engine/vulkan/shaders/cut.inc"
};
static const uint32_t match_code[] = {
#include "engine/vulkan/shaders/match.inc"
};
static const uint32_t streams_code[] = {
#include "engine/vulkan/shaders/streams.inc"
};
static const uint32_t weigh_code[] = {
#include "engine/vulkan/shaders/weigh.inc"
};
static const uint32_t argmax_code[] = {
#include "engine/vulkan/shaders/argmax.inc"
};

static const uint32_t statistics_code[] = {
#include "engine/vulkan/shaders/statistics.inc"
};
static const uint32_t gate_figures_code[] = {
#include "engine/vulkan/shaders/gate_figures.inc"
};
static const uint32_t attention_figures_code[] = {
#include "engine/vulkan/shaders/attention_figures.inc"
};
static const uint32_t norm_figures_code[] = {
#include "engine/vulkan/shaders/norm_figures.inc"
};
static const uint32_t route_figures_code[] = {
#include "engine/vulkan/shaders/route_figures.inc"
};

static const uint32_t product_packed_code[] = {
#include "engine/vulkan/shaders/product_packed.inc"
};
static const uint32_t product_experts_packed_code[] = {
#include "engine/vulkan/shaders/product_experts_packed.inc"
};
static const uint32_t quantise_code[] = {
#include "engine/vulkan/shaders/quantise.inc"
};

static const uint32_t product_matrix_code[] = {
#include "engine/vulkan/shaders/product_matrix.inc"
};

static const uint32_t product_matrix_plain_code[] = {
#include "engine/vulkan/shaders/product_matrix_plain.inc"
};
static const uint32_t peak_code[] = {
#include "engine/vulkan/shaders/peak.inc"
};
static const uint32_t peak_matrix_code[] = {
#include "engine/vulkan/shaders/peak_matrix.inc"
};
static const uint32_t read_code[] = {
#include "engine/vulkan/shaders/read.inc"
};

#define SHADER_OF(name, args, subgroup)                                \
    {                                                                  \
#name, name##_code, sizeof name##_code, sizeof(args), subgroup \
    }
#define SHADER_WITH(name, args) SHADER_OF(name, args, 0)
#define SHADER(name)            SHADER_WITH(name, pj_vk_##name##_args)

const pj_vk_shader pj_vk_kernels[PJ_VK_KERNELS] = {
    [PJ_VK_PRODUCT] = SHADER(product),
    [PJ_VK_PRODUCT_PACKED] = SHADER_WITH(product_packed, pj_vk_product_args),
    [PJ_VK_PRODUCT_EXPERTS_PACKED] =
        SHADER_WITH(product_experts_packed, pj_vk_product_experts_args),
    [PJ_VK_PRODUCT_MATRIX] = SHADER_OF(product_matrix, pj_vk_product_tiled_args,
                                       1 + offsetof(pj_vk_product_matrix_constants, subgroup) / 4),
    [PJ_VK_PRODUCT_MATRIX_PLAIN] = SHADER_WITH(product_matrix_plain, pj_vk_product_tiled_args),
    [PJ_VK_PEAK] = SHADER(peak),
    [PJ_VK_PEAK_MATRIX] =
        SHADER_OF(peak_matrix, pj_vk_peak_args, 1 + offsetof(pj_vk_peak_constants, subgroup) / 4),
    [PJ_VK_READ] = SHADER(read),
    [PJ_VK_QUANTISE] = SHADER(quantise),
    [PJ_VK_PRODUCT_TILED] = SHADER(product_tiled),
    [PJ_VK_PRODUCT_EXPERTS] = SHADER(product_experts),
    [PJ_VK_NORM] = SHADER(norm),
    [PJ_VK_GATHER] = SHADER(gather),
    [PJ_VK_ROWS] = SHADER(rows),
    [PJ_VK_ROPE] = SHADER(rope),
    [PJ_VK_ATTENTION] = SHADER(attention),
    [PJ_VK_ATTENTION_MERGE] = SHADER(attention_merge),
    [PJ_VK_INDEX_SCORES] = SHADER(index_scores),
    [PJ_VK_INDEX_CHOOSE] = SHADER(index_choose),
    [PJ_VK_SLIDE] = SHADER(slide),
    [PJ_VK_ROUTE] = SHADER(route),
    [PJ_VK_SORT] = SHADER(sort),
    [PJ_VK_COMBINE] = SHADER(combine),
    [PJ_VK_CONVOLVE] = SHADER(convolve),
    [PJ_VK_DELTA_RULE] = SHADER(delta_rule),
    [PJ_VK_CUT] = SHADER(cut),
    [PJ_VK_MATCH] = SHADER(match),
    [PJ_VK_STREAMS] = SHADER(streams),
    [PJ_VK_WEIGH] = SHADER(weigh),
    [PJ_VK_ARGMAX] = SHADER(argmax),
    [PJ_VK_STATISTICS] = SHADER(statistics),
    [PJ_VK_GATE_FIGURES] = SHADER(gate_figures),
    [PJ_VK_ATTENTION_FIGURES] = SHADER(attention_figures),
    [PJ_VK_NORM_FIGURES] = SHADER(norm_figures),
    [PJ_VK_ROUTE_FIGURES] = SHADER(route_figures),
};

uint32_t pj_vk_product_groups(const pj_vk_product_constants *constants,
                              const pj_vk_product_args *args)
{
    enum { MOST = 65535 };
    uint32_t rows = constants->threads / constants->lanes * constants->rows, groups = 0;
    uint32_t parts = constants->output == PJ_VK_OUTPUT_STORE ? 3 : 1;
    for (uint32_t i = 0; i < parts; i++) groups += (args->parts[i].rows + rows - 1) / rows;
    return groups < MOST ? groups : MOST;
}

uint32_t pj_vk_attention_groups(const pj_vk_attention_constants *constants,
                                const pj_vk_attention_args *args)
{
    uint32_t quads = (constants->value_dim + 3) / 4, slice = constants->lanes * 4;
    return args->heads / constants->heads * ((quads + slice - 1) / slice);
}

uint32_t pj_vk_most_tiles(uint32_t entries, uint32_t experts, uint32_t tile_entries)
{
    uint32_t busy = entries < experts ? entries : experts;
    return busy + (entries - busy) / tile_entries;
}
