/* Runs in bytes that have arrived. */
#include "produce_run.h"
#include "request.h"

enum { PRODUCE_KEY = 0, BATCH_LENGTH_AT = 8, RUN_MAX = 1024 };

/* What the first request says, up to its records. */
typedef struct {
    const uint8_t *frame, *same, *same_end; /* `same`: from the client's id to the partition's number */
    PyObject *client_id, *named;
    long version, acks, timeout_ms, partition;
} head_t;

/* One whole frame, without its length; 0: there is none at `at`. */
static int whole_frame(const uint8_t *at, const uint8_t *end, int64_t bytes_max, const uint8_t **frame_end)
{
    int64_t size = end - at < 4 ? -1 : (int32_t)load_u32(at);

    if (size < HEADER_BYTES || size > bytes_max || end - at - 4 < size)
        return 0;
    *frame_end = at + 4 + size;
    return 1;
}

/* A string, or the one before if that says the same. NULL, with or without an exception: the latter is odd. */
static PyObject *string_like(reader_t *r, PyObject *before)
{
    reader_t peek = *r;
    int64_t size = length(&peek, 2);
    Py_ssize_t before_size;
    const char *text = before == NULL || !PyUnicode_CheckExact(before) ? NULL : PyUnicode_AsUTF8AndSize(before, &before_size);

    if (text != NULL && !peek.odd && size == before_size && memcmp(peek.at, text, (size_t)size) == 0) {
        r->at = peek.at + size;
        return Py_NewRef(before);
    }
    PyErr_Clear();
    return string(r);
}

static PyObject *topic_id(reader_t *r, PyObject *before)
{
    const uint8_t *id = take(r, 16);

    if (id != NULL && before != NULL && PyBytes_CheckExact(before) && memcmp(PyBytes_AS_STRING(before), id, 16) == 0)
        return Py_NewRef(before);
    return id == NULL ? NULL : PyBytes_FromStringAndSize((const char *)id, 16);
}

/* 0: not what a run is made of. */
static int read_head(const RunReader *self, reader_t *r, head_t *head)
{
    reader_t header;
    long key = (long)number(r, 2);

    head->version = (long)number(r, 2);
    if (r->odd || key != PRODUCE_KEY || head->version < self->versions[0] || head->version > self->versions[1])
        return 0;
    number(r, 4); /* the correlation id */
    head->same = r->at;
    header = *r; /* its strings are never compact */
    head->client_id = string_like(&header, self->client_id);
    r->at = header.at;
    if (head->client_id == NULL || header.odd)
        return 0;
    r->flexible = head->version >= self->versions[2];
    if (r->flexible && number(r, 1) != 0)
        return 0; /* tags */
    if (length(r, 2) != -1)
        return 0; /* transactional */
    head->acks = (long)number(r, 2);
    head->timeout_ms = (long)number(r, 4);
    if (r->odd || (head->acks != -1 && head->acks != 1) || length(r, 4) != 1)
        return 0;
    head->named = head->version >= self->versions[3] ? topic_id(r, self->named) : string_like(r, self->named);
    if (head->named == NULL || head->named == Py_None || length(r, 4) != 1)
        return 0;
    head->partition = (long)number(r, 4);
    head->same_end = r->at;
    return !r->odd;
}

/* The records of a request, which have to be one batch, and nothing behind them; NULL: something else. */
static const uint8_t *one_batch(reader_t *r, int64_t *size)
{
    const uint8_t *records;

    *size = length(r, 4);
    records = r->odd || *size < HEADER_BYTES ? NULL : take(r, *size);
    if (records == NULL || (int64_t)load_u32(records + BATCH_LENGTH_AT) + LENGTH_COVERS_FROM != *size)
        return NULL;
    for (int tag = 0; r->flexible && tag < 3; tag++)
        if (number(r, 1) != 0)
            return NULL;
    return !r->odd && r->at == r->end ? records : NULL;
}

/* The correlation ids and the batches of the requests; 0: an exception is set. */
static int fill(ProduceRun *run, const int32_t *ids, const uint8_t *const *batches, const int64_t *sizes, Py_ssize_t total)
{
    char *to;

    run->correlations = PyList_New(run->count);
    run->payload = PyByteArray_FromStringAndSize(NULL, total);
    if (run->correlations == NULL || run->payload == NULL)
        return 0;
    to = PyByteArray_AS_STRING(run->payload);
    for (Py_ssize_t at = 0; at < run->count; at++) {
        PyObject *id = PyLong_FromLong(ids[at]);
        if (id == NULL)
            return 0;
        PyList_SET_ITEM(run->correlations, at, id);
        memcpy(to, batches[at], (size_t)sizes[at]);
        to += sizes[at];
    }
    return 1;
}

static ProduceRun *new_run(RunReader *self, const head_t *head, Py_ssize_t size, Py_ssize_t count)
{
    ProduceRun *run = (ProduceRun *)self->run_type->tp_alloc(self->run_type, 0);
    int alike = self->call != NULL && head->version == self->last_version && head->client_id == self->client_id;

    PyObject *now;

    if (run == NULL)
        return NULL;
    run->connection = Py_XNewRef(self->connection);
    run->reader = Py_NewRef((PyObject *)self);
    run->api = Py_XNewRef(self->api);
    run->call = alike ? Py_NewRef(self->call) : NULL;
    run->client_id = Py_NewRef(head->client_id);
    run->named = Py_NewRef(head->named);
    run->version = head->version;
    run->acks = head->acks;
    run->timeout_ms = head->timeout_ms;
    run->partition = head->partition;
    run->size = size;
    run->count = count;
    now = PyObject_CallNoArgs(self->stopwatch);
    run->arrived_ns = now == NULL ? -1 : PyLong_AsLongLong(now);
    Py_XDECREF(now);
    if (run->arrived_ns == -1 && PyErr_Occurred())
        Py_CLEAR(run);
    return run;
}

static void remember(RunReader *self, const head_t *head)
{
    if (head->client_id != self->client_id || head->version != self->last_version)
        Py_CLEAR(self->call);
    Py_XSETREF(self->client_id, Py_NewRef(head->client_id));
    Py_XSETREF(self->named, Py_NewRef(head->named));
    self->last_version = head->version;
}

/* The requests from the first on that are like it; NULL without an exception: the first has not one batch. */
static ProduceRun *run_of(RunReader *self, const head_t *head, reader_t *r, const uint8_t *end, Py_ssize_t most)
{
    const uint8_t *batches[RUN_MAX], *start = head->frame - 4, *frame = start, *frame_end = r->end;
    int64_t sizes[RUN_MAX];
    int32_t ids[RUN_MAX];
    Py_ssize_t count = 0, total = 0, same = head->same_end - head->same;
    ProduceRun *run;

    while ((batches[count] = one_batch(r, &sizes[count])) != NULL) {
        ids[count] = (int32_t)load_u32(frame + 8);
        total += (Py_ssize_t)sizes[count++];
        frame = frame_end;
        if (count == most || count == RUN_MAX || !whole_frame(frame, end, self->bytes_max, &frame_end) ||
            frame_end - frame < 12 + same || memcmp(frame + 4, head->frame, 4) != 0 ||
            memcmp(frame + 12, head->same, (size_t)same) != 0)
            break;
        r->at = frame + 12 + same;
        r->end = frame_end;
    }
    if (count == 0)
        return NULL;
    run = new_run(self, head, (Py_ssize_t)(frame - start), count);
    if (run != NULL && !fill(run, ids, batches, sizes, total))
        Py_CLEAR(run);
    return run;
}

ProduceRun *read_run(RunReader *self, const uint8_t *start, const uint8_t *end, Py_ssize_t most)
{
    reader_t r = {0};
    head_t head = {0};
    ProduceRun *run = NULL;

    if (most > 0 && whole_frame(start, end, self->bytes_max, &r.end)) {
        r.start = r.at = head.frame = start + 4;
        if (read_head(self, &r, &head) && (run = run_of(self, &head, &r, end, most)) != NULL)
            remember(self, &head);
    }
    Py_XDECREF(head.client_id);
    Py_XDECREF(head.named);
    return run;
}
