"""What recv writes where an output plugin of our own decodes: a line per piece, whole transactions only.

The plugin's pieces are gathered and handed on with each batch. A regular file is cut back to the end of its last whole
transaction wherever one is torn: when the connection is lost, when the plugin or a write fails, at the end. The server
sends that transaction again, and so it stands in the file once. A pipe cannot be cut back.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from wal2lake.decoding.context import Writer
from wal2lake.decoding.decoder import Decoded, Decoder
from wal2lake.decoding.rows import ROW_TAGS
from wal2lake.files import writing
from wal2lake.lsn import LSN
from wal2lake.pgoutput.options import PgoutputOptions
from wal2lake.postgres.outputs import RawOutput
from wal2lake.wire.replication import XLogData

FLUSH_LINES = 10_000  # pieces; a held transaction may have millions
Make = Callable[[Writer], Decoder]  # of what takes its pieces


class PluginOutput(RawOutput):
    """Appends to ``path`` ('-': standard output) what the decoder that ``make`` makes writes.

    ``as_json``: an object a line, as Decoded makes it.
    """

    computes = True

    def __init__(self, path: str | Path, make: Make, *, as_json: bool = False) -> None:
        super().__init__(path)
        self._lines: list[bytes] = []
        self._whole: int | None = None  # how many of them end whole transactions; None: none ended since they were put
        self._working = self._signalled = False
        self.decoder = make(self._add_json_line if as_json else self._add_line)

    @property
    def hold_lsn(self) -> LSN | None:
        return self.decoder.hold_lsn

    def signalled(self) -> bool:
        """To be called by who handles a signal: True when the plugin is at work, so that KeyboardInterrupt may be
        raised right there; what it wrote of a transaction that is not whole is forgotten then. While its pieces are
        being written it is raised behind that."""
        self._signalled = True
        return self._working

    def begin_stream(self) -> None:
        self._cut_torn()
        self.decoder.begin_stream()

    def write(self, message: XLogData) -> None:
        payload = message.payload
        try:
            self._working = True
            self.decoder.receive(message.start_lsn, payload)
            self._working = False
        except BaseException:
            self._working = False
            self._cut_torn()
            raise
        if payload[0] not in ROW_TAGS and self.decoder.whole:
            self._whole = len(self._lines)

    def _add_line(self, lsn: LSN, xid: int, data: str | bytes, last_write: bool) -> None:
        self._lines.append(data.encode() if isinstance(data, str) else data)
        if len(self._lines) >= FLUSH_LINES:
            self._flush_amid()

    def _add_json_line(self, lsn: LSN, xid: int, data: str | bytes, last_write: bool) -> None:
        self._add_line(lsn, xid, Decoded(lsn, xid, data).json_line()[:-1], last_write)

    def _flush_amid(self) -> None:
        """In the midst of a transaction."""
        self._working = False  # a write that was broken off would leave the file's end unknown
        self.flush()
        if self._signalled:
            raise KeyboardInterrupt
        self._working = True

    def flush(self) -> None:
        whole, torn = self._lines[: self._whole or 0], self._lines[self._whole or 0 :]
        ended, self._lines, self._whole = self._whole is not None, [], None
        self._write_lines(whole)
        if ended:  # perhaps by nothing: all that was written of it is in the file
            self._boundary = self._size
        self._write_lines(torn)
        super().flush()

    def sync(self) -> None:
        self.flush()
        super().sync()

    def close(self) -> None:
        """Cut off what is torn, shut the plugin down, sync and close."""
        try:
            self._cut_torn()
        finally:
            try:
                self.decoder.close()
            finally:
                super().close()

    def _write_lines(self, lines: list[bytes]) -> None:
        if lines:
            lines.append(b"")
            self._append(b"\n".join(lines))

    def _cut_torn(self) -> None:
        """Forget what belongs to no whole transaction, in the file too, if it can be: a file that somebody else has
        written to or rotated meanwhile is left as it is.

        What is whole is written first: its beginning may be what the file ends with.
        """
        del self._lines[self._whole or 0 :]
        self.flush()
        if not self._regular or self._size == self._boundary:
            return
        with writing(self._path):
            self._file.flush()
            descriptor = self._file.fileno()
            size = os.fstat(descriptor).st_size
            if size == self._size:
                os.ftruncate(descriptor, self._boundary)
                size = os.lseek(descriptor, self._boundary, os.SEEK_SET)
        self._size = self._boundary = self._kept = size


def json_output(path: str | Path, options: PgoutputOptions) -> PluginOutput:
    """What pgoutput sends as ``options`` ask it, an object per message: the output plugin json."""
    return PluginOutput(path, lambda write: Decoder("json", (), options, write, fixed=True))
