"""Slot → change log: one process per slot, and the only place that acknowledges to the server."""

from wal2lake.capture.capture import Capture, run_capture

__all__ = ["Capture", "run_capture"]
