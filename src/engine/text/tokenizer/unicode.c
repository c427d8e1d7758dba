/* Unicode properties and normal forms, using utf8proc; and the byte-level alphabet. */
#include "engine/text/tokenizer/parts.h"

#include "base/utf8.h"

#include <stdlib.h>
#include <utf8proc.h>

/* Sets of categories. */
#define IN(name) (1u << UTF8PROC_CATEGORY_##name)
enum {
    LETTERS = IN(LU) | IN(LL) | IN(LT) | IN(LM) | IN(LO),
    MARKS = IN(MN) | IN(MC) | IN(ME),
    NUMBERS = IN(ND) | IN(NL) | IN(NO),
    PUNCTUATION = IN(PC) | IN(PD) | IN(PS) | IN(PE) | IN(PI) | IN(PF) | IN(PO),
    OTHERS = IN(CC) | IN(CF) | IN(CO) | IN(CS),
    WORDS = LETTERS | MARKS | IN(NL) | IN(ND) | IN(PC)
};

static bool is_of(uint32_t c, unsigned set)
{
    return set >> utf8proc_category((utf8proc_int32_t)c) & 1;
}

bool pj_unicode_is_space(uint32_t c)
{
    if (c < 0x80) return c == ' ' || (c >= '\t' && c <= '\r');
    return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 ||
           c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

/* Symbols that count as alphabetic: circled and squared Latin letters. */
static bool is_enclosed_letter(uint32_t c)
{
    return (c >= 0x24b6 && c <= 0x24e9) || (c >= 0x1f130 && c <= 0x1f149) ||
           (c >= 0x1f150 && c <= 0x1f169) || (c >= 0x1f170 && c <= 0x1f189);
}

bool pj_unicode_is_word(uint32_t c)
{
    return is_of(c, WORDS) || c == 0x200c || c == 0x200d || is_enclosed_letter(c);
}

bool pj_unicode_is_numeric(uint32_t c)
{
    return is_of(c, NUMBERS);
}

bool pj_unicode_is_punctuation(uint32_t c)
{
    if (c < 0x80) return (c > ' ' && c < 0x7f && !pj_unicode_is_word(c)) || c == '_';
    return is_of(c, PUNCTUATION);
}

bool pj_unicode_is_mark(uint32_t c)
{
    return is_of(c, MARKS);
}

bool pj_unicode_is_nonspacing(uint32_t c)
{
    return is_of(c, IN(MN));
}

bool pj_unicode_is_other(uint32_t c)
{
    return is_of(c, OTHERS);
}

uint32_t pj_unicode_lower(uint32_t c)
{
    return (uint32_t)utf8proc_tolower((utf8proc_int32_t)c);
}

uint32_t pj_unicode_upper(uint32_t c)
{
    return (uint32_t)utf8proc_toupper((utf8proc_int32_t)c);
}

bool pj_unicode_is_letter(uint32_t c)
{
    return is_of(c, LETTERS);
}

/* NFC changes nothing below U+0300; no form changes ASCII. */
static bool is_normal(pj_unicode_form form, const char *text, size_t bytes)
{
    unsigned char first_changed = form == PJ_FORM_NFC ? 0xcc : 0x80;
    for (size_t i = 0; i < bytes; i++)
        if ((unsigned char)text[i] >= first_changed) return false;
    return true;
}

bool pj_unicode_normalize(pj_unicode_form form, const char *text, size_t bytes, pj_buffer *out)
{
    static const int options[] = {
        [PJ_FORM_NFC] = UTF8PROC_STABLE | UTF8PROC_COMPOSE,
        [PJ_FORM_NFD] = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE,
        [PJ_FORM_NFKC] = UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT,
        [PJ_FORM_NFKD] = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT,
    };
    if (is_normal(form, text, bytes)) return pj_buffer_append(out, text, bytes);
    utf8proc_uint8_t *mapped = NULL;
    utf8proc_ssize_t length = utf8proc_map((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)bytes,
                                           &mapped, (utf8proc_option_t)options[form]);
    bool ok = length >= 0 && pj_buffer_append(out, mapped, (size_t)length);
    free(mapped);
    return ok;
}

/* Length of the longest prefix of a valid sequence at `text`, at least one byte; `need` is the
 * length of the whole. */
static size_t prefix_bytes(const char *text, size_t bytes, size_t *need)
{
    const unsigned char *p = (const unsigned char *)text;
    unsigned char low = p[0] == 0xe0 ? 0xa0 : p[0] == 0xf0 ? 0x90 : 0x80;
    unsigned char high = p[0] == 0xed ? 0x9f : p[0] == 0xf4 ? 0x8f : 0xbf;
    size_t n = 1;
    *need = p[0] >= 0xf0 && p[0] <= 0xf4  ? 4
            : p[0] >= 0xe0 && p[0] < 0xf0 ? 3
            : p[0] >= 0xc2 && p[0] < 0xe0 ? 2
                                          : 1;
    while (n < *need && n < bytes && p[n] >= low && p[n] <= high) {
        n++;
        low = 0x80;
        high = 0xbf;
    }
    return n;
}

size_t pj_utf8_unfinished(const char *text, size_t bytes)
{
    for (size_t back = 1, need; back <= 3 && back <= bytes; back++)
        if (((unsigned char)text[bytes - back] & 0xc0) != 0x80)
            return prefix_bytes(text + bytes - back, back, &need) == back && need > back ? back : 0;
    return 0;
}

bool pj_utf8_repair(const char *text, size_t bytes, pj_buffer *out)
{
    size_t plain = 0, i = 0;
    while (i < bytes) {
        uint32_t c;
        size_t n = pj_utf8_next(text + i, bytes - i, &c), need;
        if (n > 0) {
            i += n;
            continue;
        }
        pj_buffer_append(out, text + plain, i - plain);
        pj_buffer_append(out, "\xef\xbf\xbd", 3);
        i += prefix_bytes(text + i, bytes - i, &need);
        plain = i;
    }
    return pj_buffer_append(out, text + plain, bytes - plain);
}

uint32_t pj_utf8_before(const char *text, size_t at)
{
    size_t begin = at - 1;
    while (begin > 0 && ((unsigned char)text[begin] & 0xc0) == 0x80) begin--;
    uint32_t c = 0xfffd;
    pj_utf8_next(text + begin, at - begin, &c);
    return c;
}

/* Printable Latin-1 bytes are represented by themselves; the other 68 by U+0100 and up, in
 * order. */
static bool is_own_letter(unsigned byte)
{
    return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

uint32_t pj_byte_letter(unsigned char byte)
{
    if (is_own_letter(byte)) return byte;
    if (byte <= 32) return 0x100u + byte;
    if (byte == 173) return 0x100 + 67;
    return 0x100 + 33 + (byte - 127u);
}

void pj_put_byte_letters(const char *text, size_t bytes, pj_buffer *out)
{
    for (size_t i = 0; i < bytes; i++) {
        char letter[4];
        pj_buffer_append(out, letter, pj_utf8_put(pj_byte_letter((unsigned char)text[i]), letter));
    }
}

int pj_letter_byte(uint32_t letter)
{
    if (letter < 0x100) return is_own_letter(letter) ? (int)letter : -1;
    if (letter <= 0x120) return (int)letter - 0x100;
    if (letter <= 0x142) return (int)letter - 0x100 - 33 + 127;
    return letter == 0x143 ? 173 : -1;
}
