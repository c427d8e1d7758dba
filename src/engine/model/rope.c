/* Frequencies of the RoPE types. Angles are computed in float like the reference: at large
 * positions its rounding is part of the definition. */
#include "engine/model/rope.h"

#include <math.h>

static double plain_frequency(double theta, uint32_t i, uint32_t dims)
{
    return pow(theta, -2.0 * i / dims);
}

static double llama3_frequency(const pj_rope_config *rope, double f)
{
    double wavelength = 2 * M_PI / f, original = rope->original_context;
    if (wavelength > original / rope->low_freq_factor) return f / rope->factor;
    if (wavelength < original / rope->high_freq_factor) return f;
    if (rope->high_freq_factor == rope->low_freq_factor) return f; /* Llama 4: no band between */
    double smooth = (original / wavelength - rope->low_freq_factor) /
                    (rope->high_freq_factor - rope->low_freq_factor);
    return (1 - smooth) * f / rope->factor + smooth * f;
}

/* YaRN: interpolates low frequencies, keeps high ones, blends in between. */
static double yarn_frequency(const pj_rope_config *rope, double original, double f, uint32_t i,
                             uint32_t dims)
{
    double per_turn = dims / (2 * log(rope->theta));
    double low = per_turn * log(original / (rope->beta_fast * 2 * M_PI));
    double high = per_turn * log(original / (rope->beta_slow * 2 * M_PI));
    if (rope->truncate) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0);
    high = fmin(high, dims - 1);
    if (low == high) high += 0.001;
    double ramp = fmin(fmax((i - low) / (high - low), 0), 1);
    return f * (1 - ramp) + f / rope->factor * ramp;
}

static double yarn_mscale(double factor, double weight)
{
    return factor <= 1 ? 1 : 0.1 * weight * log(factor) + 1;
}

static double attention_factor(const pj_rope_config *rope, double original)
{
    if (!isnan(rope->attention_factor)) return rope->attention_factor;
    if (rope->type == PJ_ROPE_YARN) {
        if (rope->mscale > 0 && rope->mscale_all_dim > 0)
            return yarn_mscale(rope->factor, rope->mscale) /
                   yarn_mscale(rope->factor, rope->mscale_all_dim);
        return yarn_mscale(rope->factor, 1);
    }
    if (rope->type == PJ_ROPE_LONGROPE)
        return rope->factor <= 1 ? 1 : sqrt(1 + log(rope->factor) / log(original));
    return 1;
}

pj_status pj_rope_init(pj_rope *rope, const pj_rope_config *c, uint32_t context, pj_error *err)
{
    uint32_t dims = c->dims, pairs = dims / 2;
    double original = c->original_context ? c->original_context : context;
    *rope = (pj_rope){.type = c->type,
                      .pairs = pairs,
                      .neighbours = c->neighbours,
                      .switch_at = UINT32_MAX,
                      .scale = (float)attention_factor(c, original),
                      .long_scale =
                          (float)(c->long_attention_factor > 0 ? c->long_attention_factor
                                                               : attention_factor(c, original)),
                      .theta = c->theta,
                      .factor = c->factor};
    bool is_long = c->type == PJ_ROPE_LONGROPE;
    if (is_long && c->factor_count != pairs)
        return pj_fail(err, PJ_E_INVALID, "rope_scaling has %u factors, but %u dimensions rotate",
                       c->factor_count, dims);
    rope->frequency = pj_alloc(pairs, sizeof(float));
    if (is_long) rope->long_frequency = pj_alloc(pairs, sizeof(float));
    if (!rope->frequency || (is_long && !rope->long_frequency)) {
        pj_rope_fini(rope);
        return pj_fail_memory(err, "the rope table");
    }
    for (uint32_t i = 0; i < pairs; i++) {
        double f = plain_frequency(c->theta, i, dims);
        switch (c->type) {
        case PJ_ROPE_LINEAR: f /= c->factor; break;
        case PJ_ROPE_PROPORTIONAL: f = i < c->turning ? f / c->factor : 0; break;
        case PJ_ROPE_LLAMA3: f = llama3_frequency(c, f); break;
        case PJ_ROPE_YARN: f = yarn_frequency(c, original, f, i, dims); break;
        case PJ_ROPE_LONGROPE:
            rope->long_frequency[i] = (float)(f / c->long_factor[i]);
            f /= c->short_factor[i];
            break;
        default: break;
        }
        if (c->divisors) f /= c->divisors[i];
        rope->frequency[i] = (float)f;
    }
    if (is_long) rope->switch_at = (uint32_t)original;
    if (c->type == PJ_ROPE_DYNAMIC) rope->switch_at = context;
    return PJ_OK;
}

void pj_rope_fini(pj_rope *rope)
{
    pj_free(rope->frequency);
    pj_free(rope->long_frequency);
    rope->frequency = rope->long_frequency = NULL;
}

uint32_t pj_rope_generation(const pj_rope *rope, uint32_t length)
{
    if (length <= rope->switch_at) return 0;
    return rope->type == PJ_ROPE_DYNAMIC ? length : 1;
}

/* The base grows with the length, so that the lowest frequency still completes one turn within
 * it. */
static float dynamic_frequency(const pj_rope *rope, uint32_t length, uint32_t i)
{
    double dims = 2.0 * rope->pairs;
    double growth = rope->factor * length / rope->switch_at - (rope->factor - 1);
    double theta = rope->theta * pow(growth, dims / (dims - 2));
    return (float)plain_frequency(theta, i, 2 * rope->pairs);
}

void pj_rope_angles(const pj_rope *rope, uint32_t generation, uint32_t position, float *cosine,
                    float *sine)
{
    bool dynamic = generation && rope->type == PJ_ROPE_DYNAMIC;
    const float *frequency = generation && !dynamic ? rope->long_frequency : rope->frequency;
    float scale = generation ? rope->long_scale : rope->scale;
    for (uint32_t i = 0; i < rope->pairs; i++) {
        float f = dynamic ? dynamic_frequency(rope, generation, i) : frequency[i];
        float angle = (float)position * f;
        cosine[i] = cosf(angle) * scale;
        sine[i] = sinf(angle) * scale;
    }
}
