/* Groups of plain appends, written by the writer's thread without the interpreter, until one needs it. */
#include "append_queue.h"

#ifdef __linux__
#include <errno.h>

static int may_write(const wal_file_t *file, const append_t *append, int64_t total)
{
    return append != NULL && append->plain && (append->kind <= MARK_KIND || file->replicated) &&
           total + append->size <= file->file_bytes - file->position &&
           (total == 0 || total + append->size <= file->group_bytes_max);
}

/* Whether there is nothing queued that is not for us. */
static int is_ours(AppendQueue *self, const wal_file_t *file)
{
    int ours;

    pthread_mutex_lock(&self->lock);
    ours = self->first == NULL || may_write(file, self->first, 0);
    pthread_mutex_unlock(&self->lock);
    return ours;
}

/* The next group, once something is queued and the loop knows of the group before; NULL: there will never be, or it is not for us.
 * A group that the loop has not heard of costs nobody anything: while it is behind, the next one grows, as far as it can. */
static group_t *next_group(AppendQueue *self, const wal_file_t *file)
{
    group_t *group = PyMem_RawCalloc(1, sizeof(group_t));
    append_t *last = NULL;

    if (group == NULL)
        return NULL;
    pthread_mutex_lock(&self->lock);
    self->enough = file->group_bytes_max;
    while (!self->closing &&
           (self->first == NULL || (self->signalled && self->size < self->enough && may_write(file, self->first, 0))))
        wait_locked(self, self->first == NULL ? FOR_APPENDS : FOR_THE_LOOP);
    group->appends = self->first;
    while (may_write(file, self->first, group->size)) {
        last = self->first;
        group->size += last->size;
        group->count++;
        self->first = last->next;
        self->count--;
    }
    self->size -= group->size;
    if (last != NULL)
        last->next = NULL;
    pthread_mutex_unlock(&self->lock);
    if (last != NULL)
        return group;
    PyMem_RawFree(group);
    return NULL;
}

/* To the front of the queue: the writer's own code will see what is wrong. */
static void put_back(AppendQueue *self, group_t *group)
{
    append_t *last = group->appends;

    while (last->next != NULL)
        last = last->next;
    pthread_mutex_lock(&self->lock);
    last->next = self->first;
    if (self->first == NULL)
        self->last = last;
    self->first = group->appends;
    self->count += group->count;
    self->size += group->size;
    pthread_mutex_unlock(&self->lock);
    PyMem_RawFree(group);
}

static void handed_back(AppendQueue *self, group_t *group)
{
    pthread_mutex_lock(&self->lock);
    *(self->done == NULL ? &self->done : &self->last_done->next) = group;
    self->last_done = group;
    pthread_mutex_unlock(&self->lock);
    signal_loop(self);
}

/* Write groups until one needs the interpreter. A group that failed is returned, with `error`. */
static group_t *serve(AppendQueue *self, wal_file_t *file, int *error)
{
    group_t *group;

    *error = 0;
    while ((group = next_group(self, file)) != NULL) {
        int64_t began_ns = now_ns();

        group->handover_ns = began_ns - group->appends->pushed_ns;
        *error = write_group(file, group);
        if (*error == EINVAL || *error == EOPNOTSUPP) { /* a system that cannot write blocks any more */
            *error = 0;
            put_back(self, group);
            return NULL;
        }
        if (*error != 0)
            return group;
        group->synced_ns = now_ns();
        group->write_ns = group->synced_ns - began_ns;
        handed_back(self, group);
    }
    return NULL;
}

/* What `serve` returns. */
static PyObject *served(const wal_file_t *file, group_t *failed, int error)
{
    PyObject *positions = failed == NULL ? PyList_New(0) : positions_of(failed->appends, failed->count);
    PyObject *entries = failed == NULL ? PyList_New(0) : entries_of(failed->appends, failed->count);

    PyMem_RawFree(failed);
    return Py_BuildValue("(Ly#LiNN)", (long long)file->position, file->memory, (Py_ssize_t)(file->position % BLOCK_BYTES),
                         (long long)file->lsn, error, entries, positions);
}

/* serve(descriptor, memory, begun, position, file_bytes, mark, lsn, generation, replicated, group_bytes_max): write groups of plain
 * appends at the position of a file, behind `begun`, which its last block holds, until there is one that is not plain, does not fit
 * or fails, or the queue is closed. (position, what its block holds then, next LSN, errno, entries and positions of the group that
 * failed). */
PyObject *queue_serve(AppendQueue *self, PyObject *args)
{
    wal_file_t file = {0};
    Py_buffer memory, begun, mark;
    long long position, file_bytes, lsn, generation, group_bytes_max;
    int error = 0, sound;
    group_t *failed = NULL;
    PyObject *result = NULL;

    if (!PyArg_ParseTuple(args, "iw*y*LLy*LLpL", &file.descriptor, &memory, &begun, &position, &file_bytes, &mark, &lsn, &generation,
                          &file.replicated, &group_bytes_max))
        return NULL;
    sound = position >= 0 && begun.len == position % BLOCK_BYTES && mark.len == MARK_BYTES &&
            memory.len >= 2 * BLOCK_BYTES + PLAIN_BYTES_MAX && group_bytes_max > 0 && (uintptr_t)memory.buf % BLOCK_BYTES == 0;
    if (!sound) {
        PyErr_SetString(PyExc_ValueError, "the block's beginning, a mark, and aligned memory that has room are needed");
    } else {
        file.memory = memory.buf;
        file.position = position;
        file.file_bytes = file_bytes - file_bytes % BLOCK_BYTES; /* the end of the last block that is written is inside the file */
        file.mark = mark.buf;
        file.lsn = lsn;
        file.generation = generation;
        file.group_bytes_max =
            group_bytes_max < memory.len - 2 * BLOCK_BYTES ? group_bytes_max : (int64_t)(memory.len - 2 * BLOCK_BYTES);
        memcpy(file.memory, begun.buf, (size_t)begun.len);
        if (is_ours(self, &file)) {
            Py_BEGIN_ALLOW_THREADS
            failed = serve(self, &file, &error);
            Py_END_ALLOW_THREADS
        }
        if (report_groups(self) == 0)
            result = served(&file, failed, error);
    }
    PyBuffer_Release(&memory);
    PyBuffer_Release(&begun);
    PyBuffer_Release(&mark);
    return result;
}
#endif
