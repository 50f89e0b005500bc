/* responses(template, offset_at, correlations, offsets): the template again and again, each with the next correlation id and, unless
 * `offset_at` is negative, the next offset there. There is no twin: without the extension there are no runs to respond to. */
#include "batch.h"

enum { CORRELATION_AT = 4 };

static void store_big_endian(uint8_t *p, uint64_t value, int bytes)
{
    for (int at = 0; at < bytes; at++)
        p[at] = (uint8_t)(value >> (8 * (bytes - 1 - at)));
}

PyObject *responses(PyObject *module, PyObject *args)
{
    PyObject *template, *correlations, *offsets, *made;
    Py_ssize_t offset_at, size, count;
    uint8_t *p;

    (void)module;
    if (!PyArg_ParseTuple(args, "O!nO!O!", &PyBytes_Type, &template, &offset_at, &PyList_Type, &correlations, &PyList_Type,
                          &offsets))
        return NULL;
    size = PyBytes_GET_SIZE(template);
    count = PyList_GET_SIZE(correlations);
    if (size < CORRELATION_AT + 4 || offset_at > size - 8 || PyList_GET_SIZE(offsets) != count || count > PY_SSIZE_T_MAX / size) {
        PyErr_SetString(PyExc_ValueError, "a template with room for both, and an offset for each correlation id");
        return NULL;
    }
    made = PyBytes_FromStringAndSize(NULL, size * count);
    if (made == NULL)
        return NULL;
    p = (uint8_t *)PyBytes_AS_STRING(made);
    for (Py_ssize_t at = 0; at < count; at++, p += size) {
        long correlation = PyLong_AsLong(PyList_GET_ITEM(correlations, at));
        long long offset = PyLong_AsLongLong(PyList_GET_ITEM(offsets, at));
        memcpy(p, PyBytes_AS_STRING(template), (size_t)size);
        store_big_endian(p + CORRELATION_AT, (uint64_t)correlation, 4);
        if (offset_at >= 0)
            store_big_endian(p + offset_at, (uint64_t)offset, 8);
    }
    if (PyErr_Occurred())
        Py_CLEAR(made);
    return made;
}
