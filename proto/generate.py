"""Writes what is generated from the definitions beside this file: messages and stubs, and the set that changes are held against.

python proto/generate.py              src/holdfast/v1 and the messages of etcd (`make proto`)
python proto/generate.py --released   also holdfast.binpb: what a release has promised. Run it for a release alone.
"""

import argparse
import tempfile
from pathlib import Path

from grpc_tools import protoc

PROTO = Path(__file__).parent
SOURCE = PROTO.parent / "src"
RELEASED = PROTO / "holdfast.binpb"


def generate(folder: Path) -> None:
    """The modules of `holdfast.v1`, below a folder."""
    files = sorted(str(each) for each in PROTO.glob("holdfast/v1/*.proto"))
    _run(f"-I{PROTO}", f"--python_out={folder}", f"--pyi_out={folder}", *files)
    _run(f"-I{PROTO}", f"--grpc_python_out={folder}", *(each for each in files if each.endswith("_service.proto")))


def compiled(*, comments: bool = False) -> bytes:
    """The definitions as a FileDescriptorSet, with or without where they stand and their comments."""
    files = sorted(str(each) for each in PROTO.glob("holdfast/v1/*.proto"))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "set.binpb"
        _run(f"-I{PROTO}", f"--descriptor_set_out={path}", *(["--include_source_info"] if comments else []), *files)
        return path.read_bytes()


def _run(*arguments: str) -> None:
    if code := protoc.main(["protoc", *arguments]):
        raise SystemExit(code)


def main() -> None:
    """Write everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--released", action="store_true", help="also what later changes are held against")
    generate(SOURCE)
    etcd = SOURCE / "holdfast" / "stores" / "etcd"
    _run(f"-I{PROTO}", f"--python_out={etcd}", f"--pyi_out={etcd}", str(PROTO / "etcd.proto"))
    if parser.parse_args().released:
        RELEASED.write_bytes(compiled())


if __name__ == "__main__":
    main()
