/* produce(body, flexible, by_id): a Produce request, cut into what it asks for, or None if anything about it is odd: then the reader
 * in Python says what. The answer is (transactional id, acks, timeout, [(topic, [(partition, start, end)])]); a topic is a str, or 16
 * bytes if `by_id`; records that are null have start -1. The twin is holdfast.gateways.kafka.produce's own reader. */
#include "wire.h"

typedef struct {
    const uint8_t *start, *at, *end;
    int flexible, odd;
} reader_t;

static int64_t number(reader_t *r, int size)
{
    int64_t value = 0;

    if (r->odd || r->end - r->at < size) {
        r->odd = 1;
        return 0;
    }
    for (int each = 0; each < size; each++)
        value = (int64_t)((uint64_t)value << 8 | *r->at++);
    return size == 4 ? (int32_t)value : size == 2 ? (int16_t)value : value;
}

static uint32_t uvarint(reader_t *r)
{
    uint32_t value = 0;

    if (!r->odd && read_u32(&r->at, r->end, &value) != SOUND)
        r->odd = 1;
    return value;
}

/* -1: null */
static int64_t length(reader_t *r, int size)
{
    int64_t value = r->flexible ? (int64_t)uvarint(r) - 1 : number(r, size);

    if (value < -1 || value > r->end - r->at)
        r->odd = 1;
    return r->odd ? -1 : value;
}

static const uint8_t *take(reader_t *r, int64_t size)
{
    const uint8_t *taken = r->at;

    if (r->odd || size < 0 || size > r->end - r->at) {
        r->odd = 1;
        return NULL;
    }
    r->at += size;
    return taken;
}

static void tags(reader_t *r)
{
    for (uint32_t left = r->flexible ? uvarint(r) : 0; left > 0 && !r->odd; left--) {
        uvarint(r);
        take(r, uvarint(r));
    }
}

/* NULL, with or without an exception: the latter is odd */
static PyObject *string(reader_t *r)
{
    int64_t size = length(r, 2);
    const uint8_t *taken;

    if (r->odd)
        return NULL;
    if (size < 0)
        return Py_NewRef(Py_None);
    taken = take(r, size);
    return PyUnicode_DecodeUTF8((const char *)taken, (Py_ssize_t)size, NULL);
}

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

    for (int64_t left = length(r, 4); list != NULL && left > 0; left--) {
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

/* None for what is odd, text that is no UTF-8 included; NULL for any other exception. */
static PyObject *none_if_odd(void)
{
    if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_UnicodeDecodeError))
        return NULL;
    PyErr_Clear();
    Py_RETURN_NONE;
}

PyObject *produce(PyObject *module, PyObject *args)
{
    Py_buffer body;
    reader_t r = {0};
    int by_id;
    PyObject *id, *topics = NULL, *found = NULL;
    long acks = 0, timeout = 0;

    (void)module;
    if (!PyArg_ParseTuple(args, "y*pp", &body, &r.flexible, &by_id))
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

/* ── runs ── */

enum { PRODUCE_KEY = 0, BATCH_LENGTH_AT = 8, RUN_MAX = 1024, RUN_FIELDS = 9 };

typedef struct {
    const uint8_t *frame, *same, *same_end; /* `same`: from the client's id to the partition's number */
    PyObject *client_id, *topic;
    int64_t bytes_max; /* of one request */
    long version, acks, timeout, partition;
    int flexible;
} run_t;

/* One whole frame, without its length; 0: there is none at `at`. */
static int whole_frame(const uint8_t *at, const uint8_t *end, int64_t bytes_max, const uint8_t **frame_end)
{
    int64_t size = end - at < 4 ? -1 : (int32_t)load_u32(at);

    if (size < HEADER_BYTES || size > bytes_max || end - at - 4 < size)
        return 0;
    *frame_end = at + 4 + size;
    return 1;
}

/* What the first request of a run asks for, up to its records; 0: not what a run is made of. */
static int run_head(reader_t *r, run_t *run, const long versions[4])
{
    reader_t header;
    const uint8_t *id;
    long key = (long)number(r, 2);

    run->version = (long)number(r, 2);
    if (r->odd || key != PRODUCE_KEY || run->version < versions[0] || run->version > versions[1])
        return 0;
    number(r, 4); /* the correlation id */
    run->same = r->at;
    header = *r; /* its strings are never compact */
    run->client_id = string(&header);
    r->at = header.at;
    if (run->client_id == NULL || header.odd)
        return 0;
    r->flexible = run->flexible = run->version >= versions[2];
    if (run->flexible && number(r, 1) != 0)
        return 0; /* tags */
    if (length(r, 2) != -1)
        return 0; /* transactional */
    run->acks = (long)number(r, 2);
    run->timeout = (long)number(r, 4);
    if (r->odd || (run->acks != -1 && run->acks != 1) || length(r, 4) != 1)
        return 0;
    if (run->version >= versions[3])
        run->topic = (id = take(r, 16)) == NULL ? NULL : PyBytes_FromStringAndSize((const char *)id, 16);
    else
        run->topic = string(r);
    if (run->topic == NULL || run->topic == Py_None || length(r, 4) != 1)
        return 0;
    run->partition = (long)number(r, 4);
    run->same_end = r->at;
    return !r->odd;
}

/* The records of a request, which have to be one batch, and nothing behind them; NULL: something else. */
static const uint8_t *one_batch(reader_t *r, int64_t *size)
{
    const uint8_t *records;

    *size = length(r, 4);
    records = r->odd || *size < HEADER_BYTES ? NULL : take(r, *size);
    if (records == NULL || (int64_t)load_u32(records + BATCH_LENGTH_AT) + LENGTH_COVERS_FROM != *size)
        return NULL;
    for (int tag = 0; r->flexible && tag < 3; tag++)
        if (number(r, 1) != 0)
            return NULL;
    return !r->odd && r->at == r->end ? records : NULL;
}

/* Consumes `correlations` and `payload`. */
static PyObject *made_run(PyTypeObject *kind, const run_t *run, Py_ssize_t bytes, PyObject *correlations, PyObject *payload)
{
    PyObject *items[RUN_FIELDS] = {
        PyLong_FromSsize_t(bytes), PyLong_FromLong(run->version), Py_NewRef(run->client_id),
        PyLong_FromLong(run->acks), PyLong_FromLong(run->timeout), Py_NewRef(run->topic),
        PyLong_FromLong(run->partition), correlations, payload,
    };

    return tuple_of_type(kind, items, RUN_FIELDS);
}

static PyObject *run_of(run_t *run, reader_t *r, const uint8_t *start, const uint8_t *end, Py_ssize_t most, PyTypeObject *kind)
{
    const uint8_t *batches[RUN_MAX], *frame = start, *frame_end = r->end;
    int64_t sizes[RUN_MAX];
    int32_t ids[RUN_MAX];
    Py_ssize_t count = 0, total = 0, same = run->same_end - run->same;
    PyObject *correlations, *payload;

    while ((batches[count] = one_batch(r, &sizes[count])) != NULL) {
        ids[count] = (int32_t)load_u32(frame + 8);
        total += (Py_ssize_t)sizes[count++];
        frame = frame_end;
        if (count == most || count == RUN_MAX || !whole_frame(frame, end, run->bytes_max, &frame_end) ||
            frame_end - frame < 12 + same || memcmp(frame + 4, run->frame, 4) != 0 || memcmp(frame + 12, run->same, (size_t)same) != 0)
            break;
        r->at = frame + 12 + same;
        r->end = frame_end;
    }
    if (count == 0)
        return NULL;
    correlations = PyList_New(count);
    payload = PyByteArray_FromStringAndSize(NULL, total);
    total = 0;
    for (Py_ssize_t at = 0; correlations != NULL && payload != NULL && at < count; at++) {
        PyObject *id = PyLong_FromLong(ids[at]);
        if (id == NULL) {
            Py_CLEAR(correlations);
            break;
        }
        PyList_SET_ITEM(correlations, at, id);
        memcpy(PyByteArray_AS_STRING(payload) + total, batches[at], (size_t)sizes[at]);
        total += (Py_ssize_t)sizes[at];
    }
    return made_run(kind, run, (Py_ssize_t)(frame - start), correlations, payload);
}

/* Four numbers of a tuple; 0: an error is set. */
static int four_numbers(PyObject *tuple, long numbers[4])
{
    if (!PyTuple_Check(tuple) || PyTuple_GET_SIZE(tuple) != 4) {
        PyErr_SetString(PyExc_TypeError, "versions are a tuple of four");
        return 0;
    }
    for (int at = 0; at < 4; at++)
        numbers[at] = PyLong_AsLong(PyTuple_GET_ITEM(tuple, at));
    return !PyErr_Occurred();
}

/* produce_run(data, at, most, bytes_max, (version_min, version_max, flexible_from, ids_from), kind): whole Produce requests one behind the
 * other, up to `most`, that differ in nothing but their correlation ids and one batch each; None if the first is no such request.
 * The answer is a tuple of type `kind`: (bytes, version, client id, acks, timeout, topic, partition, correlation ids, the batches one
 * behind the other). There is no twin: without it requests are read one by one. */
PyObject *produce_run(PyObject *module, PyObject *const *args, Py_ssize_t given)
{
    Py_buffer data;
    Py_ssize_t at, most, bytes_max;
    long versions[4];
    reader_t r = {0};
    run_t run = {0};
    const uint8_t *start, *end;
    PyObject *found = NULL;

    (void)module;
    if (given != 6) {
        PyErr_SetString(PyExc_TypeError, "produce_run takes six arguments");
        return NULL;
    }
    if (!is_tuple_type(args[5]))
        return NULL;
    at = PyLong_AsSsize_t(args[1]);
    most = PyLong_AsSsize_t(args[2]);
    bytes_max = PyLong_AsSsize_t(args[3]);
    if (PyErr_Occurred() || !four_numbers(args[4], versions) || PyObject_GetBuffer(args[0], &data, PyBUF_SIMPLE) < 0)
        return NULL;
    run.bytes_max = bytes_max;
    start = (const uint8_t *)data.buf + at;
    end = (const uint8_t *)data.buf + data.len;
    if (at >= 0 && at <= data.len && most > 0 && whole_frame(start, end, run.bytes_max, &r.end)) {
        r.start = r.at = run.frame = start + 4;
        if (run_head(&r, &run, versions))
            found = run_of(&run, &r, start, end, most, (PyTypeObject *)args[5]);
    }
    Py_XDECREF(run.client_id);
    Py_XDECREF(run.topic);
    PyBuffer_Release(&data);
    return found != NULL ? found : none_if_odd();
}
