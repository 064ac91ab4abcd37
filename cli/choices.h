/* SPDX-License-Identifier: Apache-2.0 */
/* choices.h - numbers of the words that options allow, most of them an enum of the library. */
#ifndef TESS_CLI_CHOICES_H
#define TESS_CLI_CHOICES_H

#include "tessera/advanced/options.h"

/* The number of a word that is one of the choices. */
int choices_find(const char *const *choices, const char *word);

/* The value of a word that an option of the library allows. */
int choices_value(tess_options table, const char *option, const char *word);

/* Sizes of a cube, "2x4x4": 1; any other text: 0. */
int choices_cube(const char *text, int cube[3]);

#endif
