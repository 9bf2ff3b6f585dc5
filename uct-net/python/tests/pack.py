"""Makes a wheel of a library that cargo has built already: `pack.py LIBRARY VERSION FOLDER` prints its path.

For tests, which build the workspace once. maturin makes those for users, with the same contents.
"""

import base64
import hashlib
import os
import sys
import tomllib
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent


def contents(library, version):
    """Names in the wheel, and bytes."""
    with open(HERE / "pyproject.toml", "rb") as file:
        settings = tomllib.load(file)
    project, maturin = settings["project"], settings["tool"]["maturin"]
    info = f"{project['name'].replace('-', '_')}-{version}.dist-info"
    sources = HERE / maturin["python-source"]
    for path in sorted(sources.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            yield str(path.relative_to(sources)), path.read_bytes()
    yield maturin["module-name"].replace(".", "/") + ".abi3.so", Path(library).read_bytes()
    for path in sorted(HERE.glob(project["license-files"][0])):
        yield f"{info}/licenses/{path.name}", path.read_bytes()
    fields = [
        "Metadata-Version: 2.4",
        f"Name: {project['name']}",
        f"Version: {version}",
        f"Summary: {project['description']}",
        f"License-Expression: {project['license']}",
        f"Requires-Python: {project['requires-python']}",
        "Description-Content-Type: text/markdown",
    ]
    text = "\n".join(fields) + "\n\n" + (HERE / project["readme"]).read_text()
    yield f"{info}/METADATA", text.encode()
    tag = f"cp311-abi3-linux_{os.uname().machine}"
    yield f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: pack\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()
    yield f"{info}/RECORD", b""


def pack(library, version, folder):
    tag = f"cp311-abi3-linux_{os.uname().machine}"
    wheel = Path(folder) / f"uct_net-{version}-{tag}.whl"
    record = []
    # Stored, not compressed: it is installed at once.
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, data in contents(library, version):
            if name.endswith("/RECORD"):
                data = ("\n".join(record) + f"\n{name},,\n").encode()
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record.append(f"{name},sha256={digest},{len(data)}")
            archive.writestr(name, data)
    return wheel


if __name__ == "__main__":
    print(pack(*sys.argv[1:4]))
