/* produce(body, flexible, by_id, entries_max): a Produce request, cut into what it asks for, or None if anything about it is odd: then
 * the reader in Python says what. More topics and partitions than `entries_max` are odd. The answer is (transactional id, acks,
 * timeout, [(topic, [(partition, start, end)])]); a topic is a str, or 16 bytes if `by_id`; records that are null have start -1. The
 * twin is holdfast.gateways.kafka.produce's own reader. */
#include "request.h"

static PyObject *partition(reader_t *r)
{
    int64_t index = number(r, 4), size = length(r, 4);
    Py_ssize_t from = size < 0 ? -1 : r->at - r->start;

    if (size > 0)
        take(r, size);
    tags(r);
    return r->odd ? NULL : Py_BuildValue("(Lnn)", (long long)index, from, from + (Py_ssize_t)(size < 0 ? 0 : size));
}

static PyObject *topic(reader_t *r, int by_id);

static PyObject *listed(reader_t *r, int by_id, int topics)
{
    PyObject *list = PyList_New(0), *each;
    int64_t left = length(r, 4);

    if (left > r->entries_left)
        r->odd = 1;
    else if (left > 0)
        r->entries_left -= left;
    for (; list != NULL && !r->odd && left > 0; left--) {
        each = topics ? topic(r, by_id) : partition(r);
        if (each == NULL || PyList_Append(list, each) < 0)
            Py_CLEAR(list);
        Py_XDECREF(each);
    }
    if (r->odd)
        Py_CLEAR(list);
    return list;
}

static PyObject *topic(reader_t *r, int by_id)
{
    const uint8_t *id = by_id ? take(r, 16) : NULL;
    PyObject *named = !by_id ? string(r) : id != NULL ? PyBytes_FromStringAndSize((const char *)id, 16) : NULL;
    PyObject *asks = named != NULL ? listed(r, by_id, 0) : NULL, *both = NULL;

    if (named == Py_None)
        r->odd = 1; /* a topic has a name */
    tags(r);
    if (asks != NULL && !r->odd)
        both = PyTuple_Pack(2, named, asks);
    Py_XDECREF(named);
    Py_XDECREF(asks);
    return both;
}

PyObject *produce(PyObject *module, PyObject *args)
{
    Py_buffer body;
    reader_t r = {0};
    int by_id;
    PyObject *id, *topics = NULL, *found = NULL;
    long acks = 0, timeout = 0;

    (void)module;
    if (!PyArg_ParseTuple(args, "y*ppL", &body, &r.flexible, &by_id, &r.entries_left))
        return NULL;
    r.start = r.at = body.buf;
    r.end = r.start + body.len;
    id = string(&r);
    if (id != NULL) {
        acks = (long)number(&r, 2);
        timeout = (long)number(&r, 4);
        topics = listed(&r, by_id, 1);
        tags(&r);
    }
    if (topics != NULL && !r.odd && r.at == r.end)
        found = Py_BuildValue("(OllO)", id, acks, timeout, topics);
    Py_XDECREF(id);
    Py_XDECREF(topics);
    PyBuffer_Release(&body);
    return found != NULL ? found : none_if_odd();
}
