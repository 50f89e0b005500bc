/* An append on its way to the disk: a PendingAppend of holdfast.log.wal, with all that is needed to write it without the interpreter. */
#include "append_queue.h"

#ifdef __linux__
#include <time.h>

enum { SOURCE_AT = 3, ENTRY_ITEMS = 5, FRAME_ITEMS = 11 };

int64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

void free_append(append_t *append)
{
    for (Py_ssize_t at = 0; at < append->parts; at++)
        PyBuffer_Release(&append->payload[at]);
    Py_XDECREF(append->entry);
    PyMem_Free(append);
}

void free_appends(append_t *append)
{
    for (append_t *next; append != NULL; append = next) {
        next = append->next;
        free_append(append);
    }
}

/* The entries of appends, which are let go of; NULL: there is no memory. */
PyObject *entries_of(append_t *append, Py_ssize_t count)
{
    PyObject *entries = PyList_New(count);

    for (Py_ssize_t at = 0; entries != NULL && at < count; at++) {
        append_t *next = append->next;
        PyList_SET_ITEM(entries, at, Py_NewRef(append->entry));
        free_append(append);
        append = next;
    }
    return entries;
}

PyObject *positions_of(const append_t *append, Py_ssize_t count)
{
    PyObject *positions = PyList_New(count);

    for (Py_ssize_t at = 0; positions != NULL && at < count; at++, append = append->next) {
        PyObject *position = PyLong_FromLongLong(append->position);
        if (position == NULL)
            Py_CLEAR(positions);
        else
            PyList_SET_ITEM(positions, at, position);
    }
    return positions;
}

/* What of a head is known before the frame has its place, and its payload; -1: an exception is set. */
static int prepare(append_t *append, PyObject *frame)
{
    PyObject *topic = PyTuple_GET_ITEM(frame, 0), *payload = PyTuple_GET_ITEM(frame, 5), *checksum = PyTuple_GET_ITEM(frame, 8);
    uint8_t *head = append->head;
    long long epoch = PyLong_AsLongLong(PyTuple_GET_ITEM(frame, 2)), base = PyLong_AsLongLong(PyTuple_GET_ITEM(frame, 3));
    long long partition = PyLong_AsLongLong(PyTuple_GET_ITEM(frame, 1)), count = PyLong_AsLongLong(PyTuple_GET_ITEM(frame, 4));
    long kind = PyLong_AsLong(PyTuple_GET_ITEM(frame, 6));

    append->known_crc = checksum != Py_None;
    append->crc = append->known_crc ? (uint32_t)PyLong_AsUnsignedLongMask(checksum) : 0;
    if (PyErr_Occurred())
        return -1;
    if (!PyBytes_Check(topic) || PyBytes_GET_SIZE(topic) != TOPIC_BYTES) {
        PyErr_SetString(PyExc_ValueError, "a topic id has 16 bytes");
        return -1;
    }
    append->kind = (int)kind;
    head[VERSION_AT] = FRAME_VERSION;
    head[KIND_AT] = (uint8_t)kind;
    memcpy(head + TOPIC_AT, PyBytes_AS_STRING(topic), TOPIC_BYTES);
    store_number(head + EPOCH_AT, (uint64_t)epoch, 8);
    store_number(head + BASE_AT, (uint64_t)base, 8);
    store_number(head + PARTITION_AT, (uint64_t)partition, 4);
    store_number(head + COUNT_AT, (uint64_t)count, 4);
    store_number(head + PAYLOAD_BYTES_AT, (uint64_t)(append->size - FRAME_BYTES), 4);
    for (Py_ssize_t at = 0, given = PySequence_Fast_GET_SIZE(payload), held = 0; at < given; at++) {
        if (PyObject_GetBuffer(PySequence_Fast_GET_ITEM(payload, at), &append->payload[at], PyBUF_SIMPLE) < 0)
            return -1;
        append->parts++;
        held += append->payload[at].len;
        if (at == given - 1 && held != append->size - FRAME_BYTES) {
            PyErr_SetString(PyExc_ValueError, "the payload has another size than its append says");
            return -1;
        }
    }
    return 0;
}

static int is_payload(PyObject *payload)
{
    return (PyTuple_Check(payload) || PyList_Check(payload)) && PySequence_Fast_GET_SIZE(payload) >= 1 &&
           PySequence_Fast_GET_SIZE(payload) <= PARTS_MAX;
}

static int is_plain(PyObject *entry, Py_ssize_t size)
{
    PyObject *frame = PyTuple_GET_ITEM(entry, 0);

    return size >= FRAME_BYTES && size <= PLAIN_BYTES_MAX && PyTuple_GET_ITEM(entry, SOURCE_AT) == Py_None && PyTuple_Check(frame) &&
           PyTuple_GET_SIZE(frame) == FRAME_ITEMS && is_payload(PyTuple_GET_ITEM(frame, 5));
}

append_t *new_append(PyObject *entry, int plain)
{
    Py_ssize_t parts, size;
    append_t *append;

    if (!PyTuple_Check(entry) || PyTuple_GET_SIZE(entry) != ENTRY_ITEMS) {
        PyErr_SetString(PyExc_TypeError, "a pending append is needed");
        return NULL;
    }
    size = PyLong_AsSsize_t(PyTuple_GET_ITEM(entry, 1));
    if (size == -1 && PyErr_Occurred())
        return NULL;
    plain = plain && is_plain(entry, size);
    parts = plain ? PySequence_Fast_GET_SIZE(PyTuple_GET_ITEM(PyTuple_GET_ITEM(entry, 0), 5)) : 0;
    append = PyMem_Calloc(1, sizeof(append_t) + (size_t)parts * sizeof(Py_buffer));
    if (append == NULL)
        return (append_t *)PyErr_NoMemory();
    append->entry = Py_NewRef(entry);
    append->size = size;
    append->plain = (char)plain;
    append->pushed_ns = now_ns();
    if (plain && prepare(append, PyTuple_GET_ITEM(entry, 0)) < 0) {
        free_append(append);
        return NULL;
    }
    return append;
}
#endif
