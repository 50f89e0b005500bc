/* The blocks of a segment's index, see docs/formats/strm.md: five varints each, deltas to the block before.
 *
 * read_blocks(section, at, count, start, base_offset, size_min, kind): (tuples of type `kind`, the position behind them), or None if
 * anything is wrong: the twin (holdfast.log.segments.index) then reads them again and says what. `start` is where the first block
 * lies, `base_offset` the segment's first offset, and no block is as small as `size_min`.
 *
 * pack_blocks(blocks, base_offset): the bytes, or None if they cannot be written like this. */
#include "batch.h"

enum { BLOCK_FIELDS = 6, VARINT_BYTES_MAX = 10 };

/* An unsigned number of at most 63 bits, or of 64 with `wide`; 0: there is none. */
static int get_uvarint(const uint8_t **at, const uint8_t *end, int wide, uint64_t *value)
{
    uint64_t sum = 0, byte;

    for (int shift = 0; *at < end && shift < 64; shift += 7) {
        byte = *(*at)++;
        if (shift == 63 && byte > 1)
            return 0;
        sum |= (byte & 0x7F) << shift;
        if (byte < 0x80) {
            *value = sum;
            return wide || sum <= INT64_MAX;
        }
    }
    return 0;
}

/* `value` grows by a number that is read; 0: there is none, or it grows too far. */
static int grow(const uint8_t **at, const uint8_t *end, int64_t *value)
{
    uint64_t delta;

    return get_uvarint(at, end, 0, &delta) && !add_overflows(*value, (int64_t)delta, value);
}

/* Fields in the order of BlockLocation: start, end, first offset, end offset, raw bytes, greatest timestamp. */
static int get_block(const uint8_t **at, const uint8_t *end, int64_t size_min, int64_t block[BLOCK_FIELDS])
{
    uint64_t raw_bytes, delta;

    block[0] = block[1];
    block[2] = block[3];
    if (!grow(at, end, &block[2]))
        return 0;
    block[3] = block[2];
    if (!grow(at, end, &block[3]) || !grow(at, end, &block[1]) || !get_uvarint(at, end, 0, &raw_bytes) ||
        !get_uvarint(at, end, 1, &delta))
        return 0;
    block[4] = (int64_t)raw_bytes;
    return !add_overflows(block[5], (int64_t)(delta >> 1 ^ (0 - (delta & 1))), &block[5]) && block[1] - block[0] > size_min &&
           block[3] > block[2];
}

PyObject *read_blocks(PyObject *module, PyObject *args)
{
    Py_buffer section;
    PyObject *kind, *found = NULL, *items[BLOCK_FIELDS];
    Py_ssize_t at, count;
    long long start, base_offset, size_min;
    const uint8_t *p, *end;
    int64_t block[BLOCK_FIELDS] = {0};

    (void)module;
    if (!PyArg_ParseTuple(args, "y*nnLLLO", &section, &at, &count, &start, &base_offset, &size_min, &kind))
        return NULL;
    if (!is_tuple_type(kind))
        goto done;
    if (at < 0 || at > section.len || count < 0 || count > section.len || start < 0 || base_offset < 0) {
        found = Py_NewRef(Py_None);
        goto done;
    }
    p = (const uint8_t *)section.buf + at;
    end = (const uint8_t *)section.buf + section.len;
    block[1] = start;
    block[3] = base_offset;
    found = PyList_New(count);
    for (Py_ssize_t i = 0; found != NULL && i < count; i++) {
        PyObject *each = NULL;
        if (!get_block(&p, end, size_min, block)) {
            Py_SETREF(found, Py_NewRef(Py_None));
            goto done;
        }
        for (int field = 0; field < BLOCK_FIELDS; field++)
            items[field] = PyLong_FromLongLong(block[field]);
        each = tuple_of_type((PyTypeObject *)kind, items, BLOCK_FIELDS);
        if (each == NULL)
            Py_CLEAR(found);
        else
            PyList_SET_ITEM(found, i, each);
    }
    if (found != NULL)
        found = Py_BuildValue("(Nn)", found, (Py_ssize_t)(p - (const uint8_t *)section.buf));
done:
    PyBuffer_Release(&section);
    return found;
}

static uint8_t *put_uvarint(uint8_t *p, uint64_t value)
{
    for (; value > 0x7F; value >>= 7)
        *p++ = (uint8_t)(value & 0x7F) | 0x80;
    *p++ = (uint8_t)value;
    return p;
}

/* The numbers of one block; 0: it is no tuple of as many, or an error is set. */
static int block_numbers(PyObject *tuple, int64_t block[BLOCK_FIELDS])
{
    if (!PyTuple_Check(tuple) || PyTuple_GET_SIZE(tuple) != BLOCK_FIELDS)
        return 0;
    for (int field = 0; field < BLOCK_FIELDS; field++) {
        block[field] = PyLong_AsLongLong(PyTuple_GET_ITEM(tuple, field));
        if (block[field] == -1 && PyErr_Occurred())
            return 0;
    }
    return 1;
}

PyObject *pack_blocks(PyObject *module, PyObject *args)
{
    PyObject *blocks, *made;
    long long base_offset;
    int64_t block[BLOCK_FIELDS], end_offset, timestamp = 0;
    uint8_t *p, *begin;
    Py_ssize_t count;

    (void)module;
    if (!PyArg_ParseTuple(args, "O!L", &PyTuple_Type, &blocks, &base_offset))
        return NULL;
    end_offset = base_offset;
    count = PyTuple_GET_SIZE(blocks);
    begin = p = PyMem_Malloc((size_t)(count + 1) * 5 * VARINT_BYTES_MAX);
    if (p == NULL)
        return PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < count; i++) {
        if (!block_numbers(PyTuple_GET_ITEM(blocks, i), block) || end_offset < 0 || block[2] < end_offset || block[3] < block[2] ||
            block[0] < 0 || block[1] < block[0] || block[4] < 0) {
            PyMem_Free(begin);
            if (PyErr_Occurred())
                return NULL;
            Py_RETURN_NONE;
        }
        p = put_uvarint(p, (uint64_t)(block[2] - end_offset));
        p = put_uvarint(p, (uint64_t)(block[3] - block[2]));
        p = put_uvarint(p, (uint64_t)(block[1] - block[0]));
        p = put_uvarint(p, (uint64_t)block[4]);
        uint64_t change = (uint64_t)block[5] - (uint64_t)timestamp;
        p = put_uvarint(p, change << 1 ^ (0 - (change >> 63)));
        end_offset = block[3];
        timestamp = block[5];
    }
    made = PyBytes_FromStringAndSize((const char *)begin, p - begin);
    PyMem_Free(begin);
    return made;
}
