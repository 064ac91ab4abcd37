/* SPDX-License-Identifier: Apache-2.0 */
/* model_folder.c - which file in a model's folder holds the weights.
 *
 *   diffusion_pytorch_model.safetensors.index.json, diffusion_pytorch_model.safetensors,
 *   model.safetensors.index.json, model.safetensors      the first of these that is there
 *   diffusion_pytorch_model.fp16.safetensors, or
 *   diffusion_pytorch_model.safetensors.index.fp16.json   else the only variant, its index first
 *
 * An index comes before a single file, as diffusers looks for them. diffusers takes a variant that
 * its caller names; here the only one is taken, and of several none.
 */
#include "file_internal.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

static const char *const stems[] = {"diffusion_pytorch_model", "model"};
enum { STEMS = 2, VARIANT_BYTES = 64 };

/* The variant that a file's name has between stem and ending: "fp16"; 0 if it has another form. */
static int variant_between(const char *name, const char *stem, const char *before,
                           const char *after, char variant[VARIANT_BYTES])
{
    const size_t n = strlen(name), s = strlen(stem), b = strlen(before), a = strlen(after);
    if (n <= s + b + a || strncmp(name, stem, s) != 0 || strncmp(name + s, before, b) != 0 ||
        strcmp(name + n - a, after) != 0)
        return 0;
    const size_t length = n - s - b - a;
    const char *word = name + s + b;
    /* A dot would be another name's, a dash that of a shard: fp16-00001-of-00002. */
    if (length >= VARIANT_BYTES || memchr(word, '.', length) || memchr(word, '-', length))
        return 0;
    memcpy(variant, word, length);
    variant[length] = 0;
    return 1;
}

/* 2: an index, 1: a single file, 0: neither, of a variant. */
static int variant_of(const char *name, const char *stem, char variant[VARIANT_BYTES])
{
    if (variant_between(name, stem, ".safetensors.index.", ".json", variant) ||
        variant_between(name, stem, ".safetensors.", ".index.json", variant))
        return 2;
    return variant_between(name, stem, ".", ".safetensors", variant);
}

typedef struct {
    char variant[2][VARIANT_BYTES]; /* the first two different ones */
    int variants;                   /* 2: two or more */
    int rank;                       /* of the name below, as variant_of has it */
    char name[NAME_MAX + 1];
} found;

static void note(found *f, const char *name, const char *variant, int rank)
{
    if (f->variants == 0 || (f->variants == 1 && strcmp(variant, f->variant[0]) != 0))
        snprintf(f->variant[f->variants++], VARIANT_BYTES, "%s", variant);
    if (rank > f->rank) {
        f->rank = rank;
        snprintf(f->name, sizeof f->name, "%s", name);
    }
}

static tess_status find_variant(const char *folder, found *f)
{
    for (int s = 0; s < STEMS && f->variants == 0; s++) {
        DIR *list = opendir(folder);
        const struct dirent *entry;
        char variant[VARIANT_BYTES];
        if (!list)
            return tess__fail(TESS_EIO, "%s: cannot open: %m", folder);
        while ((entry = readdir(list))) {
            const int rank = variant_of(entry->d_name, stems[s], variant);
            if (rank)
                note(f, entry->d_name, variant, rank);
        }
        closedir(list);
    }
    return TESS_OK;
}

static tess_status join(const char *folder, const char *name, const char *more, char out[PATH_MAX])
{
    if (snprintf(out, PATH_MAX, "%s/%s%s", folder, name, more) < PATH_MAX)
        return TESS_OK;
    errno = ENAMETOOLONG;
    return tess__fail(TESS_EIO, "%.200s: cannot open: %m", folder);
}

tess_status tess__model_folder(const char *folder, char weights[PATH_MAX])
{
    static const char *const ends[] = {".safetensors.index.json", ".safetensors"};
    char path[PATH_MAX];
    struct stat st;
    found f = {0};
    for (int i = 0; i < 2 * STEMS; i++) {
        TESS_TRY(join(folder, stems[i / 2], ends[i % 2], path));
        if (stat(path, &st) == 0) {
            memcpy(weights, path, PATH_MAX);
            return TESS_OK;
        }
    }
    TESS_TRY(find_variant(folder, &f));
    if (f.variants == 1)
        return join(folder, f.name, "", weights);
    if (f.variants > 1) {
        const int swap = strcmp(f.variant[0], f.variant[1]) > 0;
        return tess__fail(TESS_EIO,
                          "%s: holds weights of the variants %s and %s; one is opened by its path",
                          folder, f.variant[swap], f.variant[!swap]);
    }
    return tess__fail(TESS_EIO,
                      "%s: holds no diffusion_pytorch_model.safetensors and no index of one; "
                      "weights under another name are opened by their path",
                      folder);
}

int tess__is_folder(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

tess_status tess__model_part(const char *path, const char *name, char folder[PATH_MAX])
{
    static const char *const parts[] = {"", "/transformer"};
    char file[PATH_MAX];
    struct stat st;
    for (int i = 0; i < 2; i++) {
        if (snprintf(folder, PATH_MAX, "%s%s", path, parts[i]) >= PATH_MAX)
            return join(path, parts[i], "", file);
        TESS_TRY(join(folder, name, "", file));
        if (stat(file, &st) == 0)
            return TESS_OK;
    }
    return tess__fail(TESS_EIO, "%s: holds no %s", path, name);
}
