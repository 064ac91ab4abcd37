/* SPDX-License-Identifier: Apache-2.0 */
/* test_gpu_host.c - the calls of tessera/advanced/gpu.h over the driver of tests: results, rounds,
 * and every sentence of bad input. */
#include "fake_driver.h"
#include "gpu_passes.h"

#include "gpu/gpu_driver.h"
#include "tessera/advanced/gpu.h"

#include <stdlib.h>

static const gpu_problem problems[] = {
    {1, 2, 64, 70, 130, 32, 1, 0.4, 0},          {1, 1, 128, 100, 90, 10, 1, 0.5, FP16},
    {2, 2, 64, 50, 100, 0, 0, 0.4, TOKEN_MAJOR}, {1, 1, 64, 140, 77, 130, 3, 0.5, FULL},
    {1, 2, 64, 80, 150, 40, 64, 0.6, 0},         {1, 1, 64, 40, 150, 40, 32, 0.6, FULL},
};

/* The tensors of a case on the device. */
typedef struct {
    gpu_case c;
    tess_gpu_selection *sel;
    tess_gpu_attn_shape shape;
    void *memory[9];
    tess_view q, k, v, o, dout, dq, dk, dv;
    float *lse, *dlse;
} device_case;

static void *copy_in(const void *from, size_t bytes)
{
    return memcpy(fake_memory(bytes, 0), from, bytes);
}

static device_case make_device_case(tess_gpu *gpu, const gpu_problem *p, uint64_t seed)
{
    device_case d = {.c = make_case(p, seed)};
    const gpu_case *const c = &d.c;
    const size_t q = (size_t)(p->batch * p->heads * p->tq);
    d.shape.attn = shape_of(c);
    d.q = device_view(c, GPU_Q, copy_in(c->q, device_bytes(c, GPU_Q)));
    d.k = device_view(c, GPU_K, copy_in(c->k, device_bytes(c, GPU_K)));
    d.v = device_view(c, GPU_V, copy_in(c->v, device_bytes(c, GPU_V)));
    d.dout = device_view(c, GPU_DOUT, copy_in(c->dout, device_bytes(c, GPU_DOUT)));
    d.o = device_view(c, GPU_O, fake_memory(device_bytes(c, GPU_O), 0));
    d.dq = device_view(c, GPU_DQ, fake_memory(device_bytes(c, GPU_DQ), 0));
    d.dk = device_view(c, GPU_DK, fake_memory(device_bytes(c, GPU_DK), 0));
    d.dv = device_view(c, GPU_DV, fake_memory(device_bytes(c, GPU_DV), 0));
    d.lse = fake_memory(q * 4, 0);
    d.dlse = copy_in(c->dlse, q * 4);
    tess_sel_shape shape = c->lists.shape; /* as the caller gave it: one size, or bounds */
    if (shape.group > 0)
        shape.bounds_q = NULL;
    if (shape.unit > 0)
        shape.bounds_k = NULL;
    CHECK_OK(tess_gpu_selection_create(gpu, &shape, c->lists.offsets[c->lists.lists], &d.sel));
    CHECK_OK(tess_gpu_selection_upload(d.sel, c->sel, NULL));
    return d;
}

static void free_device_case(device_case *d)
{
    void *const all[] = {d->q.data,  d->k.data,  d->v.data,  d->dout.data, d->o.data,
                         d->dq.data, d->dk.data, d->dv.data, d->lse,       d->dlse};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        fake_free(all[i]);
    tess_gpu_selection_destroy(d->sel);
    free_case(&d->c);
}

static tess_status run_forward(tess_gpu *gpu, device_case *d)
{
    return tess_gpu_attn_forward(gpu, &d->shape, d->sel, &d->q, &d->k, &d->v, &d->o, d->lse, NULL);
}

static tess_status run_backward(tess_gpu *gpu, device_case *d, void *work, int64_t bytes)
{
    const tess_attn_saved saved = {&d->q, &d->k, &d->v, &d->o, d->lse};
    return tess_gpu_attn_backward(gpu, &d->shape, d->sel, &saved, &d->dout, d->dlse, &d->dq, &d->dk,
                                  &d->dv, work, bytes, NULL);
}

static void check_all(const device_case *d)
{
    check_output(&d->c, d->o.data, d->lse);
    check_gradients(&d->c, d->dq.data, d->dk.data, d->dv.data);
}

static void test_forward_and_backward(void **state)
{
    (void)state;
    tess_gpu *gpu = NULL;
    CHECK_OK(tess_gpu_open(ctx, 0, &gpu));
    for (size_t i = 0; i < sizeof problems / sizeof *problems; i++) {
        gpu_problem p = problems[i];
        p.options |= APART;
        device_case d = make_device_case(gpu, &p, 70 + i);
        const size_t bytes = device_bytes(&d.c, GPU_DK);
        int64_t all = 0, some = 0;
        fake_driver.seed = (unsigned)i + 2;
        CHECK_OK(run_forward(gpu, &d));
        CHECK_OK(tess_gpu_attn_workspace(gpu, &d.shape, d.sel, 0, &all));
        void *work = fake_memory((size_t)all, 0);
        CHECK_OK(run_backward(gpu, &d, work, all));
        check_all(&d);
        float *const dk = memcpy(malloc(bytes), d.dk.data, bytes);
        fake_free(work);

        /* The smallest workspace: as many rounds as it takes, and the same bits. */
        const tess_status refused = tess_gpu_attn_workspace(gpu, &d.shape, d.sel, 1, &some);
        assert_int_equal(refused, TESS_EINVAL);
        const long long least = strtoll(strstr(tess_last_error(), "at least") + 9, NULL, 10);
        CHECK_OK(tess_gpu_attn_workspace(gpu, &d.shape, d.sel, least, &some));
        assert_int_equal(some, least);
        work = fake_memory((size_t)some, 0);
        spoilt(d.dk.data, bytes);
        const long before = fake_driver.launches;
        CHECK_OK(run_backward(gpu, &d, work, some));
        assert_memory_equal(d.dk.data, dk, bytes);
        if (problems[i].unit == 1)
            assert_true(fake_driver.launches - before > 3 + 2 * 2);
        fake_free(work);

        d.shape.atomic = 1;
        CHECK_OK(tess_gpu_attn_workspace(gpu, &d.shape, d.sel, 0, &some));
        work = some > 0 ? fake_memory((size_t)some, 0) : NULL;
        CHECK_OK(run_backward(gpu, &d, work, some));
        check_all(&d);
        if (work)
            fake_free(work);
        free(dk);
        free_device_case(&d);
    }
    tess_gpu_close(gpu);
    assert_int_equal(fake_allocations(), 0);
}

/* Lists made on the device serve attention as those that are uploaded. */
static void test_select_then_attend(void **state)
{
    (void)state;
    enum { TQ = 64, TK = 120, RANK = 8, KEEP = 30, GROUPS = 2, Q_ROW = 12, K_ROW = 20 };
    tess_gpu *gpu = NULL;
    CHECK_OK(tess_gpu_open(ctx, 0, &gpu));
    const gpu_problem p = {1, 1, 64, TQ, TK, 32, 1, 0.9, FULL};
    device_case d = make_device_case(gpu, &p, 5);
    float *const q = fake_memory(GROUPS * Q_ROW * 4, 0), *const k = fake_memory(TK * K_ROW * 4, 0);
    fill_normal(q, GROUPS * Q_ROW, 1);
    fill_normal(k, TK * K_ROW, 2);
    const int32_t keep = KEEP;
    const tess_view vq = {q, TESS_DTYPE_F32, GROUPS * Q_ROW, GROUPS * Q_ROW, Q_ROW};
    const tess_view vk = {k, TESS_DTYPE_F32, TK * K_ROW, TK * K_ROW, K_ROW};
    CHECK_OK(tess_gpu_select(gpu, &(tess_gpu_select_in){&vq, &vk, RANK, &keep}, d.sel, NULL));
    int64_t offsets[GROUPS + 1] = {0, KEEP, 2 * KEEP};
    int32_t indices[2 * KEEP];
    for (int g = 0, n = 0; g < GROUPS; g++)
        for (int j = 0; j < TK; j++) {
            int above = 0;
            double score[2];
            for (int i = 0; i < TK; i++) {
                double *const s = &score[i != j];
                *s = 0.0;
                score[0] = 0.0;
                for (int r = 0; r < RANK; r++) {
                    score[0] += (double)q[g * Q_ROW + r] * k[j * K_ROW + r];
                    *s += i == j ? 0.0 : (double)q[g * Q_ROW + r] * k[i * K_ROW + r];
                }
                above += i != j && score[1] > score[0];
            }
            if (above < KEEP)
                indices[n++] = j;
        }
    CHECK_OK(tess_selection_set_lists(d.c.sel, offsets, indices));
    CHECK_OK(tess_selection_view(d.c.sel, &d.c.lists));
    CHECK_OK(run_forward(gpu, &d));
    int64_t bytes = 0;
    CHECK_OK(tess_gpu_attn_workspace(gpu, &d.shape, d.sel, 0, &bytes));
    void *const work = fake_memory((size_t)bytes, 0);
    CHECK_OK(run_backward(gpu, &d, work, bytes));
    check_all(&d);
    fake_free(work);

    const int32_t many = TK + 1;
    CHECK_FAILS(tess_gpu_select(gpu, &(tess_gpu_select_in){&vq, &vk, RANK, &many}, d.sel, NULL),
                TESS_EINVAL, "tess_gpu_select: keep[0] is 121, must be 0..120");
    CHECK_FAILS(tess_gpu_select(gpu, &(tess_gpu_select_in){&vq, &vk, 65, &keep}, d.sel, NULL),
                TESS_EINVAL, "tess_gpu_select: rank is 65, must be 1..64");
    fake_free(q);
    fake_free(k);
    free_device_case(&d);
    tess_gpu_close(gpu);
    assert_int_equal(fake_allocations(), 0);
}

static void test_opening(void **state)
{
    (void)state;
    tess_gpu *gpu = NULL;
    tess_gpu_info info;
    const fake_driver_setup before = fake_driver;
    CHECK_OK(tess_gpu_open(ctx, 1, &gpu));
    CHECK_OK(tess_gpu_query(gpu, &info));
    assert_string_equal(info.name, "emulation 1");
    assert_int_equal(info.driver, 12040);
    assert_int_equal(info.major, 8);
    tess_gpu_close(gpu);
    gpu = NULL;
    CHECK_FAILS(tess_gpu_open(ctx, 2, &gpu), TESS_ENOTSUP,
                "tess_gpu_open: device is 2, the driver has 2");
    CHECK_FAILS(tess_gpu_open(ctx, -1, &gpu), TESS_EINVAL,
                "tess_gpu_open: device is -1, must be 0 or more");
    fake_driver.version = 10020;
    CHECK_FAILS(tess_gpu_open(ctx, 0, &gpu), TESS_ENOTSUP,
                "tess_gpu_open: the driver is of CUDA 10.2, must be 11.0 or later");
    fake_driver = before;
    fake_driver.major = 7;
    fake_driver.minor = 5;
    CHECK_FAILS(tess_gpu_open(ctx, 0, &gpu), TESS_ENOTSUP,
                "tess_gpu_open: emulation 0 has compute capability 7.5, must be 8.0 or later");
    fake_driver = before;
    fake_driver.load_result = 209;
    CHECK_FAILS(tess_gpu_open(ctx, 0, &gpu), TESS_ENOTSUP,
                "tess_gpu_open: the image has no code for compute capability 8.0: none, a test's");
    fake_driver = before;
    fake_driver.version = 11080;
    fake_driver.load_result = 222;
    CHECK_FAILS(
        tess_gpu_open(ctx, 0, &gpu), TESS_ENOTSUP,
        "tess_gpu_open: cuModuleLoadData of the driver: CUDA_ERROR_UNSUPPORTED_PTX_VERSION "
        "(222); the driver is of CUDA 11.8, the image was made by nvcc of 12.0: take a newer "
        "driver, or an older nvcc");
    fake_driver = before;
    assert_null(gpu);
    assert_int_equal(fake_contexts(), 0);
}

/* Lists on another device: their memory must not come to a kernel of this one. */
static void test_lists_of_another_device(void **state)
{
    (void)state;
    tess_gpu *gpu = NULL, *other = NULL;
    CHECK_OK(tess_gpu_open(ctx, 0, &gpu));
    CHECK_OK(tess_gpu_open(ctx, 1, &other));
    device_case d = make_device_case(other, &problems[0], 70);
    const long before = fake_driver.launches;
    const float features[4] = {0};
    const tess_view none = {(void *)(uintptr_t)features, TESS_DTYPE_F32, 4, 4, 4};
    const int32_t keep[2] = {1, 1};
    int64_t bytes = 7;
    CHECK_FAILS(run_forward(gpu, &d), TESS_EINVAL,
                "tess_gpu_attn_forward: the selection is on device 1, must be on device 0");
    CHECK_FAILS(run_backward(gpu, &d, NULL, 0), TESS_EINVAL,
                "tess_gpu_attn_backward: the selection is on device 1, must be on device 0");
    CHECK_FAILS(tess_gpu_attn_workspace(gpu, &d.shape, d.sel, 0, &bytes), TESS_EINVAL,
                "tess_gpu_attn_workspace: the selection is on device 1, must be on device 0");
    CHECK_FAILS(tess_gpu_select(gpu, &(tess_gpu_select_in){&none, &none, 4, keep}, d.sel, NULL),
                TESS_EINVAL, "tess_gpu_select: the selection is on device 1, must be on device 0");
    assert_int_equal(bytes, 7);
    assert_int_equal(fake_driver.launches, before);
    free_device_case(&d);
    tess_gpu_close(other);
    tess_gpu_close(gpu);
    assert_int_equal(fake_contexts(), 0);
}

static void test_bad_input(void **state)
{
    (void)state;
    tess_gpu *gpu = NULL;
    tess_gpu_selection *other = NULL;
    CHECK_OK(tess_gpu_open(ctx, 0, &gpu));
    device_case d = make_device_case(gpu, &problems[0], 70);
    const device_case good = d;
    const long before = fake_driver.launches;
    char sentence[200];
#define FORWARD_FAILS(status, text)                                                                \
    do {                                                                                           \
        CHECK_FAILS(run_forward(gpu, &d), status, "tess_gpu_attn_forward: " text);                 \
        d = good;                                                                                  \
    } while (0)
    d.shape.attn.head_dim = 96;
    FORWARD_FAILS(TESS_ENOTSUP, "head_dim is 96, must be 64 or 128");
    d.shape.attn.compensate = 1;
    FORWARD_FAILS(TESS_ENOTSUP, "compensate is 1, must be 0: there are no virtual keys");
    d.shape.attn.scale = -1.0f;
    FORWARD_FAILS(TESS_EINVAL, "scale is -1, must be positive, or 0 for 1/sqrt(head_dim)");
    d.shape.attn.tokens_k = 129;
    FORWARD_FAILS(TESS_EINVAL,
                  "the selection is of 1 x 2 heads with 70 queries and 130 keys, must be of 1 x 2 "
                  "with 70 and 129");
    d.q.dtype = TESS_DTYPE_F32;
    FORWARD_FAILS(TESS_ENOTSUP, "q.dtype is F32, must be BF16 or F16");
    d.v.dtype = TESS_DTYPE_F16;
    FORWARD_FAILS(TESS_EINVAL, "v.dtype is F16, must be BF16");
    d.k.stride_s = 60;
    FORWARD_FAILS(TESS_EINVAL, "k.stride_s is 60, must be a multiple of 8 from 0");
    d.o.stride_s = (int64_t)1 << 31;
    FORWARD_FAILS(TESS_EINVAL, "o.stride_s is 2147483648, must be at most 1073741816");
    d.q.data = (char *)d.q.data + 2;
    snprintf(sentence, sizeof sentence,
             "tess_gpu_attn_forward: q.data is %p, must be a multiple of 16 bytes", d.q.data);
    CHECK_FAILS(run_forward(gpu, &d), TESS_EINVAL, sentence);
    d = good;
    d.k.data = fake_memory(16, 1);
    CHECK_FAILS(run_forward(gpu, &d), TESS_EINVAL,
                "tess_gpu_attn_forward: k.data is memory of device 1, must be of device 0");
    fake_free(d.k.data);
    d = good;
    d.lse = NULL;
    FORWARD_FAILS(TESS_EINVAL, "lse is NULL");
    float host;
    d.lse = &host;
    snprintf(sentence, sizeof sentence,
             "tess_gpu_attn_forward: lse is %p, must be memory of device 0", (void *)&host);
    CHECK_FAILS(run_forward(gpu, &d), TESS_EINVAL, sentence);
    d = good;
    fake_driver.shared_bytes = 99 * 1024;
    CHECK_OK(run_forward(gpu, &d));
    fake_driver.shared_bytes = 163 * 1024;

    tess_sel_shape shape = {
        .batch = 1, .heads = 2, .tokens_q = 70, .tokens_k = 130, .group = 32, .unit = 1};
    CHECK_OK(tess_gpu_selection_create(gpu, &shape, 5, &other));
    CHECK_FAILS(tess_gpu_selection_upload(other, d.c.sel, NULL), TESS_EINVAL,
                (snprintf(sentence, sizeof sentence,
                          "tess_gpu_selection_upload: the selection has %lld indices, the capacity "
                          "is 5",
                          (long long)d.c.lists.offsets[d.c.lists.lists]),
                 sentence));
    tess_gpu_selection_destroy(other);
    shape.group = 16;
    CHECK_OK(tess_gpu_selection_create(gpu, &shape, 9000, &other));
    CHECK_FAILS(tess_gpu_selection_upload(other, d.c.sel, NULL), TESS_EINVAL,
                "tess_gpu_selection_upload: the selection has another shape than the one on the "
                "device");
    tess_gpu_selection_destroy(other);
    shape.tokens_k = ((int64_t)1 << 30) + 1;
    CHECK_FAILS(tess_gpu_selection_create(gpu, &shape, 5, &other), TESS_EINVAL,
                "tess_gpu_selection_create: tokens_k is 1073741825, must be at most 1073741824");
    CHECK_FAILS(run_backward(gpu, &d, NULL, 100), TESS_EINVAL,
                (tess_gpu_attn_workspace(gpu, &d.shape, d.sel, 1, &(int64_t){0}),
                 snprintf(sentence, sizeof sentence,
                          "tess_gpu_attn_backward: work_bytes is 100, must be at least %s",
                          strstr(tess_last_error(), "at least") + 9),
                 run_backward(gpu, &d, NULL, 100), sentence));
    assert_int_equal(fake_driver.launches - before, 1); /* the one that succeeded */

    /* What fails on the device is named by the call that receives it. */
    fake_driver.launch_result = 719;
    CHECK_FAILS(
        run_forward(gpu, &d), TESS_ENOTSUP,
        "tess_gpu_attn_forward: cuLaunchKernel of the driver: CUDA_ERROR_LAUNCH_FAILED (719), "
        "after the kernel forward_d64_g32_bf16");
    fake_driver.launch_result = 0;
    free_device_case(&d);
    tess_gpu_close(gpu);
    assert_int_equal(fake_allocations(), 0);
}

/* No tokens, no keys, no lists: nothing is launched but what makes gradients 0. */
static void test_nothing(void **state)
{
    (void)state;
    tess_gpu *gpu = NULL;
    tess_gpu_selection *sel = NULL;
    CHECK_OK(tess_gpu_open(ctx, 0, &gpu));
    const tess_sel_shape shape = {
        .batch = 1, .heads = 1, .tokens_q = 0, .tokens_k = 0, .group = 32, .unit = 1};
    const tess_gpu_attn_shape attn = {{.batch = 1, .heads = 1, .head_dim = 64}, 0};
    const tess_view none = {.dtype = TESS_DTYPE_BF16}, gradient = {.dtype = TESS_DTYPE_F32};
    const tess_attn_saved saved = {&none, &none, &none, &none, NULL};
    const long before = fake_driver.launches;
    int64_t bytes = 7;
    CHECK_OK(tess_gpu_selection_create(gpu, &shape, 0, &sel));
    CHECK_OK(tess_gpu_attn_forward(gpu, &attn, sel, &none, &none, &none, &none, NULL, NULL));
    CHECK_OK(tess_gpu_attn_workspace(gpu, &attn, sel, 0, &bytes));
    assert_int_equal(bytes, 0);
    CHECK_OK(tess_gpu_attn_backward(gpu, &attn, sel, &saved, &none, NULL, &gradient, &gradient,
                                    &gradient, NULL, 0, NULL));
    assert_int_equal(fake_driver.launches, before);
    tess_gpu_selection_destroy(sel);
    tess_gpu_close(gpu);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_opening),
    cmocka_unit_test(test_forward_and_backward),
    cmocka_unit_test(test_select_then_attend),
    cmocka_unit_test(test_lists_of_another_device),
    cmocka_unit_test(test_bad_input),
    cmocka_unit_test(test_nothing),
};
RUN_GPU_TESTS(tests)
