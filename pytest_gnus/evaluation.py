"""One item -> lm-eval's `simple_evaluate` -> a `Measurement` that can be trusted, or an error."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import lm_eval

from pytest_gnus.errors import DataError, EvaluationError, GnusError, first_line, foreign_place, listed
from pytest_gnus.gates.comparison import MEAN_TOLERANCE
from pytest_gnus.gates.pairing import CannotPair, Side, side_of
from pytest_gnus.gates.trust import ChanceLevels, chance_levels, constant_answer_level, flags
from pytest_gnus.harness import SEEDS, harness_identity, quiet_harness
from pytest_gnus.measurement import Counts, DocumentOutcome, Measurement, Protocol
from pytest_gnus.models.loaded import LoadedModel
from pytest_gnus.plan import CANONICAL_DECODING, BenchmarkItem, Request
from pytest_gnus.records.fingerprint import canonical_sha256
from pytest_gnus.schema import METRIC_ORDER, UNIT_METRICS
from pytest_gnus.tasks.benchmark_task import BenchmarkTask, TaskData
from pytest_gnus.tasks.building import BuiltTask, build
from pytest_gnus.tasks.examples import around_turns, holds_own_example

#: Resamples for the few metrics whose standard error has no formula.
_BOOTSTRAP_ITERATIONS = 1000
#: Metrics that mark a document by the choice it should have taken; chance levels make sense for these.
_CHOICE_METRICS = frozenset({"acc", "acc_norm", "acc_bytes"})
#: Metrics that mark a generated answer by the one it should have been: a constant answer reaches a level too.
_ANSWER_METRICS = frozenset({"exact_match"})


def prepare(item: BenchmarkItem) -> BuiltTask:
    """Build an item's task with its documents: what fails here has cost no model load.

    Raises:
        DataError, EvaluationError: see `pytest_gnus.tasks`.
    """
    request = item.request
    seed = request.fewshot_seed if request.documents_seed is None else request.documents_seed
    with _in_a_sentence(item.benchmark.name, "making its task"), quiet_harness(seed):
        built = build(
            item.benchmark.name,
            request.task,
            TaskData(
                local=request.local,
                revision=request.revision,
                force_download=request.force_download,
                num_fewshot=request.num_fewshot,
            ),
            request.task_overrides,
            list(request.subtasks),
        )
        for name, leaf in built.leaves.items():
            if isinstance(leaf, BenchmarkTask):
                if shots := _shots(leaf, request.num_fewshot):
                    leaf.check_examples(shots)
                leaf.check_documents(request.limit)
            _check_choices(name, leaf, request.limit)
    return built


def _shots(leaf: Any, asked: int | None) -> int:
    """How many few-shot examples lm-eval will use: a task that says 0 keeps it."""
    own = leaf.get_config("num_fewshot")
    return int((own if asked is None or own == 0 else asked) or 0)


def _check_choices(name: str, leaf: Any, limit: int | None) -> None:
    """Whether the choices of each document differ: where all are the same text, any answer is marked right.

    Raises:
        DataError: they do not; the message counts the documents.
    """
    if leaf.get_config("output_type") != "multiple_choice" or leaf.get_config("doc_to_choice") is None:
        return
    documents = list(islice(leaf.task_docs, limit))
    same = []
    for place, document in enumerate(documents):
        choices = leaf.doc_to_choice(document)
        if len(choices) > 1 and len({str(choice).strip() for choice in choices}) == 1:
            same.append(place)
    if same:
        raise DataError(
            f"{name}: {len(same)} of {len(documents)} documents cannot be scored, because all of their "
            f"choices are the same text; the first is document {same[0]}"
        )


@contextlib.contextmanager
def _in_a_sentence(benchmark: str, doing: str) -> Iterator[None]:
    """What lm-eval, `datasets`, a template or a task's own function raises, as a sentence about a benchmark.

    An error of the product's own code, or of a model of its, is no fault of the benchmark: it stays as it is.
    """
    try:
        yield
    except GnusError:
        raise
    except (Exception, SystemExit) as error:
        place = foreign_place(error)
        if place is None:
            raise
        raise EvaluationError(
            f"{benchmark}: {doing} failed: {first_line(error)} ({place}); --full-trace shows where"
        ) from error


def measure(item: BenchmarkItem, built: BuiltTask, model: LoadedModel) -> Measurement:
    """Run the evaluation and read its outcome.

    Raises:
        EvaluationError: what came back is not a measurement; the message says why.
    """
    request = item.request
    model.lm.usage.reset()
    _tell_kind(model.lm, built)
    _seed_sampling(model.lm, request.sampling_seed)
    started = time.perf_counter()
    with _in_a_sentence(item.benchmark.name, "evaluating it"), quiet_harness(request.fewshot_seed):
        results = lm_eval.simple_evaluate(
            model=model.lm,
            tasks=[built.task],
            task_manager=built.manager,
            num_fewshot=request.num_fewshot,
            limit=request.limit,
            use_cache=None,
            cache_requests=False,
            bootstrap_iters=_BOOTSTRAP_ITERATIONS,
            log_samples=True,
            system_instruction=request.system_instruction,
            apply_chat_template=request.chat_template,
            gen_kwargs=dict(decoding(request)) or None,
            fewshot_random_seed=request.fewshot_seed,
            **(SEEDS | {"torch_random_seed": request.sampling_seed}),
        )
    seconds = time.perf_counter() - started
    return _Reading(item, built, model, results).measurement(seconds)


def _tell_kind(lm: Any, built: BuiltTask) -> None:
    """Tell a model whose chat template may let it think whether prompts are for log-probabilities alone."""
    if hasattr(lm, "scores_choices"):
        kinds = {leaf.get_config("output_type") for leaf in built.leaves.values()}
        lm.scores_choices("generate_until" not in kinds)


def _seed_sampling(lm: Any, seed: int) -> None:
    """Seed what lm-eval does not: MLX's generator, and a model that hands its seed to a server."""
    if "mlx.core" in sys.modules:  # importing it is the model's business
        sys.modules["mlx.core"].random.seed(seed)
    if hasattr(lm, "sampling_seed"):
        lm.sampling_seed = seed


def decoding(request: Request) -> Mapping[str, Any]:
    """What is laid over each generating task's own `generation_kwargs`."""
    if request.mode == "canonical":
        return CANONICAL_DECODING
    return request.generation_kwargs


def _context_tokens(lm: Any) -> int | None:
    length = getattr(lm, "max_length", None)
    return length if isinstance(length, int) else None


class _Reading:
    """Reads one result of `simple_evaluate`, trusting nothing."""

    def __init__(
        self, item: BenchmarkItem, built: BuiltTask, model: LoadedModel, results: Mapping[str, Any]
    ) -> None:
        self._item = item
        self._built = built
        self._model = model
        self._results = results
        self._samples: Mapping[str, list[Mapping[str, Any]]] = results["samples"]
        self._choices: dict[str, list[tuple[int, int]] | None] = {}

    def measurement(self, seconds: float) -> Measurement:
        self._check_finite()
        num_fewshot = self._checked_fewshot()
        if num_fewshot:
            self._check_examples()
        metric = primary_metric(
            self._results["results"].get(self._built.name, {}), self._item.benchmark.metric
        )
        outcomes = self._with_questions(tuple(self._outcomes(metric)), metric, num_fewshot)
        side = _side(outcomes)
        counts = self._counts(outcomes)
        score = float(self._results["results"][self._built.name][metric])
        if not math.isfinite(score):
            raise EvaluationError(f"{self._item.benchmark.name}: the score {metric} is {score}")
        stderr, ci95 = _precision(score, self._stderr(metric), side)
        category_chance = self._category_chance(metric)
        chance = self._chance(metric)
        usage = self._model.lm.usage
        unit = metric.split(",")[0] in UNIT_METRICS
        return Measurement(
            metric=metric,
            score=score,
            stderr=stderr,
            ci95=ci95,
            n=counts.documents,
            higher_is_better=self._higher_is_better(metric),
            num_fewshot=num_fewshot,
            protocol=self._protocol(metric),
            counts=counts,
            per_category=self._per_category(metric),
            metrics=dict(self._all_metrics()),
            outcomes=outcomes,
            chance=chance,
            category_chance=category_chance,
            flags=tuple(flags(score, counts.documents, chance, unit_range=unit)),
            subtasks=tuple(self._built.leaves) if self._item.request.subtasks else None,
            evaluate_seconds=seconds,
            prompt_tokens=usage.prompt_tokens,
            generated_tokens=usage.generated_tokens,
            tokens_reused=usage.tokens_reused,
            notes=tuple(usage.notes),
            context_tokens=_context_tokens(self._model.lm) if usage.counts_truncated else None,
            adjustments=tuple(getattr(usage, "adjustments", ())),
        )

    def _check_finite(self) -> None:
        """A log-probability that is not finite makes `argmax` choose the first answer (DESIGN, trap 15)."""
        bad = total = 0
        for samples in self._samples.values():
            first_filter = samples[0]["filter"] if samples else None
            for sample in samples:
                if sample["filter"] != first_filter:
                    continue
                for response in sample["resps"]:
                    for value in response:
                        number = value[0] if isinstance(value, (tuple, list)) else value
                        if isinstance(number, float):
                            total += 1
                            bad += not math.isfinite(number)
        if bad:
            raise EvaluationError(
                f"{self._item.benchmark.name}: non-finite log-probabilities in {bad} of {total} requests; "
                "no score can be made of them"
            )

    def _checked_fewshot(self) -> int:
        """The number of few-shot examples, which must be the one asked for (DESIGN, trap 16)."""
        requested = self._item.request.num_fewshot
        effective = {leaf: int(self._results["n-shot"][leaf]) for leaf in self._built.leaves}
        for leaf, shots in effective.items():
            if requested is not None and shots != requested:
                raise EvaluationError(
                    f"{self._item.benchmark.name}: num_fewshot is {requested}, but lm-eval ran {leaf} with "
                    f"{shots}: a task that sets num_fewshot: 0 keeps it; ask for {shots} or change the task"
                )
        different = sorted(set(effective.values()))
        if len(different) > 1:
            raise EvaluationError(
                f"{self._item.benchmark.name}: its tasks have different few-shot counts {different}; "
                "set num_fewshot in the benchmark's file"
            )
        return different[0]

    def _check_examples(self) -> None:
        """Whether any document stands, question and answer, in its own prompt as it was really asked.

        Raises:
            EvaluationError: it does; the message counts the documents.
        """
        around = None
        if self._item.request.chat_template:
            around = around_turns(self._model.lm.apply_chat_template)  # type: ignore[attr-defined]
        for name, task in self._built.leaves.items():
            prompts: dict[int, set[str]] = {}
            documents: dict[int, Any] = {}
            for sample in self._samples[name]:  # one for each filter
                documents[sample["doc_id"]] = sample["doc"]
                prompts.setdefault(sample["doc_id"], set()).update(_contexts(sample))
            hits = [
                place
                for place, document in documents.items()
                if holds_own_example(task, document, prompts[place], around)
            ]
            if hits:
                raise EvaluationError(
                    f"{name}: {len(hits)} of {len(documents)} prompts hold their own document, question and "
                    f"answer, as an example; the first is that of document {min(hits)}"
                )

    def _higher_is_better(self, metric: str) -> bool:
        """The metric's direction: lm-eval's, which the benchmark's file may repeat but not turn round."""
        name = metric.split(",")[0]
        said = {self._results["higher_is_better"].get(leaf, {}).get(name) for leaf in self._built.leaves}
        known = {direction for direction in said if direction is not None}
        own = self._item.benchmark.higher_is_better
        if known and own is not None and known != {own}:
            raise EvaluationError(
                f"{self._item.benchmark.name}: higher_is_better is {own} in the benchmark's file, but for "
                f"{name} lm-eval says {not own}: a floor would be read the wrong way round"
            )
        better = own if own is not None else known != {False}
        ceilings = self._item.thresholds.ceilings
        if better and ceilings:
            raise EvaluationError(
                f"{self._item.benchmark.name}: gates.{ceilings[0]} is set, but for {metric} higher is "
                f"better: write {ceilings[0].replace('ceiling', 'floor')}"
            )
        return better

    def _of_filter(self, leaf: str, metric: str) -> list[Mapping[str, Any]]:
        name = metric.split(",", 1)[1]
        return [sample for sample in self._samples[leaf] if sample["filter"] == name]

    def _outcomes(self, metric: str) -> Iterator[DocumentOutcome]:
        name = metric.split(",", 1)[0]
        for leaf in sorted(self._built.leaves):
            for sample in self._of_filter(leaf, metric):
                value = plain(sample.get(name))
                number = isinstance(value, (int, float)) and not isinstance(value, bool)
                yield DocumentOutcome(
                    task=leaf,
                    doc_id=int(sample["doc_id"]),
                    doc_hash=str(sample["doc_hash"]),
                    score=float(value) if number else float(value) if isinstance(value, bool) else None,
                    value=None if number else value,
                    cluster=self._cluster(leaf, sample),
                )

    def _with_questions(
        self, outcomes: tuple[DocumentOutcome, ...], metric: str, num_fewshot: int
    ) -> tuple[DocumentOutcome, ...]:
        """The outcomes, with the digest of what is asked where documents that differ ask the same."""
        questions = [
            self._question(leaf, sample, num_fewshot)
            for leaf in sorted(self._built.leaves)
            for sample in self._of_filter(leaf, metric)
        ]
        contents: defaultdict[str | None, set[str]] = defaultdict(set)
        for outcome, question in zip(outcomes, questions, strict=True):
            contents[question].add(outcome.doc_hash)
        return tuple(
            replace(outcome, question=question)
            if question is not None and len(contents[question]) > 1
            else outcome
            for outcome, question in zip(outcomes, questions, strict=True)
        )

    def _question(self, leaf: str, sample: Mapping[str, Any], num_fewshot: int) -> str | None:
        """The digest of what a document asks, its examples left out; None where its texts do not tell it."""
        task = self._built.leaves[leaf]
        if getattr(task, "MULTIMODAL", False):
            return None
        if num_fewshot:
            return task.question(sample["doc"]) if isinstance(task, BenchmarkTask) else None
        if not all(arguments and isinstance(arguments[0], str) for arguments in sample["arguments"]):
            return None
        return canonical_sha256(sorted(_prompt(arguments) for arguments in sample["arguments"]))

    def _cluster(self, leaf: str, sample: Mapping[str, Any]) -> str | None:
        """What a document has in common with others, as a digest: the field may hold a whole passage."""
        field = self._item.benchmark.cluster
        if field is None:
            return None
        document = sample["doc"]
        if document.get(field) in (None, ""):
            raise DataError(
                f"{leaf}: document {sample['doc_id']} has no field {field!r}, which `cluster` names; it has "
                f"{listed(sorted(map(str, document)))}"
            )
        return canonical_sha256(plain(document[field]))[:16]

    def _counts(self, outcomes: Sequence[DocumentOutcome]) -> Counts:
        """Scored, unscored and failed documents are all documents, or it is an error (DESIGN, trap 19)."""
        limit = self._item.request.limit
        expected = 0
        for leaf in self._built.leaves.values():
            size = len(leaf.eval_docs)
            expected += min(size, limit) if limit else size
        unscored = sum(
            (outcome.score is None and outcome.value is None)
            or (outcome.score is not None and not math.isfinite(outcome.score))
            for outcome in outcomes
        )
        failed = expected - len(outcomes)
        if failed or unscored:
            raise EvaluationError(
                f"{self._item.benchmark.name}: of {expected} documents "
                f"{len(outcomes) - unscored} were scored, "
                f"{unscored} were not, and {failed} are missing; a score over fewer documents is not taken"
            )
        usage = self._model.lm.usage
        return Counts(
            documents=expected,
            scored=expected,
            requests=usage.requests,
            truncated_prompts=usage.truncated_prompts if usage.counts_truncated else None,
            stopped_by_string=usage.stopped_by_string,
            stopped_by_limit=usage.stopped_by_limit,
            duplicates=len(outcomes) - len({outcome.question or outcome.doc_hash for outcome in outcomes}),
            examples_of_evaluated_documents=sum(
                leaf.examples_of_evaluated_documents
                for leaf in self._built.leaves.values()
                if isinstance(leaf, BenchmarkTask)
            ),
        )

    def _stderr(self, metric: str) -> float | None:
        """lm-eval's standard error, which is the text 'N/A' where it has none."""
        name, _, filter_name = metric.partition(",")
        value = self._results["results"][self._built.name].get(f"{name}_stderr,{filter_name}")
        if isinstance(value, str) or value is None or not math.isfinite(float(value)):
            return None
        return float(value)

    def _per_category(self, metric: str) -> dict[str, float]:
        if not self._built.is_group:
            return {}
        results = self._results["results"]
        return {
            leaf: float(results[leaf][metric])
            for leaf in sorted(self._built.leaves)
            if metric in results[leaf]
        }

    def _all_metrics(self) -> Iterator[tuple[str, float]]:
        for key, value in self._results["results"][self._built.name].items():
            number = plain(value)
            is_number = isinstance(number, (int, float)) and not isinstance(number, bool)
            if "," in key and "_stderr," not in key and is_number and math.isfinite(number):
                yield key, float(number)

    def _chance(self, metric: str) -> ChanceLevels | None:
        """What guessing reaches on all documents."""
        return self._chance_on(self._built.leaves, metric)

    def _category_chance(self, metric: str) -> dict[str, ChanceLevels]:
        if not self._built.is_group:
            return {}
        found = {leaf: self._chance_on([leaf], metric) for leaf in self._built.leaves}
        return {leaf: chance for leaf, chance in found.items() if chance is not None}

    def _chance_on(self, leaves: Iterable[str], metric: str) -> ChanceLevels | None:
        name = metric.split(",")[0]
        if name in _CHOICE_METRICS:
            found = [self._right_choices(leaf, metric) for leaf in leaves]
            if None in found:
                return None
            golds = [each for pairs in found for each in pairs or ()]
            return chance_levels([gold for gold, _ in golds], [count for _, count in golds])
        if name not in _ANSWER_METRICS:
            return None
        answers = [plain(sample["target"]) for leaf in leaves for sample in self._of_filter(leaf, metric)]
        if not all(isinstance(answer, (str, int, float)) for answer in answers):
            return None  # several answers are right
        return constant_answer_level([str(answer) for answer in answers])

    def _right_choices(self, leaf: str, metric: str) -> list[tuple[int, int]] | None:
        """Of each document the position of its right choice and the number of its choices."""
        if leaf not in self._choices:
            self._choices[leaf] = self._read_right_choices(leaf, metric)
        return self._choices[leaf]

    def _read_right_choices(self, leaf: str, metric: str) -> list[tuple[int, int]] | None:
        task = self._built.leaves[leaf]
        if task.get_config("output_type") != "multiple_choice" or getattr(task, "multiple_input", 0):
            return None
        found = []
        for sample in self._of_filter(leaf, metric):
            choices = task.doc_to_choice(sample["doc"])
            gold = self._right_choice(leaf, sample, choices)
            if gold is None:
                return None
            found.append((gold, len(choices)))
        return found

    def _right_choice(self, leaf: str, sample: Mapping[str, Any], choices: Sequence[str]) -> int | None:
        """The position of a document's right choice; `None` where several are right.

        lm-eval counts a document whose right choice is not among its choices as answered wrong.
        """
        gold = plain(sample["target"])
        if isinstance(gold, list):
            return None
        if isinstance(gold, str) and gold in choices:
            return choices.index(gold)
        if isinstance(gold, int) and 0 <= gold < len(choices):
            return gold
        raise DataError(
            f"{leaf}: the right choice of document {sample['doc_id']} is {gold!r}, which is none of its "
            f"{len(choices)} choices"
        )

    def _protocol(self, metric: str) -> Protocol:
        request = self._item.request
        template = ""
        if request.chat_template:
            template = self._model.lm.chat_template(request.chat_template) or ""  # type: ignore[attr-defined]
        version = self._results["versions"].get(self._built.name)
        return Protocol(
            harness_commit=harness_identity(),
            task_name=self._built.name,
            task_revision=None if version in (None, "Yaml", "N/A") else str(version),
            dataset_revision=self._built.dataset_revision,
            prompt_hash=self._prompt_hash(metric),
            fewshot_seed=request.fewshot_seed,
            chat_template_hash=hashlib.sha256(template.encode("utf-8")).hexdigest(),
            answer_extraction=self._common("answer_extraction", lambda leaf: self._extraction(leaf, metric)),
            generation_params=self._common("generation_params", self._generation_params),
        )

    def _prompt_hash(self, metric: str) -> str:
        prompts = [
            [leaf, int(sample["doc_id"]), [_prompt(arguments) for arguments in sample["arguments"]]]
            for leaf in sorted(self._built.leaves)
            for sample in self._of_filter(leaf, metric)
        ]
        return canonical_sha256(prompts)

    def _extraction(self, leaf: str, metric: str) -> dict[str, Any]:
        config = self._results["configs"][leaf]
        name, _, filter_name = metric.partition(",")
        return {
            "output_type": config.get("output_type"),
            "metric": name,
            "filter": filter_name,
            "filter_list": _hashable(config.get("filter_list") or []),
            "process_results": _hashable(config.get("process_results")),
        }

    def _generation_params(self, leaf: str) -> dict[str, Any]:
        """Decoding as it really was, with the tokens that end a text where the model says them.

        Nothing is decoded where only log-likelihoods are asked for.
        """
        config = self._results["configs"][leaf]
        if config.get("output_type") != "generate_until":
            return {"decoding": "log-likelihood"}
        settings = dict(_hashable(config.get("generation_kwargs") or {}))
        ends = getattr(self._model.lm, "end_tokens", None)
        return settings if ends is None else settings | {"end_tokens": list(ends)}

    def _common(self, name: str, read: Any) -> dict[str, Any]:
        """What all leaves have in common; by leaf where they differ."""
        values = {leaf: read(leaf) for leaf in sorted(self._built.leaves)}
        different = {json.dumps(value, sort_keys=True) for value in values.values()}
        return dict(next(iter(values.values())) if len(different) == 1 else values)


def _side(outcomes: Sequence[DocumentOutcome]) -> Side | None:
    """The documents' scores, None where the metric gives none for each."""
    try:
        return side_of(outcomes)
    except CannotPair:
        return None


def _precision(
    score: float, stderr: float | None, side: Side | None
) -> tuple[float | None, tuple[float, float] | None]:
    """The standard error of a score and its 95 % interval: `mean_interval` says which.

    A score that is no mean over documents has the standard error that lm-eval gives it, and 1.96 of it to
    each side. Where documents are not independent it is made larger by sqrt(documents / clusters), the most
    that clusters of equal documents can do. An error of zero says nothing, and gives no interval.
    """
    from pytest_gnus.gates.intervals import mean_error, mean_interval

    if side is not None and math.isclose(side.mean, score, rel_tol=MEAN_TOLERANCE, abs_tol=MEAN_TOLERANCE):
        return mean_error(side) if side.clustered else stderr, mean_interval(side)[0]
    if stderr is not None and side is not None and side.clustered:
        stderr *= math.sqrt(len(side.scores) / len(set(side.labels)))
    return stderr, (score - 1.96 * stderr, score + 1.96 * stderr) if stderr else None


def _contexts(sample: Mapping[str, Any]) -> set[str]:
    """The texts that a document was asked with, without its choices."""
    return {arguments[0] for arguments in sample["arguments"] if arguments and isinstance(arguments[0], str)}


def primary_metric(results: Mapping[str, Any], wanted: str | None) -> str:
    """The key of the primary metric among lm-eval's results, as in `acc,none`.

    `wanted` is a metric, with its filter after a comma where there are several. Without one, the first of the
    seeds' order that was measured.

    Raises:
        EvaluationError: not found, or several filters fit; the message lists what was found.
    """
    found = [key for key in results if "," in key and not key.split(",")[0].endswith("_stderr")]
    if wanted is not None and wanted in found:
        return wanted
    for name in [wanted] if wanted else METRIC_ORDER:
        matches = [key for key in found if key.split(",")[0] == name]
        if len(matches) == 1:
            return matches[0]
        if matches:
            raise EvaluationError(f"the metric {name} has several filters: name one of {listed(matches)}")
    asked = f"the metric {wanted!r}" if wanted else f"any metric of {listed(METRIC_ORDER)}"
    raise EvaluationError(f"lm-eval did not give {asked}; it gave {listed(found)}")


def plain(value: Any) -> Any:
    """A value as plain JSON: NumPy numbers become Python's, tuples lists, what is left text."""
    if hasattr(value, "item") and callable(value.item) and getattr(value, "ndim", 0) == 0:
        value = value.item()
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple, set)) or hasattr(value, "tolist"):
        return [plain(entry) for entry in (value.tolist() if hasattr(value, "tolist") else value)]
    return str(value)


def _prompt(arguments: Sequence[Any]) -> list[str]:
    """The texts of a request; its settings are no part of the prompt."""
    return [argument for argument in arguments if isinstance(argument, str)]


def _hashable(value: Any) -> Any:
    """A config value whose text is the same in every process: no addresses of functions in it."""
    if callable(value):
        return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', type(value).__name__)}"
    if isinstance(value, Mapping):
        return {str(key): _hashable(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_hashable(entry) for entry in value]
    return plain(value)
