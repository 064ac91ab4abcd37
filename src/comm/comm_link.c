/* SPDX-License-Identifier: Apache-2.0 */
/* comm_link.c - virtual time of messages over injected links.
 *
 * A message of n bytes occupies the sender's link from s for n / bandwidth, and the receiver's link
 * as long from s + latency, or from when that link is free:
 *
 *   sender    ......|== n / bandwidth ==|
 *                   s
 *   receiver  ...........|== n / bandwidth ==|
 *                   s + latency              arrived
 *
 * The receiver's link serves messages in the order in which they left, request by request: a
 * function of virtual times alone, independent of thread scheduling.
 */
#include "comm_thread.h"

static int64_t transfer_ns(const tess_link *link, int remote, int64_t bytes)
{
    const double bandwidth = remote ? link->network_bandwidth : link->bandwidth;
    return bandwidth > 0.0 ? (int64_t)((double)bytes * 1e9 / bandwidth + 0.5) : 0;
}

int64_t tess__link_leave(const tess_link *link, tess__clock *clock, int remote, int64_t bytes,
                         int64_t *sent)
{
    const int64_t leaves = TESS_MAX(clock->now, clock->out[remote]);
    *sent = clock->out[remote] = leaves + transfer_ns(link, remote, bytes);
    return leaves;
}

int64_t tess__link_arrive(const tess_link *link, tess__clock *clock, int remote, int64_t bytes,
                          int64_t leaves)
{
    const int64_t latency = remote ? link->network_latency : link->latency;
    clock->in[remote] =
        TESS_MAX(leaves + latency, clock->in[remote]) + transfer_ns(link, remote, bytes);
    return clock->in[remote];
}
