/* SPDX-License-Identifier: Apache-2.0 */
/* coroutine.h - stacks to switch between: registers that a call keeps, and the sanitizer informed.
 *
 *   coroutine_start(&c, stack, bytes, entry)    prepares c; entry never returns
 *   coroutine_resume(&c)                        runs c until it yields
 *   coroutine_yield(&c, last)                   back to who resumed it; last: it ends
 */
#ifndef TESS_COROUTINE_H
#define TESS_COROUTINE_H

#include <stddef.h>

typedef struct {
    void *sp, *stack;
    size_t bytes;
} coroutine;

void coroutine_start(coroutine *c, void *stack, size_t bytes, void (*entry)(void));
void coroutine_resume(coroutine *c);
void coroutine_yield(coroutine *c, int last);
void coroutine_entered(void); /* the first call of an entry */

#endif
