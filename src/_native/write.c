/* write(records, base_offset, reserve): the records as wire bytes behind `reserve` free bytes, with count, last offset
 * delta, first and greatest timestamp; or the first fault. write_values(values, key, timestamp, reserve) is the same for
 * values without headers that have one key and one timestamp. Wrong types raise, as in the Python twin. */
#include "wire.h"

enum { RECORD_OVERHEAD_MAX = 5 + 1 + 10 + 5 + 5 + 5 + 5, GUESSED_BYTES = 64 };

typedef struct {
    PyObject *out; /* a bytearray nobody else has seen, longer than what is used */
    Py_ssize_t used;
} sink_t;

static int make_room(sink_t *sink, Py_ssize_t more)
{
    Py_ssize_t size = PyByteArray_GET_SIZE(sink->out);
    if (more <= size - sink->used)
        return 0;
    if (more > PY_SSIZE_T_MAX / 4 - sink->used) {
        PyErr_NoMemory();
        return -1;
    }
    return PyByteArray_Resize(sink->out, (sink->used + more) * 2);
}

static void put_varint(sink_t *sink, int64_t value)
{
    uint8_t *p = (uint8_t *)PyByteArray_AS_STRING(sink->out) + sink->used;
    uint64_t left = ((uint64_t)value << 1) ^ (uint64_t)(value < 0 ? -1 : 0);
    for (; left >= 0x80; left >>= 7, sink->used++)
        *p++ = (uint8_t)(left | 0x80);
    *p = (uint8_t)left;
    sink->used++;
}

static int varint_bytes(int64_t value)
{
    uint64_t left = ((uint64_t)value << 1) ^ (uint64_t)(value < 0 ? -1 : 0);
    int n = 1;
    for (; left >= 0x80; left >>= 7)
        n++;
    return n;
}

/* A length and the bytes; room for the length is the caller's. */
static int put_text(sink_t *sink, const char *text, Py_ssize_t length)
{
    if (make_room(sink, length + RECORD_OVERHEAD_MAX) < 0)
        return -1;
    put_varint(sink, length);
    memcpy(PyByteArray_AS_STRING(sink->out) + sink->used, text, (size_t)length);
    sink->used += length;
    return 0;
}

static int put_bytes(sink_t *sink, PyObject *value)
{
    Py_buffer buffer;
    int failed;
    if (value == Py_None) {
        if (make_room(sink, RECORD_OVERHEAD_MAX) < 0)
            return -1;
        put_varint(sink, -1);
        return 0;
    }
    if (PyBytes_CheckExact(value))
        return put_text(sink, PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value));
    if (PyObject_GetBuffer(value, &buffer, PyBUF_SIMPLE) < 0)
        return -1;
    failed = put_text(sink, buffer.buf, buffer.len);
    PyBuffer_Release(&buffer);
    return failed;
}

static int put_header(sink_t *sink, PyObject *pair)
{
    const char *text;
    Py_ssize_t length;
    if (!PyTuple_Check(pair) || PyTuple_GET_SIZE(pair) != 2) {
        PyErr_SetString(PyExc_TypeError, "a header is a (key, value) tuple");
        return -1;
    }
    if (!PyUnicode_Check(PyTuple_GET_ITEM(pair, 0))) {
        PyErr_SetString(PyExc_TypeError, "a header's key is a str");
        return -1;
    }
    text = PyUnicode_AsUTF8AndSize(PyTuple_GET_ITEM(pair, 0), &length);
    if (text == NULL || put_text(sink, text, length) < 0)
        return -1;
    return put_bytes(sink, PyTuple_GET_ITEM(pair, 1));
}

/* The body, then its length in front of it: moved only when the guessed width of the length was wrong. */
static int put_record(sink_t *sink, PyObject *record, int64_t offset_delta, int64_t timestamp_delta)
{
    PyObject *headers = PyTuple_GET_ITEM(record, 4), *value = PyTuple_GET_ITEM(record, 3);
    Py_ssize_t start = sink->used, body, i;
    int gap = varint_bytes(PyBytes_CheckExact(value) ? PyBytes_GET_SIZE(value) + 20 : 0), width;
    char *out;
    if (!PyTuple_Check(headers)) {
        PyErr_SetString(PyExc_TypeError, "headers are a tuple");
        return -1;
    }
    if (make_room(sink, gap + RECORD_OVERHEAD_MAX) < 0)
        return -1;
    sink->used += gap;
    PyByteArray_AS_STRING(sink->out)[sink->used++] = 0;
    put_varint(sink, timestamp_delta);
    put_varint(sink, offset_delta);
    if (put_bytes(sink, PyTuple_GET_ITEM(record, 2)) < 0 || put_bytes(sink, value) < 0 ||
        make_room(sink, RECORD_OVERHEAD_MAX) < 0)
        return -1;
    put_varint(sink, PyTuple_GET_SIZE(headers));
    for (i = 0; i < PyTuple_GET_SIZE(headers); i++)
        if (put_header(sink, PyTuple_GET_ITEM(headers, i)) < 0)
            return -1;
    if (make_room(sink, RECORD_OVERHEAD_MAX) < 0)
        return -1;
    body = sink->used - start - gap;
    width = varint_bytes(body);
    out = PyByteArray_AS_STRING(sink->out) + start;
    if (width != gap)
        memmove(out + width, out + gap, (size_t)body);
    sink->used = start;
    put_varint(sink, body);
    sink->used += body;
    return 0;
}

static int read_number(PyObject *record, Py_ssize_t field, int64_t *value)
{
    *value = PyLong_AsLongLong(PyTuple_GET_ITEM(record, field));
    return *value == -1 && PyErr_Occurred() ? -1 : 0;
}

PyObject *write_records(PyObject *module, PyObject *args)
{
    PyObject *given, *records, *result = NULL;
    long long base_offset;
    Py_ssize_t reserve, count, i;
    int64_t first = -1, greatest = -1, previous = -1, offset, timestamp;
    sink_t sink = {NULL, 0};
    fault_t fault = {SOUND, 0, -1, 0};

    (void)module;
    if (!PyArg_ParseTuple(args, "OLn", &given, &base_offset, &reserve))
        return NULL;
    if (base_offset < 0 || reserve < 0 || reserve > 4096) {
        PyErr_SetString(PyExc_ValueError, "base_offset and reserve are not negative, reserve is small");
        return NULL;
    }
    if ((records = PySequence_Tuple(given)) == NULL)
        return NULL;
    count = PyTuple_GET_SIZE(records);
    sink.out = PyByteArray_FromStringAndSize(NULL, reserve + GUESSED_BYTES * (count < 65536 ? count + 1 : 65536));
    if (sink.out == NULL)
        goto done;
    memset(PyByteArray_AS_STRING(sink.out), 0, (size_t)reserve);
    sink.used = reserve;
    for (i = 0; i < count; i++) {
        PyObject *record = PyTuple_GET_ITEM(records, i);
        if (!PyTuple_Check(record) || PyTuple_GET_SIZE(record) != 5) {
            PyErr_SetString(PyExc_TypeError, "a record is a tuple of offset, timestamp, key, value, headers");
            goto done;
        }
        if (read_number(record, 0, &offset) < 0 || read_number(record, 1, &timestamp) < 0)
            goto done;
        fault.record = i;
        if (offset < base_offset || offset - base_offset <= previous || offset - base_offset > INT32_MAX) {
            fault.rule = RULE_OFFSET_DELTA;
            fault.given = offset;
            break;
        }
        if (i == 0)
            first = timestamp;
        if (timestamp < -1 || (first < 0 && timestamp == INT64_MAX)) { /* the delta would not fit */
            fault.rule = RULE_RECORD_TIMESTAMP;
            fault.given = timestamp;
            break;
        }
        if (timestamp > greatest)
            greatest = timestamp;
        previous = offset - base_offset;
        if (put_record(&sink, record, previous, timestamp - first) < 0)
            goto done;
        if (sink.used - reserve > INT32_MAX - HEADER_BYTES) {
            fault.rule = RULE_SIZE;
            fault.given = sink.used - reserve;
            break;
        }
    }
    if (fault.rule != SOUND)
        result = fault_tuple(&fault);
    else if (PyByteArray_Resize(sink.out, sink.used) == 0)
        result = Py_BuildValue("OnLLL", sink.out, count, (long long)previous, (long long)first, (long long)greatest);
done:
    Py_XDECREF(sink.out);
    Py_DECREF(records);
    return result;
}

/* The bytes of a value, borrowed from it; the caller releases the buffer. */
static int borrow(PyObject *value, Py_buffer *buffer)
{
    if (value == Py_None) {
        memset(buffer, 0, sizeof *buffer);
        buffer->len = -1;
        return 0;
    }
    return PyObject_GetBuffer(value, buffer, PyBUF_SIMPLE);
}

static Py_ssize_t text_bytes(Py_ssize_t length) { return varint_bytes(length) + (length > 0 ? length : 0); }

static void put_borrowed(sink_t *sink, const Py_buffer *buffer)
{
    put_varint(sink, buffer->len);
    if (buffer->len > 0) {
        memcpy(PyByteArray_AS_STRING(sink->out) + sink->used, buffer->buf, (size_t)buffer->len);
        sink->used += buffer->len;
    }
}

static int put_value(sink_t *sink, const Py_buffer *key, PyObject *given, Py_ssize_t offset_delta)
{
    Py_buffer value;
    Py_ssize_t body;
    int failed;
    if (borrow(given, &value) < 0)
        return -1;
    body = 1 + 1 + varint_bytes(offset_delta) + text_bytes(key->len) + text_bytes(value.len) + 1;
    failed = make_room(sink, body + RECORD_OVERHEAD_MAX) < 0;
    if (!failed) {
        put_varint(sink, body);
        PyByteArray_AS_STRING(sink->out)[sink->used++] = 0; /* attributes */
        put_varint(sink, 0);                                /* timestamp delta */
        put_varint(sink, offset_delta);
        put_borrowed(sink, key);
        put_borrowed(sink, &value);
        put_varint(sink, 0); /* headers */
    }
    PyBuffer_Release(&value);
    return failed ? -1 : 0;
}

PyObject *write_values(PyObject *module, PyObject *args)
{
    PyObject *given, *key_given, *values, *result = NULL;
    long long timestamp;
    Py_ssize_t reserve, count, i;
    Py_buffer key;
    sink_t sink = {NULL, 0};
    fault_t fault = {SOUND, 0, -1, 0};

    (void)module;
    if (!PyArg_ParseTuple(args, "OOLn", &given, &key_given, &timestamp, &reserve))
        return NULL;
    if (timestamp < -1 || reserve < 0 || reserve > 4096) {
        PyErr_SetString(PyExc_ValueError, "timestamp and reserve are not negative, reserve is small");
        return NULL;
    }
    if ((values = PySequence_Tuple(given)) == NULL)
        return NULL;
    if (borrow(key_given, &key) < 0) {
        Py_DECREF(values);
        return NULL;
    }
    count = PyTuple_GET_SIZE(values);
    sink.out = PyByteArray_FromStringAndSize(NULL, reserve + 2 * GUESSED_BYTES * (count < 65536 ? count + 1 : 65536));
    if (sink.out == NULL)
        goto done;
    memset(PyByteArray_AS_STRING(sink.out), 0, (size_t)reserve);
    sink.used = reserve;
    for (i = 0; i < count; i++) {
        if (put_value(&sink, &key, PyTuple_GET_ITEM(values, i), i) < 0)
            goto done;
        if (sink.used - reserve > INT32_MAX - HEADER_BYTES) {
            fault = (fault_t){RULE_SIZE, 0, i, sink.used - reserve};
            result = fault_tuple(&fault);
            goto done;
        }
    }
    if (PyByteArray_Resize(sink.out, sink.used) == 0)
        result = Py_BuildValue("OnnLL", sink.out, count, count - 1, count ? timestamp : -1, count ? timestamp : -1);
done:
    Py_XDECREF(sink.out);
    PyBuffer_Release(&key);
    Py_DECREF(values);
    return result;
}
