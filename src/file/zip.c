/* SPDX-License-Identifier: Apache-2.0 */
/* zip.c - the directory of a zip archive, with zip64.
 *
 *   local header, member | local header, member | ... | directory | [zip64 end, locator] | end
 *
 * The directory at the end is what counts; of the local headers only the place of the data is
 * taken, and their names are compared.
 */
#include "file_internal.h"

#include <string.h>

enum {
    LOCAL = 30,
    CENTRAL = 46,
    END = 22,
    LOCATOR = 20,
    END64 = 56,
    COMMENT_MAX = 65535,
};

static uint32_t le16(const unsigned char *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8;
}

static uint32_t le32(const unsigned char *p)
{
    return le16(p) | le16(p + 2) << 16;
}

static uint64_t le64(const unsigned char *p)
{
    return le32(p) | (uint64_t)le32(p + 4) << 32;
}

/* Whether [offset, offset + n) lies in the first `end` bytes. */
static int inside(uint64_t offset, uint64_t n, uint64_t end)
{
    return offset <= end && n <= end - offset;
}

static tess_status find_end(const tess__source *s, size_t *end)
{
    for (size_t i = 0; i <= COMMENT_MAX && i + END <= s->bytes; i++) {
        const unsigned char *p = s->data + s->bytes - END - i;
        if (memcmp(p, "PK\5\6", 4) == 0 && le16(p + 20) == i) {
            *end = s->bytes - END - i;
            return TESS_OK;
        }
    }
    return tess__fail(TESS_EFORMAT, "%s: has no zip directory at its end: is it cut short?",
                      s->name);
}

tess_status tess__zip_directory(const tess__source *s, tess__zip *d)
{
    size_t end = 0;
    TESS_TRY(find_end(s, &end));
    const unsigned char *p = s->data + end;
    *d = (tess__zip){.members = le16(p + 10), .bytes = le32(p + 12), .offset = le32(p + 16)};
    if (d->members == 0xffff || d->bytes == 0xffffffff || d->offset == 0xffffffff) {
        if (end < LOCATOR || memcmp(p - LOCATOR, "PK\6\7", 4) != 0)
            return tess__fail(TESS_EFORMAT, "%s: byte %zu: expected a zip64 locator", s->name,
                              end < LOCATOR ? 0 : end - LOCATOR);
        const uint64_t end64 = le64(p - LOCATOR + 8);
        if (!inside(end64, END64, end - LOCATOR) || memcmp(s->data + end64, "PK\6\6", 4) != 0)
            return tess__fail(TESS_EFORMAT, "%s: byte %llu: expected the end of a zip64 directory",
                              s->name, (unsigned long long)end64);
        p = s->data + end64;
        *d = (tess__zip){.members = le64(p + 32), .bytes = le64(p + 40), .offset = le64(p + 48)};
    }
    if (!inside(d->offset, d->bytes, end) || d->members > d->bytes / CENTRAL)
        return tess__fail(TESS_EFORMAT,
                          "%s: directory: %llu members in %llu bytes at byte %llu do not fit",
                          s->name, (unsigned long long)d->members, (unsigned long long)d->bytes,
                          (unsigned long long)d->offset);
    return TESS_OK;
}

/* Takes from the extra field the sizes that did not fit in 32 bits. Returns 1 if one is missing. */
static int read_zip64(const unsigned char *extra, size_t n, tess__zip_entry *m)
{
    uint64_t *const wide[] = {&m->bytes, &m->packed, &m->local};
    const unsigned char *p = NULL;
    size_t left = 0;
    while (n >= 4) {
        const size_t length = le16(extra + 2);
        if (length > n - 4)
            return 1;
        if (le16(extra) == 1) {
            p = extra + 4;
            left = length;
            break;
        }
        extra += 4 + length;
        n -= 4 + length;
    }
    for (int i = 0; i < 3; i++) {
        if (*wide[i] != 0xffffffff)
            continue;
        if (left < 8)
            return 1;
        *wide[i] = le64(p);
        p += 8;
        left -= 8;
    }
    return 0;
}

tess_status tess__zip_member(const tess__source *s, size_t *at, size_t end, tess__zip_entry *m)
{
    const unsigned char *p = s->data + *at;
    if (!inside(*at, CENTRAL, end) || memcmp(p, "PK\1\2", 4) != 0)
        return tess__fail(TESS_EFORMAT, "%s: byte %zu: expected a member of the zip directory",
                          s->name, *at);
    const size_t length = le16(p + 28), extra = le16(p + 30), comment = le16(p + 32);
    if (!inside(*at + CENTRAL, length + extra + comment, end))
        return tess__fail(TESS_EFORMAT, "%s: byte %zu: member reaches beyond the zip directory",
                          s->name, *at);
    *m = (tess__zip_entry){
        .name = (const char *)p + CENTRAL,
        .length = length,
        .encrypted = (int)(le16(p + 8) & 1),
        .method = (int)le16(p + 10),
        .crc = le32(p + 16),
        .packed = le32(p + 20),
        .bytes = le32(p + 24),
        .local = le32(p + 42),
    };
    if (read_zip64(p + CENTRAL + length, extra, m))
        return tess__fail(TESS_EFORMAT, "%s: byte %zu: member lacks its zip64 sizes", s->name, *at);
    *at += CENTRAL + length + extra + comment;
    return TESS_OK;
}

tess_status tess__zip_data(const tess__source *s, const char *where, const tess__zip_entry *m,
                           uint64_t limit, size_t *start)
{
    if (!inside(m->local, LOCAL, limit) || memcmp(s->data + m->local, "PK\3\4", 4) != 0)
        return tess__fail(TESS_EFORMAT, "%s: byte %llu: expected a local header", where,
                          (unsigned long long)m->local);
    const unsigned char *p = s->data + m->local;
    const size_t length = le16(p + 26), skip = LOCAL + length + le16(p + 28);
    if (!inside(m->local, skip, limit) || length != m->length ||
        memcmp(p + LOCAL, m->name, length) != 0)
        return tess__fail(TESS_EFORMAT,
                          "%s: byte %llu: the local header has another name than the directory",
                          where, (unsigned long long)m->local);
    *start = (size_t)m->local + skip;
    if (!inside(*start, m->packed, limit))
        return tess__fail(TESS_EFORMAT, "%s: %llu bytes at byte %zu reach into the directory",
                          where, (unsigned long long)m->packed, *start);
    return TESS_OK;
}
