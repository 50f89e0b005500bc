/* scan(buffer, stored, batch_bytes_max, records_max, kind): the headers of consecutive batches, or the first fault. */
#include "batch.h"

static PyObject *header_tuple(const header_t *h, PyTypeObject *kind)
{
    PyObject *items[HEADER_FIELDS] = {
        PyLong_FromLongLong(h->base_offset),   PyLong_FromLong(h->length),
        PyLong_FromLong(h->leader_epoch),      PyLong_FromLong(h->magic),
        PyLong_FromUnsignedLong(h->crc),       PyLong_FromLong(h->attributes),
        PyLong_FromLong(h->last_offset_delta), PyLong_FromLongLong(h->base_timestamp),
        PyLong_FromLongLong(h->max_timestamp), PyLong_FromLongLong(h->producer_id),
        PyLong_FromLong(h->producer_epoch),    PyLong_FromLong(h->base_sequence),
        PyLong_FromLong(h->count),
    };
    return tuple_of_type(kind, items, HEADER_FIELDS);
}

PyObject *scan(PyObject *module, PyObject *args)
{
    Py_buffer buffer;
    PyObject *kind, *found, *each;
    long long batch_bytes_max, records_max;
    limits_t limits;
    header_t header;
    fault_t fault = {SOUND, 0, -1, 0};
    Py_ssize_t at = 0;

    (void)module;
    if (!PyArg_ParseTuple(args, "y*pLLO", &buffer, &limits.stored, &batch_bytes_max, &records_max, &kind))
        return NULL;
    limits.batch_bytes_max = batch_bytes_max;
    limits.records_max = records_max;
    found = is_tuple_type(kind) ? PyList_New(0) : NULL;
    while (found != NULL && at < buffer.len) {
        fault.rule = check_header((const uint8_t *)buffer.buf + at, buffer.len - at, &limits, &header, &fault.given);
        if (fault.rule != SOUND) {
            fault.at = at;
            Py_SETREF(found, fault_tuple(&fault));
            break;
        }
        each = header_tuple(&header, (PyTypeObject *)kind);
        if (each == NULL || PyList_Append(found, each) < 0)
            Py_CLEAR(found);
        Py_XDECREF(each);
        at += (Py_ssize_t)header.length + LENGTH_COVERS_FROM;
    }
    PyBuffer_Release(&buffer);
    return found;
}
