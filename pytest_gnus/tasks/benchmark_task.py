"""lm-eval's task with this product's data: from the hub at a revision, or from the workspace.

Everything but where the documents come from is lm-eval's own. On top of it: processed documents are kept (a
task whose `process_docs` shuffles choices must not shuffle them again between asking and marking), a template
that needs a field which a document lacks is an error that names both, and no document is among its own
few-shot examples.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

import datasets
from jinja2 import Environment, TemplateSyntaxError, UndefinedError, nodes
from lm_eval.api.registry import AGGREGATION_REGISTRY, METRIC_REGISTRY, get_metric_aggregation
from lm_eval.api.task import ConfigurableTask

from pytest_gnus.errors import DataError, EvaluationError, GnusError, did_you_mean, first_line, listed
from pytest_gnus.tasks.answers import choice_fault, gold_fault, target_fault
from pytest_gnus.tasks.examples import OtherExamples, content_of, question_of, too_few_examples
from pytest_gnus.tasks.local_data import LocalData, digest

#: The key under which a task's config carries its `TaskData`.
CONFIG_KEY = "gnus_data"

_COMMIT = re.compile(r"@([0-9a-f]{40})/")


@dataclass(frozen=True)
class TaskData:
    """Where a task's documents come from.

    `local` is set for local data only; `group` is the name of the lm-eval group the task runs in, if any.
    `revision` and `force_download` concern the hub.
    """

    local: LocalData | None = None
    group: str | None = None
    revision: str | None = None
    force_download: bool = False
    num_fewshot: int | None = None


@dataclass
class _Kept:
    """Documents by split, after `process_docs`."""

    by_split: dict[str, Any] = field(default_factory=dict)


class BenchmarkTask(ConfigurableTask):
    """A `ConfigurableTask` whose config carries a `TaskData`."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        config = dict(config)
        config.pop("class", None)
        self._data: TaskData = config.pop(CONFIG_KEY)
        self._kept = _Kept()
        self._texts: dict[tuple[str, str, str], Any] = {}
        _check_metric_list(config)
        #: What the documents are a revision of: a hub commit, or a digest of local files.
        self.dataset_revision: str | None = self._data.revision
        try:
            super().__init__(config=config)
        except TypeError as error:
            if "unexpected keyword argument" in str(error):
                raise DataError(
                    f"the task {config.get('task')!r} has a key lm-eval does not know: {error}"
                ) from None
            raise
        self._questions: dict[str, str] = {}
        self._examples: OtherExamples | None = None
        sampler: Any = getattr(self, "sampler", None)
        if sampler is not None:
            self._examples = OtherExamples(sampler, str(self.config.task), self._identities)
            self.sampler: Any = self._examples

    @property
    def evaluated_split(self) -> str | None:
        """The split whose documents are measured."""
        return self._first_split("test_split", "validation_split")

    @property
    def examples_split(self) -> str | None:
        """The split that few-shot examples are taken from; None where the task lists them itself."""
        if self.fewshot_cfg.split is not None:
            return str(self.fewshot_cfg.split)
        if self.fewshot_cfg.samples is not None:
            return None
        return self._first_split("training_split", "validation_split", "test_split")

    def _first_split(self, *keys: str) -> str | None:
        return next((str(split) for key in keys if (split := getattr(self.config, key)) is not None), None)

    @property
    def examples_of_evaluated_documents(self) -> int:
        """How many of the few-shot examples given are documents of the evaluated split."""
        given = self._examples.given if self._examples is not None else []
        if not given or self.examples_split == self.evaluated_split:
            return len(given)
        evaluated = {content_of(document) for document in self.eval_docs}
        return sum(content_of(example) in evaluated for example in given)

    def check_examples(self, asked: int) -> None:
        """Whether there are enough few-shot examples, as far as their number tells.

        Raises:
            DataError: there are not.
        """
        available = self._examples.available if self._examples is not None else 0
        own = self.examples_split == self.evaluated_split and available > 0
        if available - own < asked:
            raise too_few_examples(str(self.config.task), asked, available, available - own)

    def fewshot_context(self, doc: Any, *arguments: Any, **keywords: Any) -> Any:
        """The prompt of a document, with examples that are others."""
        if self._examples is not None:
            self._examples.document = doc
        return super().fewshot_context(doc, *arguments, **keywords)

    def question(self, document: Any) -> str | None:
        """The digest of what a document asks; None where the text does not tell it (pictures, sounds)."""
        if getattr(self, "MULTIMODAL", False):  # lm-eval sets it only where it is true
            return None
        content = content_of(document)
        if content not in self._questions:
            choices = self.doc_to_choice(document) if self.config.doc_to_choice is not None else None
            self._questions[content] = question_of(self.doc_to_text(document), choices)
        return self._questions[content]

    def _identities(self, document: Any) -> frozenset[str]:
        """By what a document is known among few-shot examples.

        Its content; what it asks, since copies may differ in an id; and its row before `process_docs`, which
        may have shuffled the choices of an example otherwise than those of the document.
        """
        content = content_of(document)
        found = {content}
        try:
            question = self.question(document)
        except (DataError, TypeError, ValueError, AttributeError, LookupError):
            # An example of the task's own list may lack fields that documents have.
            question = None
        if question is not None:
            found.add(question)
        return frozenset(found | self._rows.get(content, set()))

    @cached_property
    def _rows(self) -> Mapping[str, set[str]]:
        """By content after `process_docs`, that before it, where examples are of the evaluated split."""
        split = self.examples_split
        rows: dict[str, set[str]] = {}
        if self.config.process_docs is None or split is None or split != self.evaluated_split:
            return rows
        raw = [content_of(document) for document in self.dataset[split]]
        for documents in (self.eval_docs, list(self.sampler.df)):
            if len(documents) == len(raw):  # else it left some out, and which is not known
                for row, document in zip(raw, documents, strict=True):
                    rows.setdefault(content_of(document), set()).add(f"row {row}")
        return rows

    def download(self, dataset_kwargs: dict[str, Any] | None = None, **_keywords: Any) -> None:
        if self._data.local is not None:
            self._read_local(self._data.local)
        elif callable(self.config.custom_dataset):
            super().download(dataset_kwargs)
        else:
            self._load_from_hub(dict(dataset_kwargs or {}))

    def _load_from_hub(self, keywords: dict[str, Any]) -> None:
        keywords.pop("trust_remote_code", None)
        if self._data.revision is not None:
            keywords["revision"] = self._data.revision
        if self._data.force_download:
            keywords["download_mode"] = datasets.DownloadMode.FORCE_REDOWNLOAD
        try:
            self.dataset = datasets.load_dataset(path=self.DATASET_PATH, name=self.DATASET_NAME, **keywords)
        except Exception as error:
            config = f" ({self.DATASET_NAME})" if self.DATASET_NAME else ""
            reason = str(error).strip().split("\n")[0]
            raise DataError(
                f"{self.config.task}: the data set {self.DATASET_PATH}{config} cannot be loaded: "
                f"{type(error).__name__}: {reason}; --gnus-source=local reads files instead"
            ) from error
        self.dataset_revision = _hub_commit(self.dataset) or self._data.revision

    def _read_local(self, local: LocalData) -> None:
        name = str(self.config.task)
        subfolder = local.subfolder(self._subfolders(name), name) if self._data.group else None
        files = local.splits(subfolder)
        self._drop_unneeded_splits(files)
        needed = dict.fromkeys(split for split in self._splits() if split)
        self.dataset = datasets.DatasetDict({split: local.data_set(split, files, name) for split in needed})
        self.dataset_revision = digest(files[split] for split in needed)

    def _subfolders(self, name: str) -> list[str]:
        """`mmlu_anatomy` of `mmlu` with the data set `anatomy` lies in `anatomy/` or `mmlu_anatomy/`."""
        short = name.removeprefix(f"{self._data.group}_")
        return list(dict.fromkeys(part for part in (self.DATASET_NAME, short, name) if part))

    def _splits(self) -> tuple[str | None, ...]:
        config = self.config
        return (config.test_split, config.validation_split, config.training_split, self.fewshot_cfg.split)

    def _drop_unneeded_splits(self, files: Mapping[str, Any]) -> None:
        """Without few-shot examples only the split that is measured has to be there."""
        if self._data.num_fewshot:
            return
        config = self.config
        measured = config.test_split or config.validation_split
        for key in ("training_split", "validation_split"):
            split = getattr(config, key)
            if split is not None and split != measured and split not in files:
                setattr(config, key, None)
        if self.fewshot_cfg.split not in (None, measured) and self.fewshot_cfg.split not in files:
            self.fewshot_cfg.split = None

    def training_docs(self) -> Any:
        return self._documents("train", super().training_docs)

    def validation_docs(self) -> Any:
        return self._documents("validation", super().validation_docs)

    def test_docs(self) -> Any:
        return self._documents("test", super().test_docs)

    def _documents(self, kind: str, read: Any) -> Any:
        if kind not in self._kept.by_split:
            self._kept.by_split[kind] = self._read_documents(kind, read)
        return self._kept.by_split[kind]

    def _read_documents(self, kind: str, read: Any) -> Any:
        try:
            return read()
        except KeyError as error:
            present = listed(sorted(getattr(self, "dataset", {})))
            raise DataError(
                f"{self.config.task}: reading the {kind} documents failed on {error}; splits: {present}"
            ) from error

    def doc_to_text(self, doc: Any, doc_to_text: Any = None) -> Any:
        return self._rendered(
            "doc_to_text", doc_to_text or self.config.doc_to_text, super().doc_to_text, doc, doc_to_text
        )

    def doc_to_target(self, doc: Any, doc_to_target: Any = None) -> Any:
        return self._rendered(
            "doc_to_target",
            doc_to_target or self.config.doc_to_target,
            super().doc_to_target,
            doc,
            doc_to_target,
        )

    def doc_to_choice(self, doc: Any, doc_to_choice: Any = None) -> Any:
        choices = self._rendered(
            "doc_to_choice",
            doc_to_choice or self.config.doc_to_choice,
            super().doc_to_choice,
            doc,
            doc_to_choice,
        )
        fault = choice_fault(choices)
        if fault is not None:
            raise self._field_error("doc_to_choice", fault, doc)
        return choices

    def build_qa_turn(self, *, q: Any = None, c: Any = None, a: Any = None, **keywords: Any) -> Any:
        """A question and, in a few-shot example, its answer: both have to be texts by now."""
        if not isinstance(q, str):
            raise DataError(f"{self.config.task}: doc_to_text gives {q!r}, where a text is needed")
        answer = c[a] if c and isinstance(a, int) and 0 <= a < len(c) else a
        if isinstance(answer, list) and answer:
            answer = answer[0]
        if answer is not None and not isinstance(answer, str):
            raise DataError(
                f"{self.config.task}: a few-shot example needs one right answer, a text or the number of a "
                f"choice, found {a!r}; question: {q[:160]!r}; set num_fewshot: 0 or change these documents"
            )
        return super().build_qa_turn(q=q, c=c, a=a, **keywords)

    def check_documents(self, limit: int | None) -> None:
        """Look at the right answers of what is going to be measured.

        Args:
            limit: how many documents are measured; None for all.

        Raises:
            DataError: the first document that is wrong is named.
        """
        if self.config.process_results is not None or self.multiple_input:
            return  # what a right answer may be is then for the task alone to say
        faulty: tuple[str, Any] | None = None
        for number, doc in enumerate(self.eval_docs):
            if limit is not None and number >= limit:
                break
            fault = self._answer_fault(doc)
            if fault is None:
                continue
            faulty = faulty or (fault, doc)
            if not _is_whole(self.doc_to_target(doc)):
                # One 0.7 makes all whole numbers of its column 0.0, 1.0, ...: it is the one to name.
                faulty = (fault, doc)
                break
        if faulty is not None:
            raise self._field_error("doc_to_target", *faulty)

    def _answer_fault(self, doc: Any) -> str | None:
        several = bool(self.multiple_target)
        if self.OUTPUT_TYPE == "multiple_choice" or (
            self.OUTPUT_TYPE == "generate_until" and self.config.doc_to_choice is not None
        ):
            return gold_fault(self.doc_to_target(doc), self.doc_to_choice(doc), several=several)
        if self.OUTPUT_TYPE == "generate_until":
            return target_fault(self.doc_to_target(doc), several=several)
        return None

    def _rendered(self, what: str, template: Any, render: Any, doc: Any, given: Any) -> Any:
        """Render a part of the prompt, each once: an example stands in many prompts."""
        key = None
        if isinstance(template, str) and "{{" in template and "random" not in template:
            key = (what, template, content_of(doc))
            if key in self._texts:
                value = self._texts[key]
                return list(value) if isinstance(value, list) else value
        value = self._rendered_anew(what, template, render, doc, given)
        if key is not None:
            self._texts[key] = list(value) if isinstance(value, list) else value
        return value

    def _rendered_anew(self, what: str, template: Any, render: Any, doc: Any, given: Any) -> Any:
        """Render a part of the prompt; a field that is missing or null is an error, never an empty string."""
        absent = template if isinstance(template, str) and template.isidentifier() else None
        if absent is not None and isinstance(doc, Mapping) and absent not in doc:
            # lm-eval would take the field's name for the text itself.
            raise self._field_error(what, f"needs {absent}, which is not there", doc)
        try:
            value = render(doc, given)
        except GnusError:
            raise
        except (UndefinedError, KeyError) as error:
            raise self._field_error(what, f"needs a field that is not there ({error})", doc) from error
        except TemplateSyntaxError as error:
            raise DataError(f"{self.config.task}: {what} is no valid template: {error}") from error
        except Exception as error:
            raise self._field_error(what, f"cannot be made: {first_line(error)}", doc) from error
        null = [
            name
            for name in (_printed_fields(template) if isinstance(template, str) else ())
            if isinstance(doc, Mapping) and doc.get(name, 0) is None
        ]
        if value is None or null:
            raise self._field_error(
                what, f"needs {listed(null) if null else repr(template)}, which is null or missing", doc
            )
        return value

    def _field_error(self, what: str, fault: str, doc: Any) -> DataError:
        fields = listed(map(str, doc)) if isinstance(doc, Mapping) else type(doc).__name__
        shown = str(dict(doc) if isinstance(doc, Mapping) else doc)
        return DataError(
            f"{self.config.task}{self._place_of(doc)}: {what} {fault}; fields: {fields}; document: "
            f"{shown[:160]}"
        )

    def _place_of(self, doc: Any) -> str:
        """Which document it is, for a message; nothing where that cannot be told."""
        for kind, name in (("test", "document"), ("validation", "document"), ("train", "training document")):
            for number, other in enumerate(self._kept.by_split.get(kind) or ()):
                if other == doc:
                    return f", {name} {number}"
        return ""


def _is_whole(value: Any) -> bool:
    return isinstance(value, float) and value.is_integer()


def _check_metric_list(config: Mapping[str, Any]) -> None:
    """lm-eval only logs a metric or an aggregation that it does not know, and fails once it needs them."""
    name, entries = config.get("task"), config.get("metric_list")
    if entries is None:
        return
    if not isinstance(entries, Sequence) or not all(isinstance(entry, Mapping) for entry in entries):
        raise EvaluationError(f"{name}: metric_list must be a list of mappings, found {str(entries)[:80]!r}")
    for entry in entries:
        metric = entry.get("metric")
        if not callable(metric) and not isinstance(metric, str):
            raise EvaluationError(f"{name}: metric_list: `metric` must be a name, found {metric!r}")
        _check_aggregation(str(name), str(metric), entry)


def unknown_metric(name: str, metric: str) -> str:
    """What is said of a metric that lm-eval does not have."""
    return f"{name}: lm-eval has no metric {metric!r}. {did_you_mean(metric, METRIC_REGISTRY)}".rstrip()


def _check_aggregation(name: str, metric: str, entry: Mapping[str, Any]) -> None:
    known = listed(sorted(AGGREGATION_REGISTRY))
    if "aggregation" not in entry:
        if callable(entry["metric"]) or get_metric_aggregation(metric) is not None:
            return
        if metric not in METRIC_REGISTRY:
            raise EvaluationError(unknown_metric(name, metric))
        raise EvaluationError(
            f"{name}: metric_list: {metric} needs an `aggregation`; lm-eval has none for it by itself; "
            f"allowed: {known}"
        )
    aggregation = entry["aggregation"]
    if callable(aggregation) or (isinstance(aggregation, str) and aggregation in AGGREGATION_REGISTRY):
        return
    hint = did_you_mean(aggregation, AGGREGATION_REGISTRY) if isinstance(aggregation, str) else ""
    raise EvaluationError(
        f"{name}: metric_list: the aggregation of {metric} is {aggregation!r}, which lm-eval does not have; "
        f"allowed: {known}. {hint}".rstrip()
    )


@cache
def _printed_fields(template: str) -> Sequence[str]:
    """Names of fields that a template prints as they are, and does not ask about in an `if`.

    A plain field name counts as a template that prints it.
    """
    if template.isidentifier():
        return [template]
    if "{{" not in template:
        return []
    tree = Environment(autoescape=False).parse(template)  # parsed, never rendered
    printed = {
        name.name
        for output in tree.find_all(nodes.Output)
        for expression in output.nodes
        for name in ([expression] if isinstance(expression, nodes.Name) else [])
    }
    tests = [branch.test for branch in tree.find_all(nodes.If)]
    tests += [branch.test for branch in tree.find_all(nodes.CondExpr)]
    asked = {name.name for test in tests for name in test.find_all(nodes.Name)} | {
        test.name for test in tests if isinstance(test, nodes.Name)
    }
    assigned = {name.name for node in tree.find_all(nodes.Assign) for name in node.find_all(nodes.Name)}
    return sorted(printed - asked - assigned)


def _hub_commit(dataset: Any) -> str | None:
    """The commit that a hub data set was downloaded at, from the addresses of its files."""
    for split in dataset.values() if isinstance(dataset, dict) else ():
        for address in getattr(split.info, "download_checksums", None) or {}:
            found = _COMMIT.search(address)
            if found:
                return found.group(1)
    return None
