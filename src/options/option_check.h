/* SPDX-License-Identifier: Apache-2.0 */
/* option_check.h - range checks and hashes of option structs, by their tables. */
#ifndef TESS_OPTION_CHECK_H
#define TESS_OPTION_CHECK_H

#include "base/base_internal.h"
#include "tessera/advanced/options.h"

/* EINVAL: "tess_train_create: attention.mass is 2, must be 1e-06..1". */
tess_status tess__options_check(const char *who, tess_options which, const void *opts);

/* The words of an option, in the order of their enum. */
const char *const *tess__option_words(tess_options which, const char *name);

/* Of all options: equal values have equal hashes. */
uint64_t tess__options_hash(uint64_t hash, tess_options which, const void *opts);

#endif
