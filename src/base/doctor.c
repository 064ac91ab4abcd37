/* SPDX-License-Identifier: Apache-2.0 */
/* doctor.c - gathers what tessera doctor checks: environment, loaded libraries, disk, machine.
 *
 * The environment is read here because the report is about it: launchers and OpenMP read their
 * settings from it, and wrong ones are a common cause of problems.
 */
#define _GNU_SOURCE
#include "doctor.h"

#include "tess_config.h"

#include <errno.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* The first of these variables that holds a number, or 0. */
static int environment_number(const char *const *names, int n)
{
    for (int i = 0; i < n; i++) {
        const char *text = getenv(names[i]);
        if (!text || !*text)
            continue;
        char *end;
        const long value = strtol(text, &end, 10);
        if (!*end && value > 0 && value < 1000000000)
            return (int)value;
    }
    return 0;
}

static int note_runtime(struct dl_phdr_info *info, size_t size, void *user)
{
    static const char *const stems[] = {"libgomp", "libomp", "libiomp5"};
    (void)size;
    tess__facts *f = user;
    const char *slash = strrchr(info->dlpi_name, '/');
    const char *name = slash ? slash + 1 : info->dlpi_name;
    for (size_t i = 0; i < sizeof stems / sizeof stems[0]; i++) {
        const size_t length = strlen(stems[i]);
        /* "libomp." but not "libompt_tool.": the stem ends at a dot or a dash. */
        if (strncmp(name, stems[i], length) != 0 || (name[length] != '.' && name[length] != '-'))
            continue;
        const size_t used = strlen(f->runtimes);
        snprintf(f->runtimes + used, sizeof f->runtimes - used, "%s%s", used ? " " : "", name);
        f->n_runtimes++;
    }
    return 0;
}

static int64_t free_bytes(const char *path)
{
    struct statvfs fs;
    return statvfs(path, &fs) == 0 ? (int64_t)fs.f_bavail * (int64_t)fs.f_frsize : -1;
}

static int directory_error(const char *path)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return errno;
    if (!S_ISDIR(st.st_mode))
        return ENOTDIR;
    return access(path, W_OK) == 0 ? 0 : errno;
}

static const char *best_isa(void)
{
    for (int i = 0; i < tess__isa_total; i++)
        if (!tess__isas[i].test_only && !*tess__isa_missing(i))
            return tess__isas[i].name;
    return "base";
}

static tess_status gather(const tess_ctx *ctx, const tess_doctor_opts *opts, tess__facts *f)
{
    static const char *const limits[] = {"OMP_THREAD_LIMIT"};
    static const char *const worlds[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE",
                                         "SLURM_STEP_NUM_TASKS"};
    static const char *const locals[] = {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"};

    TESS_TRY(tess_machine_query(ctx, &f->machine));
    f->isa = ctx->isa;
    f->isa_best = best_isa();
    f->threads = ctx->threads;
    f->thread_limit = environment_number(limits, 1);
    dl_iterate_phdr(note_runtime, f);
    f->launcher_ranks = environment_number(worlds, 3);
    f->launcher_local = environment_number(locals, 2);
    f->mpi_ranks = opts->mpi_ranks;
    f->shm_free = free_bytes("/dev/shm");
    f->dir = opts->dir ? opts->dir : ".";
    f->dir_error = directory_error(f->dir);
    f->disk_free = free_bytes(f->dir);
    f->disk_wanted = opts->disk_bytes ? opts->disk_bytes : (int64_t)1 << 30;
    f->build_type = TESS_BUILD_TYPE;
    f->sanitizers = TESS_SANITIZERS;
    return TESS_OK;
}

tess_status tess_doctor_run(const tess_ctx *ctx, const tess_doctor_opts *opts, tess_finding_fn fn,
                            void *user)
{
    TESS_REQUIRE(ctx, fn);
    const tess_doctor_opts o = opts ? *opts : (tess_doctor_opts){0};
    TESS_TRY(tess__check_least(__func__, "mpi_ranks", o.mpi_ranks, 0));
    TESS_TRY(tess__check_least(__func__, "disk_bytes", o.disk_bytes, 0));
    tess__facts facts = {0};
    TESS_TRY(gather(ctx, &o, &facts));
    tess__diagnosis found[TESS_DOCTOR_MAX];
    const int n = tess__doctor_judge(&facts, found);
    for (int i = 0; i < n; i++)
        fn(user, &(tess_finding){.level = found[i].level,
                                 .topic = found[i].topic,
                                 .sentence = found[i].sentence,
                                 .advice = found[i].advice});
    return TESS_OK;
}
