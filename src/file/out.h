/* SPDX-License-Identifier: Apache-2.0 */
/* out.h - output that appears whole or not at all: a temporary file beside the path, synced to disk
 * and renamed at the end. */
#ifndef TESS_OUT_H
#define TESS_OUT_H

#include "base/base_internal.h"

/* ---- out.c: output files that appear whole or not at all --------------------------------- */

/* Errors say "path: cannot write: No space left on device". A write that failed leaves abort as the
 * only thing to do. */
typedef struct tess__out tess__out;
tess_status tess__out_open(tess_ctx *ctx, const char *path, tess__out **out);
tess_status tess__out_write(tess__out *out, const void *bytes, size_t n);

/* Overwrites n bytes at offset, all of them written before. */
tess_status tess__out_patch(tess__out *out, uint64_t offset, const void *bytes, size_t n);

/* Brings all bytes to disk and closes the temporary file, so that a commit that follows can only
 * fail by its rename: for several files that shall appear together. */
tess_status tess__out_sync(tess__out *out);

/* Syncs, renames, syncs the folder, and frees out, also on failure. A failure removes the temporary
 * file, and what was there before remains; only when the folder's sync fails, after the rename, the
 * new file is in place. */
tess_status tess__out_commit(tess__out *out);
void tess__out_abort(tess__out *out); /* leaves no trace; NULL accepted */

/* out_clean.c: removes the temporary files that killed processes left in a folder. */
void tess__out_clean(const char *folder);

/* ---- out_folder.c: files that appear in a folder together, or not at all ------------------- */

typedef struct tess__folder tess__folder;
tess_status tess__folder_open(tess_ctx *ctx, const char *path, tess__folder **folder);

/* Where to write the file called name, until the next call; at most 16 files, whose names are
 * shorter than 96 bytes. Its writer brings it to disk. */
tess_status tess__folder_file(tess__folder *folder, const char *name, const char **path);

/* Gives the files their places and frees folder, also on failure: then what was there before
 * remains, unless a rename between two others failed. */
tess_status tess__folder_commit(tess__folder *folder);
void tess__folder_abort(tess__folder *folder); /* leaves no trace; NULL accepted */

#endif
