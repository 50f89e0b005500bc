/* join_blocks(batches, at, block_bytes, bytes_max, end_offset, kind): the blocks of a segment.
 *
 * Buffers from `at` on are joined, as many as fit `block_bytes`; one that does not fit is a block of its own, where it lies. Blocks
 * are added until they have `bytes_max` bytes, or BUFFERS_MAX buffers, which no block exceeds either. Returns [(block, what is in it
 * as a tuple of type `kind`)] and the first buffer behind them; or the first fault. The twin in Python is in holdfast.log.batches.pure.
 *
 * All of it lets go of the interpreter once: a thread that wants it back for each of many small steps makes the event loop wait
 * for a wake-up as often. */
#include "summary.h"

/* Each is asked for with the interpreter held, which nobody else has meanwhile. */
enum { BUFFERS_MAX = 4096 };

typedef struct {
    Py_ssize_t first, count, bytes; /* buffers, and what is in them */
    const uint8_t *start;
    summary_t sum;
} block_t;

typedef struct {
    Py_buffer *buffers;
    Py_ssize_t held;
    block_t *blocks;
    Py_ssize_t count, joined_bytes;
} plan_t;

/* The block that begins with the next buffer, as long as others come. */
static int is_in(const block_t *block, Py_ssize_t bytes, Py_ssize_t block_bytes)
{
    return block->count == 0 || (block->count < BUFFERS_MAX && bytes <= block_bytes - block->bytes);
}

static void end_block(plan_t *plan)
{
    const block_t *block = &plan->blocks[plan->count];

    if (block->count > 1)
        plan->joined_bytes += block->bytes;
    plan->count++;
}

/* Which buffers are together; the first that is left, or -1: an exception is set. */
static Py_ssize_t planned(plan_t *plan, PyObject *batches, Py_ssize_t at, Py_ssize_t block_bytes, Py_ssize_t bytes_max)
{
    Py_ssize_t given = PyList_GET_SIZE(batches), total = 0;

    for (; at < given && at < PyList_GET_SIZE(batches); at++) {
        Py_buffer *buffer = &plan->buffers[plan->held];
        block_t *block = &plan->blocks[plan->count];

        if (PyObject_GetBuffer(PyList_GET_ITEM(batches, at), buffer, PyBUF_SIMPLE) < 0)
            return -1;
        plan->held++;
        if (!is_in(block, buffer->len, block_bytes)) {
            end_block(plan);
            block = &plan->blocks[plan->count];
            if (total >= bytes_max || plan->held > BUFFERS_MAX)
                return at;
        }
        if (block->count++ == 0)
            block->first = plan->held - 1;
        block->bytes += buffer->len;
        total += buffer->len;
    }
    if (plan->held > 0)
        end_block(plan);
    return at;
}

static void join(plan_t *plan, uint8_t *to, int64_t end_offset, fault_t *fault)
{
    for (block_t *block = plan->blocks; block < plan->blocks + plan->count; block++) {
        block->start = block->count > 1 ? to : plan->buffers[block->first].buf;
        for (Py_ssize_t at = 0; block->count > 1 && at < block->count; at++) {
            const Py_buffer *buffer = &plan->buffers[block->first + at];

            memcpy(to, buffer->buf, (size_t)buffer->len);
            to += buffer->len;
        }
        block->sum = summary_of(block->start, block->bytes, end_offset, fault);
        if (fault->rule != SOUND)
            return;
        end_offset = block->sum.end_offset;
    }
}

/* One block as the answer has it: a slice of `joined`, or the buffer that was given. */
static PyObject *described(const block_t *block, PyObject *joined, Py_ssize_t at, PyObject *given, PyObject *kind)
{
    PyObject *raw = block->count > 1 ? PySequence_GetSlice(joined, at, at + block->bytes) : Py_NewRef(given);
    PyObject *sum = summary_tuple(&block->sum, kind);

    if (raw != NULL && sum != NULL)
        return Py_BuildValue("(NN)", raw, sum);
    Py_XDECREF(raw);
    Py_XDECREF(sum);
    return NULL;
}

static PyObject *block_list(const plan_t *plan, PyObject *joined, PyObject *kind)
{
    PyObject *found = PyList_New(plan->count);
    Py_ssize_t at = 0;

    for (Py_ssize_t i = 0; found != NULL && i < plan->count; i++) {
        const block_t *block = &plan->blocks[i];
        PyObject *each = described(block, joined, at, plan->buffers[block->first].obj, kind);

        if (each == NULL)
            Py_CLEAR(found);
        else
            PyList_SET_ITEM(found, i, each);
        at += block->count > 1 ? block->bytes : 0;
    }
    return found;
}

static PyObject *joined_blocks(plan_t *plan, Py_ssize_t left, int64_t end_offset, PyObject *kind)
{
    fault_t fault = {SOUND, 0, -1, 0};
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, plan->joined_bytes), *view, *listed;

    if (bytes == NULL)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    join(plan, (uint8_t *)PyBytes_AS_STRING(bytes), end_offset, &fault);
    Py_END_ALLOW_THREADS
    view = fault.rule == SOUND ? PyMemoryView_FromObject(bytes) : NULL;
    Py_DECREF(bytes);
    if (fault.rule != SOUND)
        return fault_tuple(&fault);
    listed = view == NULL ? NULL : block_list(plan, view, kind);
    Py_XDECREF(view);
    return listed == NULL ? NULL : Py_BuildValue("(Nn)", listed, left);
}

PyObject *join_blocks(PyObject *module, PyObject *args)
{
    PyObject *batches, *kind, *answer = NULL;
    Py_ssize_t at, left, most, block_bytes, bytes_max;
    long long end_offset;
    plan_t plan = {0};

    (void)module;
    if (!PyArg_ParseTuple(args, "O!nnnLO", &PyList_Type, &batches, &at, &block_bytes, &bytes_max, &end_offset, &kind) ||
        !is_tuple_type(kind))
        return NULL;
    if (at < 0 || at > PyList_GET_SIZE(batches)) {
        PyErr_SetString(PyExc_ValueError, "there is no such batch");
        return NULL;
    }
    most = PyList_GET_SIZE(batches) - at < 2 * BUFFERS_MAX ? PyList_GET_SIZE(batches) - at : 2 * BUFFERS_MAX;
    plan.buffers = PyMem_Calloc((size_t)most + 1, sizeof *plan.buffers);
    plan.blocks = PyMem_Calloc((size_t)most + 1, sizeof *plan.blocks);
    if (plan.buffers == NULL || plan.blocks == NULL)
        PyErr_NoMemory();
    else if ((left = planned(&plan, batches, at, block_bytes, bytes_max)) >= 0)
        answer = joined_blocks(&plan, left, end_offset, kind);
    while (plan.held > 0)
        PyBuffer_Release(&plan.buffers[--plan.held]);
    PyMem_Free(plan.buffers);
    PyMem_Free(plan.blocks);
    return answer;
}
