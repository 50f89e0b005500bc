/* summarize(buffer, end_offset, kind): what stored batches one behind another are in sum, as a tuple of type `kind`, or the first
 * fault. They must be in order, from `end_offset` on. */
#include "summary.h"

enum { SUMMARY_FIELDS = 7 };

static const limits_t STORED = {1, INT64_MAX, INT64_MAX};

static void count_batch(summary_t *sum, const header_t *header)
{
    int64_t first_ms = header->attributes & APPEND_TIME ? header->max_timestamp : header->base_timestamp;
    if (sum->batches++ == 0)
        sum->first_offset = header->base_offset;
    sum->records += header->count;
    sum->end_offset = header->base_offset + header->last_offset_delta + 1;
    if (first_ms >= 0 && (sum->min_timestamp < 0 || first_ms < sum->min_timestamp))
        sum->min_timestamp = first_ms;
    if (header->max_timestamp > sum->max_timestamp)
        sum->max_timestamp = header->max_timestamp;
    if (header->attributes & CODEC_MASK)
        sum->packed_bytes += (int64_t)header->length + LENGTH_COVERS_FROM;
}

summary_t summary_of(const uint8_t *p, Py_ssize_t bytes, int64_t end_offset, fault_t *fault)
{
    summary_t found = {0, 0, end_offset, end_offset, -1, -1, 0}, *sum = &found;
    header_t header;
    Py_ssize_t at = 0;
    while (at < bytes) {
        fault->at = at;
        fault->rule = check_header(p + at, bytes - at, &STORED, &header, &fault->given);
        if (fault->rule != SOUND)
            break;
        /* The end of the last batch must have an offset, too. */
        if (header.base_offset < sum->end_offset || header.base_offset == INT64_MAX - header.last_offset_delta) {
            fault->rule = RULE_ORDER;
            fault->given = header.base_offset;
            break;
        }
        count_batch(sum, &header);
        at += (Py_ssize_t)header.length + LENGTH_COVERS_FROM;
    }
    return found;
}

PyObject *summary_tuple(const summary_t *sum, PyObject *kind)
{
    PyObject *items[SUMMARY_FIELDS] = {
        PyLong_FromLongLong(sum->batches),       PyLong_FromLongLong(sum->records),
        PyLong_FromLongLong(sum->first_offset),  PyLong_FromLongLong(sum->end_offset),
        PyLong_FromLongLong(sum->min_timestamp), PyLong_FromLongLong(sum->max_timestamp),
        PyLong_FromLongLong(sum->packed_bytes),
    };

    return tuple_of_type((PyTypeObject *)kind, items, SUMMARY_FIELDS);
}

PyObject *summarize(PyObject *module, PyObject *args)
{
    Py_buffer buffer;
    PyObject *kind, *found = NULL;
    long long end_offset;
    summary_t sum;
    fault_t fault = {SOUND, 0, -1, 0};

    (void)module;
    if (!PyArg_ParseTuple(args, "y*LO", &buffer, &end_offset, &kind))
        return NULL;
    if (is_tuple_type(kind)) {
        Py_BEGIN_ALLOW_THREADS
        sum = summary_of(buffer.buf, buffer.len, end_offset, &fault);
        Py_END_ALLOW_THREADS
        found = fault.rule != SOUND ? fault_tuple(&fault) : summary_tuple(&sum, kind);
    }
    PyBuffer_Release(&buffer);
    return found;
}
