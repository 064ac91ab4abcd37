/* SPDX-License-Identifier: Apache-2.0 */
/* test_npz_bad.c - archives put together by hand: zip64, odd members, and every kind of damage. */
#include "base/base_internal.h"
#include "files.h"
#include "tessera/file.h"

#include <zlib.h>

#define DICT "{'descr': '|u1', 'fortran_order': False, 'shape': (4,), }"
enum { DATA = 4 };

/* One member "a.npy" and the fields a test may want to be wrong. The archive's parts lie at
 *   0 local header, `data` the member, `directory`, `end64` (0: none), `end`. */
typedef struct {
    const char *name, *name_local;
    unsigned flags, method;
    blob member; /* as it lies in the archive */
    uint64_t bytes;
    uint32_t crc;
    int zip64;
    size_t data, directory, end;
} archive;

static archive plain(void)
{
    archive a = {.name = "a.npy", .name_local = "a.npy", .member = make_npy(1, DICT, DATA)};
    a.bytes = a.member.bytes;
    a.crc = (uint32_t)crc32_z(0, a.member.data, a.member.bytes);
    return a;
}

static archive deflated(void)
{
    archive a = plain();
    const blob npy = a.member;
    z_stream z = {0};
    unsigned char packed[512];
    assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, -15, 8, 0), Z_OK);
    z.next_in = npy.data;
    z.avail_in = (unsigned)npy.bytes;
    z.next_out = packed;
    z.avail_out = sizeof packed;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    a.member = (blob){0};
    blob_add(&a.member, packed, z.total_out);
    deflateEnd(&z);
    free(npy.data);
    a.method = 8;
    return a;
}

static void add_common(blob *b, const archive *a, const char *name, size_t extra)
{
    blob_number(b, 20, 2);
    blob_number(b, a->flags, 2);
    blob_number(b, a->method, 2);
    blob_number(b, 0, 4);
    blob_number(b, a->crc, 4);
    blob_number(b, a->zip64 ? 0xffffffff : a->member.bytes, 4);
    blob_number(b, a->zip64 ? 0xffffffff : a->bytes, 4);
    blob_number(b, strlen(name), 2);
    blob_number(b, extra, 2);
}

static void add_end64(blob *b, uint64_t directory)
{
    const uint64_t at = b->bytes;
    blob_text(b, "PK\6\6");
    blob_number(b, 44, 8);
    blob_number(b, 45 << 16 | 45, 4);
    blob_number(b, 0, 8);
    blob_number(b, 1, 8);
    blob_number(b, 1, 8);
    blob_number(b, at - directory, 8);
    blob_number(b, directory, 8);
    blob_text(b, "PK\6\7");
    blob_number(b, 0, 4);
    blob_number(b, at, 8);
    blob_number(b, 1, 4);
}

static blob build(archive *a)
{
    blob b = {0};
    blob_text(&b, "PK\3\4");
    add_common(&b, a, a->name_local, 0);
    blob_text(&b, a->name_local);
    a->data = b.bytes;
    blob_add(&b, a->member.data, a->member.bytes);
    a->directory = b.bytes;
    blob_text(&b, "PK\1\2");
    blob_number(&b, 0, 2);
    add_common(&b, a, a->name, a->zip64 ? 32 : 0);
    blob_number(&b, 0, 6);
    blob_number(&b, 0, 4);
    blob_number(&b, a->zip64 ? 0xffffffff : 0, 4);
    blob_text(&b, a->name);
    if (a->zip64) {
        blob_number(&b, 0x7777, 2); /* a field to be passed over */
        blob_number(&b, 0, 2);
        blob_number(&b, 1, 2);
        blob_number(&b, 24, 2);
        blob_number(&b, a->bytes, 8);
        blob_number(&b, a->member.bytes, 8);
        blob_number(&b, 0, 8);
    }
    const size_t size = b.bytes - a->directory;
    if (a->zip64)
        add_end64(&b, a->directory);
    a->end = b.bytes;
    blob_text(&b, "PK\5\6");
    blob_number(&b, 0, 4);
    blob_number(&b, a->zip64 ? 0xffff : 1, 2);
    blob_number(&b, a->zip64 ? 0xffff : 1, 2);
    blob_number(&b, a->zip64 ? 0xffffffff : size, 4);
    blob_number(&b, a->zip64 ? 0xffffffff : a->directory, 4);
    blob_number(&b, 0, 2);
    return b;
}

static void assert_reads(archive a)
{
    blob b = build(&a);
    tess_file *file = NULL;
    tess_tensor t;
    unsigned char got[DATA];
    CHECK_OK(tess_file_open_memory(ctx, "z.npz", b.data, b.bytes, &file));
    CHECK_OK(tess_file_tensor(file, "a", &t));
    assert_memory_equal(t.data, "\0\1\2\3", DATA);
    CHECK_OK(tess_file_read(file, "a", TESS_DTYPE_U8, got, DATA));
    assert_memory_equal(got, "\0\1\2\3", DATA);
    tess_file_close(file);
    blob_free(&b);
    blob_free(&a.member);
}

static void assert_open_fails(archive a, const char *sentence)
{
    blob b = build(&a);
    tess_file *file = NULL;
    CHECK_FAILS(tess_file_open_memory(ctx, "z.npz", b.data, b.bytes, &file), TESS_EFORMAT,
                sentence);
    blob_free(&b);
    blob_free(&a.member);
}

/* It opens, and both ways to the data fail. */
static void assert_data_fails(archive a, tess_status status, const char *sentence)
{
    blob b = build(&a);
    tess_file *file = NULL;
    tess_tensor t;
    unsigned char got[DATA];
    CHECK_OK(tess_file_open_memory(ctx, "z.npz", b.data, b.bytes, &file));
    CHECK_FAILS(tess_file_read(file, "a", TESS_DTYPE_U8, got, DATA), status, sentence);
    CHECK_FAILS(tess_file_tensor(file, "a", &t), status, sentence);
    tess_file_close(file);
    blob_free(&b);
    blob_free(&a.member);
}

static void archives_made_by_hand_are_read(void **state)
{
    (void)state;
    assert_reads(plain());
    assert_reads(deflated());
    archive a = plain();
    a.zip64 = 1;
    assert_reads(a);
    a = deflated();
    a.zip64 = 1;
    assert_reads(a);
}

static void what_is_not_an_array_is_passed_over(void **state)
{
    (void)state;
    archive a = plain();
    a.name = a.name_local = "readme.txt";
    blob b = build(&a);
    tess_file *file = NULL;
    tess_file_info info;
    CHECK_OK(tess_file_open_memory(ctx, "z.npz", b.data, b.bytes, &file));
    CHECK_OK(tess_file_query(file, &info));
    assert_int_equal(info.tensors, 0);
    tess_file_close(file);
    blob_free(&b);
    blob_free(&a.member);
}

static void a_damaged_member_fails_when_it_is_read(void **state)
{
    (void)state;
    archive a = plain();
    a.member.data[a.member.bytes - 1] ^= 1;
    const uint32_t crc = (uint32_t)crc32_z(0, a.member.data, a.member.bytes);
    char sentence[128];
    snprintf(sentence, sizeof sentence,
             "z.npz: tensor \"a\": crc of its data is %08x, must be %08x", (unsigned)crc,
             (unsigned)a.crc);
    assert_data_fails(a, TESS_EFORMAT, sentence);

    a = deflated();
    blob_number(&a.member, 0, 1);
    assert_data_fails(a, TESS_EFORMAT,
                      "z.npz: tensor \"a\": deflated data: 1 bytes follow its end");
    a = deflated();
    a.member.bytes -= 1; /* the array is there, the end mark is not */
    assert_data_fails(a, TESS_EFORMAT, "z.npz: tensor \"a\": deflated data: ends too early");
}

static void a_member_that_cannot_be_had_is_refused_by_name(void **state)
{
    (void)state;
    archive a = plain();
    a.flags = 1;
    assert_data_fails(a, TESS_ENOTSUP, "z.npz: tensor \"a\": is encrypted");
    a = plain();
    a.method = 12;
    assert_data_fails(a, TESS_ENOTSUP,
                      "z.npz: tensor \"a\": is compressed by a method that is neither stored nor "
                      "deflated");
    a = plain();
    blob_free(&a.member);
    a.member = make_npy(1, "{'descr': '>u2', 'fortran_order': False, 'shape': (2,), }", DATA);
    a.bytes = a.member.bytes;
    assert_data_fails(a, TESS_ENOTSUP,
                      "z.npz: tensor \"a\": dtype '>u2' is big-endian, must be little-endian");
}

static void malformed_members_get_their_sentence(void **state)
{
    (void)state;
    archive a = plain();
    a.bytes += 1;
    assert_open_fails(a, "z.npz: member \"a.npy\": is stored in 71 bytes, but has 72");
    a = deflated();
    a.bytes = 1000000;
    char sentence[128];
    snprintf(sentence, sizeof sentence,
             "z.npz: member \"a.npy\": %zu deflated bytes cannot hold 1000000", a.member.bytes);
    assert_open_fails(a, sentence);
    a = deflated();
    a.bytes += 1;
    assert_open_fails(a, "z.npz: member \"a.npy\": data: 5 bytes, but U8 [4] needs 4");
    a = deflated();
    a.member.data[0] = 0xff;
    assert_open_fails(a, "z.npz: member \"a.npy\": deflated data: invalid block type");
    a = deflated();
    a.member.bytes = 8;
    assert_open_fails(a, "z.npz: member \"a.npy\": deflated data: ends too early");
    a = plain();
    a.name_local = "b.npy";
    assert_open_fails(a, "z.npz: member \"a.npy\": byte 0: the local header has another name than "
                         "the directory");
    a = plain();
    a.member.data[0] = 'x';
    assert_open_fails(a, "z.npz: member \"a.npy\": header: byte 0: expected the magic of .npy");
    a = plain();
    a.member.data[9] = 1;
    assert_open_fails(a, "z.npz: member \"a.npy\": header: needs 323 bytes, but the member has 71");
    a = plain();
    a.name = a.name_local = "\xff.npy";
    assert_open_fails(a, "z.npz: member number 0: its name must be UTF-8");
}

/* Changes `n` bytes at `at` of an archive of one stored member. */
static void assert_patched_fails(archive a, size_t at, const char *bytes, size_t n,
                                 const char *sentence)
{
    blob b = build(&a);
    memcpy(b.data + at, bytes, n);
    tess_file *file = NULL;
    CHECK_FAILS(tess_file_open_memory(ctx, "z.npz", b.data, b.bytes, &file), TESS_EFORMAT,
                sentence);
    blob_free(&b);
    blob_free(&a.member);
}

static void a_malformed_directory_gets_its_sentence(void **state)
{
    (void)state;
    archive probe = plain();
    blob b = build(&probe);
    const size_t directory = probe.directory, end = probe.end;
    blob_free(&b);
    blob_free(&probe.member);
    assert_int_equal(directory, 106); /* 30 + 5 of the local header, 71 of the member */
    assert_patched_fails(plain(), end, "XX", 2,
                         "z.npz: has no zip directory at its end: is it cut short?");
    assert_patched_fails(plain(), end + 20, "\1", 1,
                         "z.npz: has no zip directory at its end: is it cut short?");
    assert_patched_fails(plain(), end + 10, "\2", 1,
                         "z.npz: directory: 2 members in 51 bytes at byte 106 do not fit");
    assert_patched_fails(plain(), end + 10, "\0", 1,
                         "z.npz: byte 106: 51 bytes follow the last member");
    assert_patched_fails(plain(), end + 16, "\xf0", 1,
                         "z.npz: directory: 1 members in 51 bytes at byte 240 do not fit");
    assert_patched_fails(plain(), end + 16, "\x69", 1,
                         "z.npz: byte 105: expected a member of the zip directory");
    assert_patched_fails(plain(), directory + 28, "\x06", 1,
                         "z.npz: byte 106: member reaches beyond the zip directory");
    assert_patched_fails(plain(), directory + 42, "\x01", 1,
                         "z.npz: member \"a.npy\": byte 1: expected a local header");
    assert_patched_fails(plain(), 28, "\xff\xff", 2,
                         "z.npz: member \"a.npy\": byte 0: the local header has another name than "
                         "the directory");
    assert_patched_fails(plain(), 28, "\x10", 1,
                         "z.npz: member \"a.npy\": 71 bytes at byte 51 reach into the directory");
    assert_patched_fails(plain(), directory + 24, "\xff\xff\xff\xff", 4,
                         "z.npz: byte 106: member lacks its zip64 sizes");
    assert_patched_fails(plain(), end + 12, "\xff\xff\xff\xff", 4,
                         "z.npz: byte 137: expected a zip64 locator");
    archive a = plain();
    a.zip64 = 1;
    b = build(&a);
    const size_t locator = a.end - 20;
    blob_free(&b);
    assert_patched_fails(a, locator + 8, "\1", 1,
                         "z.npz: byte 1: expected the end of a zip64 directory");
}

static void an_archive_cut_or_changed_anywhere_never_crashes(void **state)
{
    (void)state;
    archive kinds[] = {plain(), deflated(), plain()};
    kinds[2].zip64 = 1;
    for (int k = 0; k < 3; k++) {
        blob b = build(&kinds[k]);
        int opened = 0;
        for (size_t i = 0; i < b.bytes; i++) {
            for (int change = 0; change < 3; change++) {
                const size_t bytes = change == 2 ? i : b.bytes;
                unsigned char *copy = malloc(bytes ? bytes : 1);
                memcpy(copy, b.data, bytes);
                if (change < 2)
                    copy[i] ^= change ? 0xff : 1;
                tess_file *file = NULL;
                tess_tensor t;
                if (tess_file_open_memory(ctx, "z", copy, bytes, &file) == TESS_OK) {
                    opened++;
                    tess_file_tensor(file, NULL, &t);
                }
                tess_file_close(file);
                free(copy);
            }
        }
        assert_true(opened > 0); /* dates, attributes and the member's data do open */
        blob_free(&b);
        blob_free(&kinds[k].member);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(archives_made_by_hand_are_read),
    cmocka_unit_test(what_is_not_an_array_is_passed_over),
    cmocka_unit_test(a_damaged_member_fails_when_it_is_read),
    cmocka_unit_test(a_member_that_cannot_be_had_is_refused_by_name),
    cmocka_unit_test(malformed_members_get_their_sentence),
    cmocka_unit_test(a_malformed_directory_gets_its_sentence),
    cmocka_unit_test(an_archive_cut_or_changed_anywhere_never_crashes),
};
RUN_TESTS_IN_FOLDER(tests)
