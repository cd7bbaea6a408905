"""The virtual environment that holds the other packages: made once, kept in the cache, named by its pins."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent
TOGETHER, ALONE = HERE / "requirements.txt", HERE / "requirements-alone.txt"
BASE = ("torch", "transformers")  # nothing can be measured without these
_INSTALL_S = 1800
_PIN = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)==([^\s;#]+)\s*(?:#.*)?$")


@dataclass
class Environment:
    """Where the interpreter lies, and why what is missing is missing: package → reason."""

    python: Path
    missing: dict[str, str] = field(default_factory=dict)

    def lacks(self, package: str) -> str:
        """Why `package` can not be used here; empty when it can."""
        return next((self.missing[name] for name in (*BASE, package) if name in self.missing), "")


def pins(text: str) -> dict[str, str]:
    """{package: version} of a requirements file in which every line is a pin, a comment or empty."""
    found = {}
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        match = _PIN.match(stripped)
        if match is None:
            raise ValueError(f"line {number}: expected name==version, got {stripped!r}; pin it")
        found[match[1]] = match[2]
    return found


def name_of(*requirements: dict[str, str]) -> str:
    """The folder's name: the same for the same pins and the same Python, whatever their order or comments."""
    lines = [
        f"{group} {name}=={pinned[name]}"
        for group, pinned in enumerate(requirements)
        for name in sorted(pinned)
    ]
    lines.append(f"python {sysconfig.get_python_version()} {sys.platform}")
    return "peers-" + hashlib.sha256("\n".join(lines).encode()).hexdigest()[:12]


def prepared(cache: Path) -> Environment:
    """The environment, made if it is not there; a package that can not be had is missing, with the reason."""
    together, alone = (pins(path.read_text(encoding="utf-8")) for path in (TOGETHER, ALONE))
    folder = cache / name_of(together, alone)
    environment = Environment(folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python"))
    if (folder / "ready").exists():
        return environment
    print(f"installing {', '.join((*together, *alone))} into {folder}", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    try:
        venv.create(folder, with_pip=True)
    except (OSError, subprocess.CalledProcessError) as error:
        environment.missing = dict.fromkeys(BASE, f"no virtual environment: {error}")
        return environment
    if _pip(environment.python, "-r", str(TOGETHER)):
        # One that can not be had must not take the others with it.
        for packages in (BASE, *((name,) for name in together if name not in BASE)):
            wanted = [f"{name}=={together[name]}" for name in dict.fromkeys((*BASE, *packages))]
            if reason := _pip(environment.python, *wanted):
                environment.missing |= dict.fromkeys(packages, reason)
            if "torch" in environment.missing:
                break
    for name, version in alone.items():
        if reason := _pip(environment.python, "--no-deps", f"{name}=={version}"):
            environment.missing[name] = reason
    if not environment.missing:
        (folder / "ready").touch()
    return environment


def _pip(python: Path, *what: str) -> str:
    """Install; returns the reason when it does not work."""
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *what]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_INSTALL_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"not installed: {type(error).__name__}"
    if done.returncode == 0:
        return ""
    errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR:")]
    return "not installed: " + (errors[-1].removeprefix("ERROR:").strip() if errors else "pip failed")[:160]
