"""A table's folder in the log is told back, whatever its name, and fits into the name of a file."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wal2lake.changelog.places import request_document, table_folder, table_of

# As many bytes as a name can have; few characters, so that many names need escapes.
names = st.text(st.sampled_from("a.=%/~é漢"), min_size=1, max_size=63).filter(lambda name: len(name.encode()) <= 63)


@given(names, names)
def test_a_folder_tells_its_table(namespace: str, name: str) -> None:
    folder = table_folder("p", namespace, name).removeprefix("snapshots/p/")
    assert table_of(folder) == (namespace, name)
    document = request_document("p", namespace, name).removeprefix("requests/p/")
    for file in (folder, document):
        assert "/" not in file and file[0] != "." and len(file.encode()) <= 255


@pytest.mark.parametrize(
    ("namespace", "name", "folder"),
    [
        ("shop", "order", "shop.order"),
        ("a.b", "c%", "a%2Eb.c%25"),
        ("%" * 63, "a" * 65, "%25" * 63 + "." + "a" * 65),  # 255 bytes, as they are in logs that exist
    ],
)
def test_folders_keep_their_names(namespace: str, name: str, folder: str) -> None:
    assert table_folder("p", namespace, name) == f"snapshots/p/{folder}"


def test_a_name_of_one_byte_too_many_is_told_in_another_way() -> None:
    folder = table_folder("p", "%" * 63, "a" * 66).removeprefix("snapshots/p/")
    assert len(folder) < 256 and table_of(folder) == ("%" * 63, "a" * 66)
