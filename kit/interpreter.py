"""Print what there is to copy of the Python that runs this."""

import importlib
import importlib.util
import json
import os
import platform
import re
import sys
import sysconfig

NEEDED = ["_bz2", "_ctypes", "_hashlib", "_lzma", "_sqlite3", "_ssl", "_uuid", "binascii", "pyexpat", "readline", "zlib"]
OPTIONAL = {"_bz2", "_lzma", "_sqlite3", "_uuid", "readline"}
# The C library is the sandbox's own: it fits the loader there.
SYSTEM = re.compile(r"/(ld-(linux|musl)[^/]*|lib(c|m|mvec|dl|rt|pthread|util|resolv|nsl|nss_\w+)([-.][\w.-]*)?)\.so")

lacks = [] if importlib.util.find_spec("pip") else ["pip"]
for name in NEEDED:
    try:
        importlib.import_module(name)
    except ImportError:
        if name not in OPTIONAL:
            lacks.append(name)
if platform.python_implementation() != "CPython" or getattr(sys, "abiflags", ""):
    lacks.append("the usual ABI of CPython")

stdlib = sysconfig.get_path("stdlib")
dynload = next((p for p in sys.path if p.endswith("lib-dynload")), os.path.join(stdlib, "lib-dynload"))
with open("/proc/self/maps", encoding="utf-8") as maps:
    loaded = {line.split(None, 5)[5].strip() for line in maps if ".so" in line}
outside = sorted(p for p in loaded if os.path.dirname(p) != os.path.realpath(dynload) and not SYSTEM.search(p) and os.path.isfile(p))

print(json.dumps({
    "version": platform.python_version(),
    "executable": os.path.realpath(sys.executable),
    "stdlib": os.path.realpath(stdlib),
    "dynload": os.path.realpath(dynload),
    "libraries": outside,
    "lacks": lacks,
}))
