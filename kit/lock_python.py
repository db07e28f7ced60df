"""Write the lock of a harness that is a Python package: kit/locks/NAME/requirements.txt.

    python3.12 kit/lock_python.py mini_swe_agent openhands_sdk

Needs uv on the PATH and a registry. The lock has every package with the hashes
of its wheels for the Pythons and processors that kits are made for, and names
no registry. What is left out are packages that the harness's command never
imports.
"""

import pathlib
import re
import subprocess
import sys
import tempfile
import tomllib

# Per harness: what is wanted, and what is left out with all that it needs.
HARNESSES = {
    # LiteLLM from 1.106 on imports mcp, which it does not require, for any call with tools.
    # Its older versions are also smaller. datasets is for benchmarks.
    "mini_swe_agent": (["mini-swe-agent==2.4.6", "litellm==1.90.7"], ["datasets"]),
    # The oldest LiteLLM it takes is half the size of the newest and loads in half the time.
    # The tools for a browser and for Tom are loaded on demand, and polar's script does not.
    "openhands_sdk": (["openhands-sdk==1.58.0", "openhands-tools==1.58.0", "litellm==1.93.2"], ["browser-use", "func-timeout", "tom-swe"]),
}
PYTHONS = (12, 13)
PLATFORM = re.compile(r"^(any|(many)?linux[\w.]*_(x86_64|aarch64))$")


def fits(wheel):
    """Tell whether a kit can use a wheel, going by its name."""
    pythons, abis, platforms = wheel.removesuffix(".whl").split("-")[-3:]
    if not any(PLATFORM.match(p) for p in platforms.split(".")):
        return False
    for python in pythons.split("."):
        if python == "py3":
            return True
        if m := re.match(r"cp3(\d+)$", python):
            minor, abi = int(m[1]), abis.split(".")
            if minor in PYTHONS and (python in abi or "none" in abi) or "abi3" in abi and minor <= min(PYTHONS):
                return True
    return False


def lock(name):
    wanted, excluded = HARNESSES[name]
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "in.txt").write_text("\n".join(wanted))
        (folder / "excludes.txt").write_text("\n".join(excluded))
        subprocess.run(
            ["uv", "pip", "compile", "-q", "--python-version", f"3.{min(PYTHONS)}", "--universal",
             "--only-binary", ":all:", "--excludes", folder / "excludes.txt", "--format", "pylock.toml",
             "-o", folder / "pylock.toml", folder / "in.txt"],
            check=True, stdout=subprocess.DEVNULL)
        resolved = tomllib.loads((folder / "pylock.toml").read_text())
    lines = []
    for package in resolved["packages"]:
        hashes = sorted(w["hashes"]["sha256"] for w in package["wheels"] if fits(w.get("name") or w["url"].rsplit("/", 1)[-1]))
        marker = package.get("marker", "")
        if not hashes and re.search("win32|darwin|Windows|Darwin", marker):
            continue
        if not hashes:
            raise SystemExit(f"{name}: {package['name']} {package['version']} has no wheel that fits")
        requirement = f"{package['name']}=={package['version']}" + (f" ; {marker}" if marker else "")
        lines.append(requirement + "".join(f" \\\n    --hash=sha256:{h}" for h in hashes))
    target = pathlib.Path(__file__).parent / "locks" / name / "requirements.txt"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text("\n".join(lines) + "\n")
    print(f"{target}: {len(lines)} packages")


for name in sys.argv[1:]:
    lock(name)
