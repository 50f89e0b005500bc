/* A group of frames, written as whole blocks and durable then. The interpreter is not needed. */
#include "append_queue.h"

#ifdef __linux__
#include <errno.h>
#include <unistd.h>

/* A frame at `to`; what is behind it. */
static char *put_frame(char *to, append_t *append, const char *mark, int64_t lsn, int64_t last_synced)
{
    uint8_t *head = (uint8_t *)to, *payload = head + FRAME_BYTES, *at = payload;

    for (Py_ssize_t part = 0; part < append->parts; part++) {
        memcpy(at, append->payload[part].buf, (size_t)append->payload[part].len);
        at += append->payload[part].len;
    }
    memcpy(head, append->head, FRAME_BYTES);
    memcpy(head, mark, MARK_BYTES);
    store_number(head + LSN_AT, (uint64_t)lsn, 8);
    store_number(head + LAST_SYNCED_AT, (uint64_t)last_synced, 8);
    store_number(head + PAYLOAD_CRC_AT, append->known_crc ? append->crc : crc32c(payload, at - payload), 4);
    store_number(head + CRC_AT, crc32c(head, CRC_AT), 4);
    return (char *)at;
}

static int write_fully(int descriptor, const char *from, size_t bytes, int64_t position)
{
    while (bytes > 0) {
        ssize_t done = pwrite(descriptor, from, bytes, (off_t)position);

        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return done < 0 ? errno : EIO; /* no bytes taken, and no reason given */
        from += done;
        bytes -= (size_t)done;
        position += done;
    }
    return 0;
}

int write_group(wal_file_t *file, group_t *group)
{
    size_t begun = (size_t)(file->position % BLOCK_BYTES), filled, padding;
    char *to = file->memory + begun;
    int64_t lsn = file->lsn, last_synced = file->lsn - 1;
    int error;

    for (append_t *each = group->appends; each != NULL; each = each->next) {
        each->position = file->position + (to - file->memory) - (int64_t)begun;
        to = put_frame(to, each, file->mark, lsn++, last_synced);
    }
    filled = (size_t)(to - file->memory);
    padding = (BLOCK_BYTES - filled % BLOCK_BYTES) % BLOCK_BYTES;
    memset(to, 0, padding);
    error = write_fully(file->descriptor, file->memory, filled + padding, file->position - (int64_t)begun);
    if (error != 0)
        return error;
    group->first_lsn = file->lsn;
    group->generation = file->generation;
    file->lsn = lsn;
    file->position += group->size;
    memmove(file->memory, file->memory + (filled - filled % BLOCK_BYTES), filled % BLOCK_BYTES);
    return 0;
}
#endif
