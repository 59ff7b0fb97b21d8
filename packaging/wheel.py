"""Packs a tree of files below a prefix into a wheel that installs them there: no Python is in it, so nothing can be imported.

The same input makes the same bytes: names in order, one time for all, no names of users. `cargo xtask dist` runs it.
"""
import argparse
import base64
import hashlib
import pathlib
import time
import zipfile

NAME = "weir_hpc"
DOC = "share/doc/weir/"
LICENCES = ["LICENSE-APACHE", "LICENSE-MIT", "third-party-licences.txt"]


def digest(data):
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def metadata(version, readme):
    lines = [
        "Metadata-Version: 2.4",
        "Name: weir-hpc",
        "Version: " + version,
        "Summary: Fast and predictable messages for parallel programs on ordinary networks: a libfabric provider for MPI, and its tools",
        "License-Expression: Apache-2.0 OR MIT",
        *("License-File: " + name for name in LICENCES),
        "Author: The Weir authors",
        "Keywords: MPI,libfabric,HPC,network",
        "Classifier: Operating System :: POSIX :: Linux",
        "Classifier: Programming Language :: Rust",
        "Classifier: Topic :: System :: Distributed Computing",
        "Requires-Python: >=3.6",
        "Description-Content-Type: text/markdown",
    ]
    return "\n".join(lines) + "\n\n" + readme


def entries(tree, version, tag):
    """Names in the wheel with their bytes and modes."""
    info, data = f"{NAME}-{version}.dist-info/", f"{NAME}-{version}.data/"
    out = {}
    for path in sorted(p for p in tree.rglob("*") if p.is_file()):
        name = path.relative_to(tree).as_posix()
        # pip puts scripts into the environment's bin, whatever they are, and data below its prefix.
        where = "scripts/" + name[len("bin/"):] if name.startswith("bin/") else "data/" + name
        out[data + where] = (path.read_bytes(), 0o755 if name.startswith("bin/") else 0o644)
    for name in LICENCES:
        out[info + "licenses/" + name] = ((tree / DOC / name).read_bytes(), 0o644)
    out[info + "sboms/weir.cdx.json"] = ((tree / DOC / "weir.cdx.json").read_bytes(), 0o644)
    readme = (tree / DOC / "README.md").read_text(encoding="utf-8")
    out[info + "METADATA"] = (metadata(version, readme).encode(), 0o644)
    wheel = f"Wheel-Version: 1.0\nGenerator: weir\nRoot-Is-Purelib: false\nTag: py3-none-{tag}\n"
    out[info + "WHEEL"] = (wheel.encode(), 0o644)
    record = "".join(f"{name},{digest(data)},{len(data)}\n" for name, (data, _) in sorted(out.items()))
    out[info + "RECORD"] = (f"{record}{info}RECORD,,\n".encode(), 0o644)
    return out


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tree", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--version", required=True)
    parser.add_argument("--tag", required=True)
    parser.add_argument("--epoch", type=int, required=True)
    args = parser.parse_args()
    # A zip file knows no earlier time.
    stamp = time.gmtime(max(args.epoch, 315532800))[:6]
    all_entries = entries(args.tree, args.version, args.tag)
    with zipfile.ZipFile(args.out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as wheel:
        # What describes the wheel comes last, as the specification asks for.
        for name in sorted(all_entries, key=lambda name: (".dist-info/" in name, name)):
            data, mode = all_entries[name]
            info = zipfile.ZipInfo(name, stamp)
            info.external_attr = (0o100000 | mode) << 16
            info.create_system = 3
            info.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(info, data, compresslevel=9)


main()
