"""Facts from the operating system: the boot id, what a path is mounted on, which process holds a lock.

Everything here blocks; it runs on the threads of `worker_thread.py`. It decides nothing: `schema.py` does.
"""

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

# SQLite's write-ahead log needs memory shared between all users of the file, and locks and fsyncs that work.
NETWORK_FILE_SYSTEMS: Final = frozenset(
    {
        *(
            "nfs",
            "nfs4",
            "cifs",
            "smb",
            "smb2",
            "smb3",
            "smbfs",
            "ncpfs",
            "9p",
            "afs",
            "ceph",
            "lustre",
            "beegfs",
            "gpfs",
        ),
        *("glusterfs", "gfs2", "ocfs2", "davfs", "vboxsf", "prl_fs", "fuse.sshfs", "fuse.glusterfs", "fuse.ceph"),
        *("fuse.ceph-fuse", "fuse.s3fs", "fuse.goofys", "fuse.gcsfuse", "fuse.rclone", "fuse.juicefs", "fuse.davfs2"),
        *("fuse.smbnetfs", "fuse.mfs", "fuse.lizardfs", "fuse.gvfsd-fuse", "fuse.blobfuse", "fuse.mount-s3"),
    }
)
RAM_FILE_SYSTEMS: Final = frozenset({"tmpfs", "ramfs"})

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_SYSCTLS: Final = ("kern.bootsessionuuid", "kern.boot_id")  # macOS, FreeBSD; both survive a change of the wall clock


def boot_id() -> str | None:
    """The id of this boot; None if the system has none."""
    if sys.platform == "linux":
        try:
            return _BOOT_ID.read_text().strip()
        except OSError:
            return None
    for name in _SYSCTLS:
        try:
            result = subprocess.run(["/usr/sbin/sysctl", "-n", name], capture_output=True, timeout=5)  # noqa: S603
        except (OSError, subprocess.SubprocessError):
            return None
        if result.returncode == 0 and result.stdout.strip():
            return result.stdout.decode().strip()
    return None


def file_system(path: Path, mounts: str | None = None) -> str | None:
    """The type of the file system that holds `path`; None if unknown. `mounts` is the text of mountinfo."""
    if mounts is None:
        try:
            mounts = Path("/proc/self/mountinfo").read_text(errors="replace")
        except OSError:
            return None
    best, kind = -1, None
    for line in mounts.splitlines():
        front, _, back = line.partition(" - ")
        fields = front.split()
        if len(fields) < 5 or not back:
            continue
        point = Path(re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), fields[4]))
        # The deepest mount point holds the path; of two at one point, the later one covers the earlier.
        if len(point.parts) >= best and path.is_relative_to(point):
            best, kind = len(point.parts), back.split()[0]
    return kind


def lock_holder(path: Path) -> str:
    """The process that holds the flock of `path`, for an error text."""
    try:
        inode = f":{path.stat().st_ino}"
        for line in Path("/proc/locks").read_text().splitlines():
            fields = line.split()
            if len(fields) > 5 and fields[1] == "FLOCK" and fields[5].endswith(inode) and int(fields[4]) > 0:
                return f"process {fields[4]}"
    except (OSError, ValueError):
        pass
    return "another process"
