/* joined(first, second, second_bytes): the CRC-32C of two parts one behind the other, from theirs and the length of the second.
 *
 * Checksums are polynomials over GF(2), bits reversed; a zero byte behind a part multiplies its checksum by x^8. The twin is
 * holdfast.log.checksums.joined_by_tables. */
#include "batch.h"

enum { POLYNOMIAL = (int)0x82F63B78, ONE = (int)0x80000000 };

static uint32_t times(uint32_t a, uint32_t b)
{
    uint32_t product = 0;

    for (uint32_t bit = (uint32_t)ONE; bit != 0; bit >>= 1) {
        if (a & bit)
            product ^= b;
        b = b >> 1 ^ (b & 1 ? (uint32_t)POLYNOMIAL : 0);
    }
    return product;
}

PyObject *joined(PyObject *module, PyObject *args)
{
    unsigned long first, second;
    unsigned long long bytes;
    uint32_t power = (uint32_t)ONE >> 8; /* x^8, squared again and again */

    (void)module;
    if (!PyArg_ParseTuple(args, "kkK", &first, &second, &bytes))
        return NULL;
    for (; bytes > 0; bytes >>= 1) {
        if (bytes & 1)
            first = times(power, (uint32_t)first);
        power = times(power, power);
    }
    return PyLong_FromUnsignedLong((uint32_t)first ^ (uint32_t)second);
}
