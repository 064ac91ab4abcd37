/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_unit_set.c - which units another rank asks for, as its message says it.
 *
 * Byte 0 is the first unit, bytes 1 and 2 how many there are, the rest the message. Whatever it is,
 * no unit outside of these is named; what was read is written, in no more bytes than a message may
 * have, and read again.
 */
#include "exec/unit_set.h"

#include <stdlib.h>
#include <string.h>

#define MUST(condition)                                                                            \
    do {                                                                                           \
        if (!(condition))                                                                          \
            abort();                                                                               \
    } while (0)

static void check_again(const uint64_t *set, int64_t begin, int64_t end)
{
    const int64_t most = tess__set_message_most(end - begin), words = tess__set_words(end);
    uint8_t *message = malloc((size_t)most);
    uint64_t *again = calloc((size_t)words + 1, sizeof *again);
    MUST(message && again);
    const int64_t bytes = tess__set_encode(set, begin, end, message);
    MUST(bytes >= 1 && bytes <= most);
    MUST(tess__set_decode(message, bytes, begin, end, again) == bytes);
    MUST(memcmp(again, set, (size_t)words * sizeof *again) == 0);
    for (int64_t cut = 0; cut < bytes; cut++) /* cut short it is no message */
        MUST(tess__set_decode(message, cut, begin, end, again) == 0);
    free(again);
    free(message);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 3)
        return 0;
    const int64_t begin = data[0], end = begin + data[1] + 256 * data[2];
    const int64_t bytes = (int64_t)size - 3, words = tess__set_words(end);
    uint64_t *set = calloc((size_t)words + 1, sizeof *set);
    MUST(set);
    const int64_t read = tess__set_decode(data + 3, bytes, begin, end, set);
    MUST(read >= 0 && read <= bytes);
    MUST(tess__set_next(set, 0, begin, 1) == begin);
    MUST(tess__set_next(set, end, 64 * words, 1) == 64 * words);
    MUST(tess__set_count(set, begin, end) <= end - begin);
    if (read > 0)
        check_again(set, begin, end);
    free(set);
    return 0;
}
