"""The memory of the machine, without importing MLX."""

from __future__ import annotations

import os
from pathlib import Path


def free_main_memory() -> int | None:
    """Bytes that a process can still get, or None where nobody says."""
    information = Path("/proc/meminfo")
    if information.exists():
        for line in information.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    except (ValueError, OSError):
        return None
