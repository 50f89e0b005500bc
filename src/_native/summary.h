/* What stored batches one behind another are in sum. */
#ifndef HOLDFAST_SUMMARY_H
#define HOLDFAST_SUMMARY_H

#include "batch.h"

typedef struct {
    int64_t batches, records;
    int64_t first_offset, end_offset;
    int64_t min_timestamp, max_timestamp; /* -1: none */
    int64_t packed_bytes;                 /* of batches that their producers compressed */
} summary_t;

/* summary.c: `fault` has the first rule that they break */
summary_t summary_of(const uint8_t *p, Py_ssize_t bytes, int64_t end_offset, fault_t *fault);
PyObject *summary_tuple(const summary_t *sum, PyObject *kind);

#endif
