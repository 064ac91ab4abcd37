/* SPDX-License-Identifier: Apache-2.0 */
/* machine.h - the machine: instruction sets, topology, speed, findings of the doctor; timing,
 * statistics of tensors.
 *
 * Advanced: functions and structs may change in any version.
 */
#ifndef TESSERA_MACHINE_H
#define TESSERA_MACHINE_H

#include "../base.h"

TESS_BEGIN_DECLS

/* ---- the machine ------------------------------------------------------------------------- */

typedef struct {
    const char *name; /* "avx512", "avx2", "neon", "base", "wide"; "amx", "avx512-bf16",
                         "neon-bf16" */
    int bytes;        /* of a vector */
    int available;    /* 1: can be chosen here */
    int test_only;    /* 1: never chosen unless asked for */
    int bf16;         /* 1: multiplies in bf16; all else is as in another set */
    const char *why;  /* why it is not available; "" if it is */
} tess_isa;

TESS_API int tess_isa_count(void);
TESS_API tess_status tess_isa_query(int index, tess_isa *isa); /* best first */

typedef enum {
    TESS_AMX_ABSENT,         /* the CPU or the hypervisor offers none */
    TESS_AMX_REFUSED,        /* the operating system does not grant the tile state */
    TESS_AMX_PALETTE_HIDDEN, /* works, but CPUID leaf 0x1D reads zero: oneDNN and PyTorch crash */
    TESS_AMX_READY,
} tess_amx;

typedef struct {
    char cpu[64], arch[16];
    char topology[16];   /* where it was read: "hwloc" or "sysfs" */
    char features[192];  /* space-separated, as the operating system allows them */
    char huge_pages[16]; /* "always", "madvise", "never", "unknown" */
    int sockets, numa_nodes;
    int cores, cores_usable; /* in the machine; by affinity and container quota */
    int hardware_threads;
    int64_t cache_l1d, cache_l2, cache_l3;  /* bytes of one instance; 0 unknown */
    int64_t memory_total, memory_available; /* bytes, the tighter of machine and container */
    tess_amx amx;
} tess_machine;

TESS_API tess_status tess_machine_query(const tess_ctx *ctx, tess_machine *machine);

/* How a context multiplies where TESS_PRECISION_BF16 is asked for. Unless its instruction set was
 * given, the first call measures the rates of those that this machine has, a few milliseconds each,
 * and keeps the fastest; where none is faster than multiply-adds in fp32, these are used. */
typedef struct {
    tess_precision precision; /* BF16; FP32: bf16 is storage alone */
    const char *isa;          /* that multiplies */
    char why[192];            /* of FP32: why; "" otherwise */
} tess_bf16_use;

TESS_API tess_status tess_bf16_query(tess_ctx *ctx, tess_bf16_use *use);

/* Peaks measured with this context's ISA, on one thread and on all of its threads; disturbed
 * samples are dropped. Takes a second or two. */
typedef struct {
    double flops_one, flops_all; /* fused multiply-adds on registers, FLOP/s */
    double read_one, read_all;   /* bytes/s read from memory, beyond the caches */
    double copy_one, copy_all;   /* bytes/s copied by memcpy (each byte counted once) */
    int kept, dropped;           /* samples */
    struct {
        const char *isa; /* of products in bf16 that this machine has */
        double one, all; /* FLOP/s on registers, on numbers that are not 0 */
    } bf16[4];
    int n_bf16;
} tess_speed;

TESS_API tess_status tess_machine_measure(tess_ctx *ctx, tess_speed *speed);

typedef struct {
    const char *name;    /* "hwloc" */
    const char *version; /* as linked; "" when it was not found */
    const char *effect;  /* what it gives, or what is lost without it */
    int found;
} tess_component;

TESS_API int tess_component_count(void);
TESS_API tess_status tess_component_query(int index, tess_component *component);

/* What would go wrong. Each finding is one call of fn, worst first; the strings live during it. */
typedef enum {
    TESS_FINDING_PROBLEM,
    TESS_FINDING_WARNING,
    TESS_FINDING_NOTE,
    TESS_FINDING_FINE
} tess_finding_level;

typedef struct {
    tess_finding_level level;
    const char *topic;    /* "threads", "openmp", "mpi", "isa", "amx", "memory", "disk", ... */
    const char *sentence; /* what was found, with its numbers */
    const char *advice;   /* what to do about it; "" if nothing */
} tess_finding;

typedef void (*tess_finding_fn)(void *user, const tess_finding *finding);

typedef struct {
    const char *dir;    /* where results will be written; NULL: the current folder */
    int mpi_ranks;      /* ranks of the MPI world this process runs in; 0: no MPI in use */
    int64_t disk_bytes; /* warn below this much free space; 0: 1 GiB */
} tess_doctor_opts;

TESS_API tess_status tess_doctor_run(const tess_ctx *ctx, const tess_doctor_opts *opts,
                                     tess_finding_fn fn, void *user);

/* ---- time -------------------------------------------------------------------------------- */

TESS_API int64_t tess_clock_ns(void); /* monotonic, from an arbitrary start */

typedef struct {
    int samples;     /* undisturbed ones wanted; 0: 7 */
    int samples_max; /* give up after this many; 0: 4 * samples */
    double quiet;    /* a sample counts if the FMA rate before and after it is at least this share
                        of the run's best, and the process was not preempted in it; 0: 0.93 */
    tess_precision probe; /* BF16: probes multiply as TESS_PRECISION_BF16 does in this context */
} tess_timing_opts;

typedef struct {
    double best, median; /* seconds of one call */
    double low, high;    /* quartiles */
    int kept, dropped;   /* samples; the numbers above are over the kept ones */
    int disturbed;       /* 1: fewer than the samples wanted were quiet. With kept 0 the numbers
                            are over all samples */
    double flops;        /* best rate of the probes, all threads of the context */
} tess_timing;

typedef tess_status (*tess_timed_fn)(void *user);

/* Calls fn once to warm up and then until enough samples are undisturbed, probing the FMA peak on
 * the context's threads before and after each. Fails as soon as fn does. */
TESS_API tess_status tess_timing_run(tess_ctx *ctx, const tess_timing_opts *opts, tess_timed_fn fn,
                                     void *user, tess_timing *timing);

/* ---- statistics of a tensor ---------------------------------------------------------------- */

typedef struct {
    int64_t count, nan, inf, zero; /* elements, and how many are NaN, +-infinity, +-0 */
    double min, max;               /* of the elements that are not NaN; NaN if there is none */
    double mean, deviation;        /* of the finite elements (population); NaN if there is none */
} tess_stats;

TESS_API tess_status tess_tensor_stats(const tess_ctx *ctx, const tess_tensor *tensor,
                                       tess_stats *stats);

TESS_END_DECLS

#endif
