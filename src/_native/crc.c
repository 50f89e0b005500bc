/* CRC-32C of bytes: the processor's instruction where there is one, a table elsewhere. */
#include "batch.h"

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#include <nmmintrin.h>
#define WITH_SSE42 1
#elif defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>
#endif

enum { TABLE_ROWS = 8 };

/* Row 0 has what a byte does to the checksum, row n what it does n bytes later. */
static uint32_t table[TABLE_ROWS][256];

void prepare_crc32c(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0x82F63B78u : 0);
        table[0][byte] = crc;
    }
    for (int row = 1; row < TABLE_ROWS; row++)
        for (int byte = 0; byte < 256; byte++)
            table[row][byte] = table[row - 1][byte] >> 8 ^ table[0][table[row - 1][byte] & 0xFF];
}

static uint32_t by_table(const uint8_t *p, Py_ssize_t bytes, uint32_t crc)
{
    for (; bytes >= 8; p += 8, bytes -= 8)
        crc = table[7][(crc ^ p[0]) & 0xFF] ^ table[6][(crc >> 8 ^ p[1]) & 0xFF] ^ table[5][(crc >> 16 ^ p[2]) & 0xFF] ^
              table[4][crc >> 24 ^ p[3]] ^ table[3][p[4]] ^ table[2][p[5]] ^ table[1][p[6]] ^ table[0][p[7]];
    for (; bytes > 0; p++, bytes--)
        crc = crc >> 8 ^ table[0][(crc ^ *p) & 0xFF];
    return crc;
}

#ifdef WITH_SSE42
__attribute__((target("sse4.2"))) static uint32_t by_instruction(const uint8_t *p, Py_ssize_t bytes, uint32_t crc)
{
    uint64_t wide = crc, word;
    for (; bytes >= 8; p += 8, bytes -= 8) {
        memcpy(&word, p, 8);
        wide = _mm_crc32_u64(wide, word);
    }
    crc = (uint32_t)wide;
    for (; bytes > 0; p++, bytes--)
        crc = _mm_crc32_u8(crc, *p);
    return crc;
}
#endif

uint32_t crc32c(const uint8_t *p, Py_ssize_t bytes)
{
#if defined(WITH_SSE42)
    if (__builtin_cpu_supports("sse4.2"))
        return ~by_instruction(p, bytes, ~0u);
#elif defined(__ARM_FEATURE_CRC32)
    uint32_t crc = ~0u;
    uint64_t word;
    for (; bytes >= 8; p += 8, bytes -= 8) {
        memcpy(&word, p, 8);
        crc = __crc32cd(crc, word);
    }
    for (; bytes > 0; p++, bytes--)
        crc = __crc32cb(crc, *p);
    return ~crc;
#endif
    return ~by_table(p, bytes, ~0u);
}

/* crc32c(bytes, by_table): for the tests, which compare both ways with the package of that name. */
PyObject *crc32c_of(PyObject *module, PyObject *args)
{
    Py_buffer buffer;
    int plain;
    uint32_t crc;

    (void)module;
    if (!PyArg_ParseTuple(args, "y*p", &buffer, &plain))
        return NULL;
    crc = plain ? ~by_table(buffer.buf, buffer.len, ~0u) : crc32c(buffer.buf, buffer.len);
    PyBuffer_Release(&buffer);
    return PyLong_FromUnsignedLong(crc);
}
