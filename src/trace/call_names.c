/* SPDX-License-Identifier: Apache-2.0 */
/* call_names.c - names of operations and of element types, in all the spellings of profilers. */
#include "activity_internal.h"

#include <string.h>
#include <strings.h>

static const char *const op_names[TESS_CALL_OPS] = {
    "all_reduce",   "all_gather", "reduce_scatter", "all_to_all", "broadcast",
    "send_receive", "reduce",     "gather",         "scatter",    ""};

const char *tess_call_op_name(tess_call_op op)
{
    return (int)op >= 0 && op < TESS_CALL_OPS ? op_names[op] : NULL;
}

const char *tess_call_source_name(tess_call_source source)
{
    static const char *const names[] = {"kernel", "annotation", "name"};
    return (int)source >= 0 && source <= TESS_CALL_FROM_NAME ? names[source] : NULL;
}

/* "nccl:_all_gather_base", "ncclDevKernel_AllGather_RING_LL", "allgather_into_tensor_coalesced":
 * the letters that are left without case and underscores hold one of these; the first one that
 * fits. */
tess_call_op tess__call_op_of(const char *name, size_t bytes)
{
    static const struct {
        const char *part;
        tess_call_op op;
    } parts[] = {{"allreduce", TESS_CALL_ALL_REDUCE},
                 {"allgather", TESS_CALL_ALL_GATHER},
                 {"reducescatter", TESS_CALL_REDUCE_SCATTER},
                 {"alltoall", TESS_CALL_ALL_TO_ALL},
                 {"broadcast", TESS_CALL_BROADCAST},
                 {"barrier", TESS_CALL_ALL_REDUCE},
                 {"sendrecv", TESS_CALL_SEND_RECEIVE},
                 {"send", TESS_CALL_SEND_RECEIVE},
                 {"recv", TESS_CALL_SEND_RECEIVE},
                 {"pointtopoint", TESS_CALL_SEND_RECEIVE},
                 {"reduce", TESS_CALL_REDUCE},
                 {"gather", TESS_CALL_GATHER},
                 {"scatter", TESS_CALL_SCATTER}};
    char plain[160];
    size_t n = 0;
    for (size_t i = 0; i < bytes && n + 1 < sizeof plain; i++) {
        const char c = name[i];
        if (c >= 'A' && c <= 'Z')
            plain[n++] = (char)(c | 0x20);
        else if (c != '_')
            plain[n++] = c;
    }
    plain[n] = '\0';
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (strstr(plain, parts[i].part))
            return parts[i].op;
    return TESS_CALL_UNKNOWN;
}

/* ---- element types -------------------------------------------------------------------------- */

/* The name without "c10::" and case; the C++ spelling where it is another word; torch.dtype's. */
static const struct {
    const char *name, *spelling, *torch;
    int bytes;
} dtypes[] = {{"float", NULL, "float32", 4},
              {"bfloat16", NULL, NULL, 2},
              {"half", NULL, "float16", 2},
              {"double", NULL, "float64", 8},
              {"long", "long int", "int64", 8},
              {"int", NULL, "int32", 4},
              {"short", "short int", "int16", 2},
              {"char", "signed char", "int8", 1},
              {"byte", "unsigned char", "uint8", 1},
              {"bool", NULL, NULL, 1},
              {"float8_e4m3fn", NULL, NULL, 1},
              {"float8_e5m2", NULL, NULL, 1},
              {"float8_e4m3fnuz", NULL, NULL, 1},
              {"float8_e5m2fnuz", NULL, NULL, 1},
              {"float8_e8m0fnu", NULL, NULL, 1},
              {"uint16", "unsigned short", NULL, 2},
              {"uint32", "unsigned int", NULL, 4},
              {"uint64", "unsigned long", NULL, 8},
              {"complexfloat", "complex<float>", "complex64", 8},
              {"complexdouble", "complex<double>", "complex128", 16},
              {"complexhalf", "complex<half>", "complex32", 4}};

static int same_word(const char *name, size_t bytes, const char *word)
{
    return word && strlen(word) == bytes && strncasecmp(name, word, bytes) == 0;
}

int32_t tess__dtype_find(const char *name, size_t bytes)
{
    if (bytes > 5 && strncmp(name, "c10::", 5) == 0) {
        name += 5;
        bytes -= 5;
    }
    if (bytes > 7 && strncmp(name + bytes - 7, " (long)", 7) == 0)
        bytes -= 7;
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (same_word(name, bytes, dtypes[i].name) || same_word(name, bytes, dtypes[i].spelling) ||
            same_word(name, bytes, dtypes[i].torch))
            return (int32_t)i;
    return -1;
}

const char *tess__dtype_text(int32_t dtype)
{
    return dtype < 0 ? "" : dtypes[dtype].name;
}

int tess__dtype_bytes(int32_t dtype)
{
    return dtype < 0 ? 0 : dtypes[dtype].bytes;
}
