/* read(payload, header, (at, index, previous), most, kind): up to `most` records as tuples of type `kind` and where the
 * next call goes on, or the first fault. */
#include "wire.h"

static PyObject *bytes_or_none(const uint8_t *bytes, int32_t length)
{
    if (bytes == NULL)
        return Py_NewRef(Py_None);
    return PyBytes_FromStringAndSize((const char *)bytes, length);
}

/* The record's headers as ((key, value), ...); NULL with a rule when they are broken, NULL without one on a Python error. */
PyObject *header_pairs(const record_t *record, int *rule, int64_t *given)
{
    const uint8_t *p = record->headers;
    PyObject *pairs = PyTuple_New(record->header_count);
    int32_t i;
    *given = 0;
    for (i = 0; pairs != NULL && i < record->header_count; i++) {
        pair_t pair;
        PyObject *items[2], *made;
        if ((*rule = read_pair(&p, record->end, &pair, given)) != SOUND) {
            Py_DECREF(pairs);
            return NULL;
        }
        items[0] = PyUnicode_DecodeUTF8((const char *)pair.key, pair.key_bytes, "replace");
        items[1] = bytes_or_none(pair.value, pair.value_bytes);
        made = tuple_of_type(&PyTuple_Type, items, 2);
        if (made == NULL)
            Py_CLEAR(pairs);
        else
            PyTuple_SET_ITEM(pairs, i, made);
    }
    if (pairs != NULL && p != record->end) {
        *given = record->end - p;
        *rule = RULE_RECORD_LENGTH;
        Py_CLEAR(pairs);
    }
    return pairs;
}

static PyObject *next_record(const uint8_t **at, const uint8_t *end, const header_t *header, int64_t *previous,
                             PyTypeObject *kind, int *rule, int64_t *given)
{
    record_t record;
    PyObject *items[5], *pairs;
    if ((*rule = read_record(at, end, header, &record, given)) != SOUND)
        return NULL;
    if ((*rule = check_delta(record.offset_delta, *previous, header, 0, given)) != SOUND)
        return NULL;
    *previous = record.offset_delta;
    if ((pairs = header_pairs(&record, rule, given)) == NULL)
        return NULL;
    /* Unsigned: a header that came from elsewhere may add up to more than 63 bits, which must not be undefined. */
    items[0] = PyLong_FromLongLong((int64_t)((uint64_t)header->base_offset + (uint64_t)record.offset_delta));
    items[1] = PyLong_FromLongLong(record.timestamp);
    items[2] = bytes_or_none(record.key, record.key_bytes);
    items[3] = bytes_or_none(record.value, record.value_bytes);
    items[4] = pairs;
    return tuple_of_type(kind, items, 5);
}

/* read_chosen(payload, header, deltas, kind): the records with these offset deltas, which grow, as tuples of type `kind`;
 * deltas that no record has are left out. What lies between is skipped, and nothing behind the last one is looked at. */
PyObject *read_chosen(PyObject *module, PyObject *args)
{
    Py_buffer payload;
    PyObject *fields, *deltas, *wanted = NULL, *kind, *found = NULL, *each;
    header_t header;
    fault_t fault = {SOUND, 0, -1, 0};
    const uint8_t *p, *end, *next;
    int64_t previous = -1, before = -1, chosen = -1;
    int32_t index, delta;
    Py_ssize_t turn = 0;

    (void)module;
    if (!PyArg_ParseTuple(args, "y*OOO", &payload, &fields, &deltas, &kind))
        return NULL;
    if (header_from_tuple(fields, &header) < 0 || !is_tuple_type(kind) || (wanted = PySequence_Tuple(deltas)) == NULL)
        goto done;
    p = payload.buf;
    end = p + payload.len;
    if ((fault.rule = check_count(&header, payload.len, &fault.given)) != SOUND) {
        found = fault_tuple(&fault);
        goto done;
    }
    if ((found = PyList_New(0)) == NULL)
        goto done;
    for (index = 0; index < header.count; index++) {
        while (chosen <= previous) { /* the next one that may still come */
            if (turn == PyTuple_GET_SIZE(wanted))
                goto done;
            chosen = PyLong_AsLongLong(PyTuple_GET_ITEM(wanted, turn));
            if (chosen == -1 && PyErr_Occurred()) {
                Py_CLEAR(found);
                goto done;
            }
            turn++;
        }
        next = p;
        if ((fault.rule = skip_record(&next, end, &delta, &fault.given)) == SOUND)
            fault.rule = check_delta(delta, previous, &header, 0, &fault.given);
        if (fault.rule == SOUND && delta == chosen) {
            before = previous;
            each = next_record(&p, end, &header, &before, (PyTypeObject *)kind, &fault.rule, &fault.given);
            if (each == NULL && fault.rule == SOUND) {
                Py_CLEAR(found);
                goto done;
            }
            if (each != NULL && PyList_Append(found, each) < 0)
                Py_CLEAR(found);
            Py_XDECREF(each);
            if (found == NULL)
                goto done;
        }
        if (fault.rule != SOUND) {
            fault.record = index;
            Py_SETREF(found, fault_tuple(&fault));
            goto done;
        }
        p = next;
        previous = delta;
    }
done:
    Py_XDECREF(wanted);
    PyBuffer_Release(&payload);
    return found;
}

PyObject *read_records(PyObject *module, PyObject *args)
{
    Py_buffer payload;
    PyObject *fields, *kind, *found = NULL, *each;
    Py_ssize_t at, index, most;
    long long previous_arg;
    header_t header;
    fault_t fault = {SOUND, 0, -1, 0};
    const uint8_t *p, *end;
    int64_t previous;

    (void)module;
    if (!PyArg_ParseTuple(args, "y*O(nnL)nO", &payload, &fields, &at, &index, &previous_arg, &most, &kind))
        return NULL;
    previous = previous_arg;
    if (header_from_tuple(fields, &header) < 0 || !is_tuple_type(kind))
        goto done;
    if (at < 0 || at > payload.len || index < 0) {
        PyErr_SetString(PyExc_ValueError, "the position is outside the payload");
        goto done;
    }
    p = (const uint8_t *)payload.buf + at;
    end = (const uint8_t *)payload.buf + payload.len;
    if ((fault.rule = check_count(&header, payload.len, &fault.given)) != SOUND) {
        found = fault_tuple(&fault);
        goto done;
    }
    if ((found = PyList_New(0)) == NULL)
        goto done;
    for (; index < header.count && most > 0; index++, most--) {
        each = next_record(&p, end, &header, &previous, (PyTypeObject *)kind, &fault.rule, &fault.given);
        if (each == NULL && fault.rule != SOUND) {
            fault.record = index;
            Py_SETREF(found, fault_tuple(&fault));
            goto done;
        }
        if (each == NULL || PyList_Append(found, each) < 0) {
            Py_XDECREF(each);
            Py_CLEAR(found);
            goto done;
        }
        Py_DECREF(each);
    }
    if (index == header.count && p != end) {
        fault.rule = RULE_TRAILING;
        fault.record = index;
        fault.given = end - p;
        Py_SETREF(found, fault_tuple(&fault));
        goto done;
    }
    found = Py_BuildValue("N(nnL)", found, (Py_ssize_t)(p - (const uint8_t *)payload.buf), index, (long long)previous);
done:
    PyBuffer_Release(&payload);
    return found;
}
