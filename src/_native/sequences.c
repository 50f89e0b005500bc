/* drop_older(numbers, offsets, times, before): three columns of 64-bit integers, in place: rows whose time is before one are dropped,
 * the others move up. How many are kept, and the highest number of a row that was dropped, or None. The twin in Python is
 * holdfast.heap.dedup. */
#include "batch.h"

enum { COLUMNS = 3, NUMBERS = 0, TIMES = 2 };

PyObject *drop_older(PyObject *module, PyObject *args)
{
    Py_buffer given[COLUMNS] = {{0}};
    int64_t *column[COLUMNS], highest = INT64_MIN;
    long long before;
    Py_ssize_t count, kept = 0, at;
    PyObject *found = NULL;
    int i;
    (void)module;
    if (!PyArg_ParseTuple(args, "w*w*w*L", &given[0], &given[1], &given[2], &before))
        return NULL;
    count = given[NUMBERS].len / (Py_ssize_t)sizeof(int64_t);
    for (i = 0; i < COLUMNS; i++) {
        column[i] = given[i].buf;
        if (given[i].len != count * (Py_ssize_t)sizeof(int64_t)) {
            PyErr_SetString(PyExc_ValueError, "columns of 64-bit integers, as many in each");
            goto done;
        }
    }
    for (at = 0; at < count; at++) {
        if (column[TIMES][at] < before) {
            highest = column[NUMBERS][at] > highest ? column[NUMBERS][at] : highest;
            continue;
        }
        for (i = 0; i < COLUMNS && kept < at; i++)
            column[i][kept] = column[i][at];
        kept++;
    }
    found = kept == count ? Py_BuildValue("(nO)", kept, Py_None) : Py_BuildValue("(nL)", kept, (long long)highest);
done:
    for (i = 0; i < COLUMNS; i++)
        PyBuffer_Release(&given[i]);
    return found;
}
