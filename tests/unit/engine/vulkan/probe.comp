/* For tests of the low layer: adds a specialisation constant to words, as often as is asked. */
#version 450
#extension GL_EXT_buffer_reference : require

layout(local_size_x = 64) in;
layout(constant_id = 0) const uint added = 1;

layout(buffer_reference, std430, buffer_reference_align = 4) buffer Words { uint at[]; };
layout(push_constant) uniform Push
{
    Words words;
    uint count, rounds;
} push;

void main()
{
    uint i = gl_GlobalInvocationID.x;
    if (i >= push.count) return;
    uint sum = push.words.at[i];
    for (uint round = 0; round < push.rounds; round++) sum += added;
    push.words.at[i] = sum;
}
