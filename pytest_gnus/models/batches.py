"""Which rows are run together: similar lengths, within a budget, with as little padding as pays."""

from __future__ import annotations

from collections.abc import Callable, Sequence

#: What a pass costs besides its tokens, in tokens: the weights are read once for each pass.
PASS_COST = 48


def partition(
    lengths: Sequence[int], fits: Callable[[int, int], bool], pass_cost: int = PASS_COST
) -> list[int]:
    """Cut a descending list of row lengths into passes; returns the sizes of the passes, in order.

    A pass of n rows costs n times its longest row, and `pass_cost`. The sum of costs is minimal among all
    cuts into runs for which `fits(rows, longest)` holds; a row that fits nowhere is run alone.
    """
    count = len(lengths)
    best = [0.0] * (count + 1)
    size = [1] * (count + 1)
    for first in range(count - 1, -1, -1):
        longest = lengths[first]
        best[first], size[first] = longest + pass_cost + best[first + 1], 1
        padding = 0
        for rows in range(2, count - first + 1):
            padding += longest - lengths[first + rows - 1]
            # What is padded more than several passes would cost is cheaper cut somewhere.
            if padding > 16 * pass_cost or not fits(rows, longest):
                break
            cost = longest * rows + pass_cost + best[first + rows]
            if cost < best[first]:
                best[first], size[first] = cost, rows
    sizes = []
    first = 0
    while first < count:
        sizes.append(size[first])
        first += size[first]
    return sizes
