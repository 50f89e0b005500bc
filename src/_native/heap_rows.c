/* pack_heap_entries(entries, first, count), read_heap_entries(body): entries of an OffsetHeap as a frame of a snapshot has them,
 * columns of big-endian words: offsets, then the lower and the upper halves of their numbers. */
#include "offset_heap.h"

enum { COLUMNS = 3, WORD_BYTES = 8 };

PyObject *pack_heap_entries(PyObject *module, PyObject *args)
{
    Py_buffer rows;
    Py_ssize_t first, count, total, i;
    PyObject *body = NULL;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*nn", &rows, &first, &count))
        return NULL;
    total = rows.len / (Py_ssize_t)sizeof(heap_entry_t);
    if (first < 0 || count < 0 || first > total)
        PyErr_SetString(PyExc_ValueError, "entries that are there");
    else {
        count = count < total - first ? count : total - first;
        body = PyBytes_FromStringAndSize(NULL, count * COLUMNS * WORD_BYTES);
    }
    if (body != NULL) {
        uint8_t *out = (uint8_t *)PyBytes_AS_STRING(body);
        for (i = 0; i < count; i++) {
            heap_entry_t entry;
            memcpy(&entry, (const char *)rows.buf + (first + i) * (Py_ssize_t)sizeof entry, sizeof entry);
            store_number(out + i * WORD_BYTES, entry.offset, WORD_BYTES);
            store_number(out + (count + i) * WORD_BYTES, entry.low, WORD_BYTES);
            store_number(out + (2 * count + i) * WORD_BYTES, entry.high, WORD_BYTES);
        }
    }
    PyBuffer_Release(&rows);
    return body;
}

PyObject *read_heap_entries(PyObject *module, PyObject *args)
{
    Py_buffer body;
    Py_ssize_t count, i;
    PyObject *rows = NULL;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*", &body))
        return NULL;
    count = body.len / (COLUMNS * WORD_BYTES);
    if (body.len % (COLUMNS * WORD_BYTES))
        PyErr_Format(PyExc_ValueError, "%zd bytes in %d columns", body.len, COLUMNS);
    else
        rows = PyBytes_FromStringAndSize(NULL, count * (Py_ssize_t)sizeof(heap_entry_t));
    for (i = 0; rows != NULL && i < count; i++) {
        const uint8_t *p = body.buf;
        heap_entry_t entry = {load_u64(p + (2 * count + i) * WORD_BYTES), load_u64(p + (count + i) * WORD_BYTES),
                              load_u64(p + i * WORD_BYTES)};
        if (entry.offset >= OFFSET_LIMIT) {
            PyErr_SetString(PyExc_ValueError, "an offset has 56 bits");
            Py_CLEAR(rows);
        } else
            memcpy(PyBytes_AS_STRING(rows) + i * (Py_ssize_t)sizeof entry, &entry, sizeof entry);
    }
    PyBuffer_Release(&body);
    return rows;
}
