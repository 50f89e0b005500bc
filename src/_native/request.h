/* A request of Kafka's protocol, field by field. A reader that has met anything odd goes on to read nothing. */
#ifndef HOLDFAST_REQUEST_H
#define HOLDFAST_REQUEST_H

#include "wire.h"

typedef struct {
    const uint8_t *start, *at, *end;
    int flexible, odd;
    long long entries_left; /* of arrays, where they are counted */
} reader_t;

static inline int64_t number(reader_t *r, int size)
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

static inline uint32_t uvarint(reader_t *r)
{
    uint32_t value = 0;

    if (!r->odd && read_u32(&r->at, r->end, &value) != SOUND)
        r->odd = 1;
    return value;
}

/* -1: null */
static inline int64_t length(reader_t *r, int size)
{
    int64_t value = r->flexible ? (int64_t)uvarint(r) - 1 : number(r, size);

    if (value < -1 || value > r->end - r->at)
        r->odd = 1;
    return r->odd ? -1 : value;
}

static inline const uint8_t *take(reader_t *r, int64_t size)
{
    const uint8_t *taken = r->at;

    if (r->odd || size < 0 || size > r->end - r->at) {
        r->odd = 1;
        return NULL;
    }
    r->at += size;
    return taken;
}

static inline void tags(reader_t *r)
{
    for (uint32_t left = r->flexible ? uvarint(r) : 0; left > 0 && !r->odd; left--) {
        uvarint(r);
        take(r, uvarint(r));
    }
}

/* NULL, with or without an exception: the latter is odd */
static inline PyObject *string(reader_t *r)
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

/* None for what is odd, text that is no UTF-8 included; NULL for any other exception. */
static inline PyObject *none_if_odd(void)
{
    if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_UnicodeDecodeError))
        return NULL;
    PyErr_Clear();
    Py_RETURN_NONE;
}

#endif
