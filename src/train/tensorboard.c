/* SPDX-License-Identifier: Apache-2.0 */
/* tensorboard.c - the metrics of a run as an event file of TensorBoard, in the run's folder.
 *
 * The file is a sequence of TFRecords, numbers little-endian:
 *
 *   uint64 length   uint32 masked crc32c of length   bytes[length]   uint32 masked crc32c of bytes
 *
 * whose bytes are Event messages in protobuf's encoding: the version first, then one for a step.
 *
 *   Event   {1: double wall_time  2: int64 step  3: string file_version  5: Summary}
 *   Summary {1: repeated Value}    Value {1: string tag  2: float simple_value}
 *
 * A record is appended by one write. A run that resumes at step n truncates the file behind the
 * records of step n, and behind the last complete one: no step is there twice. A record has some
 * 1000 bytes, and its checksum costs 8 operations a byte.
 */
#include "train_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { RECORD_BYTES = 4096, HEAD = 12, TAIL = 4 };

static const char file_name[] = "events.out.tfevents.tessera"; /* any name with "tfevents" */

/* ---- records --------------------------------------------------------------------------------- */

/* The checksum of iSCSI, reflected, as TFRecord masks it. */
static uint32_t masked_crc(const unsigned char *bytes, size_t n)
{
    uint32_t crc = ~0u;
    for (size_t i = 0; i < n; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
    }
    crc = ~crc;
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

static void put_number(unsigned char *at, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        at[i] = (unsigned char)(value >> 8 * i);
}

static uint64_t get_number(const unsigned char *at, int bytes)
{
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++)
        value |= (uint64_t)at[i] << 8 * i;
    return value;
}

/* ---- messages -------------------------------------------------------------------------------- */

typedef struct {
    unsigned char bytes[RECORD_BYTES]; /* the head of the record first */
    size_t used;
} record;

static void put_varint(record *r, uint64_t value)
{
    for (; value > 127; value >>= 7)
        r->bytes[r->used++] = (unsigned char)(value | 128);
    r->bytes[r->used++] = (unsigned char)value;
}

static void put_fixed(record *r, int field, int bytes, uint64_t bits)
{
    put_varint(r, (uint64_t)(field << 3 | (bytes == 8 ? 1 : 5)));
    put_number(r->bytes + r->used, bits, bytes);
    r->used += (size_t)bytes;
}

static void put_bytes(record *r, int field, const void *bytes, size_t n)
{
    put_varint(r, (uint64_t)(field << 3 | 2));
    put_varint(r, n);
    memcpy(r->bytes + r->used, bytes, n);
    r->used += n;
}

static void begin_event(record *r, int64_t step)
{
    struct timespec now;
    uint64_t bits;
    clock_gettime(CLOCK_REALTIME, &now);
    const double seconds = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
    memcpy(&bits, &seconds, sizeof bits);
    r->used = HEAD;
    put_fixed(r, 1, 8, bits);
    put_varint(r, 2 << 3);
    put_varint(r, (uint64_t)step);
}

static void end_event(record *r)
{
    const size_t n = r->used - HEAD;
    put_number(r->bytes, n, 8);
    put_number(r->bytes + 8, masked_crc(r->bytes, 8), 4);
    put_number(r->bytes + r->used, masked_crc(r->bytes + HEAD, n), TAIL);
    r->used += TAIL;
}

/* Adds a Value to a Summary; what was not measured is left out. */
static void put_value(record *summary, const char *group, const char *name, double value)
{
    const float number = (float)value;
    uint32_t bits;
    char tag[64];
    record one = {.used = 0};
    if (isnan(value))
        return;
    snprintf(tag, sizeof tag, "%s/%s", group, name);
    memcpy(&bits, &number, sizeof bits);
    put_bytes(&one, 1, tag, strlen(tag));
    put_fixed(&one, 2, 4, bits);
    put_bytes(summary, 1, one.bytes, one.used);
}

static void describe(const tess_step *step, record *r)
{
    record summary = {.used = 0};
    const char *group, *name;
    double value;
    for (int i = 0; tess__metric(step, i, &group, &name, &value); i++)
        put_value(&summary, group, name, value);
    begin_event(r, step->step);
    put_bytes(r, 5, summary.bytes, summary.used);
    end_event(r);
}

/* ---- the file -------------------------------------------------------------------------------- */

tess_status tess__tensorboard_add(const char *folder, const tess_step *step)
{
    char path[PATH_MAX];
    record r;
    describe(step, &r);
    TESS_TRY(tess__path(path, folder, file_name));
    return tess__lines_add(path, (const char *)r.bytes, r.used);
}

/* Reads the next record. 0 at the end, and of one that is cut short, damaged or another's. */
static int read_record(int fd, record *r, int64_t *step)
{
    if (read(fd, r->bytes, HEAD) != HEAD)
        return 0;
    const uint64_t n = get_number(r->bytes, 8);
    if (get_number(r->bytes + 8, 4) != masked_crc(r->bytes, 8) || n < 11 ||
        n > RECORD_BYTES - HEAD - TAIL)
        return 0;
    const ssize_t rest = (ssize_t)n + TAIL;
    if (read(fd, r->bytes + HEAD, (size_t)rest) != rest ||
        get_number(r->bytes + HEAD + n, TAIL) != masked_crc(r->bytes + HEAD, n))
        return 0;
    const unsigned char *at = r->bytes + HEAD + 10; /* behind wall_time and the step's key */
    *step = 0;
    for (int bits = 0; at < r->bytes + HEAD + n && bits < 63; bits += 7, at++) {
        *step |= (int64_t)(*at & 127) << bits;
        if (*at < 128)
            break;
    }
    r->used = HEAD + n + TAIL;
    return 1;
}

static int begin_file(int fd)
{
    static const char version[] = "brain.Event:2";
    record r;
    begin_event(&r, 0);
    put_bytes(&r, 3, version, sizeof version - 1);
    end_event(&r);
    return write(fd, r.bytes, r.used) == (ssize_t)r.used ? 0 : -1;
}

/* Truncates the file behind the records up to `last`; a new one gets its version. */
static int cut(int fd, int64_t last)
{
    record r;
    off_t end = 0;
    int64_t step;
    while (read_record(fd, &r, &step) && step <= last)
        end += (off_t)r.used;
    if (ftruncate(fd, end) != 0 || lseek(fd, end, SEEK_SET) < 0)
        return -1;
    return end ? 0 : begin_file(fd);
}

tess_status tess__tensorboard_open(const char *folder, int64_t last)
{
    char path[PATH_MAX];
    TESS_TRY(tess__path(path, folder, file_name));
    const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0)
        return tess__fail(TESS_EIO, "%s: cannot open: %m", path);
    const int failed = cut(fd, last) != 0, why = errno;
    if (close(fd) != 0 && !failed)
        return tess__fail(TESS_EIO, "%s: cannot write: %m", path);
    errno = why;
    return failed ? tess__fail(TESS_EIO, "%s: cannot write: %m", path) : TESS_OK;
}
