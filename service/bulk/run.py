"""A run, from the files of the input to the finished output."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from threading import Thread
from typing import Any, Final, Literal

import orjson

from bundle.processors import whole_cpus
from service.bulk.blocks import blocks_of
from service.bulk.chosen import active_revision, bundled_revision, digest_of
from service.bulk.columns import Reader, RowColumns, check_known
from service.bulk.extent import Extent
from service.bulk.inputs import PART_BYTES, Format, Part, Source, cut, find, is_url
from service.bulk.manifest import Done, Manifest
from service.bulk.output import Written, place_of
from service.bulk.processes import Team
from service.bulk.ray_data import score_on_ray
from service.bulk.worker import Task, added_columns, clash, rows_per_run
from service.decisions.certificates import warnings
from service.errors import ConfigurationError, InputValueError
from service.inference.providers import resolve_provider
from service.serving.loading import Loader
from service.serving.plane import Served
from service.settings import Settings

Progress = Callable[[int, int, int | None], object]
_DEFAULT: Final[Mapping[Format, Written]] = {"csv": "csv", "ndjson": "ndjson", "parquet": "parquet", "npz": "csv"}
_SURVEYED: Final = 1_000  # lines of NDJSON whose fields are taken for the columns


@dataclass(frozen=True)
class Options(RowColumns):
    """How to score.

    Attributes:
        model: Name of the model; None for the only one.
        policy: Name of the policy that decides; None for the service's choice.
        scores: Columns of scores that others computed, for a model without a graph.
        drop: Columns that the output leaves out.
        prefix: Prefix of the added columns.
        format: Format of the output; None for that of the input, and CSV for npz.
        part_rows: Maximum rows per part.
        processes: Number of processes; None for one per available CPU, and one on a GPU.
        on_error: Whether a refused row ends the run, or goes to a file of rejects.
        log: Whether predictions are logged to the state, so that labels join them later.
        resume: Whether an interrupted run goes on.
        ray: Address of the Ray cluster that scores; None for this machine.
    """

    model: str | None = None
    policy: str | None = None
    scores: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    prefix: str = ""
    format: Written | None = None
    part_rows: int = 100_000
    processes: int | None = None
    on_error: Literal["fail", "skip"] = "fail"
    log: bool = False
    resume: bool = False
    ray: str | None = None


@dataclass(frozen=True)
class Summary:
    """What a run did.

    Attributes:
        output: Path or URL of the output.
        model: Name of the model.
        revision: Revision that scored.
        policy: Policy that decided, as `id@version`; None without one.
        parts: Number of parts.
        rows: Rows written.
        kept: How many of them an interrupted run had written.
        rejected: Rows refused.
        actions: Rows by action.
        warnings: Sentences on what the policy does not certify, and what that does to the rows.
    """

    output: str
    model: str
    revision: str
    policy: str | None
    parts: int
    rows: int
    kept: int
    rejected: int
    actions: Mapping[str, int]
    warnings: Sequence[str] = ()


def score(
    source: str | Path,
    output: str | Path,
    options: Options | None = None,
    *,
    settings: Settings | None = None,
    database_url: str | None = None,
    progress: Progress = lambda *_: None,
) -> Summary:
    """Score the rows of files and write them with probabilities, decisions and prediction ids.

    Args:
        source: A CSV, NDJSON, Parquet or npz file, or a folder of them: a path, or a URL for fsspec.
        output: Folder of the parts and their manifest: a path, or a URL for fsspec.
        options: How to score.
        settings: Where bundles and policies are, and how models run; None for the settings of the environment.
        database_url: State of the service, whose active revision scores; None scores with the newest bundle.
        progress: Called with the rows written and refused so far, and the rows of all files: exact where Parquet or npz
            say it, of lines an estimate by their bytes; None while nothing is known.

    Raises:
        InputError: A file is damaged, a column is missing, or a row is refused and `on_error` is `fail`.
        ConfigurationError: A file cannot be read, or the output cannot be written.
        CandorError: The model, its policy or the state cannot be used.

    With several processes, call it below `if __name__ == "__main__":`, as all users of multiprocessing do.
    """
    options = options or Options()
    settings = settings or Settings()
    if database_url is not None:
        settings = settings.model_copy(update={"database_url": database_url})
    if options.log and database_url is None:
        raise ConfigurationError("Logging needs the state of a service.", where="--log", expected="--database-url")
    _check_apart(str(source), str(output))
    sources = find(str(source))
    format_ = _format(sources[0].format, options.format)
    if not options.log:
        settings = settings.model_copy(update={"log_mode": "off"})
    place = place_of(str(output))
    with Team(_processes(settings, options)) as team:
        served = _chosen(settings, options.model, database_url)
        with place.locked():
            described = _described(sources, served, options, format_)
            manifest = Manifest.open(place, str(output), described, resume=options.resume)
            kept = manifest.rows
            if not manifest.finished:
                _score(sources, served, settings, options, format_, str(output), manifest, team, progress)
    solved = served.policy(options.policy)
    return Summary(
        output=str(output),
        model=served.revision.model,
        revision=served.revision.id,
        policy=None if solved is None else f"{solved.policy.id}@{solved.version}",
        parts=len(manifest.done),
        rows=manifest.rows,
        kept=kept,
        rejected=manifest.rejected,
        actions=manifest.actions,
        warnings=[] if solved is None else warnings(solved),
    )


def _score(
    sources: Sequence[Source],
    served: Served,
    settings: Settings,
    options: Options,
    format_: Written,
    output: str,
    manifest: Manifest,
    team: Team,
    progress: Progress,
) -> None:
    extent = Extent(source.size for source in sources)
    checked = _checked(sources, manifest)
    cut_parts = cut(checked if options.ray is None else [*checked], options.part_rows, extent)
    parts = ((part, name) for part, name in cut_parts if part.number not in manifest.done)
    first = next(parts, None)
    if first is not None:
        found = _names(first[0])
        _check_columns(found, served, settings, options)
        own = {
            "threads": 1 if options.ray else max(1, whole_cpus() // team.processes),
            "max_batch_size": rows_per_run(served.input),
            "drift_window_s": 0.0,
        }
        task = Task(
            settings=settings.model_copy(update=own),
            revision=served.revision,
            policy=options.policy,
            output=output,
            format=format_,
            scores=options.scores,
            columns=RowColumns(**options.named()),
            dropped=options.drop,
            prefix=options.prefix,
            skips=options.on_error == "skip",
            logs=options.log,
            seed=manifest.seed,
            started_at=manifest.started_at,
        )
        rows, rejected = manifest.rows, manifest.rejected

        def finished(done: Done) -> None:
            nonlocal rows, rejected
            manifest.add(done)
            rows, rejected = rows + done.rows, rejected + done.rejected
            progress(rows, rejected, extent.rows)

        manifest.write()  # not before: an option that does not fit leaves nothing behind
        progress(rows, rejected, extent.rows)
        try:
            if options.ray is None:
                team.score(task, found, chain([first], parts), finished)
            else:
                score_on_ray(
                    options.ray, task, found, sources, options.part_rows, {*manifest.done}, options.processes, finished
                )
        except BaseException:
            manifest.write()
            raise
    manifest.finished = True
    manifest.write()


def _checked(sources: Sequence[Source], manifest: Manifest) -> Iterator[Source]:
    """Yield the files, and compare the digest of each with that of the beginning.

    That of a file which the run has not opened before is computed while the file is scored, unless its rows are logged:
    their ids must stay those of the same rows.
    """
    for source in sources:
        checked = _begun(partial(_check, source, manifest))
        if source.name in manifest.inputs or manifest.run["log"]:
            checked.result()
        yield source
        checked.result()


def _check(source: Source, manifest: Manifest) -> None:
    manifest.check_input(source.name, source.digest())


def _begun(work: Callable[[], None]) -> Future[None]:
    """Begin work on a thread that does not keep the process from ending."""
    found: Future[None] = Future()

    def run() -> None:
        try:
            work()
            found.set_result(None)
        except Exception as error:  # noqa: BLE001 — raised where the result is read
            found.set_exception(error)

    Thread(target=run, daemon=True).start()
    return found


def _chosen(settings: Settings, model: str | None, database_url: str | None) -> Served:
    """Return the revision that scores, loaded in this process to check it."""
    loader = Loader(settings)
    loader.refresh()
    if database_url is None:
        return loader.serve(bundled_revision(loader, settings, model))
    return loader.serve(active_revision(settings.state_url, model))


def _described(sources: Sequence[Source], served: Served, options: Options, format_: Written) -> dict[str, Any]:
    """Return what the content of the output depends on, besides the content of the files."""
    solved = served.policy(options.policy)
    revision = served.revision
    return {
        "files": [source.name for source in sources],
        "model": revision.model,
        "revision": revision.id,
        "bundle": revision.bundle_id,
        "policy": None if solved is None else f"{solved.policy.id}@{solved.version}",
        "digest": digest_of(revision, solved),
        "format": format_,
        "scores": list(options.scores),
        **options.named(),
        "drop": list(options.drop),
        "prefix": options.prefix,
        "part_rows": options.part_rows,
        "part_bytes": PART_BYTES,
        "log": options.log,
    }


def _check_columns(found: Sequence[str], served: Served, settings: Settings, options: Options) -> None:
    for name in options.drop:
        check_known(name, found, "--drop")
    Reader.of(served, found, scores=options.scores, columns=options, max_pixels=settings.max_pixels)
    added = added_columns(served.labels, options.prefix, served.policy(options.policy))
    for name in found:
        if name in added and name not in options.drop:
            raise clash(name, name)


def _names(part: Part) -> tuple[str, ...]:
    """Return the columns of the files; of NDJSON, the fields of the first lines.

    Raises:
        InputError: None of these lines is an object.
    """
    if part.format != "ndjson":
        return part.names
    names: dict[str, None] = {}
    for line in part.content.split(b"\n")[:_SURVEYED]:
        try:
            document = orjson.loads(line)
        except orjson.JSONDecodeError:  # said with its line when it is read
            continue
        names |= dict.fromkeys(document if isinstance(document, dict) else ())
    if not names:
        next(blocks_of(part, (), ()), None)
    return tuple(names)


def _processes(settings: Settings, options: Options) -> int:
    """Return how many processes of this machine score."""
    if options.ray is not None or (options.processes is None and resolve_provider(settings.provider) == "cuda"):
        return 1
    return options.processes or whole_cpus()


def _format(found: Format, wanted: Written | None) -> Written:
    if found == "ndjson" and wanted not in (None, "ndjson"):
        raise InputValueError(
            "The fields of NDJSON may change from line to line.",
            where="--format",
            found=wanted,
            expected="ndjson",
        )
    if wanted == "parquet":
        from service.row_files.parquet_rows import check_installed

        check_installed()
    return wanted or _DEFAULT[found]


def _check_apart(source: str, output: str) -> None:
    """Raise InputValueError if the output would become part of the input."""
    if is_url(source) or is_url(output):
        inside = output.rstrip("/").startswith(source.rstrip("/") + "/") or source.rstrip("/") == output.rstrip("/")
    else:
        inside = Path(output).resolve().is_relative_to(Path(source).resolve())
    if inside:
        raise InputValueError(
            "The output is inside the input.", where=output, found=output, expected=f"a folder outside {source}"
        )
