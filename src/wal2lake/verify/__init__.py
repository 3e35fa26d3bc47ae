"""Proof that the lake holds what the source holds, per key range, at one LSN; nothing here is shared with what writes.

PostgreSQL digests its own output text in SQL; the lake's values are printed in that text by Spark expressions and
digested in Spark. A decoder that is wrong the same way twice would pass any check made of its own parts.
"""

from wal2lake.verify.report import KeyRange, TableResult, VerifyReport
from wal2lake.verify.run import chosen_tables, verify

__all__ = ["KeyRange", "TableResult", "VerifyReport", "chosen_tables", "verify"]
