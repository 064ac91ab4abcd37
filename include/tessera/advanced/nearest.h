/* SPDX-License-Identifier: Apache-2.0 */
/* nearest.h - which of some words was meant.
 *
 * Advanced: functions and structs may change in any version.
 */
#ifndef TESSERA_NEAREST_H
#define TESSERA_NEAREST_H

#include "../base.h"

TESS_BEGIN_DECLS

/* The candidate that word was probably meant to be: fewest edits, at most a third of the longer one
 * (ASCII case apart), the first of equals. NULL if none is near. For "did you mean" sentences. */
TESS_API const char *tess_nearest(const char *word, const char *const *candidates, int n);

TESS_END_DECLS

#endif
