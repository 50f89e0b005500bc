/* Records as messages of a heap: picked_messages(data, kinds, otherwise, wanted) of records that were picked (picks.c),
 * enqueues_of(records, kinds) of others; stored_bytes(messages, …): what messages take in memory. The twins in Python are in
 * holdfast.heap.picks. */
#include "heap_records.h"
#include "wire.h"

enum { WORD_BYTES = 8, PREFIX_BYTES = 2 * WORD_BYTES };

/* exempt(messages): the collector has no more work with these tuples and those in them, down to texts, numbers and bytes: no cycle
 * goes through a message. */
static void exempt_tuple(PyObject *given)
{
    Py_ssize_t i;
    if (PyTuple_Check(given)) {
        if (PyObject_GC_IsTracked(given))
            PyObject_GC_UnTrack(given);
        for (i = 0; i < PyTuple_GET_SIZE(given); i++)
            exempt_tuple(PyTuple_GET_ITEM(given, i));
    }
}

PyObject *exempt(PyObject *module, PyObject *messages)
{
    Py_ssize_t i;
    (void)module;
    if (!PyList_Check(messages)) {
        PyErr_SetString(PyExc_TypeError, "a list of messages");
        return NULL;
    }
    for (i = 0; i < PyList_GET_SIZE(messages); i++)
        exempt_tuple(PyList_GET_ITEM(messages, i));
    return Py_NewRef(messages);
}

/* An instance of a tuple type whose items are no containers: no cycle goes through it, so the collector has no work with it. */
static PyObject *plain_tuple(PyTypeObject *type, PyObject **items, Py_ssize_t count)
{
    PyObject *made = tuple_of_type(type, items, count);
    if (made != NULL)
        PyObject_GC_UnTrack(made);
    return made;
}

typedef struct {
    PyTypeObject *enqueue, *stored, *sequence;
    PyObject *otherwise;
    PyObject *name; /* of the last producer: the next one is mostly the same */
} kinds_t;

/* A text of a key: 1 with a new reference, 0 if it is none, -1 on a Python error. */
static int read_text(const uint8_t **at, const uint8_t *end, PyObject **last, PyObject **text)
{
    Py_ssize_t bytes, known_bytes;
    const char *known;
    if (end - *at < 2)
        return 0;
    bytes = load_u16(*at);
    if (end - *at - 2 < bytes)
        return 0;
    if (last != NULL && *last != NULL && (known = PyUnicode_AsUTF8AndSize(*last, &known_bytes)) != NULL &&
        known_bytes == bytes && memcmp(known, *at + 2, (size_t)bytes) == 0)
        *text = Py_NewRef(*last);
    else if ((*text = PyUnicode_DecodeUTF8((const char *)*at + 2, bytes, NULL)) == NULL) {
        if (!PyErr_ExceptionMatches(PyExc_UnicodeDecodeError))
            return -1;
        PyErr_Clear();
        return 0;
    }
    if (last != NULL)
        Py_XSETREF(*last, Py_NewRef(*text));
    *at += 2 + bytes;
    return 1;
}

static int read_producer(const uint8_t **at, const uint8_t *end, kinds_t *kinds, PyObject **producer)
{
    PyObject *items[3];
    int read = read_text(at, end, &kinds->name, &items[0]);
    if (read != 1)
        return read;
    if (end - *at < SEQUENCE_BYTES) {
        Py_DECREF(items[0]);
        return 0;
    }
    items[1] = PyLong_FromLongLong((int64_t)load_u64(*at));
    items[2] = PyLong_FromLongLong((int64_t)load_u64(*at + WORD_BYTES));
    *at += SEQUENCE_BYTES;
    *producer = plain_tuple(kinds->sequence, items, 3);
    return *producer == NULL ? -1 : 1;
}

static int is_plain(const record_t *record)
{
    const uint8_t *p = record->key;
    return p != NULL && record->value != NULL && record->key_bytes >= ENQUEUE_BYTES && p[0] == RECORD_VERSION &&
           p[1] == OP_ENQUEUE && !(p[2] & ~(FLAG_PRODUCER | FLAG_PARTITION_KEY | FLAG_FAIRNESS_KEY));
}

/* The plain ENQUEUE of a record, whose payload is made if it is NULL: 1 with a new reference, 0 if Python has to look at it, -1 on a Python error. */
static int read_enqueue(const record_t *record, PyObject *payload, PyObject *headers, kinds_t *kinds, PyObject **enqueue)
{
    const uint8_t *p = record->key, *end = p + record->key_bytes;
    PyObject *producer = NULL, *partition_key = NULL, *fairness_key = NULL, *items[ENQUEUE_FIELDS];
    int flags, read = 1, i;
    flags = p[2];
    p += ENQUEUE_BYTES;
    if (flags & FLAG_PRODUCER)
        read = read_producer(&p, end, kinds, &producer);
    if (read == 1 && flags & FLAG_PARTITION_KEY)
        read = read_text(&p, end, NULL, &partition_key);
    if (read == 1 && flags & FLAG_FAIRNESS_KEY)
        read = read_text(&p, end, NULL, &fairness_key);
    if (read != 1) {
        Py_XDECREF(producer);
        Py_XDECREF(partition_key);
        return read;
    }
    items[PRIORITY] = PyLong_FromLongLong((int64_t)load_u64(record->key + 3));
    items[PAYLOAD] = payload != NULL ? Py_NewRef(payload)
                                     : PyBytes_FromStringAndSize((const char *)record->value, record->value_bytes);
    items[NOT_BEFORE] = PyLong_FromLongLong((int64_t)load_u64(record->key + 11));
    items[MAX_RETRIES] = PyLong_FromLong((int32_t)load_u32(record->key + 19));
    items[PRODUCER] = producer;
    items[PARTITION_KEY] = partition_key;
    items[ORIGIN] = NULL; /* where it was before: Python reads that */
    items[HEADERS] = Py_NewRef(headers);
    items[FAIRNESS_KEY] = fairness_key;
    for (i = PRODUCER; i < ENQUEUE_FIELDS; i++)
        if (items[i] == NULL)
            items[i] = Py_NewRef(Py_None);
    *enqueue = plain_tuple(kinds->enqueue, items, ENQUEUE_FIELDS);
    return *enqueue == NULL ? -1 : 1;
}

/* What of the picked records is wanted: what `ready` or `needed` has, and none of `here`. Without one: everything. */
typedef struct {
    PyObject *ready, *needed, *here;
} wanted_t;

/* -1 on a Python error. */
static int is_wanted(const wanted_t *wanted, PyObject *offset)
{
    Py_ssize_t i;
    int found = wanted->ready == NULL;
    if (found)
        return 1;
    for (i = 0; i < PyTuple_GET_SIZE(wanted->here); i++)
        if ((found = PySequence_Contains(PyTuple_GET_ITEM(wanted->here, i), offset)) != 0)
            return found < 0 ? -1 : 0;
    found = PySequence_Contains(wanted->ready, offset);
    return found != 0 ? found : PySequence_Contains(wanted->needed, offset);
}

static int read_wanted(PyObject *chosen, wanted_t *wanted)
{
    return PyArg_ParseTuple(chosen, "OOO!", &wanted->ready, &wanted->needed, &PyTuple_Type, &wanted->here);
}

/* wanted_of(offsets, wanted): the offsets that are, in their order. */
PyObject *wanted_of(PyObject *module, PyObject *args)
{
    PyObject *given, *chosen, *offsets, *found;
    wanted_t wanted = {0};
    Py_ssize_t i;
    int added;
    (void)module;
    if (!PyArg_ParseTuple(args, "OO!", &given, &PyTuple_Type, &chosen) || !read_wanted(chosen, &wanted))
        return NULL;
    if ((offsets = PySequence_Fast(given, "offsets can be counted")) == NULL)
        return NULL;
    found = PyList_New(0);
    for (i = 0; found != NULL && i < PySequence_Fast_GET_SIZE(offsets); i++) {
        PyObject *offset = PySequence_Fast_GET_ITEM(offsets, i);
        if ((added = is_wanted(&wanted, offset)) > 0)
            added = PyList_Append(found, offset);
        if (added < 0)
            Py_CLEAR(found);
    }
    Py_DECREF(offsets);
    return found;
}

static int add_message(PyObject *found, int64_t offset, int64_t timestamp, const record_t *record, PyObject *headers,
                       kinds_t *kinds, const wanted_t *wanted)
{
    PyObject *items[2], *key = NULL, *message = NULL, *pair;
    int read, added;
    if (is_plain(record)) {
        if ((key = PyLong_FromLongLong(offset)) == NULL)
            return -1;
        if ((added = is_wanted(wanted, key)) <= 0) {
            Py_DECREF(key);
            return added;
        }
    }
    if ((read = key == NULL ? 0 : read_enqueue(record, NULL, headers, kinds, &items[0])) == 1) {
        items[1] = PyLong_FromLongLong(timestamp);
        message = plain_tuple(kinds->stored, items, 2);
    } else if (read == 0) {
        Py_CLEAR(key);
        pair = PyObject_CallFunction(kinds->otherwise, "LLy#y#O", (long long)offset, (long long)timestamp, record->key,
                                     (Py_ssize_t)(record->key == NULL ? 0 : record->key_bytes), record->value,
                                     (Py_ssize_t)(record->value == NULL ? 0 : record->value_bytes), headers);
        if (pair == Py_None) { /* a record of something else */
            Py_DECREF(pair);
            return 0;
        }
        if (pair != NULL && PyArg_ParseTuple(pair, "OO", &key, &message)) {
            Py_INCREF(key);
            Py_INCREF(message);
        }
        Py_XDECREF(pair);
    }
    added = message == NULL ? -1 : read == 1 ? 1 : is_wanted(wanted, key);
    if (added > 0)
        added = PyDict_SetItem(found, key, message);
    Py_XDECREF(key);
    Py_XDECREF(message);
    return added < 0 ? -1 : 0;
}

/* The messages of picked records by offset. `kinds`: Enqueue, StoredMessage, ProducerSequence. What is no plain ENQUEUE goes to
 * `otherwise`, which returns an offset and a message, or None. `wanted`: None, or (ready, needed, here), see wanted_t. */
PyObject *picked_messages(PyObject *module, PyObject *args)
{
    Py_buffer data;
    PyObject *enqueue, *stored, *sequence, *chosen, *found = NULL, *headers;
    kinds_t kinds = {0};
    wanted_t wanted = {0};
    header_t header = {0};
    const uint8_t *p, *end;

    (void)module;
    if (!PyArg_ParseTuple(args, "y*(OOO)OO", &data, &enqueue, &stored, &sequence, &kinds.otherwise, &chosen))
        return NULL;
    if (chosen != Py_None && !read_wanted(chosen, &wanted))
        goto done;
    if (!is_tuple_type(enqueue) || !is_tuple_type(stored) || !is_tuple_type(sequence) || (found = PyDict_New()) == NULL)
        goto done;
    kinds.enqueue = (PyTypeObject *)enqueue;
    kinds.stored = (PyTypeObject *)stored;
    kinds.sequence = (PyTypeObject *)sequence;
    p = data.buf;
    end = p + data.len;
    while (p < end) {
        int64_t offset = 0, timestamp = 0, given;
        record_t record;
        int rule = RULE_RECORD_CUT, failed;
        headers = NULL;
        if (end - p > PREFIX_BYTES) {
            memcpy(&offset, p, sizeof offset);
            memcpy(&timestamp, p + WORD_BYTES, sizeof timestamp);
            p += PREFIX_BYTES;
            if ((rule = read_record(&p, end, &header, &record, &given)) == SOUND)
                headers = header_pairs(&record, &rule, &given);
        }
        if (rule != SOUND)
            PyErr_SetString(PyExc_ValueError, "records that were picked");
        failed = headers == NULL || add_message(found, offset, timestamp, &record, headers, &kinds, &wanted) < 0;
        Py_XDECREF(headers);
        if (failed) {
            Py_CLEAR(found);
            break;
        }
    }
done:
    Py_XDECREF(kinds.name);
    PyBuffer_Release(&data);
    return found;
}

/* enqueues_of(records, kinds): the messages that records are, which are tuples of offset, time, key, value and headers; None for
 * each that Python has to look at. */
PyObject *enqueues_of(PyObject *module, PyObject *args)
{
    PyObject *records, *enqueue, *stored, *sequence, *found = NULL;
    kinds_t kinds = {0};
    Py_ssize_t i;
    (void)module;
    if (!PyArg_ParseTuple(args, "O!(OOO)", &PyList_Type, &records, &enqueue, &stored, &sequence))
        return NULL;
    if (!is_tuple_type(enqueue) || !is_tuple_type(sequence) || (found = PyList_New(PyList_GET_SIZE(records))) == NULL)
        return NULL;
    kinds.enqueue = (PyTypeObject *)enqueue;
    kinds.sequence = (PyTypeObject *)sequence;
    for (i = 0; i < PyList_GET_SIZE(found); i++) {
        PyObject *each = PyList_GET_ITEM(records, i), *key, *value, *made = NULL;
        record_t record = {0};
        int read = 0;
        if (!PyTuple_Check(each) || PyTuple_GET_SIZE(each) != 5) {
            PyErr_SetString(PyExc_TypeError, "a record is a tuple of five");
            break;
        }
        key = PyTuple_GET_ITEM(each, 2);
        value = PyTuple_GET_ITEM(each, 3);
        if (PyBytes_Check(key) && PyBytes_Check(value) && PyBytes_GET_SIZE(key) <= INT32_MAX) {
            record.key = (const uint8_t *)PyBytes_AS_STRING(key);
            record.key_bytes = (int32_t)PyBytes_GET_SIZE(key);
            record.value = (const uint8_t *)PyBytes_AS_STRING(value);
            if (is_plain(&record))
                read = read_enqueue(&record, value, PyTuple_GET_ITEM(each, 4), &kinds, &made);
        }
        if (read < 0)
            break;
        PyList_SET_ITEM(found, i, read == 1 ? made : Py_NewRef(Py_None));
    }
    Py_XDECREF(kinds.name);
    if (PyErr_Occurred())
        Py_CLEAR(found);
    return found;
}

/* stored_bytes(messages, entry, producer, header, text): the sum of payloads of StoredMessages and of what producers gave beside
 * them, with so many bytes of Python's objects for each. */
static int size_of(PyObject *enqueue, const Py_ssize_t *each, Py_ssize_t *size)
{
    PyObject *headers = PyTuple_GET_ITEM(enqueue, HEADERS), *value;
    PyObject *texts[2] = {PyTuple_GET_ITEM(enqueue, PARTITION_KEY), PyTuple_GET_ITEM(enqueue, FAIRNESS_KEY)};
    Py_ssize_t i, payload = PyObject_Length(PyTuple_GET_ITEM(enqueue, PAYLOAD));
    if (payload < 0 || !PyTuple_Check(headers))
        return 0;
    *size += each[0] + payload;
    if (PyTuple_GET_ITEM(enqueue, PRODUCER) != Py_None)
        *size += each[1];
    for (i = 0; i < PyTuple_GET_SIZE(headers); i++) {
        PyObject *header = PyTuple_GET_ITEM(headers, i);
        if (!PyTuple_Check(header) || PyTuple_GET_SIZE(header) != 2 || !PyUnicode_Check(PyTuple_GET_ITEM(header, 0)))
            return 0;
        value = PyTuple_GET_ITEM(header, 1);
        *size += each[2] + PyUnicode_GET_LENGTH(PyTuple_GET_ITEM(header, 0));
        *size += PyBytes_Check(value) ? PyBytes_GET_SIZE(value) : 0;
    }
    if (texts[0] != Py_None || texts[1] != Py_None)
        *size += 2 * each[3];
    for (i = 0; i < 2; i++)
        *size += PyUnicode_Check(texts[i]) ? PyUnicode_GET_LENGTH(texts[i]) : 0;
    return 1;
}

PyObject *stored_bytes(PyObject *module, PyObject *args)
{
    PyObject *given, *messages, *message;
    Py_ssize_t each[4], size = 0, i;
    (void)module;
    if (!PyArg_ParseTuple(args, "Onnnn", &given, &each[0], &each[1], &each[2], &each[3]))
        return NULL;
    if ((messages = PySequence_Fast(given, "messages can be counted")) == NULL)
        return NULL;
    for (i = 0; i < PySequence_Fast_GET_SIZE(messages); i++) {
        message = PySequence_Fast_GET_ITEM(messages, i);
        if (!PyTuple_Check(message) || PyTuple_GET_SIZE(message) != 2 || !PyTuple_Check(PyTuple_GET_ITEM(message, 0)) ||
            PyTuple_GET_SIZE(PyTuple_GET_ITEM(message, 0)) != ENQUEUE_FIELDS ||
            !size_of(PyTuple_GET_ITEM(message, 0), each, &size)) {
            PyErr_SetString(PyExc_TypeError, "stored messages");
            break;
        }
    }
    Py_DECREF(messages);
    return PyErr_Occurred() ? NULL : PyLong_FromSsize_t(size);
}
