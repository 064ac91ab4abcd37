/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_check.c - the kernels on a device against those of the CPU, and where the outcome is stored.
 *
 * One JSON file for each device, driver and library, as the hash in its name says:
 *
 *   {"format": 1, "key": "NVIDIA A100-SXM4-80GB, compute capability 8.0, driver 12.4, ...",
 *    "cases": 37, "failed": 0, "tokens": 4096, "repeats": 16}
 */
#include "gpu_internal.h"

#include "file/json.h"
#include "file/out.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

enum { FORMAT = 1, TEXT_MAX = 512, PATH_BYTES = 4096 };

void tess__gpu_count_case(const tess_gpu_check_opts *opts, tess_gpu_check_result *result,
                          tess_gpu_case *found)
{
    /* NaN is not within what is allowed. */
    found->ok = found->error <= found->allowed && found->same && found->guarded;
    result->cases++;
    result->failed += !found->ok;
    if (opts->found)
        opts->found(opts->user, found);
}

void tess__gpu_warn(tess_gpu *gpu)
{
    if (gpu->warned || gpu->info.checked == TESS_GPU_CHECK_PASSED)
        return;
    gpu->warned = 1;
    tess__log(gpu->ctx, TESS_LOG_WARN, "GPU kernels: %s: %s",
              gpu->info.checked == TESS_GPU_CHECK_FAILED ? "the check failed on this device"
                                                         : "not checked on this device",
              gpu->info.name);
}

/* ---- the file -------------------------------------------------------------------------------- */

/* Everything that an outcome depends on. */
static void key_text(const tess_gpu *gpu, char text[TEXT_MAX])
{
    const tess_gpu_info *const i = &gpu->info;
    snprintf(text, TEXT_MAX,
             "%s, compute capability %d.%d, driver %d.%d, tessera %s, kernels %016" PRIx64, i->name,
             i->major, i->minor, i->driver / 1000, i->driver % 1000 / 10, tess_version(),
             tess__hash(0, tess__gpu_image, (size_t)tess__gpu_image_bytes));
}

static tess_status file_path(const char *who, const tess_gpu *gpu, const char *folder,
                             char path[PATH_BYTES])
{
    char key[TEXT_MAX];
    key_text(gpu, key);
    const int n = snprintf(path, PATH_BYTES, "%s/gpu-check-%016" PRIx64 ".json", folder,
                           tess__hash(0, key, strlen(key)));
    return n < PATH_BYTES ? TESS_OK
                          : tess__invalid(who, "folder is longer than %d bytes", PATH_BYTES - 40);
}

static tess_status read_members(const tess__json *doc, const char *key,
                                tess_gpu_check_result *result)
{
    static const char *const members[] = {"format", "key", "cases", "failed", "tokens", "repeats"};
    tess__json_node root = tess__json_root(doc), file;
    int format;
    const char *of;
    TESS_TRY(tess__json_object(root, members, 6, &file));
    TESS_TRY(tess__json_int(tess__json_member(&file, "format"), FORMAT, FORMAT, &format));
    TESS_TRY(tess__json_string(tess__json_member(&file, "key"), &of));
    if (strcmp(of, key) != 0)
        return tess__json_fail(tess__json_member(&file, "key"),
                               "\"key\" is \"%.300s\", must be \"%s\"", of, key);
    TESS_TRY(tess__json_int(tess__json_member(&file, "cases"), 1, 1 << 20, &result->cases));
    TESS_TRY(tess__json_int(tess__json_member(&file, "failed"), 0, result->cases, &result->failed));
    TESS_TRY(tess__json_int64(tess__json_member(&file, "tokens"), 64, 65536, &result->tokens));
    TESS_TRY(tess__json_int(tess__json_member(&file, "repeats"), 2, 1000, &result->repeats));
    result->outcome = result->failed ? TESS_GPU_CHECK_FAILED : TESS_GPU_CHECK_PASSED;
    return TESS_OK;
}

static tess_status write_file(const tess_gpu *gpu, const char *folder,
                              const tess_gpu_check_result *r)
{
    char key[TEXT_MAX], path[PATH_BYTES];
    key_text(gpu, key);
    TESS_TRY(file_path("tess_gpu_check", gpu, folder, path));
    tess__out_clean(folder);
    json_t *const file =
        json_pack("{s:i, s:s, s:i, s:i, s:I, s:i}", "format", FORMAT, "key", key, "cases", r->cases,
                  "failed", r->failed, "tokens", (json_int_t)r->tokens, "repeats", r->repeats);
    const tess_status status = tess__json_write(gpu->ctx, path, file);
    json_decref(file);
    return status;
}

/* ---- the calls ------------------------------------------------------------------------------- */

tess_status tess_gpu_checked(tess_gpu *gpu, const char *folder, tess_gpu_check_result *result)
{
    char key[TEXT_MAX], path[PATH_BYTES];
    tess__json doc;
    tess_gpu_check_result read = {.outcome = TESS_GPU_NOT_CHECKED};
    TESS_REQUIRE(gpu, folder, result);
    key_text(gpu, key);
    TESS_TRY(file_path("tess_gpu_checked", gpu, folder, path));
    if (access(path, F_OK) == 0) {
        TESS_TRY(tess__json_open(gpu->ctx, path, NULL, 0, &doc));
        const tess_status status = read_members(&doc, key, &read);
        tess__json_close(&doc);
        TESS_TRY(status);
    }
    gpu->info.checked = read.outcome;
    *result = read;
    return TESS_OK;
}

tess_status tess_gpu_check(tess_gpu *gpu, const tess_gpu_check_opts *opts,
                           tess_gpu_check_result *result)
{
    static const char who[] = "tess_gpu_check";
    tess_gpu_check_opts o = {0};
    tess_gpu_check_result r = {0};
    TESS_REQUIRE(gpu, result);
    if (opts)
        o = *opts;
    r.tokens = o.tokens = o.tokens ? o.tokens : 4096;
    r.repeats = o.repeats = o.repeats ? o.repeats : 16;
    TESS_TRY(tess__check_range(who, "tokens", o.tokens, 64, 65536));
    TESS_TRY(tess__check_range(who, "repeats", o.repeats, 2, 1000));
    gpu->warned = 1; /* that is what this call is about */
    TESS_TRY(tess__gpu_check_attn(gpu, &o, &r));
    TESS_TRY(tess__gpu_check_select(gpu, &o, &r));
    r.outcome = r.failed ? TESS_GPU_CHECK_FAILED : TESS_GPU_CHECK_PASSED;
    gpu->info.checked = r.outcome;
    *result = r;
    return o.folder ? write_file(gpu, o.folder, &r) : TESS_OK;
}
