/* The header of a batch: reading it, judging it, and handing it to Python. */
#include "batch.h"

static void read_header(const uint8_t *p, header_t *header)
{
    header->base_offset = (int64_t)load_u64(p);
    header->length = (int32_t)load_u32(p + 8);
    header->leader_epoch = (int32_t)load_u32(p + 12);
    header->magic = (int8_t)p[MAGIC_AT];
    header->crc = load_u32(p + 17);
    header->attributes = (int16_t)load_u16(p + 21);
    header->last_offset_delta = (int32_t)load_u32(p + 23);
    header->base_timestamp = (int64_t)load_u64(p + 27);
    header->max_timestamp = (int64_t)load_u64(p + 35);
    header->producer_id = (int64_t)load_u64(p + 43);
    header->producer_epoch = (int16_t)load_u16(p + 51);
    header->base_sequence = (int32_t)load_u32(p + 53);
    header->count = (int32_t)load_u32(p + 57);
}

static int refuse(int rule, int64_t value, int64_t *given)
{
    *given = value;
    return rule;
}

static int check_producer(const header_t *header, const limits_t *limits, int64_t *given)
{
    if (header->producer_id < -1)
        return refuse(RULE_PRODUCER, header->producer_id, given);
    if (limits->stored)
        return SOUND;
    if (header->attributes & CONTROL)
        return refuse(RULE_CONTROL, header->attributes, given);
    if (header->producer_id == -1)
        return header->attributes & TRANSACTIONAL ? refuse(RULE_TRANSACTIONAL, header->attributes, given) : SOUND;
    if (header->producer_epoch < 0)
        return refuse(RULE_PRODUCER, header->producer_epoch, given);
    if (header->base_sequence < 0)
        return refuse(RULE_SEQUENCE, header->base_sequence, given);
    return SOUND;
}

/* Every rule a header can break by itself, in the order of the Python twin. The checksum is the caller's. */
int check_header(const uint8_t *p, Py_ssize_t left, const limits_t *limits, header_t *header, int64_t *given)
{
    /* Magic first: an older format has another layout, and "magic 1" says more than a wrong length. */
    if (left > MAGIC_AT && p[MAGIC_AT] != 2)
        return refuse(RULE_MAGIC, (int8_t)p[MAGIC_AT], given);
    if (left < HEADER_BYTES)
        return refuse(RULE_CUT, left, given);
    read_header(p, header);
    if (header->length < HEADER_BYTES - LENGTH_COVERS_FROM)
        return refuse(RULE_LENGTH, header->length, given);
    int64_t size = (int64_t)header->length + LENGTH_COVERS_FROM;
    if (!limits->stored && size > limits->batch_bytes_max)
        return refuse(RULE_SIZE, size, given);
    if (size > left)
        return refuse(RULE_CUT, left, given);
    if ((header->attributes & CODEC_MASK) > CODEC_MAX)
        return refuse(RULE_CODEC, header->attributes & CODEC_MASK, given);
    if (header->count < (limits->stored ? 0 : 1) || (!limits->stored && header->count > limits->records_max))
        return refuse(RULE_COUNT, header->count, given);
    if (!(header->attributes & CODEC_MASK) && (int64_t)header->count * RECORD_BYTES_MIN > size - HEADER_BYTES)
        return refuse(RULE_COUNT, header->count, given);
    if (limits->stored ? header->last_offset_delta < 0 || header->count - 1 > header->last_offset_delta
                       : header->last_offset_delta != header->count - 1)
        return refuse(RULE_OFFSETS, header->last_offset_delta, given);
    if (limits->stored && (header->base_offset < 0 || header->base_offset > INT64_MAX - header->last_offset_delta))
        return refuse(RULE_BASE_OFFSET, header->base_offset, given);
    if (header->base_timestamp < -1)
        return refuse(RULE_TIMESTAMP, header->base_timestamp, given);
    if (header->max_timestamp < -1)
        return refuse(RULE_TIMESTAMP, header->max_timestamp, given);
    return check_producer(header, limits, given);
}

int header_from_tuple(PyObject *fields, header_t *header)
{
    long long base_offset, base_timestamp, max_timestamp, producer_id;
    if (!PyTuple_Check(fields)) {
        PyErr_SetString(PyExc_TypeError, "a header is a tuple of its fields");
        return -1;
    }
    if (!PyArg_ParseTuple(fields, "LiiiIhiLLLhii", &base_offset, &header->length, &header->leader_epoch, &header->magic,
                          &header->crc, &header->attributes, &header->last_offset_delta, &base_timestamp, &max_timestamp,
                          &producer_id, &header->producer_epoch, &header->base_sequence, &header->count))
        return -1;
    header->base_offset = base_offset;
    header->base_timestamp = base_timestamp;
    header->max_timestamp = max_timestamp;
    header->producer_id = producer_id;
    return 0;
}

PyObject *fault_tuple(const fault_t *fault)
{
    return Py_BuildValue("(innL)", fault->rule, fault->at, fault->record, (long long)fault->given);
}

int is_tuple_type(PyObject *type)
{
    /* Same basic size: then its instances are laid out as tuples are, and nothing needs its __new__. */
    if (PyType_Check(type) && PyType_IsSubtype((PyTypeObject *)type, &PyTuple_Type) &&
        ((PyTypeObject *)type)->tp_basicsize == PyTuple_Type.tp_basicsize)
        return 1;
    PyErr_SetString(PyExc_TypeError, "a plain subclass of tuple is needed");
    return 0;
}

/* An instance of `type` that owns `items`; on failure they are released, also when one of them is NULL. */
PyObject *tuple_of_type(PyTypeObject *type, PyObject **items, Py_ssize_t n)
{
    PyObject *made = NULL;
    Py_ssize_t i;
    for (i = 0; i < n && items[i] != NULL; i++)
        ;
    if (i == n)
        made = type->tp_alloc(type, n);
    for (i = 0; i < n; i++) {
        if (made != NULL)
            PyTuple_SET_ITEM(made, i, items[i]);
        else
            Py_XDECREF(items[i]);
    }
    return made;
}
