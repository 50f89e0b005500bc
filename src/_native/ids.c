/* message_ids(seed, partition, offsets, times): the ids of messages of a heap partition, 26 characters each. `seed` is the
 * CRC-32 of the topic's id; what an id consists of is written in holdfast.heap.message_id, its twin. */
#include "batch.h"

enum { ID_BYTES = 16, ID_CHARS = 26 };

static const char ALPHABET[] = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";

/* CRC-32 of zlib, a nibble at a time: fifteen bytes are not worth a larger table. */
static uint32_t crc32_more(uint32_t crc, const uint8_t *p, int bytes)
{
    static const uint32_t TABLE[16] = {
        0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4, 0x4db26158, 0x5005713c,
        0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c, 0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c,
    };
    int i;
    crc = ~crc;
    for (i = 0; i < bytes; i++) {
        crc = TABLE[(crc ^ p[i]) & 15] ^ (crc >> 4);
        crc = TABLE[(crc ^ (p[i] >> 4)) & 15] ^ (crc >> 4);
    }
    return ~crc;
}

static PyObject *id_text(uint32_t seed, uint32_t partition, uint64_t offset, uint64_t time_ms)
{
    uint8_t id[ID_BYTES];
    PyObject *text;
    uint8_t *chars;
    uint64_t high = time_ms << 16 | partition, low;
    int i;
    for (i = 0; i < 8; i++)
        id[i] = (uint8_t)(high >> (56 - 8 * i));
    for (i = 0; i < 7; i++)
        id[8 + i] = (uint8_t)(offset >> (48 - 8 * i));
    id[15] = (uint8_t)crc32_more(seed, id, 15);
    low = offset << 8 | id[15];
    if ((text = PyUnicode_New(ID_CHARS, 127)) == NULL)
        return NULL;
    chars = PyUnicode_1BYTE_DATA(text);
    for (i = ID_CHARS - 1; i >= 0; i--) { /* five bits each, the last ones first */
        chars[i] = (uint8_t)ALPHABET[low & 31];
        low = low >> 5 | high << 59;
        high >>= 5;
    }
    return text;
}

PyObject *message_ids(PyObject *module, PyObject *args)
{
    PyObject *offsets_given, *times_given, *offsets = NULL, *times = NULL, *found = NULL;
    unsigned int seed, partition;
    Py_ssize_t count, i;

    (void)module;
    if (!PyArg_ParseTuple(args, "IIOO", &seed, &partition, &offsets_given, &times_given))
        return NULL;
    if (partition > 0xffff) {
        PyErr_SetString(PyExc_OverflowError, "a partition has 16 bits");
        return NULL;
    }
    if ((offsets = PySequence_Tuple(offsets_given)) == NULL || (times = PySequence_Tuple(times_given)) == NULL)
        goto done;
    count = PyTuple_GET_SIZE(offsets);
    if (PyTuple_GET_SIZE(times) != count) {
        PyErr_SetString(PyExc_ValueError, "as many times as offsets");
        goto done;
    }
    if ((found = PyList_New(count)) == NULL)
        goto done;
    for (i = 0; i < count; i++) {
        unsigned long long offset = PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(offsets, i)), time_ms;
        PyObject *text = NULL;
        if (offset != (unsigned long long)-1 || !PyErr_Occurred()) {
            time_ms = PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(times, i));
            if (time_ms == (unsigned long long)-1 && PyErr_Occurred())
                text = NULL;
            else if (offset >> 56 || time_ms >> 48)
                PyErr_SetString(PyExc_OverflowError, "an offset has 56 bits, a time 48");
            else
                text = id_text(seed, partition, offset, time_ms);
        }
        if (text == NULL) {
            Py_CLEAR(found);
            goto done;
        }
        PyList_SET_ITEM(found, i, text);
    }
done:
    Py_XDECREF(offsets);
    Py_XDECREF(times);
    return found;
}
