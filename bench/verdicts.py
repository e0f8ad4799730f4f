"""How often a verdict is right: false blocks without a true change, and true drops that are caught.

    python bench/verdicts.py [--runs 4000] [--accuracy 0.6] [--flips 0.05] [--limit 0.10] [--seed 1]

Each run draws n documents, right or wrong on the reference and on the candidate, and judges them with the
product's own comparison and policies. A quantized model differs from its reference on more documents than
its score shows: without any true change a share `flips` of all documents turns from right to wrong, and as
many from wrong to right. A true drop of d points turns a share d more from right to wrong. With accuracy
0.6 and flips 0.05 the two sides agree on 90 % of the documents, a correlation of 0.79.

`threshold` compares the drop with a limit relative to the reference's score (0.10 of 0.6 is 6 points). It
is meant to let smaller drops pass, so that its shares for 2 and 5 points are no faults.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import get_args

import numpy as np
from tabulate import tabulate

from pytest_gnus.gates.comparison import compare_pairing
from pytest_gnus.gates.pairing import Pairing, Side
from pytest_gnus.gates.policy import RegressionPolicy, regression_gate

POLICIES: tuple[RegressionPolicy, ...] = get_args(RegressionPolicy)
COUNTS = (100, 500, 2000)
DROPS = (0.0, 0.02, 0.05, 0.10)
FALSE_BLOCKS = 0.05
CAUGHT = 0.90


@dataclass(frozen=True)
class World:
    """What is true of the documents, as shares of all of them."""

    accuracy: float
    flips: float
    drop: float

    def shares(self) -> list[float]:
        """Right on both; only on the reference; only on the candidate; on neither."""
        shares = [self.accuracy - self.flips - self.drop, self.flips + self.drop, self.flips]
        if min(*shares, 1 - sum(shares)) < 0.0:
            raise ValueError(f"no documents are like this: {self}")
        return [*shares, 1 - sum(shares)]


def pairing(counts: tuple[int, int, int, int]) -> Pairing:
    both, worse, better, neither = counts
    n = sum(counts)
    reference = (1.0,) * (both + worse) + (0.0,) * (better + neither)
    candidate = (1.0,) * both + (0.0,) * worse + (1.0,) * better + (0.0,) * neither
    clusters = (None,) * n
    return Pairing(Side(reference, clusters), Side(candidate, clusters), 0, 0)


def blocked(counts: tuple[int, int, int, int], limit: float) -> dict[RegressionPolicy, bool]:
    """Which policies block these documents; what is not evaluated blocks."""
    both, worse, better, _ = counts
    n = sum(counts)
    compared = compare_pairing(pairing(counts))
    score, reference = (both + better) / n, (both + worse) / n
    return {
        policy: not regression_gate("regression", compared, score, reference, limit, policy).gate.holds
        for policy in POLICIES
    }


def share_blocked(
    world: World, n: int, runs: int, limit: float, generator: np.random.Generator
) -> dict[RegressionPolicy, float]:
    """The share of runs that each policy blocks. The same counts are judged once."""
    drawn, times = np.unique(generator.multinomial(n, world.shares(), size=runs), axis=0, return_counts=True)
    totals = dict.fromkeys(POLICIES, 0)
    for row, often in zip(drawn, times, strict=True):
        both, worse, better, neither = (int(count) for count in row)
        for policy, blocks in blocked((both, worse, better, neither), limit).items():
            totals[policy] += int(often) * blocks
    return {policy: total / runs for policy, total in totals.items()}


def simulate(options: argparse.Namespace) -> dict[tuple[float, int], dict[RegressionPolicy, float]]:
    cells = [(drop, n) for drop in DROPS for n in COUNTS]
    seeds = np.random.SeedSequence(options.seed).spawn(len(cells))
    return {
        (drop, n): share_blocked(
            World(options.accuracy, options.flips, drop),
            n,
            options.runs,
            options.limit,
            np.random.default_rng(seed),
        )
        for (drop, n), seed in zip(cells, seeds, strict=True)
    }


def table(blocks: dict[tuple[float, int], dict[RegressionPolicy, float]]) -> str:
    rows = [
        [
            f"`{policy}`",
            "no change: false blocks" if drop == 0.0 else f"drop of {drop * 100:.0f} points: caught",
            *(f"{blocks[drop, n][policy]:.1%}" for n in COUNTS),
        ]
        for policy in POLICIES
        for drop in DROPS
    ]
    return tabulate(rows, ["policy", "truth", *(f"n = {n}" for n in COUNTS)], tablefmt="github")


def targets(blocks: dict[tuple[float, int], dict[RegressionPolicy, float]]) -> Iterator[tuple[str, bool]]:
    worst = max(blocks[0.0, n]["significant"] for n in COUNTS)
    caught = blocks[0.10, 500]["significant"]
    yield f"false blocks under `significant`: {worst:.1%}, at most {FALSE_BLOCKS:.0%}", worst <= FALSE_BLOCKS
    yield f"10-point drops caught at n = 500: {caught:.1%}, at least {CAUGHT:.0%}", caught >= CAUGHT


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=4000)
    parser.add_argument("--accuracy", type=float, default=0.6, help="share right on the reference")
    parser.add_argument("--flips", type=float, default=0.05, help="share that flips each way anyhow")
    parser.add_argument("--limit", type=float, default=0.10, help="largest relative drop allowed")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    blocks = simulate(options)
    print(
        f"{options.runs} runs each, accuracy {options.accuracy:g}, {options.flips:.0%} flip each way, "
        f"limit {options.limit:.0%} of the reference's score\n\n{table(blocks)}\n"
    )
    results = list(targets(blocks))
    for told, met in results:
        print(f"{'met' if met else 'NOT MET'}: {told}")
    sys.exit(0 if all(met for _, met in results) else 1)


if __name__ == "__main__":
    main()
