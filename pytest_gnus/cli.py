"""The command `gnus`: what is done beside a pytest session."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_gnus.errors import GnusError, RecordError

if TYPE_CHECKING:
    from pytest_gnus.records.store import RecordStore


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand; returns the exit status: 0 well, 1 something is wrong, 2 wrong usage."""
    parser = argparse.ArgumentParser(prog="gnus", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_doctor(commands)
    _add_quantize(commands)
    _add_compare(commands)
    _add_trends(commands)
    _add_verify(commands)
    _add_accept(commands)
    options = parser.parse_args(arguments)
    try:
        status: int = options.run(options)
        sys.stdout.flush()
    except BrokenPipeError:
        # Who reads, as `head` does, has had enough; Python would complain once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
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


def _add_compare(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser("compare", help="two recorded runs: scores, drops, intervals, what changed")
    for name in ("RUN_A", "RUN_B"):
        command.add_argument(
            name.lower(), metavar=name, help="a run id or its beginning, latest, previous, or a record's file"
        )
    command.add_argument("--docs", action="store_true", help="list the documents whose outcome changed")
    command.add_argument("--json", action="store_true", help="print JSON instead of tables")
    _add_store_options(command)
    command.set_defaults(run=_compare)


def _compare(options: argparse.Namespace) -> int:
    from pytest_gnus import comparing
    from pytest_gnus.records.runs import Runs

    runs = Runs(_store(options))
    a, b = runs.pair(options.run_a, options.run_b)
    comparison = comparing.compare_runs(runs.store, a, b)
    for problem in runs.unreadable:
        print(f"gnus: passed over: {problem}", file=sys.stderr)
    if options.json:
        print(json.dumps(comparison.to_json(), indent=2))
    else:
        print(comparing.render(comparison, with_documents=options.docs))
    return 0


def _add_trends(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser("trends", help="a niche's scores over time, also as trends/<niche>.json")
    command.add_argument("niche", metavar="NICHE")
    command.add_argument(
        "--last", type=_positive, default=10, metavar="N", help="runs to print (default: 10)"
    )
    _add_store_options(command)
    command.set_defaults(run=_trends)


def _trends(options: argparse.Namespace) -> int:
    from pytest_gnus import trend_view

    store = _store(options)
    view = trend_view.trends(store, options.niche)
    path = trend_view.write(store, view)
    print(trend_view.render(view, options.last))
    print(f"written to {path}")
    return 0


def _add_verify(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser("verify", help="check that no record or decision was altered (exit 1)")
    _add_store_options(command)
    command.set_defaults(run=_verify)


def _verify(options: argparse.Namespace) -> int:
    from pytest_gnus.verifying import verify

    verification = verify(_store(options))
    print(verification.text())
    return 1 if verification.faults else 0


def _add_accept(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser("accept", help="take a run's lower scores as the new reference point")
    command.add_argument("run_name", metavar="RUN", help="a run id or its beginning, or latest")
    command.add_argument("--reason", required=True, help="why; shown in every verdict that relies on it")
    command.add_argument(
        "--benchmark", action="append", default=[], metavar="NAME", help="only this one (repeatable)"
    )
    _add_store_options(command)
    command.set_defaults(run=_accept)


def _accept(options: argparse.Namespace) -> int:
    from pytest_gnus.accepting import accept
    from pytest_gnus.records.runs import Runs

    runs = Runs(_store(options))
    print(accept(runs.store, runs.named(options.run_name), options.reason, options.benchmark))
    return 0


def _add_store_options(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--artifacts",
        type=Path,
        metavar="DIR",
        help="where the records are (default: the workspace's artifacts/)",
    )
    command.add_argument("--history", metavar="URL", help="also the records there, as gnus_history of pytest")


def _store(options: argparse.Namespace) -> RecordStore:
    from pytest_gnus.records.remote import history_url
    from pytest_gnus.records.store import open_store
    from pytest_gnus.workspace import find_root

    artifacts = options.artifacts
    if artifacts is None:
        artifacts = (find_root(Path.cwd()) or Path.cwd()) / "artifacts"
    if not artifacts.is_dir() and options.history is None:
        raise RecordError(f"there is no folder {artifacts}; name one with --artifacts DIR")
    if options.history is not None and not options.history.strip():
        raise RecordError("--history has no value; give one, or leave the option out")
    history = history_url(options.history, Path.cwd()) if options.history else None
    return open_store(artifacts, history)


def _positive(text: str) -> int:
    number = int(text) if text.isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number from 1 up")
    return number


if __name__ == "__main__":
    raise SystemExit(main())
