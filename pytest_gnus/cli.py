"""The command `gnus`: what is done beside a pytest session."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from pytest_gnus.errors import GnusError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand; returns the exit status: 0 well, 1 something is wrong, 2 wrong usage."""
    parser = argparse.ArgumentParser(prog="gnus", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_doctor(commands)
    options = parser.parse_args(arguments)
    try:
        status: int = options.run(options)
    except GnusError as error:
        print(f"gnus: {error}", file=sys.stderr)
        return 1
    return status


def _add_doctor(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser("doctor", help="what this machine and this workspace are like")
    command.set_defaults(run=_doctor)


def _doctor(_options: argparse.Namespace) -> int:
    from pytest_gnus.doctor import examine

    report = examine()
    print(report.text())
    return 0 if report.is_well else 1


if __name__ == "__main__":
    raise SystemExit(main())
