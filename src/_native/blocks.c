/* write_blocks(descriptor, parts, memory, block_bytes): copy the parts through `memory` and write it whenever it is full, and at
 * the end as many whole blocks as are left; how many bytes were written. A write that fails or falls short ends it: the caller goes
 * on another way. The interpreter is not held meanwhile. The twin is holdfast.objects.direct._write_blocks. */
#include "batch.h"

#include <string.h>
#ifndef _WIN32
#include <unistd.h>
#endif

typedef struct {
    int descriptor;
    char *memory;
    size_t room, filled, block_bytes;
    long long written;
} sink_t;

/* 0 when there is no going on */
static int put(sink_t *sink, size_t size)
{
#ifdef _WIN32
    (void)sink;
    (void)size;
    return 0;
#else
    ssize_t done = size > 0 ? write(sink->descriptor, sink->memory, size) : 0;

    sink->filled = 0;
    if (done > 0)
        sink->written += done;
    return done == (ssize_t)size;
#endif
}

static void put_all(sink_t *sink, const Py_buffer *parts, Py_ssize_t count)
{
    for (Py_ssize_t at = 0; at < count; at++) {
        const char *from = parts[at].buf;
        size_t left = (size_t)parts[at].len;

        while (left > 0) {
            size_t taken = sink->room - sink->filled < left ? sink->room - sink->filled : left;

            memcpy(sink->memory + sink->filled, from, taken);
            sink->filled += taken;
            from += taken;
            left -= taken;
            if (sink->filled == sink->room && !put(sink, sink->room))
                return;
        }
    }
    put(sink, sink->filled - sink->filled % sink->block_bytes);
}

PyObject *write_blocks(PyObject *module, PyObject *args)
{
    PyObject *given, *parts;
    Py_buffer memory, *views;
    Py_ssize_t count, held = 0, block_bytes;
    sink_t sink = {0};

    (void)module;
    if (!PyArg_ParseTuple(args, "iOw*n", &sink.descriptor, &given, &memory, &block_bytes))
        return NULL;
    parts = PySequence_Fast(given, "parts must be a sequence");
    count = parts != NULL ? PySequence_Fast_GET_SIZE(parts) : 0;
    views = PyMem_Calloc(count > 0 ? (size_t)count : 1, sizeof(Py_buffer));
    if (parts != NULL && views != NULL && (block_bytes < 1 || memory.len < block_bytes))
        PyErr_SetString(PyExc_ValueError, "memory must hold at least one block");
    while (parts != NULL && views != NULL && !PyErr_Occurred() && held < count) {
        if (PyObject_GetBuffer(PySequence_Fast_GET_ITEM(parts, held), &views[held], PyBUF_SIMPLE) == 0)
            held++;
    }
    if (parts != NULL && views == NULL)
        PyErr_NoMemory();
    if (!PyErr_Occurred()) {
        sink.memory = memory.buf;
        sink.block_bytes = (size_t)block_bytes;
        sink.room = (size_t)(memory.len - memory.len % block_bytes);
        Py_BEGIN_ALLOW_THREADS
        put_all(&sink, views, count);
        Py_END_ALLOW_THREADS
    }
    while (held > 0)
        PyBuffer_Release(&views[--held]);
    PyMem_Free(views);
    Py_XDECREF(parts);
    PyBuffer_Release(&memory);
    return PyErr_Occurred() ? NULL : PyLong_FromLongLong(sink.written);
}
