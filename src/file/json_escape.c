/* SPDX-License-Identifier: Apache-2.0 */
/* json_escape.c - one escape of a JSON string as UTF-8 (RFC 8259, section 7). */
#include "json.h"

#include <string.h>

/* Four hexadecimal digits at p; -1 if they are none. */
static int32_t hex4(const char *p)
{
    int32_t value = 0;
    for (int i = 0; i < 4; i++) {
        const int c = p[i] | 0x20;
        const int digit = p[i] >= '0' && p[i] <= '9' ? p[i] - '0'
                          : c >= 'a' && c <= 'f'     ? c - 'a' + 10
                                                     : -1;
        if (digit < 0)
            return -1;
        value = value << 4 | digit;
    }
    return value;
}

static size_t encode_utf8(int32_t code, char utf8[4])
{
    static const unsigned char lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
    const size_t n = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t i = n; i-- > 1; code >>= 6)
        utf8[i] = (char)(0x80 | (code & 0x3f));
    utf8[0] = (char)(lead[n] | code);
    return n;
}

/* \uXXXX at p, or a pair of them: the character, and how many bytes it takes; 0 if it is half a
 * pair, the character 0, or no such escape. */
static size_t read_unicode(const char *p, size_t left, int32_t *code)
{
    if (left < 6 || (*code = hex4(p + 2)) <= 0 || (*code >= 0xdc00 && *code < 0xe000))
        return 0;
    if (*code < 0xd800 || *code >= 0xe000)
        return 6;
    const int32_t low = left >= 12 && p[6] == '\\' && p[7] == 'u' ? hex4(p + 8) : -1;
    if (low < 0xdc00 || low >= 0xe000)
        return 0;
    *code = 0x10000 + ((*code - 0xd800) << 10) + (low - 0xdc00);
    return 12;
}

size_t tess__json_unescape(const char *p, size_t left, char utf8[4], size_t *used)
{
    static const char names[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    int32_t code;
    if (left < 2 || !p[1])
        return 0;
    if (p[1] == 'u') {
        *used = read_unicode(p, left, &code);
        return *used ? encode_utf8(code, utf8) : 0;
    }
    const char *name = strchr(names, p[1]);
    utf8[0] = name ? meanings[name - names] : '\0';
    *used = 2;
    return name ? 1 : 0;
}
