/* SPDX-License-Identifier: Apache-2.0 */
/* choices.h - names of options' choices that several files use, most of them an enum of the
 * library. */
#ifndef TESS_CLI_CHOICES_H
#define TESS_CLI_CHOICES_H

/* Ended by NULL, in the order of the enum. */
extern const char *const choices_proxy[];  /* tess_proxy */
extern const char *const choices_method[]; /* tess_plan_method */

/* The number of a word that is one of the choices. */
int choices_find(const char *const *choices, const char *word);

/* Sizes of a cube, "2x4x4": 1; any other text: 0. */
int choices_cube(const char *text, int cube[3]);

#endif
