/* Small requests that are appended together: their batches judged with one call, and numbered with another.
 *
 * verify_run(payloads, batch_bytes_max, records_max, bytes_max, records): (batches one behind another, how many, how many records,
 * the greatest timestamp, how many have a producer's id), or None if anything about them is wrong or not plain (compressed,
 * transactional, …): who called then has them judged one by one. `records`: those inside are checked, too. One payload is returned as it is, several are
 * copied into one. There is no twin: without it they are judged one by one.
 *
 * number_run(batches, base_offset, epoch): the base offset of each, written into it.
 *
 * locate_run(batches, offset, below, bytes_max, one): (start, end), where those lie that end behind `offset` and at or below
 * `below`, in at most `bytes_max` bytes; `one`: the first of them in any case. The twin is holdfast.log.batches.batch_run's own.
 *
 * None lets go of the interpreter: a thread that waits for it would take it, and the event loop get it back a wake-up later. */
#include "batch.h"

enum { EPOCH_AT = 12, NOT_PLAIN = CODEC_MASK | APPEND_TIME | TRANSACTIONAL | CONTROL };

typedef struct {
    limits_t limits;
    int records; /* whether they are checked */
    int64_t batches, offsets, max_timestamp, of_producers;
} verified_t;

static int is_plain(const uint8_t *batch, const header_t *header, int records)
{
    header_t any_time = *header;
    fault_t fault = {SOUND, 0, -1, 0};
    Py_ssize_t bytes = (Py_ssize_t)header->length + LENGTH_COVERS_FROM;

    if (header->attributes & NOT_PLAIN)
        return 0;
    if (crc32c(batch + CRC_COVERS_FROM, bytes - CRC_COVERS_FROM) != header->crc)
        return 0;
    if (!records)
        return 1;
    any_time.max_timestamp = INT64_MAX; /* a record later than its batch's maximum is readable */
    check_payload(batch + HEADER_BYTES, bytes - HEADER_BYTES, &any_time, 1, &fault);
    return fault.rule == SOUND;
}

/* Whether all batches of a payload are plain; an empty one is not. */
static int verify_payload(const uint8_t *p, Py_ssize_t bytes, verified_t *sum)
{
    header_t header;
    int64_t given;
    Py_ssize_t at = 0;

    while (at < bytes) {
        if (check_header(p + at, bytes - at, &sum->limits, &header, &given) != SOUND || !is_plain(p + at, &header, sum->records))
            return 0;
        sum->batches++;
        sum->offsets += header.count;
        sum->of_producers += header.producer_id != -1;
        if (header.max_timestamp > sum->max_timestamp)
            sum->max_timestamp = header.max_timestamp;
        at += (Py_ssize_t)header.length + LENGTH_COVERS_FROM;
    }
    return bytes > 0;
}

/* How many bytes the payloads have, if each of them is plain; 0: not, -1: an error is set. */
static Py_ssize_t verify_payloads(PyObject *payloads, Py_ssize_t bytes_max, verified_t *sum)
{
    Py_ssize_t total = 0;

    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(payloads); i++) {
        PyObject *each = PyList_GET_ITEM(payloads, i);
        if (!PyByteArray_Check(each)) {
            PyErr_SetString(PyExc_TypeError, "a payload is a bytearray");
            return -1;
        }
        if (PyByteArray_GET_SIZE(each) > bytes_max - total ||
            !verify_payload((const uint8_t *)PyByteArray_AS_STRING(each), PyByteArray_GET_SIZE(each), sum))
            return 0;
        total += PyByteArray_GET_SIZE(each);
    }
    return total;
}

/* The payloads one behind another; the only one itself. */
static PyObject *as_one(PyObject *payloads, Py_ssize_t total)
{
    Py_ssize_t at = 0;
    PyObject *one;

    if (PyList_GET_SIZE(payloads) == 1)
        return Py_NewRef(PyList_GET_ITEM(payloads, 0));
    one = PyByteArray_FromStringAndSize(NULL, total);
    for (Py_ssize_t i = 0; one != NULL && i < PyList_GET_SIZE(payloads); i++) {
        PyObject *each = PyList_GET_ITEM(payloads, i);
        memcpy(PyByteArray_AS_STRING(one) + at, PyByteArray_AS_STRING(each), (size_t)PyByteArray_GET_SIZE(each));
        at += PyByteArray_GET_SIZE(each);
    }
    return one;
}

PyObject *verify_run(PyObject *module, PyObject *args)
{
    PyObject *payloads, *one;
    long long batch_bytes_max, records_max;
    Py_ssize_t bytes_max, total;
    verified_t sum = {{0, 0, 0}, 0, 0, 0, -1, 0};

    (void)module;
    if (!PyArg_ParseTuple(args, "O!LLnp", &PyList_Type, &payloads, &batch_bytes_max, &records_max, &bytes_max, &sum.records))
        return NULL;
    sum.limits.batch_bytes_max = batch_bytes_max;
    sum.limits.records_max = records_max;
    total = verify_payloads(payloads, bytes_max, &sum);
    if (total == 0)
        Py_RETURN_NONE;
    one = total < 0 ? NULL : as_one(payloads, total);
    if (one == NULL)
        return NULL;
    return Py_BuildValue("(NLLLL)", one, (long long)sum.batches, (long long)sum.offsets, (long long)sum.max_timestamp,
                         (long long)sum.of_producers);
}

PyObject *number_run(PyObject *module, PyObject *args)
{
    static const limits_t sent = {0, INT64_MAX, INT64_MAX};
    Py_buffer data;
    PyObject *bases, *each;
    long long base_offset;
    int epoch;
    header_t header;
    int64_t given;
    uint8_t *p;
    Py_ssize_t at = 0, bytes;

    (void)module;
    if (!PyArg_ParseTuple(args, "w*Li", &data, &base_offset, &epoch))
        return NULL;
    p = data.buf;
    bytes = data.len;
    bases = PyList_New(0);
    while (bases != NULL && at < bytes) {
        if (check_header(p + at, bytes - at, &sent, &header, &given) != SOUND || base_offset < 0 ||
            base_offset > INT64_MAX - header.count) {
            PyErr_SetString(PyExc_ValueError, "not a run of batches that has room for its offsets");
            Py_CLEAR(bases);
            break;
        }
        each = PyLong_FromLongLong(base_offset);
        if (each == NULL || PyList_Append(bases, each) < 0)
            Py_CLEAR(bases);
        Py_XDECREF(each);
        store_number(p + at, (uint64_t)base_offset, 8);
        store_number(p + at + EPOCH_AT, (uint64_t)epoch, 4);
        base_offset += header.count;
        at += (Py_ssize_t)header.length + LENGTH_COVERS_FROM;
    }
    PyBuffer_Release(&data);
    return bases;
}

PyObject *locate_run(PyObject *module, PyObject *args)
{
    static const limits_t stored = {1, INT64_MAX, INT64_MAX};
    Py_buffer data;
    long long offset, below;
    int one, sound = 1;
    header_t header;
    int64_t given, last;
    Py_ssize_t bytes_max, at = 0, next, start = -1, end = 0;

    (void)module;
    if (!PyArg_ParseTuple(args, "y*LLnp", &data, &offset, &below, &bytes_max, &one))
        return NULL;
    for (; at < data.len; at = next) {
        sound = check_header((const uint8_t *)data.buf + at, data.len - at, &stored, &header, &given) == SOUND;
        if (!sound)
            break;
        next = at + (Py_ssize_t)header.length + LENGTH_COVERS_FROM;
        last = header.base_offset + header.last_offset_delta;
        if (last >= below)
            break;
        if (last < offset)
            continue;
        if (start < 0)
            start = end = at;
        if (next - start > bytes_max && !(one && at == start))
            break;
        end = next;
    }
    PyBuffer_Release(&data);
    if (sound)
        return Py_BuildValue("(nn)", start < 0 ? 0 : start, end);
    PyErr_SetString(PyExc_ValueError, "not a run of batches");
    return NULL;
}
