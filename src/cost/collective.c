/* SPDX-License-Identifier: Apache-2.0 */
/* collective.c - time of a collective: NCCL's algorithms and protocols, and the fastest of them.
 *
 * Of S bytes on n GPUs, m nodes of k (ring, for each protocol):
 *
 *   ns = call + extra + channel * (channels - 1) + hops + wire / (bandwidth * share) + rounds
 *
 *   hops      steps in a node * hop + steps between nodes * net_hop
 *             ring: 2 (n-1), n-1 or n-1 steps; 2 m, m or m-1 of them between nodes
 *             tree: 2 (k-1) inside, 2 floor(log2 m) between
 *   wire      ring: 2 (n-1)/n S, (n-1)/n S or S; tree: 2 S
 *   channels  S / (bytes that keep one busy), at least 1
 *   rounds    loop * (S / (n * 24 MiB) - 1), where Simple's buffers are filled again and again
 *
 * Small messages cost hops and channels, large ones bandwidth; a protocol with dearer hops moves
 * more. NVLS sends S (n+1)/n through the switch. Pairs exchange over links and adapters at the same
 * time. Every value is a sum of quotients of doubles: the same on every machine. About 0.1 us.
 */
#include "cost_internal.h"

typedef struct {
    const tess_collective_params *p;
    const tess_cluster_info *info;
    tess_collective_op op;
    int algorithms; /* bits */
    double bytes;
    int gpus, nodes, per_node;
    double network; /* bytes/s of a ring over the adapters that these GPUs drive */
} problem;

static const int all_algorithms = (1 << (TESS_ALGORITHM_PAIRS + 1)) - 1;

/* Bytes that give a channel's threads work: NCCL's threads times bytes of each. */
static const double busy[TESS_PROTOCOLS] = {512.0 * 8.0, 640.0 * 8.0, 512.0 * 64.0};

/* What all channels of Simple hold of one rank's part before they wait. */
static const double round_bytes = 24.0 * 1048576.0;

/* Trees over three or more nodes reach 17.8 of the 23.6 GB/s a channel that they reach over two. */
static const double deep_tree = 17.8 / 23.6;

static int floor_log2(int n)
{
    int log = 0;
    while (n >> (log + 1))
        log++;
    return log;
}

/* ---- what an op moves ----------------------------------------------------------------------- */

/* Steps of its ring; how many of them are between nodes; the share of S that passes each link. */
typedef struct {
    int steps, between;
    double wire;
} ring_shape;

static ring_shape shape_of(const problem *q)
{
    const int n = q->gpus, m = q->nodes > 1 ? q->nodes : 0;
    const double once = (double)(n - 1) / n;
    ring_shape s = {n - 1, m, once};
    if (q->op == TESS_ALL_REDUCE)
        s = (ring_shape){2 * (n - 1), 2 * m, 2.0 * once};
    else if (q->op == TESS_BROADCAST)
        s = (ring_shape){n - 1, m ? m - 1 : 0, 1.0};
    if (s.between > s.steps)
        s.between = s.steps;
    return s;
}

/* busbw / algbw, as nccl-tests define it. */
static double bus_factor(tess_collective_op op, int n)
{
    const double once = n > 1 ? (double)(n - 1) / n : 1.0;
    if (op == TESS_ALL_REDUCE)
        return 2.0 * once;
    return op == TESS_BROADCAST || op == TESS_SEND_RECEIVE ? 1.0 : once;
}

/* ---- algorithms ------------------------------------------------------------------------------ */

static double share_of(const tess_collective_params *p, tess_protocol protocol)
{
    return protocol == TESS_PROTOCOL_LL      ? p->share_ll
           : protocol == TESS_PROTOCOL_LL128 ? p->share_ll128
                                             : 1.0;
}

/* A ring's links and adapters move the same bytes, so the slower of them sets its pace. */
static double ring_bandwidth(const problem *q)
{
    const tess_collective_params *p = q->p;
    const int n = q->per_node;
    double inside = p->ring;
    if (n <= TESS_COLLECTIVE_GPUS_MAX && p->ring_by_gpus[n] > 0.0)
        inside = p->ring_by_gpus[n];
    if (q->nodes == 1)
        return inside;
    return n == 1 ? q->network : TESS_MIN(inside, q->network);
}

typedef struct {
    double ns;
    tess_algorithm algorithm;
    tess_protocol protocol;
    double channels;
} offer;

static void consider(offer *best, offer one)
{
    if (best->ns < 0.0 || one.ns < best->ns)
        *best = one;
}

/* call, extra and channels: what a call costs before its hops. */
static double opening(const problem *q, tess_protocol protocol, double bytes, double *channels)
{
    const tess_collective_params *p = q->p;
    *channels = TESS_MIN(TESS_MAX(bytes / busy[protocol], 1.0), p->channels);
    return p->call + p->extra[protocol] + p->channel * (*channels - 1.0);
}

static offer ring(const problem *q, tess_protocol protocol)
{
    const tess_collective_params *p = q->p;
    const ring_shape s = shape_of(q);
    offer o = {.algorithm = TESS_ALGORITHM_RING, .protocol = protocol};
    o.ns = opening(q, protocol, q->bytes / q->gpus, &o.channels);
    o.ns += (s.steps - s.between) * p->hop[TESS_ALGORITHM_RING][protocol] +
            s.between * p->net_hop[TESS_ALGORITHM_RING][protocol];
    o.ns += q->bytes * s.wire * 1e9 / (ring_bandwidth(q) * share_of(p, protocol));
    if (protocol == TESS_PROTOCOL_SIMPLE && q->nodes == 1)
        o.ns += p->loop * TESS_MAX(q->bytes / (q->gpus * round_bytes) - 1.0, 0.0);
    return o;
}

/* A rank takes part in two trees, each with half of the bytes and its own channels. */
static offer tree(const problem *q, tess_protocol protocol)
{
    const tess_collective_params *p = q->p;
    offer o = {.algorithm = TESS_ALGORITHM_TREE, .protocol = protocol};
    o.ns = opening(q, protocol, q->bytes * 2.0, &o.channels);
    o.ns += 2 * (q->per_node - 1) * p->hop[TESS_ALGORITHM_TREE][protocol] +
            2 * floor_log2(q->nodes) * p->net_hop[TESS_ALGORITHM_TREE][protocol];
    const double bandwidth = ring_bandwidth(q) * share_of(p, protocol) * p->share_tree *
                             (q->nodes > 2 ? deep_tree : 1.0);
    o.ns += 2.0 * q->bytes * 1e9 / bandwidth;
    return o;
}

static offer nvls(const problem *q)
{
    const tess_collective_params *p = q->p;
    const int deep = q->nodes > 1;
    offer o = {.algorithm = deep ? TESS_ALGORITHM_NVLS_TREE : TESS_ALGORITHM_NVLS,
               .protocol = TESS_PROTOCOL_SIMPLE,
               .channels = p->channels};
    const double inside = q->bytes * (q->per_node + 1) / q->per_node * 1e9 / p->nvls_bandwidth;
    const double between = deep ? 2.0 * q->bytes * 1e9 / q->network : 0.0;
    o.ns = p->call + p->nvls + TESS_MAX(inside, between) +
           2 * floor_log2(q->nodes) * p->net_hop[TESS_ALGORITHM_TREE][TESS_PROTOCOL_SIMPLE];
    return o;
}

/* Every rank with every other: links and adapters work side by side. */
static offer pairs(const problem *q)
{
    const tess_collective_params *p = q->p;
    const tess_cluster_info *info = q->info;
    offer o = {.algorithm = TESS_ALGORITHM_PAIRS, .protocol = TESS_PROTOCOL_SIMPLE};
    const int one = q->op == TESS_SEND_RECEIVE;
    const double near = one ? (q->nodes == 1) : (double)(q->per_node - 1) / q->gpus;
    const double far = one ? (q->nodes > 1) : (double)(q->gpus - q->per_node) / q->gpus;
    const double inside =
        near > 0.0 ? q->bytes * near * 1e9 / (info->link_bandwidth * info->link_efficiency) : 0.0;
    const double nic = q->network / q->per_node;
    const double between = far > 0.0 ? q->bytes * far * 1e9 / nic : 0.0;
    o.ns = opening(q, TESS_PROTOCOL_SIMPLE, q->bytes, &o.channels);
    o.ns += (q->nodes > 1 ? p->net_hop : p->hop)[TESS_ALGORITHM_RING][TESS_PROTOCOL_SIMPLE];
    o.ns += TESS_MAX(inside, between);
    return o;
}

/* ---- the choice ------------------------------------------------------------------------------ */

static offer choose(const problem *q)
{
    offer best = {.ns = -1.0};
    const int ring_allowed = q->algorithms & 1 << TESS_ALGORITHM_RING;
    const int tree_allowed = q->algorithms & 1 << TESS_ALGORITHM_TREE;
    const int nvls_allowed =
        q->algorithms & (1 << TESS_ALGORITHM_NVLS | 1 << TESS_ALGORITHM_NVLS_TREE);
    if (q->gpus == 1) /* it has everything, in place */
        return (offer){0.0, TESS_ALGORITHM_RING, TESS_PROTOCOL_LL, 0.0};
    if (q->op == TESS_ALL_TO_ALL || q->op == TESS_SEND_RECEIVE)
        return pairs(q);
    for (int protocol = 0; protocol < TESS_PROTOCOLS; protocol++) {
        if (ring_allowed)
            consider(&best, ring(q, (tess_protocol)protocol));
        if (tree_allowed && q->op == TESS_ALL_REDUCE && q->nodes > 1)
            consider(&best, tree(q, (tess_protocol)protocol));
    }
    if (nvls_allowed && q->op == TESS_ALL_REDUCE && q->p->nvls_bandwidth > 0.0 &&
        q->per_node >= q->p->nvls_gpus)
        consider(&best, nvls(q));
    return best;
}

/* Adapters that k GPUs of a node drive, of the bandwidth that all of them give a ring. */
static double network_of(const tess_cluster_info *info, int k)
{
    if (info->nics == 0)
        return 0.0;
    const double each = TESS_MAX((double)info->nics / info->node_gpus, 1.0);
    return info->collectives.network * TESS_MIN(k * each / info->nics, 1.0);
}

void tess__collective_ns(const tess_cluster_info *info, const tess_collective *work,
                         tess_collective_result *result)
{
    const int k = work->per_node ? work->per_node : info->node_gpus;
    const int per_node = k < work->gpus ? k : work->gpus;
    problem q = {.p = &info->collectives,
                 .info = info,
                 .op = work->op,
                 .algorithms = work->algorithms ? work->algorithms : all_algorithms,
                 .bytes = (double)work->bytes,
                 .gpus = work->gpus,
                 .nodes = (work->gpus + per_node - 1) / per_node,
                 .per_node = per_node,
                 .network = network_of(info, per_node)};
    offer best = choose(&q);
    if (best.ns < 0.0) {
        q.algorithms = all_algorithms;
        best = choose(&q);
    }
    *result = (tess_collective_result){.ns = tess__ns(best.ns),
                                       .algorithm = best.algorithm,
                                       .protocol = best.protocol,
                                       .channels = (int)(best.channels + 0.5)};
    result->algbw = best.ns > 0.0 ? q.bytes * 1e9 / best.ns : 0.0;
    result->busbw = result->algbw * bus_factor(work->op, work->gpus);
}

tess_status tess_collective_time(const tess_cluster *cluster, const tess_collective *work,
                                 tess_collective_result *result)
{
    TESS_REQUIRE(cluster, work, result);
    TESS_TRY(
        tess__check_enum(__func__, "op", (int)work->op, TESS_COLLECTIVE_OPS, "tess_collective_op"));
    if (work->bytes < 0 || work->bytes > (int64_t)1 << 53)
        return tess__invalid(__func__, "bytes is %lld, must be 0..2^53", (long long)work->bytes);
    TESS_TRY(tess__check_range(__func__, "gpus", work->gpus, 1, 1 << 20));
    if (work->per_node < 0 || work->per_node > cluster->info.node_gpus)
        return tess__invalid(__func__, "per_node is %d, must be 0..%d, the GPUs of a node",
                             work->per_node, cluster->info.node_gpus);
    const int per_node = work->per_node ? work->per_node : cluster->info.node_gpus;
    if (work->gpus > per_node && !cluster->info.nics)
        return tess__fail(TESS_ENOTSUP, "cluster %s: %d GPUs, %d in a node, need a network",
                          cluster->info.name, work->gpus, per_node);
    tess__collective_ns(&cluster->info, work, result);
    return TESS_OK;
}

/* ---- names ----------------------------------------------------------------------------------- */

const char *const tess__collective_names[TESS_COLLECTIVE_OPS] = {
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send_receive"};

const char *tess_collective_name(tess_collective_op op)
{
    return (unsigned)op < TESS_COLLECTIVE_OPS ? tess__collective_names[op] : NULL;
}

const char *tess_nccl_test_name(tess_collective_op op)
{
    static const char *const names[TESS_COLLECTIVE_OPS] = {"all_reduce_perf",     "all_gather_perf",
                                                           "reduce_scatter_perf", "alltoall_perf",
                                                           "broadcast_perf",      "sendrecv_perf"};
    return (unsigned)op < TESS_COLLECTIVE_OPS ? names[op] : NULL;
}

const char *tess_algorithm_name(tess_algorithm algorithm)
{
    static const char *const names[] = {"ring", "tree", "NVLS", "NVLS tree", "pairs"};
    return (unsigned)algorithm <= TESS_ALGORITHM_PAIRS ? names[algorithm] : NULL;
}

const char *tess_protocol_name(tess_protocol protocol)
{
    static const char *const names[TESS_PROTOCOLS] = {"LL", "LL128", "Simple"};
    return (unsigned)protocol < TESS_PROTOCOLS ? names[protocol] : NULL;
}
