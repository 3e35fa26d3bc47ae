"""A vector is read as the positions that were written, or refused; the numbers are the protocol's own."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.fs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wal2lake.deltadv import base85, bitmap
from wal2lake.deltadv.bitmap import VectorError, marked, positions_of
from wal2lake.deltadv.vectors import Vector, place_of, read_vector, write_vectors

# Of the protocol's "Deletion Vector Descriptor Schema": the prefix is ab. Example 3 there is of the older form.
ON_DISK = {"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "offset": 4, "sizeInBytes": 40}
OLDER = {"storageType": "i", "pathOrInlineDv": "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L", "sizeInBytes": 40}

# By delta-spark 4.4.0 on Spark 4.2: DELETE FROM delta.`…` WHERE id % 7 = 0, of a file of 50 rows.
SPARKS = "0000002cd1d339640100000000000000000000003a300000010000000000050010000000010006001100150017002100833cd651"


def portable(positions: list[int]) -> bytes:
    """By hand, from RoaringFormatSpec: one 32-bit bitmap, one array container, no runs; positions below 65,536."""
    body = struct.pack("<II", 12346, 1) + struct.pack("<HH", 0, len(positions) - 1) + struct.pack("<I", 16)
    body += b"".join(struct.pack("<H", position) for position in positions)
    return struct.pack("<i", 1681511377) + struct.pack("<QI", 1, 0) + body


@pytest.fixture
def files(tmp_path: Path) -> Any:
    return pa.fs.SubTreeFileSystem(str(tmp_path), pa.fs.LocalFileSystem())


@settings(max_examples=100, deadline=None)
@given(st.sets(st.one_of(st.integers(0, 200), st.integers(0, 2**40))), st.lists(st.integers(0, 70_000), max_size=2))
def test_positions_come_back_rising(some: set[int], ends: list[int]) -> None:
    positions = sorted(some | set(range(*sorted(ends)) if len(ends) == 2 else ()))
    assert list(bitmap.decode(bitmap.encode(marked(np.array(positions[::-1], np.int64))))) == positions


def test_the_bytes_are_the_formats() -> None:
    assert bitmap.encode(marked(np.array([3, 4, 7, 11, 18, 29]))) == portable([3, 4, 7, 11, 18, 29])
    assert list(bitmap.decode(portable([3, 4, 7, 11, 18, 29]))) == [3, 4, 7, 11, 18, 29]


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_damaged_bytes_are_refused_or_are_another_vector(data: st.DataObject) -> None:
    some = data.draw(st.sampled_from([[1, 5, 900], list(range(3, 9000, 2)), [7, 2**33]]))
    good = bitmap.encode(marked(np.array(some)))
    bad = bytearray(good)
    for _ in range(data.draw(st.integers(1, 3))):
        bad[data.draw(st.integers(0, min(len(bad), 60) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(bad[: data.draw(st.integers(0, len(bad)))]) if data.draw(st.booleans()) else bytes(bad)
    try:
        found = positions_of(bitmap.decode(cut))
    except VectorError:
        return
    assert (np.diff(found) > 0).all() and (found >= 0).all()


def test_z85_is_zeromqs_and_the_protocols() -> None:
    assert base85.encode(bytes.fromhex("864FD26FB559F75B")) == "HelloWorld"
    assert base85.decode("HelloWorld", 8).hex() == "864fd26fb559f75b"
    assert base85.decode(base85.encode(b"abcde"), 5) == b"abcde"
    for text, size in (("Hello", 5), ("Hell", 3), ("Hel\\o", 4), ("Hel~o", 4), ("Hello", -1)):
        with pytest.raises(ValueError, match="Z85"):
            base85.decode(text, size)
    vector = Vector.of(ON_DISK | {"cardinality": 6})
    assert vector.path == "ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"
    assert vector.action() == ON_DISK | {"cardinality": 6}
    assert place_of("deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin") == ON_DISK["pathOrInlineDv"][2:]  # type: ignore[index]
    assert place_of("part-d2c639aa-8816-431a-aaf6-d3fe2512ff61.parquet") is None


def test_several_vectors_lie_in_one_file(files: Any, tmp_path: Path) -> None:
    gone = {"a": np.arange(5), "b": np.arange(0, 100_000, 7), "c": np.array([2**33])}
    vectors, name = write_vectors(files, {path: marked(positions) for path, positions in gone.items()})
    assert [path.name for path in tmp_path.iterdir()] == [name]
    for path, positions in gone.items():
        assert vectors[path].path == name
        assert Vector.of(vectors[path].action()) == vectors[path]
        assert list(read_vector(files, vectors[path])) == positions.tolist()
    assert len({vector.identity for vector in vectors.values()}) == 3


def test_delta_sparks_vector_is_read_and_written_alike(files: Any, tmp_path: Path) -> None:
    positions = [1, 6, 17, 21, 23, 33]
    vectors, name = write_vectors(files, {"a": marked(np.array(positions))})
    assert (tmp_path / name).read_bytes() == b"\1" + bytes.fromhex(SPARKS)
    assert list(read_vector(files, vectors["a"])) == positions


def test_a_vector_in_the_log_is_read() -> None:
    data = portable([3, 4, 7])
    vector = Vector.of(
        {"storageType": "i", "pathOrInlineDv": base85.encode(data), "sizeInBytes": len(data), "cardinality": 3}
    )
    assert vector.path is None
    assert list(read_vector(None, vector)) == [3, 4, 7]


def test_what_was_half_written_goes(files: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(positions: object) -> bytes:
        raise MemoryError

    monkeypatch.setattr(bitmap, "encode", fail)
    with pytest.raises(MemoryError):
        write_vectors(files, {"a": marked(np.arange(5))})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"sizeInBytes": 7}, "not what its length says"),
        ({"sizeInBytes": 2**40}, "of 1099511627776 bytes"),
        ({"cardinality": 4}, "marks 5 rows, and the log says 4"),
        ({"offset": 3}, "not what its length says"),
        ({"offset": 10**6}, "not what its length says"),
        ({"storageType": "p", "pathOrInlineDv": "/etc/passwd"}, "outside of its table's folder"),
        ({"storageType": "x"}, "storage 'x'"),
        ({"storageType": None}, "storage 'None'"),
        ({"pathOrInlineDv": "../../../" + "0" * 20}, "none of the table's"),
        ({"pathOrInlineDv": "0" * 19}, "no UUID"),
        (OLDER | {"cardinality": 6}, "magic number"),
        ({"storageType": "i", "pathOrInlineDv": "00000"}, "in the log is not what its length says"),
    ],
)
def test_what_is_not_what_the_log_says_is_refused(files: Any, change: dict[str, Any], said: str) -> None:
    vectors, _ = write_vectors(files, {"a": marked(np.arange(5))})
    with pytest.raises(VectorError, match=said):
        read_vector(files, Vector.of(vectors["a"].action() | change))


def test_a_flipped_bit_in_the_file_is_found(files: Any, tmp_path: Path) -> None:
    vectors, name = write_vectors(files, {"a": marked(np.array([1, 5, 9]))})
    whole = (tmp_path / name).read_bytes()
    assert zlib.crc32(whole[5:-4]) == int.from_bytes(whole[-4:], "big")
    for place in range(len(whole)):
        (tmp_path / name).write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        with pytest.raises(VectorError):
            read_vector(files, vectors["a"])
    (tmp_path / name).write_bytes(whole[:-1])
    with pytest.raises(VectorError, match="length"):
        read_vector(files, vectors["a"])
