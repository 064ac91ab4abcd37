/* SPDX-License-Identifier: Apache-2.0 */
/* test_gunzip.c - gzip by ISA-L and by zlib: the same bytes, the same ends, the same damage. */
#include "ctx_fixture.h"

#include "file/gunzip.h"

#include <stdlib.h>
#include <zlib.h>

enum { TEXT = 300000, PACKED = 400000 };

static unsigned char text[TEXT], packed[PACKED], damaged[PACKED], one[TEXT], other[TEXT];

/* Words with repeats near and far, so that all of deflate occurs. */
static void fill_text(size_t n)
{
    uint64_t state = 12;
    for (size_t i = 0; i < n; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        const unsigned draw = (unsigned)(state >> 40);
        const size_t back = draw % 31000;
        text[i] =
            draw % 5 && i > back ? text[i - back - 1] : (unsigned char)("{}\": 0189abc"[draw % 12]);
    }
}

static size_t pack(int level, int strategy, const unsigned char *from, size_t n, unsigned char *to)
{
    z_stream z = {0};
    assert_int_equal(deflateInit2(&z, level, Z_DEFLATED, MAX_WBITS + 16, 8, strategy), Z_OK);
    z.next_in = (unsigned char *)from;
    z.avail_in = (unsigned)n;
    z.next_out = to;
    z.avail_out = (unsigned)(packed + PACKED - to);
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    deflateEnd(&z);
    return (size_t)(z.next_out - to);
}

/* One member, given and taken in pieces; *used of the packed bytes, *n unpacked ones. */
static tess__gunzip_state run(const tess__gunzip_library *library, const unsigned char *from,
                              size_t size, size_t in, size_t out, unsigned char *to, size_t *used,
                              size_t *n)
{
    void *g = NULL;
    tess__gunzip_state state = TESS__GUNZIP_MORE;
    size_t given = 0;
    *n = *used = 0;
    CHECK_OK(library->open(ctx, &g));
    tess__gunzip_pieces p = {.in = from};
    while (state == TESS__GUNZIP_MORE) {
        if (p.in_left == 0) {
            p.in_left = TESS_MIN(in, size - given);
            given += p.in_left;
        }
        p.out = to + *n;
        p.out_left = TESS_MIN(out, TEXT - *n);
        CHECK_OK(library->step(g, &p, &state));
        *n = (size_t)(p.out - to);
    }
    *used = given - p.in_left;
    library->close(g);
    return state;
}

static const tess__gunzip_library *libraries[2];
static int n_libraries;

static void members_of_every_kind_come_back_in_pieces_of_every_size(void **state)
{
    (void)state;
    static const int levels[] = {0, 1, 6, 9, 6}, strategies[] = {0, 0, 0, 0, Z_FIXED};
    static const size_t pieces[][2] = {
        {PACKED, TEXT}, {1, TEXT}, {PACKED, 1}, {7, 5}, {4096, 70000}};
    for (int l = 0; l < n_libraries; l++)
        for (int k = 0; k < 5; k++)
            for (int s = 0; s < 5; s++) {
                const size_t n = s == 0 || s == 4 ? TEXT : 30000;
                const size_t size = pack(levels[k], strategies[k], text, n, packed);
                packed[size] = 0x1f; /* the next member: is left alone */
                size_t used, got;
                assert_int_equal(run(libraries[l], packed, size + 1, pieces[s][0], pieces[s][1],
                                     one, &used, &got),
                                 TESS__GUNZIP_END);
                assert_int_equal(used, size);
                assert_int_equal(got, n);
                assert_memory_equal(one, text, n);
            }
}

static void a_member_follows_a_member(void **state)
{
    (void)state;
    for (int l = 0; l < n_libraries; l++) {
        const size_t first = pack(6, 0, text, 1000, packed);
        const size_t second = pack(1, 0, text + 1000, 70000, packed + first);
        void *g = NULL;
        tess__gunzip_state at = TESS__GUNZIP_MORE;
        tess__gunzip_pieces p = {packed, first + second, one, TEXT};
        CHECK_OK(libraries[l]->open(ctx, &g));
        for (int ends = 0; ends < 2; ends += at == TESS__GUNZIP_END) {
            if (at == TESS__GUNZIP_END)
                libraries[l]->reset(g);
            CHECK_OK(libraries[l]->step(g, &p, &at));
            assert_true(at <= TESS__GUNZIP_END);
        }
        assert_int_equal(p.in_left, 0);
        assert_int_equal(p.out - one, 71000);
        assert_memory_equal(one, text, 71000);
        libraries[l]->close(g);
    }
}

static void a_member_cut_at_any_byte_gives_what_is_there(void **state)
{
    (void)state;
    size_t used, got, before;
    const size_t size = pack(6, 0, text, 5000, packed);
    for (int l = 0; l < n_libraries; l++) {
        before = 0;
        for (size_t cut = 0; cut < size; cut++) {
            unsigned char *part = malloc(cut + !cut); /* so that a sanitizer sees a byte too many */
            memcpy(part, packed, cut);
            assert_int_equal(run(libraries[l], part, cut, PACKED, TEXT, one, &used, &got),
                             TESS__GUNZIP_HUNGRY);
            free(part);
            assert_true(got >= before && got <= 5000);
            assert_memory_equal(one, text, got);
            before = got;
        }
        assert_int_equal(before, 5000); /* all of it, without its length */
    }
}

/* zlib stops at sets of codes that ISA-L takes: bytes are the same as far as both go. */
static void a_changed_bit_is_damage_for_both(void **state)
{
    (void)state;
    static const int levels[] = {0, 6, 6}, strategies[] = {0, 0, Z_FIXED};
    if (n_libraries < 2)
        skip();
    for (int k = 0; k < 3; k++) {
        const size_t size = pack(levels[k], strategies[k], text, 700, packed);
        for (size_t bit = 0; bit < 8 * size; bit++) {
            size_t used, got[2];
            memcpy(damaged, packed, size);
            damaged[bit / 8] ^= 1 << bit % 8;
            const tess__gunzip_state a =
                run(libraries[0], damaged, size, PACKED, TEXT, one, &used, &got[0]);
            const tess__gunzip_state b =
                run(libraries[1], damaged, size, PACKED, TEXT, other, &used, &got[1]);
            assert_memory_equal(one, other, TESS_MIN(got[0], got[1]));
            if ((a == TESS__GUNZIP_END) != (b == TESS__GUNZIP_END))
                fail_msg("kind %d, byte %zu, bit %zu: zlib %d, ISA-L %d", k, bit / 8, bit % 8, a,
                         b);
            if (bit / 8 >= 4 && bit / 8 < 10) /* time and system */
                assert_int_equal(a, TESS__GUNZIP_END);
            if (bit / 8 < 3 || bit / 8 >= size - 8) /* 1f 8b 08; CRC and length */
                assert_int_equal(a, b);
            if (bit / 8 >= size - 8)
                assert_int_equal(a, TESS__GUNZIP_CHECK);
        }
    }
}

/* However small the room is. */
static void what_is_unpacked_before_the_damage_is_given(void **state)
{
    (void)state;
    enum { HEADER = 10, BLOCK = 5 + 65535 }; /* of a stored block: type, length, its complement */
    size_t used, got;
    const size_t size = pack(0, 0, text, 90000, packed);
    packed[HEADER + BLOCK + 1] ^= 1;
    for (int l = 0; l < n_libraries; l++)
        for (size_t room = 1; room < TEXT; room *= 9) {
            assert_int_equal(run(libraries[l], packed, size, PACKED, room, one, &used, &got),
                             TESS__GUNZIP_BLOCK);
            assert_int_equal(got, 65535);
            assert_memory_equal(one, text, got);
        }
}

static int begin(void **state)
{
    fill_text(TEXT);
    libraries[n_libraries++] = &tess__gunzip_zlib;
    if (tess__gunzip_isal)
        libraries[n_libraries++] = tess__gunzip_isal;
    return make_ctx(state);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(members_of_every_kind_come_back_in_pieces_of_every_size),
    cmocka_unit_test(a_member_follows_a_member),
    cmocka_unit_test(a_member_cut_at_any_byte_gives_what_is_there),
    cmocka_unit_test(a_changed_bit_is_damage_for_both),
    cmocka_unit_test(what_is_unpacked_before_the_damage_is_given),
};

RUN_TESTS_WITH(tests, begin, drop_ctx)
