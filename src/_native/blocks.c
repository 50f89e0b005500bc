/* Writing past the page cache, which takes aligned memory and whole blocks.
 *
 * Parts are copied through `memory`, but for the middle of a large part that lies in memory as it will lie in the file, counted in
 * blocks: that is written from where it is. Whoever lays out a file for large parts leaves gaps before them accordingly. The
 * interpreter is not held meanwhile.
 *
 * write_blocks(descriptor, parts, memory, block_bytes): write as many whole blocks of the parts as there are; how many bytes were
 * written. A write that fails or falls short ends it: the caller goes on another way. The twin is holdfast.objects.direct_io's.
 *
 * write_padded(descriptor, parts, memory, block_bytes, position): write all of it at a position, the end filled up with zeros to a
 * whole block; where in `memory` the last block is. Raises OSError. The twin is holdfast.log.wal.disk.write_padded.
 *
 * address(part): where it lies in memory. */
#include "batch.h"

#include <errno.h>
#include <string.h>
#ifndef _WIN32
#include <sys/uio.h>
#include <unistd.h>
#endif

PyObject *address(PyObject *module, PyObject *part)
{
    Py_buffer view;
    PyObject *found;

    (void)module;
    if (PyObject_GetBuffer(part, &view, PyBUF_SIMPLE) != 0)
        return NULL;
    found = PyLong_FromVoidPtr(view.buf);
    PyBuffer_Release(&view);
    return found;
}

/* What a call was given, held until it ends. */
typedef struct {
    Py_buffer memory, *views;
    PyObject *sequence;
    Py_ssize_t count, held, block_bytes;
} parts_t;

/* 0 with an exception set when something is wrong with it */
static int hold(parts_t *parts, PyObject *given)
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

#ifndef _WIN32
enum { VECTORS = 64, IN_PLACE_MIN = 64 * 1024 };

typedef struct {
    int descriptor;
    long long position; /* -1: behind what was written before */
    char *memory;
    size_t room, block_bytes;
    size_t run, filled; /* the blocks in memory that no vector names yet, and where they end */
    struct iovec vectors[VECTORS];
    int count;
    size_t named; /* the bytes of the vectors */
    long long written;
} sink_t;

static void open_sink(sink_t *sink, const parts_t *parts)
{
    sink->memory = parts->memory.buf;
    sink->block_bytes = (size_t)parts->block_bytes;
    sink->room = (size_t)(parts->memory.len - parts->memory.len % parts->block_bytes);
}

/* 0, or the error; -1: it fell short behind what was written before, and the caller has to know how far it came */
static int put(sink_t *sink)
{
    struct iovec *vector = sink->vectors;
    int left = sink->count;

    sink->count = 0;
    sink->named = 0;
    sink->run = sink->filled = 0;
    while (left > 0) {
        ssize_t done = sink->position < 0 ? writev(sink->descriptor, vector, left)
                                          : pwritev(sink->descriptor, vector, left, (off_t)sink->position);

        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return done < 0 ? errno : EIO;
        sink->written += done;
        if (sink->position >= 0)
            sink->position += done;
        for (; left > 0 && (size_t)done >= vector->iov_len; vector++, left--)
            done -= (ssize_t)vector->iov_len;
        if (left > 0 && sink->position < 0)
            return -1;
        if (left > 0) {
            vector->iov_base = (char *)vector->iov_base + done;
            vector->iov_len -= (size_t)done;
        }
    }
    return 0;
}

static void name(sink_t *sink, char *from, size_t size)
{
    sink->vectors[sink->count].iov_base = from;
    sink->vectors[sink->count++].iov_len = size;
    sink->named += size;
}

static void end_run(sink_t *sink)
{
    if (sink->filled > sink->run)
        name(sink, sink->memory + sink->run, sink->filled - sink->run);
    sink->run = sink->filled;
}

/* At most as many bytes as there is room for: how many */
static size_t copy(sink_t *sink, const char *from, size_t size)
{
    size_t taken = sink->room - sink->filled < size ? sink->room - sink->filled : size;

    memcpy(sink->memory + sink->filled, from, taken);
    sink->filled += taken;
    return taken;
}

/* Whether a part lies in memory as it will in the file */
static int in_place(const sink_t *sink, const char *from, size_t size)
{
    size_t block = sink->block_bytes;

    return size >= IN_PLACE_MIN && (uintptr_t)from % block == sink->filled % block;
}

static int put_part(sink_t *sink, char *from, size_t left)
{
    size_t block = sink->block_bytes, taken;
    int error = 0;

    if (in_place(sink, from, left)) {
        taken = (block - sink->filled % block) % block; /* up to the end of its block: there is room, it has begun */
        if (taken > 0)
            copy(sink, from, taken);
        from += taken, left -= taken;
        end_run(sink);
        if (sink->position < 0 && sink->named >= sink->room)
            error = put(sink);
        for (; left >= block && error == 0; from += taken, left -= taken) {
            taken = left - left % block;
            /* An object is written in as large pieces as fit the memory, and not as a whole: the WAL's writes need not wait behind it. */
            if (sink->position < 0 && taken > sink->room - sink->named)
                taken = sink->room - sink->named;
            name(sink, from, taken);
            if (sink->count > VECTORS - 3 || sink->filled == sink->room || (sink->position < 0 && sink->named >= sink->room))
                error = put(sink);
        }
    }
    for (; left > 0 && error == 0; from += taken, left -= taken) {
        taken = copy(sink, from, left);
        if (sink->filled == sink->room) {
            end_run(sink);
            error = put(sink);
        }
    }
    return error;
}

static int put_parts(sink_t *sink, const parts_t *parts)
{
    int error = 0;

    for (Py_ssize_t at = 0; at < parts->count && error == 0; at++)
        error = put_part(sink, parts->views[at].buf, (size_t)parts->views[at].len);
    return error;
}

static int put_whole_blocks(sink_t *sink, const parts_t *parts)
{
    int error = put_parts(sink, parts);

    if (error == 0) {
        sink->filled -= sink->filled % sink->block_bytes;
        end_run(sink);
        error = put(sink);
    }
    return error;
}

static int put_padded(sink_t *sink, const parts_t *parts, size_t *last)
{
    int error = put_parts(sink, parts);
    size_t begun = sink->filled % sink->block_bytes;

    *last = sink->filled - begun;
    if (error != 0)
        return error;
    if (begun > 0) {
        memset(sink->memory + sink->filled, 0, sink->block_bytes - begun);
        sink->filled += sink->block_bytes - begun;
    }
    end_run(sink);
    return put(sink);
}
#endif

PyObject *write_blocks(PyObject *module, PyObject *args)
{
    PyObject *given;
    parts_t parts;
    int descriptor;
    long long written = 0;

    (void)module;
    if (!PyArg_ParseTuple(args, "iOw*n", &descriptor, &given, &parts.memory, &parts.block_bytes))
        return NULL;
    if (hold(&parts, given)) {
#ifndef _WIN32
        sink_t sink = {.descriptor = descriptor, .position = -1};

        open_sink(&sink, &parts);
        Py_BEGIN_ALLOW_THREADS
        put_whole_blocks(&sink, &parts);
        Py_END_ALLOW_THREADS
        written = sink.written;
#endif
    }
    let_go(&parts);
    return PyErr_Occurred() ? NULL : PyLong_FromLongLong(written);
}

PyObject *write_padded(PyObject *module, PyObject *args)
{
    PyObject *given;
    parts_t parts;
    int descriptor, error = ENOSYS;
    long long position;
    size_t last = 0;

    (void)module;
    if (!PyArg_ParseTuple(args, "iOw*nL", &descriptor, &given, &parts.memory, &parts.block_bytes, &position))
        return NULL;
    if (hold(&parts, given)) {
#ifndef _WIN32
        sink_t sink = {.descriptor = descriptor, .position = position};

        open_sink(&sink, &parts);
        Py_BEGIN_ALLOW_THREADS
        error = put_padded(&sink, &parts, &last);
        Py_END_ALLOW_THREADS
#endif
    }
    let_go(&parts);
    if (PyErr_Occurred())
        return NULL;
    if (error != 0) {
        errno = error;
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    return PyLong_FromSize_t(last);
}
