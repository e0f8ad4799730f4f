"""The command `gnus`: what is done beside a pytest session."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from pytest_gnus.errors import GnusError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand; returns the exit status: 0 well, 1 something is wrong, 2 wrong usage."""
    parser = argparse.ArgumentParser(prog="gnus", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_doctor(commands)
    _add_quantize(commands)
    options = parser.parse_args(arguments)
    try:
        status: int = options.run(options)
    except (GnusError, OSError) as error:
        print(f"gnus: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("gnus: interrupted; nothing was left behind", file=sys.stderr)
        return 130
    return status


def _add_doctor(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser("doctor", help="what this machine and this workspace are like")
    command.set_defaults(run=_doctor)


def _doctor(_options: argparse.Namespace) -> int:
    from pytest_gnus.doctor import examine

    report = examine()
    print(report.text())
    return 0 if report.is_well else 1


def _add_quantize(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser("quantize", help="make an SGFP4 package of a model, or look into one")
    command.add_argument("model", nargs="?", type=Path, metavar="MODEL_DIR", help="an unquantized MLX model")
    command.add_argument("--format", choices=["sgfp4"], default="sgfp4")
    command.add_argument("-o", "--output", type=Path, metavar="OUT", help="the package, yet to be made")
    command.add_argument(
        "--inspect", type=Path, metavar="PATH", help="describe a package, a manifest, or a container instead"
    )
    command.add_argument("--niche", help="written into the manifest")
    command.add_argument("--policy", choices=["rate-distortion", "exemplary"], default="rate-distortion")
    command.add_argument("--target-bpw", type=float, default=4.25, help="bits per weight of rate-distortion")
    command.add_argument("--layout", type=int, choices=[64, 32, 16, 8, 4], help="leaves of one size")
    command.add_argument("--minimum-block", type=int, choices=[64, 32, 16, 8, 4], default=4)
    command.add_argument("--no-ternary", action="store_true", help="four-bit codes only")
    command.add_argument("--ternary-preference", type=float, default=0.10, help="exemplary: share of error")
    command.add_argument(
        "--threshold",
        type=float,
        nargs=5,
        metavar=("T64", "T32", "T16", "T8", "T4"),
        default=[0.01, 0.005, 0.002, 0.001, 0.0005],
        help="exemplary: the mean squared error up to which a leaf of each size is taken",
    )
    command.add_argument("--container-version", type=int, choices=[1, 2], default=2)
    command.add_argument(
        "--keep",
        action="append",
        metavar="PATTERN",
        help="weights that stay unquantized (repeatable); default: embeddings and norms",
    )
    command.set_defaults(run=_quantize, usage_error=command.error)


def _quantize(options: argparse.Namespace) -> int:
    from pytest_gnus import quantizing

    if options.inspect is not None:
        print(quantizing.inspect(options.inspect))
        return 0
    if options.model is None or options.output is None:
        options.usage_error("quantize needs MODEL_DIR and -o OUT, or --inspect PATH")
    print(quantizing.run(options))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
