"""What `wal2lake status` knows, as Prometheus has it; in PostgreSQL's and Spark's words.

The rule: nothing is computed here. Every sample is a field, or a difference of two, of what one look has found, and
what it could not find has no sample: absent is not zero. METRICS says what there is; docs/monitoring.md, the dashboard
and the alert rules are held to it by tests.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from wal2lake import __version__
from wal2lake.changelog.status import CaptureStatus, PipelineStatus
from wal2lake.lsn import LSN
from wal2lake.monitor.progress import is_alive
from wal2lake.monitor.status import Status
from wal2lake.names import printable

Family = CounterMetricFamily | GaugeMetricFamily
Value = float | int | bool | None


class Metric(NamedTuple):
    """One of the endpoint's: its kind, its help text, its labels."""

    kind: Literal["gauge", "counter"]
    help: str
    labels: tuple[str, ...] = ()


METRICS: Final[Mapping[str, Metric]] = {
    "wal2lake_build_info": Metric("gauge", "1; the version is the label.", ("version",)),
    "wal2lake_look_timestamp_seconds": Metric("gauge", "When server, log and lake were looked at last, Unix time."),
    "wal2lake_problem": Metric(
        "gauge", "1 for each finding of `wal2lake status`; table is empty where it is about none.", ("kind", "table")
    ),
    "wal2lake_problems": Metric("gauge", "How many findings `wal2lake status` has."),
    "wal2lake_process_starts_total": Metric("counter", "Processes that `wal2lake run` has started.", ("role",)),
    "wal2lake_server_wal_lsn_bytes": Metric("gauge", "Where the server's WAL ends (pg_current_wal_lsn), in bytes."),
    "wal2lake_slot_active": Metric("gauge", "1 while somebody streams from the slot (active)."),
    "wal2lake_slot_wal_status": Metric("gauge", "1 for the slot's wal_status.", ("wal_status",)),
    "wal2lake_slot_restart_lsn_bytes": Metric("gauge", "From where the slot keeps WAL (restart_lsn), in bytes."),
    "wal2lake_slot_confirmed_flush_lsn_bytes": Metric(
        "gauge", "Up to where capture has acknowledged (confirmed_flush_lsn), in bytes."
    ),
    "wal2lake_slot_retained_wal_bytes": Metric("gauge", "WAL that the slot keeps on the server."),
    "wal2lake_slot_lag_bytes": Metric("gauge", "WAL that the server has written and capture has not acknowledged."),
    "wal2lake_slot_safe_wal_size_bytes": Metric(
        "gauge", "WAL until the slot is in danger of being lost (safe_wal_size); absent without a limit."
    ),
    "wal2lake_log_segments": Metric("gauge", "Segments of the change log."),
    "wal2lake_log_size_bytes": Metric("gauge", "Messages in the change log's segments, before compression."),
    "wal2lake_log_durable_lsn_bytes": Metric("gauge", "Up to where the change log is durable, in bytes."),
    "wal2lake_capture_up": Metric("gauge", "1 while capture is at work."),
    "wal2lake_capture_state": Metric("gauge", "1 for the state that `wal2lake status` shows.", ("state",)),
    "wal2lake_capture_status_age_seconds": Metric("gauge", "How long ago capture last said how it stands."),
    "wal2lake_capture_received_lsn_bytes": Metric("gauge", "Up to where capture has received WAL, in bytes."),
    "wal2lake_capture_messages_total": Metric("counter", "Messages received on the present connection."),
    "wal2lake_capture_received_bytes_total": Metric("counter", "Bytes received on the present connection."),
    "wal2lake_capture_changes_total": Metric("counter", "Changes that capture's process has written to the log."),
    "wal2lake_pipeline_up": Metric("gauge", "1 while the pipeline is at work."),
    "wal2lake_pipeline_state": Metric("gauge", "1 for the state that `wal2lake status` shows.", ("state",)),
    "wal2lake_pipeline_status_age_seconds": Metric("gauge", "How long ago the pipeline last said how it stands."),
    "wal2lake_pipeline_applied_lsn_bytes": Metric("gauge", "Up to where everything is in the lake, in bytes."),
    "wal2lake_pipeline_lag_bytes": Metric("gauge", "WAL that the change log has and the lake has not."),
    "wal2lake_pipeline_lag_seconds": Metric(
        "gauge", "Age of the oldest commit that is not in the lake; absent while no pipeline runs."
    ),
    "wal2lake_pipeline_batch_id": Metric("gauge", "Spark's number of the last batch; absent before the first."),
    "wal2lake_pipeline_batches_total": Metric("counter", "Batches that the pipeline's process has applied."),
    "wal2lake_pipeline_batch_seconds_total": Metric("counter", "Time that these batches took, in seconds."),
    "wal2lake_pipeline_changes_total": Metric("counter", "Changes that the pipeline's process has applied."),
    "wal2lake_tables": Metric("gauge", "Tables by their state.", ("state",)),
    "wal2lake_table_state": Metric("gauge", "1 for the table's state.", ("table", "state")),
    "wal2lake_table_behind": Metric(
        "gauge", "1 while the log may have changes of it that are not applied.", ("table",)
    ),
    "wal2lake_table_rows": Metric("gauge", "Rows of the lake's table; absent before they were counted.", ("table",)),
    "wal2lake_table_changes_total": Metric("counter", "Changes that the pipeline's process has applied.", ("table",)),
    "wal2lake_table_applied_lsn_bytes": Metric("gauge", "Up to where the table is in the lake, in bytes.", ("table",)),
    "wal2lake_table_snapshot_chunks": Metric("gauge", "Chunks of the table's snapshot.", ("table",)),
    "wal2lake_table_snapshot_chunks_done": Metric("gauge", "Those of them that are read.", ("table",)),
}


@dataclass(frozen=True)
class Look:
    """What was seen at one moment, ``at`` (Unix seconds). ``starts``: of each role, where a parent counts them."""

    status: Status
    capture: CaptureStatus
    pipeline: PipelineStatus
    at: float
    starts: Mapping[str, int] = field(default_factory=dict)


class Metrics(Collector):
    """Gives the last ``look``, where there is one, to a registry of prometheus_client's."""

    def __init__(self) -> None:
        self.look: Look | None = None

    def collect(self) -> Iterator[Family]:
        if self.look is not None:
            yield from families(self.look)


def families(look: Look) -> Iterator[Family]:
    """Every metric that has a sample."""
    found: dict[str, Family] = {}
    for name, labels, value in _samples(look):
        if value is not None:
            metric = METRICS[name]
            if name not in found:
                kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
                found[name] = kind(name, metric.help, labels=metric.labels)
            found[name].add_metric([printable(label) for label in labels], float(value))
    return iter(found.values())


Sample = tuple[str, Sequence[str], Value]


def _samples(look: Look) -> Iterator[Sample]:
    status = look.status
    yield "wal2lake_build_info", [__version__], 1
    yield "wal2lake_look_timestamp_seconds", [], look.at
    yield "wal2lake_problems", [], len(status.problems)
    for kind, table in sorted({problem.key for problem in status.problems}):
        yield "wal2lake_problem", [kind, table], 1
    for role, starts in look.starts.items():
        yield "wal2lake_process_starts_total", [role], starts
    yield from _of_server(status)
    yield from _of_capture(look)
    yield from _of_pipeline(look)
    yield from _of_tables(status)


def _of_server(status: Status) -> Iterator[Sample]:
    slot, log, end = status.slot, status.log, status.server_wal_lsn
    yield "wal2lake_server_wal_lsn_bytes", [], end
    if slot is not None:
        yield "wal2lake_slot_active", [], slot.active
        yield "wal2lake_slot_wal_status", [slot.wal_status or ""], 1 if slot.wal_status else None
        yield "wal2lake_slot_restart_lsn_bytes", [], slot.restart_lsn
        yield "wal2lake_slot_confirmed_flush_lsn_bytes", [], slot.confirmed_flush_lsn
        yield "wal2lake_slot_retained_wal_bytes", [], _behind(end, slot.restart_lsn)
        yield "wal2lake_slot_lag_bytes", [], _behind(end, slot.confirmed_flush_lsn)
        yield "wal2lake_slot_safe_wal_size_bytes", [], slot.safe_wal_size
    if log is not None:
        yield "wal2lake_log_segments", [], log.segments
        yield "wal2lake_log_size_bytes", [], log.size
        yield "wal2lake_log_durable_lsn_bytes", [], log.durable_lsn


def _of_capture(look: Look) -> Iterator[Sample]:
    progress, capture = look.status.progress, look.capture
    yield "wal2lake_capture_up", [], is_alive(progress.capture_state)
    yield "wal2lake_capture_state", [progress.capture_state], 1
    if progress.capture_age_s is None:
        return
    yield "wal2lake_capture_status_age_seconds", [], progress.capture_age_s
    yield "wal2lake_capture_received_lsn_bytes", [], capture.received_lsn
    yield "wal2lake_capture_messages_total", [], capture.messages
    yield "wal2lake_capture_received_bytes_total", [], capture.bytes
    yield "wal2lake_capture_changes_total", [], capture.changes


def _of_pipeline(look: Look) -> Iterator[Sample]:
    progress, pipeline = look.status.progress, look.pipeline
    yield "wal2lake_pipeline_up", [], progress.pipeline_lives
    yield "wal2lake_pipeline_state", [progress.pipeline_state], 1
    if progress.pipeline_age_s is None:
        return
    yield "wal2lake_pipeline_status_age_seconds", [], progress.pipeline_age_s
    yield "wal2lake_pipeline_applied_lsn_bytes", [], progress.applied_lsn
    yield "wal2lake_pipeline_lag_bytes", [], progress.lag_bytes
    yield "wal2lake_pipeline_lag_seconds", [], progress.lag_s
    yield "wal2lake_pipeline_batch_id", [], pipeline.batch if pipeline.batch >= 0 else None
    yield "wal2lake_pipeline_batches_total", [], pipeline.batches
    yield "wal2lake_pipeline_batch_seconds_total", [], pipeline.batch_seconds
    yield "wal2lake_pipeline_changes_total", [], pipeline.changes


def _of_tables(status: Status) -> Iterator[Sample]:
    tables = status.progress.tables
    for state, count in sorted(Counter(table.state for table in tables).items()):
        yield "wal2lake_tables", [state], count
    for table in tables:
        yield "wal2lake_table_state", [table.name, table.state], 1
        yield "wal2lake_table_behind", [table.name], table.behind
        yield "wal2lake_table_rows", [table.name], table.rows
        yield "wal2lake_table_changes_total", [table.name], table.changes
        yield "wal2lake_table_applied_lsn_bytes", [table.name], table.applied_lsn
        yield "wal2lake_table_snapshot_chunks", [table.name], table.chunks_total
        yield "wal2lake_table_snapshot_chunks_done", [table.name], table.chunks_done


def _behind(end: LSN | None, lsn: LSN | None) -> int | None:
    return None if end is None or lsn is None else max(0, end - lsn)
