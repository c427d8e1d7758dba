#include "base/base64.h"

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void pj_base64_write(pj_buffer *out, const void *bytes, size_t count)
{
    const unsigned char *in = bytes;
    if (!pj_buffer_reserve(out, (count + 2) / 3 * 4)) return;
    for (size_t i = 0; i < count; i += 3) {
        size_t left = count - i;
        uint32_t v = (uint32_t)in[i] << 16 | (left > 1 ? (uint32_t)in[i + 1] << 8 : 0) |
                     (left > 2 ? in[i + 2] : 0);
        char *quad = out->data + out->length;
        quad[0] = digits[v >> 18];
        quad[1] = digits[v >> 12 & 63];
        quad[2] = left > 1 ? digits[v >> 6 & 63] : '=';
        quad[3] = left > 2 ? digits[v & 63] : '=';
        out->length += 4;
    }
    if (out->data) out->data[out->length] = 0;
}

/* -1: not a digit. */
static int base64_value_of(char c)
{
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

bool pj_base64_read(const char *text, size_t length, void *bytes, size_t count)
{
    unsigned char *out = bytes;
    if (length != (count + 2) / 3 * 4) return false;
    for (size_t done = 0; done < count; text += 4) {
        size_t left = count - done < 3 ? count - done : 3;
        uint32_t v = 0;
        for (size_t i = 0; i < 4; i++) {
            int digit = i <= left ? base64_value_of(text[i]) : text[i] == '=' ? 0 : -1;
            if (digit < 0) return false;
            v = v << 6 | (uint32_t)digit;
        }
        if (v & ((1u << 8 * (3 - left)) - 1)) return false; /* bits that stand for nothing */
        for (size_t i = 0; i < left; i++) out[done++] = (unsigned char)(v >> (16 - 8 * i));
    }
    return true;
}
