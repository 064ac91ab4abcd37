/* SPDX-License-Identifier: Apache-2.0 */
/* world_build.c - the fingerprint of this build: a hash of its version and of its machine code.
 *
 * Two builds of one version may compute differently, or send other messages, so the version is not
 * enough. Code is loaded as it lies in its files, without relocations, and so two processes of the
 * same files agree wherever they run. FNV-1a over 8 bytes at a time; about 1 ms for each 4 MB.
 */
#define _GNU_SOURCE
#include "world.h"

#include <link.h>
#include <string.h>

static uint64_t mix(uint64_t hash, const unsigned char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i += sizeof hash) {
        uint64_t word = 0;
        memcpy(&word, bytes + i, n - i < sizeof word ? n - i : sizeof word);
        hash = (hash ^ word) * 1099511628211u;
    }
    return hash;
}

/* The command itself comes first and has no name. */
static int hash_object(struct dl_phdr_info *info, size_t size, void *user)
{
    uint64_t *hash = user;
    (void)size;
    if (*info->dlpi_name && !strstr(info->dlpi_name, "libtessera"))
        return 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        const int code = (segment->p_flags & PF_X) && (segment->p_flags & PF_R);
        if (segment->p_type == PT_LOAD && code && !(segment->p_flags & PF_W))
            *hash = mix(*hash, (const unsigned char *)(info->dlpi_addr + segment->p_vaddr),
                        segment->p_filesz);
    }
    return 0;
}

uint64_t build_fingerprint(void)
{
    const char *version = tess_version();
    uint64_t hash = mix(14695981039346656037u, (const unsigned char *)version, strlen(version));
    dl_iterate_phdr(hash_object, &hash);
    return hash;
}
