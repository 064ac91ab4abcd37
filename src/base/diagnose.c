/* SPDX-License-Identifier: Apache-2.0 */
/* diagnose.c - the doctor's judgement: facts in, one diagnosis per topic out, worst first. */
#include "doctor.h"

#include <string.h>

static const int64_t GIB = (int64_t)1 << 30, MIB = (int64_t)1 << 20;

/* Writes level, sentence and advice; the topic is set by the caller's table. */
static void say(tess__diagnosis *d, tess_finding_level level, const char *advice,
                const char *format, ...) __attribute__((format(printf, 4, 5)));

static void say(tess__diagnosis *d, tess_finding_level level, const char *advice,
                const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(d->sentence, sizeof d->sentence, format, args);
    va_end(args);
    d->level = level;
    d->advice = advice;
}

static double gib(int64_t bytes)
{
    return (double)bytes / (double)GIB;
}

static void threads(const tess__facts *f, tess__diagnosis *d)
{
    const int usable = f->machine.cores_usable;
    const int local = f->launcher_local > 0 ? f->launcher_local : 1;
    if (f->thread_limit > 0 && f->thread_limit < f->threads)
        say(d, TESS_FINDING_PROBLEM,
            "unset OMP_THREAD_LIMIT, or ask for no more threads than it allows",
            "%d threads are asked for, but OMP_THREAD_LIMIT allows %d", f->threads,
            f->thread_limit);
    else if (f->threads > usable)
        say(d, TESS_FINDING_WARNING,
            "use --threads, or widen the CPU affinity or quota of this process",
            "%d threads share %d usable cores: each waits for the others", f->threads, usable);
    else if (local > 1 && local * f->threads > f->machine.cores)
        say(d, TESS_FINDING_WARNING,
            "give each rank its share with --threads, or start fewer ranks",
            "%d ranks on this machine with %d threads each share %d cores", local, f->threads,
            f->machine.cores);
    else if (usable < f->machine.cores)
        say(d, TESS_FINDING_NOTE, "",
            "%d threads; this process may use %d of the machine's %d cores", f->threads, usable,
            f->machine.cores);
    else
        say(d, TESS_FINDING_FINE, "", "%d thread%s on %d usable core%s", f->threads,
            f->threads == 1 ? "" : "s", usable, usable == 1 ? "" : "s");
}

static void openmp(const tess__facts *f, tess__diagnosis *d)
{
    if (f->n_runtimes > 1)
        say(d, TESS_FINDING_WARNING,
            "build Tessera with the compiler whose runtime the host program uses",
            "%d OpenMP runtimes are loaded (%s): each keeps threads of its own, and they compete",
            f->n_runtimes, f->runtimes);
    else
        say(d, TESS_FINDING_FINE, "", "one OpenMP runtime is loaded%s%s", f->n_runtimes ? ": " : "",
            f->runtimes);
}

static void mpi(const tess__facts *f, tess__diagnosis *d)
{
    if (f->launcher_ranks > 1 && f->mpi_ranks == 0)
        say(d, TESS_FINDING_PROBLEM, "rebuild with MPI (TESS_MPI=ON and an MPI that CMake finds)",
            "an MPI launcher started %d processes, but MPI is not in use: each would do the whole "
            "job",
            f->launcher_ranks);
    else if (f->launcher_ranks > 0 && f->mpi_ranks > 0 && f->launcher_ranks != f->mpi_ranks)
        say(d, TESS_FINDING_PROBLEM, "start with the mpirun of the MPI that Tessera was built with",
            "the launcher started %d processes, but MPI sees %d: launcher and library are of "
            "different "
            "MPIs",
            f->launcher_ranks, f->mpi_ranks);
    else if (f->mpi_ranks > 1)
        say(d, TESS_FINDING_FINE, "", "%d ranks, as the launcher says", f->mpi_ranks);
    else
        say(d, TESS_FINDING_FINE, "", "one process, no launcher");
}

/* MPI passes messages between ranks of one machine through /dev/shm; containers often give 64 MiB.
 */
static void shared_memory(const tess__facts *f, tess__diagnosis *d)
{
    const int64_t least = 256 * MIB;
    if (f->shm_free < 0)
        say(d, TESS_FINDING_NOTE, "", "/dev/shm cannot be read");
    else if (f->shm_free < least)
        say(d, f->mpi_ranks > 1 ? TESS_FINDING_WARNING : TESS_FINDING_NOTE,
            "give the container more shared memory (docker run --shm-size=1g)",
            "/dev/shm has %.0f MiB free; MPI between ranks of one machine wants 256 MiB",
            (double)f->shm_free / (double)MIB);
    else
        say(d, TESS_FINDING_FINE, "", "/dev/shm has %.1f GiB free", gib(f->shm_free));
}

static void amx(const tess__facts *f, tess__diagnosis *d)
{
    switch (f->machine.amx) {
    case TESS_AMX_PALETTE_HIDDEN:
        say(d, TESS_FINDING_WARNING,
            "set ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 for other programs on this machine",
            "AMX works, but the hypervisor hides its tile palette: oneDNN and PyTorch die with "
            "SIGILL "
            "on bf16 products here; Tessera does not ask for the palette");
        break;
    case TESS_AMX_REFUSED:
        say(d, TESS_FINDING_NOTE, "a kernel of 5.16 or later grants it",
            "the CPU has AMX, but the operating system refuses the tile state");
        break;
    case TESS_AMX_READY: say(d, TESS_FINDING_FINE, "", "AMX is there and permitted"); break;
    case TESS_AMX_ABSENT: say(d, TESS_FINDING_FINE, "", "no AMX on this machine"); break;
    }
}

static void instructions(const tess__facts *f, tess__diagnosis *d)
{
    if (strcmp(f->isa, f->isa_best) != 0)
        say(d, TESS_FINDING_NOTE, "leave out --isa and TESS_ISA to use the best",
            "%s is in use, but this machine also runs %s", f->isa, f->isa_best);
    else if (strcmp(f->isa, "base") == 0)
        say(d, TESS_FINDING_WARNING, "use a machine with AVX2, AVX-512 or NEON",
            "no instruction set beyond the baseline can be used: kernels run several times slower");
    else
        say(d, TESS_FINDING_FINE, "", "%s, the best this machine runs", f->isa);
}

static void build(const tess__facts *f, tess__diagnosis *d)
{
    if (f->sanitizers[0])
        say(d, TESS_FINDING_NOTE, "use the release preset to measure",
            "built with sanitizers (%s): timings mean nothing", f->sanitizers);
    else if (strcmp(f->build_type, "Release") != 0 && strcmp(f->build_type, "RelWithDebInfo") != 0)
        say(d, TESS_FINDING_NOTE, "use the release preset to measure",
            "a %s build: timings mean nothing", f->build_type[0] ? f->build_type : "plain");
    else
        say(d, TESS_FINDING_FINE, "", "a %s build", f->build_type);
}

static void huge_pages(const tess__facts *f, tess__diagnosis *d)
{
    const char *mode = f->machine.huge_pages;
    if (strcmp(mode, "never") == 0)
        say(d, TESS_FINDING_NOTE,
            "as root: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
            "transparent huge pages are off: large tensors cost more address translation");
    else
        say(d, TESS_FINDING_FINE, "", "transparent huge pages: %s", mode);
}

static void disk(const tess__facts *f, tess__diagnosis *d)
{
    if (f->dir_error)
        say(d, TESS_FINDING_PROBLEM, "name a folder that exists and can be written",
            "%s cannot be written: %s", f->dir, strerror(f->dir_error));
    else if (f->disk_free >= 0 && f->disk_free < f->disk_wanted)
        say(d, TESS_FINDING_WARNING, "free some space, or write elsewhere",
            "%s has %.2f GiB free, less than %.2f GiB", f->dir, gib(f->disk_free),
            gib(f->disk_wanted));
    else
        say(d, TESS_FINDING_FINE, "", "%s can be written and has %.1f GiB free", f->dir,
            gib(f->disk_free));
}

static void memory(const tess__facts *f, tess__diagnosis *d)
{
    const int64_t free_bytes = f->machine.memory_available, all = f->machine.memory_total;
    if (all > 0 && free_bytes < all / 10)
        say(d, TESS_FINDING_WARNING, "end other programs, or expect the kernel to end this one",
            "%.1f GiB of %.1f GiB memory are available", gib(free_bytes), gib(all));
    else
        say(d, TESS_FINDING_FINE, "", "%.1f GiB of %.1f GiB memory are available", gib(free_bytes),
            gib(all));
}

static const struct {
    const char *topic;
    void (*judge)(const tess__facts *, tess__diagnosis *);
} topics[] = {
    {"threads", threads},
    {"openmp", openmp},
    {"mpi", mpi},
    {"isa", instructions},
    {"amx", amx},
    {"memory", memory},
    {"huge pages", huge_pages},
    {"shared memory", shared_memory},
    {"disk", disk},
    {"build", build},
};
enum { TOPICS = sizeof topics / sizeof topics[0] };
_Static_assert((int)TOPICS <= (int)TESS_DOCTOR_MAX, "room for every topic");

int tess__doctor_judge(const tess__facts *facts, tess__diagnosis found[TESS_DOCTOR_MAX])
{
    tess__diagnosis all[TOPICS] = {0};
    for (int i = 0; i < TOPICS; i++) {
        all[i].topic = topics[i].topic;
        topics[i].judge(facts, &all[i]);
    }
    int n = 0;
    for (int level = TESS_FINDING_PROBLEM; level <= TESS_FINDING_FINE; level++)
        for (int i = 0; i < TOPICS; i++)
            if ((int)all[i].level == level)
                found[n++] = all[i];
    return n;
}
