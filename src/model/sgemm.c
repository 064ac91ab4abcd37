/* SPDX-License-Identifier: Apache-2.0 */
/* sgemm.c - one product of oneDNN on the calling thread, safe from signals and lack of memory.
 *
 * Signals. Kernels of oneDNN up to 3.11.1 use the stack pointer as a general register that points
 * into a heap buffer (oneDNN issue 4845), where the kernel of the system would write the frame of
 * any signal that has a handler: so the thread takes none during the call. Two system calls, 0.3 us
 * of the 20 us and more that a block of a product takes.
 *
 * Memory. oneDNN makes the code of its kernels in the first call that needs them, in up to 60
 * buffers of 320 KiB, and writes through NULL where one cannot be had (2.6.3): so all kernels are
 * made before the first product, if there is memory for them.
 */
#include "model_internal.h"

#include <omp.h>
#include <oneapi/dnnl/dnnl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>

#ifdef TESS_PLAIN_GEMM
/* For builds whose sanitizer cannot see into oneDNN's threads. */
int tess__sgemm(const tess__sgemm_call *p)
{
    for (int64_t i = 0; i < p->m; i++)
        for (int64_t j = 0; j < p->n; j++) {
            float sum = p->add ? p->c[i * p->ldc + j] : 0.0f;
            for (int64_t l = 0; l < p->k; l++)
                sum += p->a[p->trans_a == 'T' ? l * p->lda + i : i * p->lda + l] *
                       p->b[p->trans_b == 'T' ? j * p->ldb + l : l * p->ldb + j];
            p->c[i * p->ldc + j] = sum;
        }
    return 0;
}

tess_status tess__sgemm_ready(void)
{
    return TESS_OK;
}
#else
/* All signals but those that the thread itself would cause by a fault. */
static void asynchronous_signals(sigset_t *set)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS};
    sigfillset(set);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        sigdelset(set, faults[i]);
}

int tess__sgemm(const tess__sgemm_call *p)
{
    sigset_t blocked, before;
    asynchronous_signals(&blocked);
    pthread_sigmask(SIG_BLOCK, &blocked, &before);
    const dnnl_status_t status =
        dnnl_sgemm(p->trans_a, p->trans_b, p->m, p->n, p->k, 1.0f, p->a, p->lda, p->b, p->ldb,
                   p->add ? 1.0f : 0.0f, p->c, p->ldc);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return status != dnnl_success;
}

/* Small products of each kind: 2.6.3 makes its 60 kernels in three of them. 35 ms. */
static void make_kernels(void)
{
    enum { MOST = 16 };
    static const char letters[][2] = {{'N', 'T'}, {'N', 'N'}, {'T', 'N'}};
    static const int sides[] = {1, 2, MOST};
    float a[2 * MOST] = {0}, b[2 * MOST] = {0}, c[MOST * MOST];
    for (int kind = 0; kind < 3; kind++)
        for (int i = 0; i < 9; i++) {
            const int m = sides[i / 3], n = sides[i % 3], t = letters[kind][0] == 'T';
            tess__sgemm(&(tess__sgemm_call){letters[kind][0], letters[kind][1], m, n, 2, a,
                                            t ? m : 2, b, kind == 0 ? 2 : n, 0, c, n});
        }
}

tess_status tess__sgemm_ready(void)
{
    enum { BYTES = 32 << 20 };
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static atomic_int ready;
    if (atomic_load_explicit(&ready, memory_order_acquire))
        return TESS_OK;
    pthread_mutex_lock(&mutex);
    void *probe = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (probe != MAP_FAILED) {
        munmap(probe, BYTES);
#pragma omp parallel num_threads(1)
        {
            omp_set_num_threads(1); /* as in linear.c */
            make_kernels();
        }
        atomic_store_explicit(&ready, 1, memory_order_release);
    }
    pthread_mutex_unlock(&mutex);
    return probe != MAP_FAILED ? TESS_OK
                               : tess__fail(TESS_ENOMEM,
                                            "oneDNN has no memory for its kernels, "
                                            "must be %d MiB",
                                            BYTES >> 20);
}
#endif
