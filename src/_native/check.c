/* check(payload, header, contiguous): None when every record is sound and agrees with the header, or the first fault.
 * keyless(payload, header, most): the numbers of the first `most` records without a key, or the first fault before the last of them. */
#include "wire.h"

enum { UNLOCKED_BYTES_MIN = 64 * 1024 };

static int check_record(const uint8_t **at, const uint8_t *end, const header_t *header, int contiguous,
                        int64_t *previous, int64_t *given)
{
    record_t record;
    int rule = read_record(at, end, header, &record, given);
    if (rule != SOUND)
        return rule;
    if ((rule = check_delta(record.offset_delta, *previous, header, contiguous, given)) != SOUND)
        return rule;
    *previous = record.offset_delta;
    if ((rule = skip_headers(&record, given)) != SOUND)
        return rule;
    /* A record later than the header says would be missed by every look-up by time. */
    *given = record.timestamp;
    return record.timestamp < -1 || record.timestamp > header->max_timestamp ? RULE_RECORD_TIMESTAMP : SOUND;
}

void check_payload(const uint8_t *p, Py_ssize_t bytes, const header_t *header, int contiguous, fault_t *fault)
{
    const uint8_t *end = p + bytes;
    int64_t previous = -1;

    fault->rule = check_count(header, bytes, &fault->given);
    for (int32_t i = 0; fault->rule == SOUND && i < header->count; i++) {
        fault->record = i;
        fault->rule = check_record(&p, end, header, contiguous, &previous, &fault->given);
    }
    if (fault->rule == SOUND && p != end) {
        fault->rule = RULE_TRAILING;
        fault->record = header->count;
        fault->given = end - p;
    }
}

PyObject *check(PyObject *module, PyObject *args)
{
    Py_buffer payload;
    PyObject *fields;
    int contiguous;
    header_t header;
    fault_t fault = {SOUND, 0, -1, 0};
    PyThreadState *unlocked = NULL;

    (void)module;
    if (!PyArg_ParseTuple(args, "y*Op", &payload, &fields, &contiguous))
        return NULL;
    if (header_from_tuple(fields, &header) < 0) {
        PyBuffer_Release(&payload);
        return NULL;
    }
    /* A thread that waits for the interpreter gets it here, and our caller, the event loop, gets it back a wake-up later. */
    if (payload.len >= UNLOCKED_BYTES_MIN)
        unlocked = PyEval_SaveThread();
    check_payload(payload.buf, payload.len, &header, contiguous, &fault);
    if (unlocked != NULL)
        PyEval_RestoreThread(unlocked);
    PyBuffer_Release(&payload);
    if (fault.rule != SOUND)
        return fault_tuple(&fault);
    Py_RETURN_NONE;
}

PyObject *keyless(PyObject *module, PyObject *args)
{
    Py_buffer payload;
    PyObject *fields, *found = NULL, *number;
    Py_ssize_t most;
    header_t header;
    record_t record;
    fault_t fault = {SOUND, 0, -1, 0};
    const uint8_t *p, *end;
    int32_t i;

    (void)module;
    if (!PyArg_ParseTuple(args, "y*On", &payload, &fields, &most))
        return NULL;
    if (header_from_tuple(fields, &header) < 0)
        goto done;
    p = payload.buf;
    end = p + payload.len;
    if ((fault.rule = check_count(&header, payload.len, &fault.given)) != SOUND) {
        found = fault_tuple(&fault);
        goto done;
    }
    found = PyList_New(0);
    for (i = 0; found != NULL && i < header.count && PyList_GET_SIZE(found) < most; i++) {
        if ((fault.rule = read_record(&p, end, &header, &record, &fault.given)) != SOUND) {
            fault.record = i;
            Py_SETREF(found, fault_tuple(&fault));
            break;
        }
        if (record.key != NULL)
            continue;
        number = PyLong_FromLong(i);
        if (number == NULL || PyList_Append(found, number) < 0)
            Py_CLEAR(found);
        Py_XDECREF(number);
    }
done:
    PyBuffer_Release(&payload);
    return found;
}
