/* responses(template, offset_at, runs, offsets): the responses to each of several runs of requests, whose correlation ids `runs` has, as
 * bytes: the template again and again, each with the next correlation id and, unless `offset_at` is negative, the next offset there.
 * There is no twin: without the extension there are no runs to respond to. */
#include "batch.h"

enum { CORRELATION_AT = 4 };

typedef struct {
    const char *bytes;
    Py_ssize_t size, offset_at;
} template_t;

/* The responses to one run, whose offsets begin at `first`. */
static PyObject *to_run(const template_t *template, PyObject *correlations, PyObject *offsets, Py_ssize_t first)
{
    Py_ssize_t count = PyList_GET_SIZE(correlations);
    PyObject *made = PyBytes_FromStringAndSize(NULL, template->size * count);
    uint8_t *p = made == NULL ? NULL : (uint8_t *)PyBytes_AS_STRING(made);

    for (Py_ssize_t at = 0; made != NULL && at < count; at++, p += template->size) {
        long correlation = PyLong_AsLong(PyList_GET_ITEM(correlations, at));
        long long offset = PyLong_AsLongLong(PyList_GET_ITEM(offsets, first + at));
        memcpy(p, template->bytes, (size_t)template->size);
        store_number(p + CORRELATION_AT, (uint64_t)correlation, 4);
        if (template->offset_at >= 0)
            store_number(p + template->offset_at, (uint64_t)offset, 8);
    }
    if (PyErr_Occurred())
        Py_CLEAR(made);
    return made;
}

/* How many requests there are in all runs; -1: some are no lists. */
static Py_ssize_t request_count(PyObject *runs)
{
    Py_ssize_t count = 0;

    for (Py_ssize_t at = 0; at < PyList_GET_SIZE(runs); at++) {
        PyObject *each = PyList_GET_ITEM(runs, at);
        if (!PyList_Check(each)) {
            PyErr_SetString(PyExc_TypeError, "the correlation ids of a run are a list");
            return -1;
        }
        count += PyList_GET_SIZE(each);
    }
    return count;
}

PyObject *responses(PyObject *module, PyObject *args)
{
    PyObject *data, *runs, *offsets, *made;
    template_t template;
    Py_ssize_t count, first = 0;

    (void)module;
    if (!PyArg_ParseTuple(args, "O!nO!O!", &PyBytes_Type, &data, &template.offset_at, &PyList_Type, &runs, &PyList_Type, &offsets) ||
        (count = request_count(runs)) < 0)
        return NULL;
    template.bytes = PyBytes_AS_STRING(data);
    template.size = PyBytes_GET_SIZE(data);
    if (template.size < CORRELATION_AT + 4 || template.offset_at > template.size - 8 || PyList_GET_SIZE(offsets) != count ||
        count > PY_SSIZE_T_MAX / template.size) {
        PyErr_SetString(PyExc_ValueError, "a template with room for both, and an offset for each correlation id");
        return NULL;
    }
    made = PyList_New(PyList_GET_SIZE(runs));
    for (Py_ssize_t at = 0; made != NULL && at < PyList_GET_SIZE(runs); at++) {
        PyObject *correlations = PyList_GET_ITEM(runs, at), *each = to_run(&template, correlations, offsets, first);
        if (each == NULL)
            Py_CLEAR(made);
        else
            PyList_SET_ITEM(made, at, each);
        first += PyList_GET_SIZE(correlations);
    }
    return made;
}
