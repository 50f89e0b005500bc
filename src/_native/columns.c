/* columns(buffers, inflate, with_headers): the records of many batches as the buffers of Arrow columns.
 *
 * Keys, values and header parts become Arrow views: up to 12 bytes inside the view, longer ones by (buffer, position) in
 * the input itself, so that no payload is copied. First all headers are read and compressed batches inflated (with the
 * GIL), then all records are decoded (without it). Sizes are checked again in the second walk, never assumed.
 *
 * All columns of fixed width share one allocation, and so do all header entries. Many middling ones cost three times as
 * much in page faults: malloc gives the pages of several freed blocks back to the system, but keeps those of one.
 */
#include "wire.h"

#ifdef __linux__
#include <sys/mman.h>
#endif

enum { VIEW_BYTES = 16, INLINE_MAX = 12, RELEASE_GIL_BYTES = 65536, ALIGNMENT = 64, SLAB_PARTS = 8, HUGE_PAGE = 1 << 21 };

/* Several columns in one bytearray, each aligned as Arrow recommends. Its size never changes, so pointers stay. */
typedef struct {
    PyObject *bytes;
    int parts;
    Py_ssize_t from[SLAB_PARTS], size[SLAB_PARTS];
} slab_t;

typedef struct {
    const uint8_t *start, *end;   /* the records */
    const uint8_t *origin;        /* where the data buffer begins */
    int32_t data_index;
    Py_ssize_t at;                /* of the batch, counted over all input buffers */
    header_t header;
} piece_t;

typedef struct {
    Py_buffer **held;
    Py_ssize_t held_count, held_room;
    piece_t *pieces;
    Py_ssize_t piece_count, piece_room;
    PyObject *data; /* list: what views point into */
    Py_ssize_t rows, bytes;

    slab_t fixed; /* the parts in the order of this line */
    uint8_t *offsets, *timestamps, *types, *keys, *key_valid, *values, *value_valid, *lists;
    Py_ssize_t key_nulls, value_nulls;

    int with_headers;
    slab_t headers;
    uint8_t *header_keys, *header_values, *header_valid;
    Py_ssize_t entries, entry_room, header_nulls;
    PyObject *mended; /* bytearray */
    int32_t mended_index;

    PyThreadState *released; /* not NULL while the GIL is */
    fault_t fault;
} work_t;

/* ---- slabs ---------------------------------------------------------------------------------------------------- */

/* Large slabs by large pages where the system has them: a fault for each 4 KiB costs more than filling them. */
static void advise(uint8_t *start, Py_ssize_t size)
{
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    uintptr_t from = ((uintptr_t)start + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    uintptr_t until = ((uintptr_t)start + (uintptr_t)size) / HUGE_PAGE * HUGE_PAGE;
    if (size >= 8 * HUGE_PAGE && until > from)
        (void)madvise((void *)from, until - from, MADV_HUGEPAGE);
#else
    (void)start;
    (void)size;
#endif
}

static int make_slab(slab_t *slab, int parts, const Py_ssize_t *sizes)
{
    Py_ssize_t total = ALIGNMENT;
    uintptr_t start;
    int i;
    for (i = 0; i < parts; i++)
        total += (sizes[i] + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if ((slab->bytes = PyByteArray_FromStringAndSize(NULL, total)) == NULL)
        return -1;
    start = (uintptr_t)PyByteArray_AS_STRING(slab->bytes);
    advise((uint8_t *)start, total);
    total = (Py_ssize_t)((ALIGNMENT - start % ALIGNMENT) % ALIGNMENT);
    slab->parts = parts;
    for (i = 0; i < parts; i++) {
        slab->from[i] = total;
        slab->size[i] = sizes[i];
        total += (sizes[i] + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    }
    return 0;
}

static uint8_t *part_of(const slab_t *slab, int part)
{
    return (uint8_t *)PyByteArray_AS_STRING(slab->bytes) + slab->from[part];
}

/* The first `size` bytes of a part, as a memoryview that keeps the slab. */
static PyObject *view_of(const slab_t *slab, int part, Py_ssize_t size)
{
    PyObject *whole = PyMemoryView_FromObject(slab->bytes), *view;
    if (whole == NULL)
        return NULL;
    view = PySequence_GetSlice(whole, slab->from[part], slab->from[part] + size);
    Py_DECREF(whole);
    return view;
}

/* ---- views ---------------------------------------------------------------------------------------------------- */

static inline void put_view(uint8_t *view, const uint8_t *bytes, int32_t length, const uint8_t *origin, const uint8_t *end,
                            int32_t data_index)
{
    int32_t position;
    memcpy(view, &length, 4);
    if (length > INLINE_MAX) {
        position = (int32_t)(bytes - origin);
        memcpy(view + 4, bytes, 4);
        memcpy(view + 8, &data_index, 4);
        memcpy(view + 12, &position, 4);
        return;
    }
#if PY_LITTLE_ENDIAN
    if (end - bytes >= INLINE_MAX) { /* whole words, then the surplus masked away: a short memcpy is a call */
        uint64_t low;
        uint32_t high;
        memcpy(&low, bytes, 8);
        memcpy(&high, bytes + 8, 4);
        if (length < 8) {
            low &= ((uint64_t)1 << (8 * length)) - 1;
            high = 0;
        } else {
            high &= (uint32_t)(((uint64_t)1 << (8 * (length - 8))) - 1);
        }
        memcpy(view + 4, &low, 8);
        memcpy(view + 12, &high, 4);
        return;
    }
#endif
    memset(view + 4, 0, INLINE_MAX);
    memcpy(view + 4, bytes, (size_t)length);
}

static inline uint8_t *bytes_of(PyObject *array) { return (uint8_t *)PyByteArray_AS_STRING(array); }

static inline void put_null(uint8_t *view, uint8_t *valid, Py_ssize_t row, Py_ssize_t *nulls)
{
    memset(view, 0, VIEW_BYTES);
    valid[row >> 3] &= (uint8_t)~(1u << (row & 7));
    ++*nulls;
}

/* ---- header keys: Arrow strings are UTF-8, Kafka's are whatever came ------------------------------------------- */

static int is_utf8(const uint8_t *p, Py_ssize_t length)
{
    const uint8_t *end = p + length;
    while (p < end) {
        uint32_t lead = *p++, low = 0x80, high = 0xbf;
        int more;
        if (lead < 0x80)
            continue;
        if (lead >= 0xc2 && lead <= 0xdf)
            more = 1;
        else if (lead >= 0xe0 && lead <= 0xef)
            more = 2;
        else if (lead >= 0xf0 && lead <= 0xf4)
            more = 3;
        else
            return 0;
        if (lead == 0xe0)
            low = 0xa0; /* shorter forms exist */
        else if (lead == 0xed)
            high = 0x9f; /* surrogates */
        else if (lead == 0xf0)
            low = 0x90;
        else if (lead == 0xf4)
            high = 0x8f; /* beyond U+10FFFF */
        if (end - p < more)
            return 0;
        for (; more > 0; more--, low = 0x80, high = 0xbf) {
            if (*p < low || *p > high)
                return 0;
            p++;
        }
    }
    return 1;
}

static void take_gil(work_t *work)
{
    if (work->released != NULL)
        PyEval_RestoreThread(work->released);
}

static void give_gil(work_t *work)
{
    if (work->released != NULL)
        work->released = PyEval_SaveThread();
}

/* A key that is no UTF-8, with U+FFFD where it is broken, kept in a data buffer of its own. With the GIL. */
static int mend_key(work_t *work, const pair_t *pair, uint8_t *view)
{
    PyObject *text = PyUnicode_DecodeUTF8((const char *)pair->key, pair->key_bytes, "replace");
    const char *utf8;
    Py_ssize_t length, at;
    int failed = -1;
    if (text == NULL)
        return -1;
    utf8 = PyUnicode_AsUTF8AndSize(text, &length);
    if (utf8 == NULL)
        goto done;
    if (work->mended == NULL) {
        work->mended = PyByteArray_FromStringAndSize(NULL, 0);
        if (work->mended == NULL || PyList_Append(work->data, work->mended) < 0)
            goto done;
        work->mended_index = (int32_t)PyList_GET_SIZE(work->data) - 1;
    }
    at = PyByteArray_GET_SIZE(work->mended);
    if (at + length > INT32_MAX) {
        PyErr_SetString(PyExc_OverflowError, "more than 2 GiB of broken header keys");
        goto done;
    }
    if (length > INLINE_MAX) {
        if (PyByteArray_Resize(work->mended, at + length) < 0)
            goto done;
        memcpy(bytes_of(work->mended) + at, utf8, (size_t)length);
        put_view(view, bytes_of(work->mended) + at, (int32_t)length, bytes_of(work->mended),
                 bytes_of(work->mended) + at + length, work->mended_index);
    } else {
        put_view(view, (const uint8_t *)utf8, (int32_t)length, NULL, (const uint8_t *)utf8 + length, 0);
    }
    failed = 0;
done:
    Py_DECREF(text);
    return failed;
}

static int make_entries(work_t *work, slab_t *slab, Py_ssize_t room)
{
    Py_ssize_t sizes[] = {room * VIEW_BYTES, room * VIEW_BYTES, (room + 7) / 8};
    if (make_slab(slab, 3, sizes) < 0)
        return -1;
    work->header_keys = part_of(slab, 0);
    work->header_values = part_of(slab, 1);
    work->header_valid = part_of(slab, 2);
    memset(work->header_valid, 0xff, (size_t)sizes[2]);
    work->entry_room = room;
    return 0;
}

/* Room for `more` entries. With the GIL. */
static int grow_entries(work_t *work, Py_ssize_t more)
{
    slab_t old = work->headers;
    size_t used = (size_t)work->entries * VIEW_BYTES;
    if (make_entries(work, &work->headers, (work->entries + more) * 2) < 0) {
        work->headers = old;
        return -1;
    }
    memcpy(work->header_keys, part_of(&old, 0), used);
    memcpy(work->header_values, part_of(&old, 1), used);
    memcpy(work->header_valid, part_of(&old, 2), (size_t)(work->entries + 7) / 8);
    Py_DECREF(old.bytes);
    return 0;
}

/* 0, or -1 with either a fault or a Python error. */
static int put_headers(work_t *work, const piece_t *piece, const record_t *record)
{
    const uint8_t *p = record->headers;
    int32_t i;
    if (work->entries > INT32_MAX - (Py_ssize_t)record->header_count) {
        work->fault.rule = RULE_HEADERS;
        work->fault.given = record->header_count;
        return -1;
    }
    if (record->header_count > work->entry_room - work->entries) {
        int failed;
        take_gil(work);
        failed = grow_entries(work, record->header_count);
        give_gil(work);
        if (failed)
            return -1;
    }
    work->fault.given = 0;
    for (i = 0; i < record->header_count; i++, work->entries++) {
        uint8_t *key = work->header_keys + work->entries * VIEW_BYTES;
        uint8_t *value = work->header_values + work->entries * VIEW_BYTES;
        pair_t pair;
        if ((work->fault.rule = read_pair(&p, record->end, &pair, &work->fault.given)) != SOUND)
            return -1;
        if (is_utf8(pair.key, pair.key_bytes)) {
            put_view(key, pair.key, pair.key_bytes, piece->origin, piece->end, piece->data_index);
        } else {
            int failed;
            take_gil(work);
            failed = mend_key(work, &pair, key);
            give_gil(work);
            if (failed)
                return -1;
        }
        if (pair.value == NULL)
            put_null(value, work->header_valid, work->entries, &work->header_nulls);
        else
            put_view(value, pair.value, pair.value_bytes, piece->origin, piece->end, piece->data_index);
    }
    if (p != record->end) {
        work->fault.rule = RULE_RECORD_LENGTH;
        work->fault.given = record->end - p;
        return -1;
    }
    return 0;
}

/* ---- the second walk ------------------------------------------------------------------------------------------ */

static int decode_piece(work_t *work, const piece_t *piece, Py_ssize_t row)
{
    const header_t *header = &piece->header;
    const uint8_t *p = piece->start;
    uint8_t *keys = work->keys, *values = work->values;
    int64_t *offsets = (int64_t *)work->offsets, *timestamps = (int64_t *)work->timestamps;
    int32_t *lists = work->with_headers ? (int32_t *)work->lists : NULL;
    int64_t previous = -1;
    fault_t *fault = &work->fault;
    record_t record;
    int32_t i;

    fault->at = piece->at;
    memset(work->types + row, header->attributes & APPEND_TIME ? 1 : 0, (size_t)header->count);
    for (i = 0; i < header->count; i++, row++) {
        fault->record = i;
        if ((fault->rule = read_record(&p, piece->end, header, &record, &fault->given)) != SOUND ||
            (fault->rule = check_delta(record.offset_delta, previous, header, 0, &fault->given)) != SOUND)
            return -1;
        previous = record.offset_delta;
        offsets[row] = header->base_offset + record.offset_delta;
        timestamps[row] = record.timestamp;
        if (record.key == NULL)
            put_null(keys + row * VIEW_BYTES, work->key_valid, row, &work->key_nulls);
        else
            put_view(keys + row * VIEW_BYTES, record.key, record.key_bytes, piece->origin, piece->end, piece->data_index);
        if (record.value == NULL)
            put_null(values + row * VIEW_BYTES, work->value_valid, row, &work->value_nulls);
        else
            put_view(values + row * VIEW_BYTES, record.value, record.value_bytes, piece->origin, piece->end,
                     piece->data_index);
        if (lists != NULL) {
            if (put_headers(work, piece, &record) < 0)
                return -1;
            lists[row + 1] = (int32_t)work->entries;
        } else if ((fault->rule = skip_headers(&record, &fault->given)) != SOUND) {
            return -1;
        }
    }
    if (p != piece->end) {
        fault->rule = RULE_TRAILING;
        fault->record = header->count;
        fault->given = piece->end - p;
        return -1;
    }
    return 0;
}

static int decode_all(work_t *work)
{
    Py_ssize_t i, row = 0;
    int failed = 0;
    if (work->bytes >= RELEASE_GIL_BYTES)
        work->released = PyEval_SaveThread();
    for (i = 0; !failed && i < work->piece_count; i++) {
        failed = decode_piece(work, &work->pieces[i], row);
        row += work->pieces[i].header.count;
    }
    take_gil(work);
    work->released = NULL;
    return failed;
}

/* ---- the first walk ------------------------------------------------------------------------------------------- */

static const Py_buffer *hold(work_t *work, PyObject *object)
{
    Py_buffer *buffer;
    if (work->held_count == work->held_room) {
        Py_ssize_t room = work->held_room * 2 + 16;
        Py_buffer **held = PyMem_Realloc(work->held, (size_t)room * sizeof *held);
        if (held == NULL) {
            PyErr_NoMemory();
            return NULL;
        }
        work->held = held;
        work->held_room = room;
    }
    if ((buffer = PyMem_Malloc(sizeof *buffer)) == NULL) { /* each by itself: a Py_buffer may not be moved */
        PyErr_NoMemory();
        return NULL;
    }
    if (PyObject_GetBuffer(object, buffer, PyBUF_SIMPLE) < 0) {
        PyMem_Free(buffer);
        return NULL;
    }
    work->held[work->held_count++] = buffer;
    if (buffer->len > INT32_MAX) {
        PyErr_SetString(PyExc_OverflowError, "a buffer is at most 2 GiB");
        return NULL;
    }
    return buffer;
}

static int32_t add_data(work_t *work, PyObject *object)
{
    if (PyList_GET_SIZE(work->data) >= INT32_MAX - 1) {
        PyErr_SetString(PyExc_OverflowError, "too many buffers");
        return -1;
    }
    return PyList_Append(work->data, object) < 0 ? -1 : (int32_t)PyList_GET_SIZE(work->data) - 1;
}

static piece_t *add_piece(work_t *work)
{
    if (work->piece_count == work->piece_room) {
        Py_ssize_t room = work->piece_room * 2 + 16;
        piece_t *pieces = PyMem_Realloc(work->pieces, (size_t)room * sizeof *pieces);
        if (pieces == NULL) {
            PyErr_NoMemory();
            return NULL;
        }
        work->pieces = pieces;
        work->piece_room = room;
    }
    return &work->pieces[work->piece_count++];
}

static int inflate_piece(work_t *work, piece_t *piece, PyObject *object, Py_ssize_t from, Py_ssize_t until,
                         PyObject *inflate)
{
    PyObject *whole = PyMemoryView_FromObject(object), *part, *plain;
    const Py_buffer *buffer;
    if (whole == NULL)
        return -1;
    part = PySequence_GetSlice(whole, from, until);
    Py_DECREF(whole);
    if (part == NULL)
        return -1;
    plain = PyObject_CallFunction(inflate, "iNn", piece->header.attributes & CODEC_MASK, part, piece->at);
    if (plain == NULL)
        return -1;
    buffer = hold(work, plain);
    if (buffer != NULL) {
        piece->origin = piece->start = buffer->buf;
        piece->end = piece->start + buffer->len;
        piece->data_index = add_data(work, plain);
    }
    Py_DECREF(plain);
    return buffer == NULL || piece->data_index < 0 ? -1 : 0;
}

static int split_buffer(work_t *work, PyObject *object, Py_ssize_t before, Py_ssize_t *length, PyObject *inflate)
{
    static const limits_t stored = {1, INT64_MAX, INT64_MAX};
    const Py_buffer *buffer = hold(work, object);
    int32_t data_index = -1;
    Py_ssize_t at = 0, size;
    header_t header;
    piece_t *piece;
    if (buffer == NULL)
        return -1;
    *length = buffer->len;
    for (; at < buffer->len; at += size) {
        const uint8_t *p = (const uint8_t *)buffer->buf + at;
        work->fault.at = before + at;
        work->fault.rule = check_header(p, buffer->len - at, &stored, &header, &work->fault.given);
        if (work->fault.rule != SOUND)
            return -1;
        size = (Py_ssize_t)header.length + LENGTH_COVERS_FROM;
        if (header.attributes & CONTROL || header.count == 0)
            continue; /* nothing in them is a record of the application */
        if ((piece = add_piece(work)) == NULL)
            return -1;
        piece->header = header;
        piece->at = before + at;
        if (header.attributes & CODEC_MASK) {
            if (inflate_piece(work, piece, object, at + HEADER_BYTES, at + size, inflate) < 0)
                return -1;
        } else {
            if (data_index < 0 && (data_index = add_data(work, object)) < 0)
                return -1;
            piece->origin = buffer->buf;
            piece->start = p + HEADER_BYTES;
            piece->end = p + size;
            piece->data_index = data_index;
        }
        if ((int64_t)header.count * RECORD_BYTES_MIN > piece->end - piece->start) {
            work->fault.rule = RULE_COUNT;
            work->fault.given = header.count;
            return -1;
        }
        work->rows += header.count;
        work->bytes += piece->end - piece->start;
    }
    return 0;
}

/* ---- together ------------------------------------------------------------------------------------------------- */

/* How many header entries to expect: as many per record as the first record has. */
static Py_ssize_t guess_entries(const work_t *work)
{
    record_t first;
    int64_t given;
    const uint8_t *p;
    Py_ssize_t guess = 0;
    if (work->piece_count > 0) {
        p = work->pieces[0].start;
        if (read_record(&p, work->pieces[0].end, &work->pieces[0].header, &first, &given) == SOUND)
            guess = first.header_count;
    }
    /* A liar's first record must not make us allocate what the input could never hold. */
    return guess > 0 && guess < work->bytes / 2 / work->rows ? guess * work->rows + 16 : 64;
}

static int make_columns(work_t *work)
{
    Py_ssize_t n = work->rows, bits = (work->rows + 7) / 8;
    Py_ssize_t sizes[] = {n * 8, n * 8, n, n * VIEW_BYTES, bits, n * VIEW_BYTES, bits, work->with_headers ? (n + 1) * 4 : 0};
    if (make_slab(&work->fixed, SLAB_PARTS, sizes) < 0)
        return -1;
    work->offsets = part_of(&work->fixed, 0);
    work->timestamps = part_of(&work->fixed, 1);
    work->types = part_of(&work->fixed, 2);
    work->keys = part_of(&work->fixed, 3);
    work->key_valid = part_of(&work->fixed, 4);
    work->values = part_of(&work->fixed, 5);
    work->value_valid = part_of(&work->fixed, 6);
    work->lists = part_of(&work->fixed, 7);
    memset(work->key_valid, 0xff, (size_t)bits);
    memset(work->value_valid, 0xff, (size_t)bits);
    if (!work->with_headers)
        return 0;
    memset(work->lists, 0, 4);
    return make_entries(work, &work->headers, guess_entries(work));
}

static PyObject *result_tuple(work_t *work)
{
    const slab_t *fixed = &work->fixed, *headers = &work->headers;
    Py_ssize_t n = work->entries;
    PyObject *entries = Py_NewRef(Py_None);
    if (work->with_headers)
        Py_SETREF(entries, Py_BuildValue("(nNNNNn)", n, view_of(fixed, 7, fixed->size[7]),
                                         view_of(headers, 0, n * VIEW_BYTES), view_of(headers, 1, n * VIEW_BYTES),
                                         view_of(headers, 2, (n + 7) / 8), work->header_nulls));
    if (entries == NULL)
        return NULL;
    return Py_BuildValue("(nONNNNNnNNnN)", work->rows, work->data, view_of(fixed, 0, fixed->size[0]),
                         view_of(fixed, 1, fixed->size[1]), view_of(fixed, 2, fixed->size[2]),
                         view_of(fixed, 3, fixed->size[3]), view_of(fixed, 4, fixed->size[4]), work->key_nulls,
                         view_of(fixed, 5, fixed->size[5]), view_of(fixed, 6, fixed->size[6]), work->value_nulls,
                         entries);
}

static void clear(work_t *work)
{
    Py_ssize_t i;
    for (i = 0; i < work->held_count; i++) {
        PyBuffer_Release(work->held[i]);
        PyMem_Free(work->held[i]);
    }
    PyMem_Free(work->held);
    PyMem_Free(work->pieces);
    Py_XDECREF(work->data);
    Py_XDECREF(work->fixed.bytes);
    Py_XDECREF(work->headers.bytes);
    Py_XDECREF(work->mended);
}

PyObject *columns(PyObject *module, PyObject *args)
{
    PyObject *given, *buffers, *inflate, *result = NULL;
    Py_ssize_t i, length = 0, before = 0;
    int failed = 0;
    work_t work;

    (void)module;
    memset(&work, 0, sizeof work);
    work.fault.record = -1;
    if (!PyArg_ParseTuple(args, "OOp", &given, &inflate, &work.with_headers))
        return NULL;
    if ((buffers = PySequence_Tuple(given)) == NULL) /* ours, so that `inflate` cannot change it under us */
        return NULL;
    work.data = PyList_New(0);
    failed = work.data == NULL;
    for (i = 0; !failed && i < PyTuple_GET_SIZE(buffers); i++, before += length)
        failed = split_buffer(&work, PyTuple_GET_ITEM(buffers, i), before, &length, inflate);
    failed = failed || make_columns(&work) < 0 || decode_all(&work) < 0;
    if (!failed)
        result = result_tuple(&work);
    else if (work.fault.rule != SOUND)
        result = fault_tuple(&work.fault);
    clear(&work);
    Py_DECREF(buffers);
    return result;
}
