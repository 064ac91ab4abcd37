/* SPDX-License-Identifier: Apache-2.0 */
/* test_gpu_layout.c - the emulation itself: fragments, deferred copies, and the errors it finds.
 *
 * The fragments of m16n8k16 are compared with the strides of CuTe, NVIDIA's layout library, file
 * include/cute/atom/mma_traits_sm80.hpp of CUTLASS, MMA_Traits<SM80_16x8x16_F32BF16BF16F32_TN>:
 *
 *   ALayout  Shape <<4,8>,<2,2,2>>  Stride <<32,1>,<16,8,128>>   to m + 16 k
 *   BLayout  Shape <<4,8>,<2,2>>    Stride <<16,1>,<8,64>>       to n +  8 k
 *   CLayout  Shape <<4,8>,<2,2>>    Stride <<32,1>,<16,8>>       to m + 16 n
 */
#include "emulation.h"
#include "gpu/kernels/dialect.h"
#include "test.h"

/* Where value v of a lane is, by strides. */
static int place(int lane, int v, int by_column, int by_row, const int stride[3])
{
    int at = lane % 4 * by_column + lane / 4 * by_row;
    for (int i = 0; i < 3; i++)
        at += (v >> i & 1) * stride[i];
    return at;
}

typedef struct {
    float x[16][16], y[16][8], z[16][8]; /* z = x y */
    u16 matrix[4][8][8];
    u32 loaded[2][32][4];
    int misuse;
} arena;

typedef struct {
    arena *to;
} arena_args;

KERNEL(multiply_by_strides, arena_args, 32, 1)
{
    static const int of_a[3] = {16, 8, 128}, of_b[3] = {8, 64, 0}, of_c[3] = {16, 8, 0};
    float x[8], y[4], z[4] = {0.0f};
    u32 fa[4], fb[2];
    for (int v = 0; v < 8; v++) {
        const int at = place(LANE, v, 32, 1, of_a);
        x[v] = a.to->x[at % 16][at / 16];
    }
    for (int v = 0; v < 4; v++) {
        const int at = place(LANE, v, 16, 1, of_b);
        y[v] = a.to->y[at / 8][at % 8];
    }
    for (int i = 0; i < 4; i++)
        fa[i] = pack_bf16(x[2 * i], x[2 * i + 1]);
    for (int i = 0; i < 2; i++)
        fb[i] = pack_bf16(y[2 * i], y[2 * i + 1]);
    MMA_BF16(z, fa, fb[0], fb[1]);
    for (int v = 0; v < 4; v++) {
        const int at = place(LANE, v, 32, 1, of_c);
        a.to->z[at % 16][at / 16] = z[v];
    }
}

/* Small whole numbers: every product and sum is exact. */
static void test_fragments_are_those_of_cute(void **state)
{
    (void)state;
    static arena m;
    for (int i = 0; i < 16; i++)
        for (int k = 0; k < 16; k++)
            m.x[i][k] = (float)((7 * i + 3 * k) % 11 - 5);
    for (int k = 0; k < 16; k++)
        for (int j = 0; j < 8; j++)
            m.y[k][j] = (float)((5 * k + 2 * j) % 13 - 6);
    const arena_args args = {&m};
    assert_null(emulation_run(&(emulation_launch){multiply_by_strides, &args, 1, 32, 0, 0}));
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 8; j++) {
            float sum = 0.0f;
            for (int k = 0; k < 16; k++)
                sum += m.x[i][k] * m.y[k][j];
            assert_true(m.z[i][j] == sum);
        }
}

KERNEL(load_both_ways, arena_args, 32, 1)
{
    SHARED_MEMORY(sh);
    for (int i = THREAD; i < 32; i += 32)
        memcpy(sh + 16 * i, a.to->matrix[i / 8][i % 8], 16);
    SYNC();
    LDSM4(a.to->loaded[0][LANE], sh + 16 * LANE);
    LDSM4T(a.to->loaded[1][LANE], sh + 16 * LANE);
}

/* As the PTX manual draws the fragments of ldmatrix: threads 0 to 3 hold row 0, two elements each,
 * threads 4 to 7 row 1; with .trans they hold columns. */
static void test_ldmatrix(void **state)
{
    (void)state;
    static arena m;
    for (int i = 0; i < 256; i++)
        m.matrix[i / 64][i / 8 % 8][i % 8] = (u16)i;
    const arena_args args = {&m};
    emulation_reset();
    assert_null(emulation_run(&(emulation_launch){load_both_ways, &args, 1, 32, 512, 0}));
    assert_int_equal(emulation_read().conflicts, 0);
    for (int l = 0; l < 32; l++)
        for (int i = 0; i < 4; i++) {
            const u32 at = (u32)(64 * i + 8 * (l / 4) + 2 * (l % 4));
            const u32 across = (u32)(64 * i + 8 * (2 * (l % 4)) + l / 4);
            assert_int_equal(m.loaded[0][l][i], at | (at + 1) << 16);
            assert_int_equal(m.loaded[1][l][i], across | (across + 8) << 16);
        }
}

/* One kernel for each mistake that the emulation must find. */
enum { PARTED, ABSENT, NOT_WAITED, OUTSIDE, CONFLICTS, EARLY };

KERNEL(make_a_mistake, arena_args, 64, 1)
{
    SHARED_MEMORY(sh);
    const int mistake = a.to->misuse;
    u32 r[4];
    if (mistake == PARTED) {
        if (LANE < 16)
            a.to->loaded[0][0][0] = (u32)WARP_ANY(1);
        else
            a.to->loaded[0][0][1] = (u32)WARP_ANY(1);
    }
    if (mistake == ABSENT && THREAD != 5)
        SYNC();
    if (mistake == NOT_WAITED || mistake == EARLY) {
        cp16(sh + 16 * THREAD, (const u8 *)a.to->matrix, 1);
        cp_commit();
        if (mistake == EARLY) {
            memcpy(&a.to->loaded[0][0][0], sh + 16 * THREAD, 4);
            CP_WAIT(0);
            memcpy(&a.to->loaded[0][0][1], sh + 16 * THREAD, 4);
        }
    }
    if (mistake == OUTSIDE)
        LDSM4(r, sh + 16 * (THREAD + 1));
    if (mistake == CONFLICTS)
        LDSM4(r, sh + 128 * (LANE & 7));
}

static const char *run_mistake(int mistake, arena *m)
{
    m->misuse = mistake;
    const arena_args args = {m};
    return emulation_run(&(emulation_launch){make_a_mistake, &args, 1, 64, 1024, 2});
}

static void test_mistakes_are_found(void **state)
{
    (void)state;
    static _Alignas(16) arena m;
    assert_non_null(strstr(run_mistake(PARTED, &m), "lanes of a warp at lines"));
    assert_non_null(strstr(run_mistake(ABSENT, &m), "waits for ever at barrier 0"));
    assert_non_null(strstr(run_mistake(NOT_WAITED, &m), "never waits for a copy"));
    assert_non_null(strstr(run_mistake(OUTSIDE, &m), "ldmatrix out of shared memory"));
    m.matrix[0][0][0] = 3;
    assert_null(run_mistake(EARLY, &m));
    assert_int_equal(m.loaded[0][0][0], 0xffffffffu);
    assert_int_equal(m.loaded[0][0][1], 3);
    emulation_reset();
    assert_null(run_mistake(CONFLICTS, &m));
    assert_int_equal(emulation_read().conflicts, 2 * 4 * 7);
}

/* Against the conversion of the library, every half and values around each step of its rounding. */
static void test_halves(void **state)
{
    (void)state;
    tess_ctx *ctx = NULL;
    CHECK_OK(tess_ctx_create(NULL, &ctx));
    for (u32 h = 0; h < 0x10000; h++) {
        const u16 half = (u16)h;
        float value, near[3];
        u16 want[3];
        CHECK_OK(tess_convert(ctx, TESS_DTYPE_F16, &half, TESS_DTYPE_F32, &value, 1));
        const float got = emulation_fp16(half);
        assert_true(got == value || (isnan(got) && isnan(value)));
        if (isnan(value) || isinf(value))
            continue;
        const float next = emulation_fp16((u16)(h + 1)), middle = (value + next) / 2;
        near[0] = value;
        near[1] = isfinite(middle) ? middle : value;
        near[2] = nextafterf(near[1], value);
        CHECK_OK(tess_convert(ctx, TESS_DTYPE_F32, near, TESS_DTYPE_F16, want, 3));
        for (int i = 0; i < 3; i++)
            assert_int_equal(round_fp16(near[i]), want[i]);
    }
    tess_ctx_destroy(ctx);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_fragments_are_those_of_cute),
    cmocka_unit_test(test_ldmatrix),
    cmocka_unit_test(test_mistakes_are_found),
    cmocka_unit_test(test_halves),
};
RUN_TESTS(tests)
