/* SPDX-License-Identifier: Apache-2.0 */
/* file_internal.h - tensor files inside: one struct that every format fills, and shared helpers.
 *
 * Opening a file makes a source (its bytes, mapped) and lets the format's parser list the tensors
 * in it as entries. From there on nothing but the entries matters: looking up, describing, mapping
 * and reading are the same for all formats. An index owns its shards, each a tess_file of its own,
 * and its entries are copies of theirs.
 *
 *   path -> file_source.c -> npy.c, npz.c, safetensors.c, shards.c -> file_names.c -> file_read.c
 *
 * Malformed content is EFORMAT. Content that is valid, but of a kind this library does not read
 * (another dtype, big-endian numbers) is ENOTSUP, and concerns that tensor alone.
 */
#ifndef TESS_FILE_H
#define TESS_FILE_H

#include "out.h"
#include "tessera/file.h"

#include <limits.h>

typedef struct {
    const char *name; /* what errors call it */
    const unsigned char *data;
    size_t bytes;
    int fd; /* -1: the caller's memory */
} tess__source;

typedef struct {
    const char *name;
    const char *refused; /* why its data cannot be had; NULL if it can */
    tess_dtype dtype;
    int rank;
    int64_t shape[TESS_RANK_MAX];
    size_t bytes; /* of its elements */
    const tess__source *source;
    size_t offset; /* in the source: of its elements, or of the deflated stream */
    void *copy;    /* elements that cannot be used in the mapping; NULL until asked for */
    /* Members of .npz: */
    size_t packed; /* bytes of the deflated stream; 0: stored as it is */
    size_t head;   /* bytes of the member in front of the elements */
    uint32_t crc;  /* of head and elements */
    int unchecked; /* 1: the crc has not been compared yet */
} tess__entry;

struct tess_file {
    tess_ctx *ctx;
    tess_file_kind kind;
    tess__source source;
    tess__arena arena; /* names, entries, metas */
    tess__entry *entries;
    int n_entries;
    tess__entry **sorted; /* by name */
    tess_meta *metas;
    int n_metas;
    tess_file **shards; /* of an index */
    int n_shards;
};

/* ---- file_source.c --------------------------------------------------------------------------- */

/* Maps a file. The name must outlive the source. */
tess_status tess__source_open(const char *name, tess__source *source);
void tess__source_close(tess__source *source); /* a closed one accepted */

/* Copies n bytes at offset, which lie inside the source as it was when opened, to dst. EIO if the
 * file fails or has shrunk. Sets no sentence: may be called by any thread; tess__source_failed
 * says it, given the errno left behind (0: shrunk). */
int tess__source_copy(const tess__source *source, size_t offset, void *dst, size_t n);
tess_status tess__source_failed(const tess__source *source, int error);

/* ---- model_folder.c -------------------------------------------------------------------------- */

/* The file in a model's folder that holds its weights: an index, one file, or the only variant. */
tess_status tess__model_folder(const char *folder, char weights[PATH_MAX]);

/* The folder that holds a file of this name: path itself, or its transformer/, as a pipeline's. */
tess_status tess__model_part(const char *path, const char *name, char folder[PATH_MAX]);

int tess__is_folder(const char *path);

/* ---- file_names.c ---------------------------------------------------------------------------- */

int tess__is_utf8(const char *s, size_t length);

/* NULL, or the rule that this name of a tensor breaks: UTF-8 without control characters. */
const char *tess__name_rule(const char *name, size_t length);

/* Fills file->sorted; EFORMAT if two entries share a name. */
tess_status tess__names_index(tess_file *file);

/* The entry called name, or NULL. */
tess__entry *tess__names_find(const tess_file *file, const char *name);

/* Bytes of an array; 1 if they overflow or exceed PTRDIFF_MAX, else 0. */
int tess__shape_bytes(size_t element, int rank, const int64_t *shape, size_t *bytes);

enum { TESS_SHAPE_TEXT = TESS_RANK_MAX * 21 + 3 };
const char *tess__shape_text(int rank, const int64_t *shape,
                             char text[TESS_SHAPE_TEXT]); /* "[2,3]" */

/* ---- the formats: each fills file's entries and metas from its source ------------------------ */

tess_status tess__npy_parse(tess_file *file);
tess_status tess__npz_parse(tess_file *file);
tess_status tess__safetensors_parse(tess_file *file);
tess_status tess__shards_parse(tess_file *file);

/* file.c: opens a file of which only this kind will do. */
tess_status tess__file_open_kind(tess_ctx *ctx, const char *path, tess_file_kind kind,
                                 tess_file **file);

/* ---- npy_head.c, npy.c: headers, also of the members of .npz --------------------------------- */

enum { TESS_NPY_PREFIX = 12, TESS_NPY_HEAD_MAX = 1 << 20, TESS_NPY_TEXT = 384 };

typedef struct {
    tess_dtype dtype;
    int rank;
    int64_t shape[TESS_RANK_MAX];
    size_t bytes;      /* of the elements; 0 if refused */
    char refused[128]; /* "" if the array can be read */
} tess__npy;

/* How many bytes the header takes, magic included, from the first n (TESS_NPY_PREFIX, or all if the
 * file is shorter). Errors start with `where`. */
tess_status tess__npy_head(const char *where, const unsigned char *data, size_t n, size_t *head);

/* Reads a complete header of `head` bytes. */
tess_status tess__npy_read(const char *where, const unsigned char *data, size_t head,
                           tess__npy *npy);

/* Formats a header; returns its length, a multiple of 64. The dtype is one that .npy knows. */
size_t tess__npy_format(const tess_tensor *tensor, char text[TESS_NPY_TEXT]);
const char *tess__npy_descr(tess_dtype dtype); /* "<f4"; NULL for BF16, which .npy does not know */

/* ---- safetensors_text.c: the tokens of a header ---------------------------------------------- */

typedef struct {
    const tess__source *source;
    size_t at, end; /* bytes in the file */
} tess__cursor;

tess_status tess__cursor_fail(const tess__cursor *cursor, const char *expected); /* EFORMAT */

void tess__cursor_space(tess__cursor *cursor);

/* Skips spaces; passes over c, or word, if it comes next, and returns 1. */
int tess__cursor_accept(tess__cursor *cursor, char c);
int tess__cursor_word(tess__cursor *cursor, const char *word);

/* Between the elements of an array or object: *more is 0 if `close` ends it. *first starts as 1. */
tess_status tess__cursor_next(tess__cursor *cursor, char close, int *first, int *more);
tess_status tess__cursor_length(tess__cursor *cursor,
                                int64_t *value); /* an integer of at least 0 */
tess_status tess__cursor_string(tess__cursor *cursor, tess__arena *arena, const char **string);
tess_status tess__cursor_skip(tess__cursor *cursor, int depth); /* any value; depth 0 */

/* ---- zip.c ----------------------------------------------------------------------------------- */

enum { TESS_ZIP_STORED = 0, TESS_ZIP_DEFLATED = 8 }; /* methods */

typedef struct {
    uint64_t offset, bytes, members; /* of the directory */
} tess__zip;

typedef struct {
    const char *name; /* in the source: not ended by a NUL */
    size_t length;
    int encrypted, method;
    uint32_t crc;
    uint64_t packed, bytes; /* in the archive, and inflated */
    uint64_t local;         /* offset of its local header */
} tess__zip_entry;

tess_status tess__zip_directory(const tess__source *source, tess__zip *zip);

/* The member at *at of the directory, which ends at `end`; moves *at to the next. */
tess_status tess__zip_member(const tess__source *source, size_t *at, size_t end,
                             tess__zip_entry *entry);

/* Where a member's bytes start. All of them must lie in the first `limit` bytes. */
tess_status tess__zip_data(const tess__source *source, const char *where,
                           const tess__zip_entry *entry, uint64_t limit, size_t *start);

/* ---- npz_inflate.c --------------------------------------------------------------------------- */

typedef struct tess__inflate tess__inflate;

/* Reads a deflated stream piece by piece; `where` must outlive it. */
tess_status tess__inflate_open(tess_ctx *ctx, const char *where, const unsigned char *packed,
                               size_t n, tess__inflate **inflate);
tess_status tess__inflate_read(tess__inflate *inflate, void *dst, size_t n); /* exactly n bytes */
tess_status tess__inflate_end(tess__inflate *inflate); /* EFORMAT unless all has been read */
void tess__inflate_close(tess__inflate *inflate);      /* NULL accepted */

/* ---- writing --------------------------------------------------------------------------------- */

/* Where bytes go, and how many of all tensors' have gone: what progress reports. */
typedef struct {
    tess_ctx *ctx;
    tess__out *out;
    int64_t done, total;
} tess__sink;

enum { TESS_WRITE_STEP = 16 << 20 }; /* bytes between two reports of progress */

/* Writes the elements of a tensor. */
tess_status tess__sink_tensor(tess__sink *sink, const tess_tensor *tensor);
tess_status tess__sink_progress(tess__sink *sink, size_t n);

/* Bytes of a tensor's elements; the tensor has been checked. */
size_t tess__tensor_bytes(const tess_tensor *tensor);

tess_status tess__npy_write(tess__sink *sink, const tess_tensor *tensor);
tess_status tess__npz_write(tess__sink *sink, const tess_tensor *tensors, int n, int compress);
tess_status tess__safetensors_write(tess__sink *sink, const tess_tensor *tensors, int n,
                                    const tess_meta *metas, int n_metas);
/* Makes its own files beside path; sink->out is not used. */
tess_status tess__shards_write(tess__sink *sink, const char *path, const tess_tensor *tensors,
                               int n, const tess_file_opts *opts);

#endif
