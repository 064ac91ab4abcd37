/* SPDX-License-Identifier: Apache-2.0 */
/* work_queue.c - a queue of work items in ascending order: next, wait for an earlier item, stop.
 *
 * OpenMP's dynamic schedule may issue items in any order; where an item waits for an earlier
 * one, ascending order is what makes waiting safe: the earlier item is finished or on another
 * thread.
 */
#include "attention.h"

#include <omp.h>
#include <sched.h>

enum { REPORT_NS = 50 * 1000 * 1000, SPINS = 200 };

/* Thread 0 of the region is the thread that made the call, as OpenMP promises: for MPI too it is
 * the one that may. */
static void report(tess__work_queue *run)
{
    if (!run->ctx->progress || omp_get_thread_num() != 0)
        return;
    const int64_t now = tess_clock_ns();
    if (run->reported && now - run->reported < REPORT_NS)
        return;
    run->reported = now;
    const int64_t next = atomic_load(&run->next), done = next < run->total ? next : run->total;
    const int64_t whole = run->whole ? run->whole : run->total;
    if (tess__progress(run->ctx, run->what, run->before + done, whole) != TESS_OK)
        atomic_store(&run->stopped, 1);
}

void tess__work_queue_meanwhile(const tess__work_queue *run)
{
    if (run->meanwhile && omp_get_thread_num() == 0)
        run->meanwhile(run->meanwhile_user);
}

int64_t tess__work_queue_next(tess__work_queue *run)
{
    report(run);
    tess__work_queue_meanwhile(run);
    if (atomic_load(&run->stopped))
        return -1;
    const int64_t item = atomic_fetch_add(&run->next, 1);
    return item < run->total ? item : -1;
}

int tess__work_queue_wait(const tess__work_queue *run, const _Atomic int64_t *finished,
                          int64_t value)
{
    for (int spins = 0; atomic_load_explicit(finished, memory_order_acquire) <= value; spins++) {
        if (atomic_load(&run->stopped))
            return 0;
        if (spins >= SPINS)
            sched_yield();
    }
    return 1;
}

tess_status tess__work_queue_end(const tess__work_queue *run)
{
    if (atomic_load(&run->stopped))
        return tess__fail(TESS_ESTOPPED, "stopped by the caller while %s", run->what);
    return TESS_OK;
}
