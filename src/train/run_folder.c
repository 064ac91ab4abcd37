/* SPDX-License-Identifier: Apache-2.0 */
/* run_folder.c - the folder of a run: its files, the newest checkpoint, deletion of old ones.
 *
 *   settings.json  metrics.jsonl  metrics.csv  samples/step-000300.png
 *   events.out.tfevents.tessera         with tensorboard
 *   lock                                while a run is in progress: run_lock.c
 *   checkpoints/step-000500/ ...        complete, always
 *   checkpoints/.step-001000.tmp/       being written, or left by a killed process
 *   checkpoints/.step-start/            until there is another one: last_good.c
 *
 * A checkpoint is made under the second name and renamed when all of it is on disk; one that is
 * deleted is renamed back to such a name first. So a folder called step-N is always complete; one
 * that cannot be read all the same is skipped with a warning.
 */
#include "train_internal.h"

#include "file/out.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char checkpoints[] = "checkpoints";

tess_status tess__path(char path[PATH_MAX], const char *a, const char *b)
{
    if ((size_t)snprintf(path, PATH_MAX, "%s/%s", a, b) < PATH_MAX)
        return TESS_OK;
    errno = ENAMETOOLONG;
    return tess__fail(TESS_EIO, "%.200s: cannot open: %m", a);
}

tess_status tess__make_folder(const char *path)
{
    struct stat st;
    if (mkdir(path, 0777) == 0 || (errno == EEXIST && stat(path, &st) == 0 && S_ISDIR(st.st_mode)))
        return TESS_OK;
    return tess__fail(TESS_EIO, "%s: cannot create: %m", path);
}

tess_status tess__sync_folder(const char *path)
{
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return tess__fail(TESS_EIO, "%s: cannot open: %m", path);
    const int failed = fsync(fd) != 0 && errno != EINVAL && errno != ENOTSUP && errno != EROFS;
    const int why = errno;
    close(fd);
    errno = why;
    return failed ? tess__fail(TESS_EIO, "%s: cannot write: %m", path) : TESS_OK;
}

void tess__remove_folder(const char *path)
{
    char inside[PATH_MAX];
    DIR *dir = opendir(path);
    for (const struct dirent *e; dir && (e = readdir(dir)) != NULL;) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        if (tess__path(inside, path, e->d_name) == TESS_OK && unlink(inside) != 0)
            tess__remove_folder(inside); /* a link to a folder is unlinked, never entered */
    }
    if (dir)
        closedir(dir);
    rmdir(path);
}

/* ---- checkpoints by their names -------------------------------------------------------------- */

/* The step in "step-000500"; -1 if name is not of that form. */
static int64_t step_of(const char *name)
{
    char *end;
    if (strncmp(name, "step-", 5) != 0 || name[5] < '0' || name[5] > '9')
        return -1;
    errno = 0;
    const long long step = strtoll(name + 5, &end, 10);
    return *end || errno ? -1 : step;
}

static void name_of(int64_t step, char name[48])
{
    snprintf(name, 48, "step-%06lld", (long long)step);
}

/* The highest (sign 1) or lowest (-1) step below or above a bound among the folder's checkpoints,
 * and how many there are; -1 if there is none. */
static int64_t scan(const char *folder, int sign, int64_t bound, int *count)
{
    int64_t found = -1;
    DIR *dir = opendir(folder);
    *count = 0;
    for (const struct dirent *e; dir && (e = readdir(dir)) != NULL;) {
        const int64_t step = step_of(e->d_name);
        *count += step >= 0;
        if (step >= 0 && sign * step < sign * bound && (found < 0 || sign * step > sign * found))
            found = step;
    }
    if (dir)
        closedir(dir);
    return found;
}

/* The newest checkpoint of a folder of them whose state can be read. */
static tess_status newest(tess_ctx *ctx, const char *folder, char path[PATH_MAX], int *found)
{
    char name[48], file[PATH_MAX];
    int count;
    *found = 0;
    for (int64_t step = INT64_MAX; (step = scan(folder, 1, step, &count)) >= 0;) {
        tess__state state;
        name_of(step, name);
        TESS_TRY(tess__path(path, folder, name));
        TESS_TRY(tess__path(file, path, "state.json"));
        const tess_status status = tess__state_read(ctx, file, NULL, 0, &state);
        if (status == TESS_OK) {
            *found = 1;
            return TESS_OK;
        }
        if (status == TESS_ENOMEM)
            return status;
        tess__log(ctx, TESS_LOG_WARN, "%s is skipped: %s", path, tess_last_error());
    }
    return TESS_OK;
}

tess_status tess_checkpoint_find(tess_ctx *ctx, const char *dir, char *path, size_t bytes)
{
    TESS_REQUIRE(ctx, dir, path);
    char place[PATH_MAX], folder[PATH_MAX];
    int found = 0;
    TESS_TRY(tess__path(place, dir, "state.json"));
    if (access(place, F_OK) == 0) {
        snprintf(place, sizeof place, "%s", dir);
        found = 1;
    } else {
        TESS_TRY(tess__path(folder, dir, checkpoints));
        TESS_TRY(newest(ctx, folder, place, &found));
    }
    if (!found)
        return tess__fail(TESS_EIO, "%s: holds no complete checkpoint", dir);
    if (strlen(place) >= bytes)
        return tess__invalid(__func__, "bytes is %zu, must be more than %zu", bytes, strlen(place));
    memcpy(path, place, strlen(place) + 1);
    return TESS_OK;
}

tess_status tess_checkpoint_read(tess_ctx *ctx, const char *dir, tess_checkpoint *checkpoint)
{
    TESS_REQUIRE(ctx, dir, checkpoint);
    char path[PATH_MAX];
    tess__state state;
    TESS_TRY(tess__path(path, dir, "state.json"));
    TESS_TRY(tess__state_read(ctx, path, NULL, 0, &state));
    TESS_TRY(tess__control_attention(ctx, dir, &state.checkpoint.attention));
    *checkpoint = state.checkpoint;
    return TESS_OK;
}

/* ---- the run's own --------------------------------------------------------------------------- */

/* Checkpoints half written or half deleted. */
static void clean_checkpoints(const char *folder)
{
    char path[PATH_MAX];
    DIR *dir = opendir(folder);
    for (const struct dirent *e; dir && (e = readdir(dir)) != NULL;)
        if ((strncmp(e->d_name, ".step-", 6) == 0 || strncmp(e->d_name, "..step-", 7) == 0) &&
            tess__path(path, folder, e->d_name) == TESS_OK)
            tess__remove_folder(path);
    if (dir)
        closedir(dir);
}

void tess__run_clean(const char *folder)
{
    char path[PATH_MAX];
    if (tess__path(path, folder, checkpoints) == TESS_OK)
        clean_checkpoints(path);
    tess__out_clean(folder);
    if (tess__path(path, folder, "samples") == TESS_OK)
        tess__out_clean(path);
}

static tess_status write_text(tess_ctx *ctx, const char *path, const char *text)
{
    tess__out *out = NULL;
    TESS_TRY(tess__out_open(ctx, path, &out));
    const tess_status status = tess__out_write(out, text, strlen(text));
    if (status != TESS_OK) {
        tess__out_abort(out);
        return status;
    }
    return tess__out_commit(out);
}

tess_status tess__settings_write(const tess_train *train, const char *folder)
{
    char path[PATH_MAX];
    if (!train->opts.settings)
        return TESS_OK;
    TESS_TRY(tess__path(path, folder, "settings.json"));
    return write_text(train->ctx, path, train->opts.settings);
}

tess_status tess__run_open(tess_train *train)
{
    const char *folder = train->opts.folder;
    char path[PATH_MAX];
    int count;
    TESS_TRY(tess__path(path, folder, checkpoints));
    TESS_TRY(tess__make_folder(path));
    if (!train->resumed && scan(path, 1, INT64_MAX, &count) >= 0)
        return tess__invalid(folder,
                             "holds checkpoints of a run, must be resumed or be another folder");
    TESS_TRY(tess__path(path, folder, "samples"));
    if (train->opts.sample_every > 0)
        TESS_TRY(tess__make_folder(path));
    if (!train->resumed) /* else with its first step: until then they are not in force */
        TESS_TRY(tess__settings_write(train, folder));
    if (train->control)
        TESS_TRY(tess__events_open(train));
    TESS_TRY(tess__plans_open(train));
    if (train->opts.tensorboard)
        TESS_TRY(tess__tensorboard_open(folder, train->step));
    return tess__metrics_open(train->ctx, folder, train->step);
}

/* A missing one is deleted already. */
static tess_status drop(const char *folder, int64_t step)
{
    char name[48], hidden[64], from[PATH_MAX], to[PATH_MAX];
    name_of(step, name);
    snprintf(hidden, sizeof hidden, ".%s.tmp", name);
    TESS_TRY(tess__path(from, folder, name));
    TESS_TRY(tess__path(to, folder, hidden));
    tess__remove_folder(to);
    if (rename(from, to) != 0 && errno != ENOENT)
        return tess__fail(TESS_EIO, "%s: cannot remove: %m", from);
    tess__remove_folder(to);
    return TESS_OK;
}

tess_status tess__run_drop(const tess_train *train, int64_t last)
{
    char folder[PATH_MAX];
    int count;
    TESS_TRY(tess__path(folder, train->opts.folder, checkpoints));
    for (int64_t step; (step = scan(folder, 1, INT64_MAX, &count)) > last;)
        TESS_TRY(drop(folder, step));
    return TESS_OK;
}

/* Removes the oldest checkpoints beyond checkpoint_limit. */
static tess_status rotate(const tess_train *train, const char *folder)
{
    while (train->opts.checkpoint_limit > 0) {
        int count;
        const int64_t oldest = scan(folder, -1, -1, &count);
        if (count <= train->opts.checkpoint_limit)
            break;
        TESS_TRY(drop(folder, oldest));
    }
    return TESS_OK;
}

int64_t tess__run_newest(const tess_train *train, int64_t last)
{
    char folder[PATH_MAX];
    int count;
    if (tess__path(folder, train->opts.folder, checkpoints) != TESS_OK)
        return -1;
    return scan(folder, 1, last + 1, &count);
}

tess_status tess__run_rotate(const tess_train *train)
{
    char folder[PATH_MAX];
    int count;
    if (!train->opts.folder)
        return TESS_OK;
    TESS_TRY(tess__path(folder, train->opts.folder, checkpoints));
    return scan(folder, 1, INT64_MAX, &count) == train->step ? rotate(train, folder) : TESS_OK;
}

tess_status tess__run_path(const tess_train *train, int64_t step, char path[PATH_MAX])
{
    char name[48], folder[PATH_MAX];
    name_of(step, name);
    TESS_TRY(tess__path(folder, train->opts.folder, checkpoints));
    return tess__path(path, folder, name);
}

tess_status tess__run_checkpoint(tess_train *train)
{
    char folder[PATH_MAX], path[PATH_MAX];
    const int writes = train->pg.rank == 0;
    if (train->saved == train->step)
        return TESS_OK;
    TESS_TRY(tess__path(folder, train->opts.folder, checkpoints));
    TESS_TRY(tess__run_path(train, train->step, path));
    /* A checkpoint of this name can only be an unreadable one. */
    TESS_TRY(tess__pg_agree(&train->pg, writes ? drop(folder, train->step) : TESS_OK));
    TESS_TRY(tess__train_save(train, path));
    if (writes && tess__run_newest(train, train->divergence.good) >= 0)
        tess__good_end(train);
    return tess__pg_agree(&train->pg, writes ? rotate(train, folder) : TESS_OK);
}
