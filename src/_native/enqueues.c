/* pack_enqueue_keys(messages): the keys of the records of plain messages, of one producer after another or of none;
 * sequence_run(keys): the numbers of a producer's sequence, if keys are one that grows. Both return None for what Python has to
 * look at: holdfast.heap.records.enqueue_keys and holdfast.heap.dedup are their twins, and say what they mean. */
#include "batch.h"
#include "heap_records.h"

/* 1 with the number, 0 if it is none of 64 bits. */
static int read_long(PyObject *given, int64_t *number)
{
    int overflow;
    if (!PyLong_CheckExact(given))
        return 0;
    *number = PyLong_AsLongLongAndOverflow(given, &overflow);
    return !overflow;
}

/* A producer's sequence number: 1 with its parts, which are borrowed, 0 if it is none. */
static int read_sequence(PyObject *given, PyObject **name, int64_t *epoch, int64_t *number)
{
    if (!PyTuple_Check(given) || PyTuple_GET_SIZE(given) != 3 || !PyUnicode_CheckExact(PyTuple_GET_ITEM(given, 0)))
        return 0;
    *name = PyTuple_GET_ITEM(given, 0);
    return read_long(PyTuple_GET_ITEM(given, 1), epoch) && read_long(PyTuple_GET_ITEM(given, 2), number);
}

/* The key of one message: a new reference, None if Python has to look at it, NULL on a Python error. */
static PyObject *pack_key(PyObject *message)
{
    PyObject *producer, *name = NULL, *key;
    Py_ssize_t name_bytes = 0;
    int64_t priority, not_before, retries, epoch = 0, number = 0;
    const char *text = NULL;
    uint8_t *out;
    if (!PyTuple_Check(message) || PyTuple_GET_SIZE(message) != ENQUEUE_FIELDS ||
        PyTuple_GET_ITEM(message, PARTITION_KEY) != Py_None || PyTuple_GET_ITEM(message, ORIGIN) != Py_None ||
        PyTuple_GET_ITEM(message, FAIRNESS_KEY) != Py_None || !read_long(PyTuple_GET_ITEM(message, PRIORITY), &priority) ||
        !read_long(PyTuple_GET_ITEM(message, NOT_BEFORE), &not_before) ||
        !read_long(PyTuple_GET_ITEM(message, MAX_RETRIES), &retries) || retries != (int32_t)retries)
        Py_RETURN_NONE;
    producer = PyTuple_GET_ITEM(message, PRODUCER);
    if (producer != Py_None) {
        if (!read_sequence(producer, &name, &epoch, &number))
            Py_RETURN_NONE;
        if ((text = PyUnicode_AsUTF8AndSize(name, &name_bytes)) == NULL)
            return NULL;
        if (name_bytes > NAME_BYTES_MAX)
            Py_RETURN_NONE;
    }
    key = PyBytes_FromStringAndSize(NULL, ENQUEUE_BYTES + (name == NULL ? 0 : 2 + name_bytes + SEQUENCE_BYTES));
    if (key == NULL)
        return NULL;
    out = (uint8_t *)PyBytes_AS_STRING(key);
    *out++ = RECORD_VERSION;
    *out++ = OP_ENQUEUE;
    *out++ = name == NULL ? 0 : FLAG_PRODUCER;
    out = store_number(out, (uint64_t)priority, 8);
    out = store_number(out, (uint64_t)not_before, 8);
    out = store_number(out, (uint64_t)retries, 4);
    if (name != NULL) {
        out = store_number(out, (uint64_t)name_bytes, 2);
        memcpy(out, text, (size_t)name_bytes);
        out = store_number(out + name_bytes, (uint64_t)epoch, 8);
        store_number(out, (uint64_t)number, 8);
    }
    return key;
}

PyObject *pack_enqueue_keys(PyObject *module, PyObject *given)
{
    PyObject *messages = PySequence_Fast(given, "messages can be counted"), *keys, *key;
    Py_ssize_t i;
    (void)module;
    if (messages == NULL)
        return NULL;
    keys = PyList_New(PySequence_Fast_GET_SIZE(messages));
    for (i = 0; keys != NULL && i < PyList_GET_SIZE(keys); i++) {
        if ((key = pack_key(PySequence_Fast_GET_ITEM(messages, i))) != NULL && key != Py_None) {
            PyList_SET_ITEM(keys, i, key);
            continue;
        }
        Py_DECREF(keys);
        keys = key; /* none, or an error */
        break;
    }
    Py_DECREF(messages);
    return keys;
}

/* (producer, epoch, numbers): the numbers as the bytes of an array of 64 bits. */
PyObject *sequence_run(PyObject *module, PyObject *given)
{
    PyObject *keys = PySequence_Fast(given, "keys can be counted"), *first = NULL, *name = NULL, *numbers = NULL, *found;
    int64_t epoch, number, before = 0, first_epoch = 0;
    Py_ssize_t i, count;
    (void)module;
    if (keys == NULL)
        return NULL;
    count = PySequence_Fast_GET_SIZE(keys);
    if (count > 0 && (numbers = PyBytes_FromStringAndSize(NULL, count * (Py_ssize_t)sizeof number)) == NULL) {
        Py_DECREF(keys);
        return NULL;
    }
    for (i = 0; i < count; i++) {
        if (!read_sequence(PySequence_Fast_GET_ITEM(keys, i), &name, &epoch, &number))
            break;
        if (i == 0) {
            first = name;
            first_epoch = epoch;
        } else if (epoch != first_epoch || number <= before || (name != first && PyUnicode_Compare(name, first) != 0))
            break;
        memcpy(PyBytes_AS_STRING(numbers) + i * (Py_ssize_t)sizeof number, &number, sizeof number);
        before = number;
    }
    if (count > 0 && i == count)
        found = Py_BuildValue("OLO", first, (long long)first_epoch, numbers);
    else
        found = Py_NewRef(Py_None);
    Py_XDECREF(numbers);
    Py_DECREF(keys);
    if (PyErr_Occurred())
        Py_CLEAR(found);
    return found;
}
