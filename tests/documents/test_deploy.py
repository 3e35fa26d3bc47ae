"""What stands in deploy/ is what its tools take, and says what the code says."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from wal2lake import errors
from wal2lake.config import Config
from wal2lake.errors import Wal2LakeError

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
BIN = Path(sys.executable).parent
# What time may mend, and what is no reason to stop for good: the rest needs somebody who reads the sentence.
TRIED_AGAIN = {
    "Wal2LakeError", "ConnectError", "SlotInUseError", "LogFullError", "UnrepresentableError", "SchemaChangeError",
    "SinkError", "VerifyError", "SparkError", "ServerError", "LockedError", "SlotExistsError", "PluginError",
    "InterruptedByUser",
}  # fmt: skip


def _passes(*command: str | Path) -> None:
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.documents
def test_the_image_passes_hadolint() -> None:
    _passes(BIN / "hadolint", DEPLOY / "Dockerfile")


@pytest.mark.documents
def test_the_compose_file_fits_its_schema() -> None:
    _passes(BIN / "check-jsonschema", "--builtin-schema", "vendor.compose-spec", DEPLOY / "compose.yaml")


@pytest.mark.documents
def test_the_workflows_fit_their_schema() -> None:
    workflows = sorted((ROOT / ".github/workflows").glob("*.yml"))
    _passes(BIN / "check-jsonschema", "--builtin-schema", "vendor.github-workflows", *workflows)


@pytest.mark.documents
def test_the_manifest_fits_kubernetes_schemas() -> None:
    _passes(BIN / "kubernetes-validate", "--strict", DEPLOY / "kubernetes.yaml")


def test_the_manifest_s_settings_are_settings(tmp_path: Path) -> None:
    (settings,) = (
        document["data"]
        for document in yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text())
        if "data" in document
    )
    for name, text in settings.items():
        (tmp_path / name).write_text(text)
    config = Config.load(tmp_path / "wal2lake.toml")
    assert (config.log.path, config.lake.path) == ("/data/log", "/data/lake")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze")
def test_the_unit_is_one(tmp_path: Path) -> None:
    """With a program in the place of ours, which is installed nowhere."""
    unit = tmp_path / "wal2lake.service"
    unit.write_text((DEPLOY / "wal2lake.service").read_text().replace("/opt/wal2lake/bin/wal2lake", "/bin/true"))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_unit_leaves_alone_what_no_time_mends() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Wal2LakeError)]
    assert {kind.__name__ for kind in kinds} >= TRIED_AGAIN
    left = sorted(kind.exit_code for kind in kinds if kind.__name__ not in TRIED_AGAIN)
    assert not any(kind.transient for kind in kinds if kind.exit_code in left)
    (said,) = re.findall(r"^RestartPreventExitStatus=(.*)$", (DEPLOY / "wal2lake.service").read_text(), re.M)
    assert [int(code) for code in said.split()] == left
    page = (ROOT / "docs/service.md").read_text()
    assert f"after {left[0]}, {left[1]}, 5 to 9, 11, 12 and 14" in page


def test_the_image_s_lock_is_of_the_lock() -> None:
    """Word for word: the same versions with the same hashes, and no more."""
    locks = [re.split(r"\n(?=\S)", (folder / "requirements.lock").read_text()) for folder in (ROOT, DEPLOY)]
    whole, image = ({part.strip() for part in lock if "==" in part.partition("\n")[0]} for lock in locks)
    assert len(image) > 10
    assert {part.partition(" ")[0] for part in image} <= {part.partition(" ")[0] for part in whole}
    assert not [part for part in image if "pytest" in part]
