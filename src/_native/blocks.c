/* Writing past the page cache, which takes aligned memory and whole blocks.
 *
 * write_blocks(descriptor, parts, memory, block_bytes): copy the parts through `memory` and write it whenever it is full, and at
 * the end as many whole blocks as are left; how many bytes were written. A write that fails or falls short ends it: the caller goes
 * on another way. The interpreter is not held meanwhile. The twin is holdfast.objects.direct._write_blocks. */
#include "batch.h"

#include <errno.h>
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

/* What a call was given, held until it ends. */
typedef struct {
    Py_buffer memory, *views;
    PyObject *sequence;
    Py_ssize_t count, held, block_bytes;
} parts_t;

/* 0 with an exception set when something is wrong with it */
static int hold(parts_t *parts, PyObject *given, sink_t *sink)
{
    parts->held = parts->count = 0;
    parts->views = NULL;
    parts->sequence = PySequence_Fast(given, "parts must be a sequence");
    if (parts->sequence == NULL)
        return 0;
    if (parts->block_bytes < 1 || parts->memory.len < parts->block_bytes) {
        PyErr_SetString(PyExc_ValueError, "memory must hold at least one block");
        return 0;
    }
    parts->count = PySequence_Fast_GET_SIZE(parts->sequence);
    parts->views = PyMem_Calloc(parts->count > 0 ? (size_t)parts->count : 1, sizeof(Py_buffer));
    if (parts->views == NULL) {
        PyErr_NoMemory();
        return 0;
    }
    for (; parts->held < parts->count; parts->held++) {
        PyObject *part = PySequence_Fast_GET_ITEM(parts->sequence, parts->held);

        if (PyObject_GetBuffer(part, &parts->views[parts->held], PyBUF_SIMPLE) != 0)
            return 0;
    }
    sink->memory = parts->memory.buf;
    sink->block_bytes = (size_t)parts->block_bytes;
    sink->room = (size_t)(parts->memory.len - parts->memory.len % parts->block_bytes);
    return 1;
}

static void let_go(parts_t *parts)
{
    while (parts->held > 0)
        PyBuffer_Release(&parts->views[--parts->held]);
    PyMem_Free(parts->views);
    Py_XDECREF(parts->sequence);
    PyBuffer_Release(&parts->memory);
}

PyObject *write_blocks(PyObject *module, PyObject *args)
{
    PyObject *given;
    parts_t parts;
    sink_t sink = {0};

    (void)module;
    if (!PyArg_ParseTuple(args, "iOw*n", &sink.descriptor, &given, &parts.memory, &parts.block_bytes))
        return NULL;
    if (hold(&parts, given, &sink)) {
        Py_BEGIN_ALLOW_THREADS
        put_all(&sink, parts.views, parts.count);
        Py_END_ALLOW_THREADS
    }
    let_go(&parts);
    return PyErr_Occurred() ? NULL : PyLong_FromLongLong(sink.written);
}

#ifndef _WIN32
/* 0, or the error */
static int put_at(int descriptor, const char *from, size_t size, long long *position)
{
    while (size > 0) {
        ssize_t done = pwrite(descriptor, from, size, (off_t)*position);

        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return done < 0 ? errno : EIO;
        from += done;
        size -= (size_t)done;
        *position += done;
    }
    return 0;
}

static int put_padded(sink_t *sink, const Py_buffer *parts, Py_ssize_t count, long long position)
{
    int error = 0;
    size_t padding;

    for (Py_ssize_t at = 0; at < count; at++) {
        const char *from = parts[at].buf;
        size_t left = (size_t)parts[at].len;

        while (left > 0) {
            size_t taken;

            if (sink->filled == sink->room) {
                error = put_at(sink->descriptor, sink->memory, sink->room, &position);
                if (error != 0)
                    return error;
                sink->filled = 0;
            }
            taken = sink->room - sink->filled < left ? sink->room - sink->filled : left;
            memcpy(sink->memory + sink->filled, from, taken);
            sink->filled += taken;
            from += taken;
            left -= taken;
        }
    }
    padding = (sink->block_bytes - sink->filled % sink->block_bytes) % sink->block_bytes;
    memset(sink->memory + sink->filled, 0, padding);
    return put_at(sink->descriptor, sink->memory, sink->filled + padding, &position);
}
#endif

/* write_padded(descriptor, parts, memory, block_bytes, position): write the parts at a position through `memory`, the end filled up
 * with zeros to a whole block. Raises OSError. The twin is holdfast.log.wal.disk.write_padded. */
PyObject *write_padded(PyObject *module, PyObject *args)
{
    PyObject *given;
    long long position;
    int error = 0;
    parts_t parts;
    sink_t sink = {0};

    (void)module;
    if (!PyArg_ParseTuple(args, "iOw*nL", &sink.descriptor, &given, &parts.memory, &parts.block_bytes, &position))
        return NULL;
    if (hold(&parts, given, &sink)) {
        Py_BEGIN_ALLOW_THREADS
#ifdef _WIN32
        error = ENOSYS;
#else
        error = put_padded(&sink, parts.views, parts.count, position);
#endif
        Py_END_ALLOW_THREADS
    }
    let_go(&parts);
    if (error != 0) {
        errno = error;
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    if (PyErr_Occurred())
        return NULL;
    Py_RETURN_NONE;
}
