/* SPDX-License-Identifier: Apache-2.0 */
/* coroutine.c - switching stacks on x86-64 and arm64.
 *
 * switch_stack saves the registers that the calling convention preserves on the stack it leaves,
 * and takes them from the one it enters. swapcontext would make a system call of each switch: fifty
 * times as long, and a chunk of keys takes 25,000 switches.
 */
#include "coroutine.h"

#include <string.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define FIBERS 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(FIBERS)
#include <sanitizer/common_interface_defs.h>
#define START_SWITCH(save, stack, bytes) __sanitizer_start_switch_fiber(save, stack, bytes)
#define FINISH_SWITCH(save, stack, bytes) __sanitizer_finish_switch_fiber(save, stack, bytes)
#else
#define START_SWITCH(save, stack, bytes) ((void)(save), (void)(stack), (void)(bytes))
#define FINISH_SWITCH(save, stack, bytes) ((void)(save), (void)(stack), (void)(bytes))
#endif

void switch_stack(void **save, void *load);
#if defined(__x86_64__)
enum { SAVED = 7, ENTRY = 6, ABOVE = 1 }; /* a function begins 8 bytes off 16, as after a call */
__asm__(".text\n.globl switch_stack\n.hidden switch_stack\n.type switch_stack, @function\n"
        "switch_stack:\n"
        "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
        "mov %rsp,(%rdi)\nmov %rsi,%rsp\n"
        "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n"
        ".size switch_stack, .-switch_stack\n");
#elif defined(__aarch64__)
enum { SAVED = 20, ENTRY = 11, ABOVE = 2 }; /* x19 to x30, d8 to d15 */
__asm__(".text\n.globl switch_stack\n.hidden switch_stack\n.type switch_stack, %function\n"
        "switch_stack:\n"
        "sub sp, sp, #160\n"
        "stp x19, x20, [sp]\nstp x21, x22, [sp, #16]\nstp x23, x24, [sp, #32]\n"
        "stp x25, x26, [sp, #48]\nstp x27, x28, [sp, #64]\nstp x29, x30, [sp, #80]\n"
        "stp d8, d9, [sp, #96]\nstp d10, d11, [sp, #112]\nstp d12, d13, [sp, #128]\n"
        "stp d14, d15, [sp, #144]\n"
        "mov x9, sp\nstr x9, [x0]\nmov sp, x1\n"
        "ldp x19, x20, [sp]\nldp x21, x22, [sp, #16]\nldp x23, x24, [sp, #32]\n"
        "ldp x25, x26, [sp, #48]\nldp x27, x28, [sp, #64]\nldp x29, x30, [sp, #80]\n"
        "ldp d8, d9, [sp, #96]\nldp d10, d11, [sp, #112]\nldp d12, d13, [sp, #128]\n"
        "ldp d14, d15, [sp, #144]\n"
        "add sp, sp, #160\nret\n"
        ".size switch_stack, .-switch_stack\n");
#else
#error "coroutines are written for x86-64 and arm64"
#endif

static void *resumer;
static const void *resumer_stack;
static size_t resumer_bytes;

void coroutine_start(coroutine *c, void *stack, size_t bytes, void (*entry)(void))
{
    void **const sp = (void **)((char *)stack + bytes) - ABOVE - SAVED;
    memset(sp, 0, sizeof *sp * SAVED);
    memcpy(sp + ENTRY, &entry, sizeof entry);
    *c = (coroutine){.sp = sp, .stack = stack, .bytes = bytes};
}

void coroutine_resume(coroutine *c)
{
    void *fake = NULL;
    START_SWITCH(&fake, c->stack, c->bytes);
    switch_stack(&resumer, c->sp);
    FINISH_SWITCH(fake, NULL, NULL);
}

void coroutine_entered(void)
{
    FINISH_SWITCH(NULL, &resumer_stack, &resumer_bytes);
}

void coroutine_yield(coroutine *c, int last)
{
    void *fake = NULL;
    START_SWITCH(last ? NULL : &fake, resumer_stack, resumer_bytes);
    switch_stack(&c->sp, resumer);
    FINISH_SWITCH(fake, &resumer_stack, &resumer_bytes);
}
