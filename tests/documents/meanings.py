"""What each member of `wal2lake status --json` means; one that is missing here, or too much, fails a test."""

from __future__ import annotations

from typing import Final

STATUS: Final = {
    "ok": "whether there is no finding",
    "ready": "whether there is none, and the lake is kept up: capture and pipeline stream",
    "problems": "the findings, as sentences",
    "server_wal_lsn": "how far the server has written its WAL; null when it cannot be asked",
    "slot": "its row in pg_replication_slots; null when there is none",
    "log": "the change log; null when there is none, or it cannot be read",
    "progress": "what capture and pipeline last said of themselves",
    "applied": "for each published table, by name, the LSN in its last commit; null when it is not in the lake",
}
LOG: Final = {
    "timeline": "the server's timeline that the log is on",
    "segments": "how many segments there are",
    "size": "the messages in them, before compression (bytes)",
    "start_lsn": "where the log begins; what ended before is not in it",
    "last_end_lsn": "the end of its last transaction",
    "durable_lsn": "up to where everything is durable, and acknowledged to the server at most",
    "prepared": "the xids of the transactions in it that are prepared and have not ended, with `source.two_phase`",
}
PROGRESS: Final = {
    "capture_state": "`starting`, `waiting for running transactions to end`, `streaming`, `waiting`, `stopped`,"
    " `failed`, `died`, `not running`; one that is overdue ends with `, silent`",
    "capture_age_s": "how long ago capture last said something (s); null: never",
    "capture_reason": "what ended it, or keeps it from streaming",
    "pipeline_state": "`starting`, `snapshot`, `streaming`, `waiting`, `stopped`, `failed`, `died`, `not running`;"
    " likewise",
    "pipeline_age_s": "how long ago the pipeline last said something (s); null: never",
    "pipeline_reason": "what it waits for, or what ended it",
    "durable_lsn": "what capture has made durable",
    "applied_lsn": "up to where the lake has everything",
    "pipeline_doing": "what it is at, while it is `starting`",
    "rows_read_per_s": "how fast tables are copied, of all that are: rows in a second",
    "bytes_read_per_s": "the same in bytes of their heaps",
    "lag_bytes": "WAL that the log has and the lake does not (bytes)",
    "lag_s": "the age of the oldest commit that is not applied (s); null while no pipeline runs",
    "open_streams": "how many transactions are streamed and have not ended",
    "tables": "an object a table",
}
TABLE: Final = {
    "name": "schema.table",
    "state": "`snapshot`, `catching_up`, `streaming`, `quarantined`, `skipped`, `unpublished`, `missing`, `waiting`",
    "rows": "rows of the lake's table; null when they are not known",
    "chunks_done": "chunks of its snapshot that are read",
    "chunks_total": "chunks that its snapshot has",
    "rows_read": "rows read so far, while it is copied",
    "bytes_read": "bytes of its heap that are read, a chunk at a time",
    "bytes_total": "bytes that its heap has",
    "applied_lsn": "up to where its changes are applied",
    "changes": "changes applied since the pipeline's process began",
    "changes_per_s": "how many of them in a second, lately",
    "reason": "why it is left out, read anew or waits",
    "behind": "whether the log has, or may have, changes of it that are not applied",
    "confirmed_lsn": "up to where a look at the catalog has confirmed that nothing was kept from the stream",
    "unconfirmed_since": "when that was (Unix seconds), if more is applied by now",
    "tried": "why it was quarantined, while it is tried again and is not where the stream is yet",
}
