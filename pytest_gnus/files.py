"""What lies in the place of a file."""

from __future__ import annotations

import stat
from pathlib import Path


def file_fault(path: Path) -> str | None:
    """What is there instead of a file, to stand after the word "found"; None where it is one.

    Opening a pipe would wait without end, so this is asked before anything is opened.
    """
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return "a link that leads nowhere" if path.is_symlink() else "nothing"
    except (OSError, ValueError) as error:
        return "a link that leads in a circle" if _is_link(path) else f"no file that can be read: {error}"
    if stat.S_ISREG(mode):
        return None
    return "a folder" if stat.S_ISDIR(mode) else "no ordinary file"


def _is_link(path: Path) -> bool:
    try:
        return path.is_symlink()
    except (OSError, ValueError):
        return False
