"""Passwords that a command prints: fresh ones when they change, one sentence for each way to fail, and nothing told."""

from __future__ import annotations

import asyncio
import pickle
import signal
import subprocess
import sys
import traceback
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.waiting import eventually
from wal2lake import errors
from wal2lake.config import Config
from wal2lake.login import Dsn, Login, as_login
from wal2lake.postgres import passwords
from wal2lake.postgres.connection import connect, connect_replication_async, conninfo, replication_connection
from wal2lake.testing.embedded import EmbeddedPostgres

CANARY = "canary-of-a-command"
_PROMPT_S = 8  # below the time that a command is given


@dataclass
class Vault:
    """A role whose password changes, the file that has the present one, and how often the command printed it."""

    server: EmbeddedPostgres
    folder: Path

    def rotate(self, password: str) -> None:
        self.server.psql(f"SET synchronous_commit = on; ALTER ROLE rotating PASSWORD '{password}'")
        self.file.write_text(f"{password}\nwhat comes next is no password\n")

    @property
    def file(self) -> Path:
        return self.folder / "password"

    @property
    def login(self) -> Login:
        dsn = f"host=127.0.0.1 port={self.server.port} user=rotating dbname=postgres"
        return Login(dsn, ("sh", "-c", f"echo run >> '{self.folder}/runs'; cat '{self.file}'"))

    @property
    def runs(self) -> int:
        return len((self.folder / "runs").read_text().splitlines())


@pytest.fixture
def vault(server: EmbeddedPostgres, tmp_path: Path) -> Iterator[Vault]:
    server.psql("CREATE ROLE rotating LOGIN REPLICATION")
    made = Vault(server, tmp_path)
    made.rotate("first")
    yield made
    server.psql("DROP ROLE rotating")


def _walsender(dsn: Dsn) -> None:
    with replication_connection(dsn):
        pass


def _session(dsn: Dsn) -> None:
    connect(dsn).close()


def _in_a_loop(dsn: Dsn) -> None:
    async def opened() -> None:
        (await connect_replication_async(dsn)).finish()

    asyncio.run(opened())


@pytest.mark.server
@pytest.mark.parametrize("way", [_session, _walsender, _in_a_loop])
def test_a_new_password_is_asked_for_when_the_old_one_is_refused(way, vault: Vault) -> None:  # type: ignore[no-untyped-def]
    way(vault.login)
    way(vault.login)
    assert vault.runs == 1
    vault.rotate("second")
    way(vault.login)
    way(vault.login)
    assert vault.runs == 2
    vault.file.write_text(CANARY)
    vault.server.psql("SET synchronous_commit = on; ALTER ROLE rotating PASSWORD 'third'")
    for runs in (3, 4):  # one that was refused when it was fresh is not kept
        with pytest.raises(errors.AuthError) as refused:
            way(vault.login)
        assert vault.runs == runs
        assert CANARY not in "".join(traceback.format_exception(refused.value))


@pytest.mark.server
def test_a_password_is_kept_for_moments(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passwords, "KEPT_S", 0.0)
    _session(vault.login)
    _session(vault.login)
    assert vault.runs == 2


FAILING = [
    (("no-such-program-here", CANARY), errors.ConfigError, "no-such-program-here cannot be started: No such file"),
    ((f"echo {CANARY}",), errors.ConfigError, "echo cannot be started: No such file"),
    (("/etc/passwd",), errors.ConfigError, "/etc/passwd cannot be started: Permission denied"),
    (("sh", "-c", f"echo {CANARY}; echo {CANARY} >&2; exit 3"), errors.ConnectError, "ended with exit code 3"),
    (("sh", "-c", f"echo {CANARY}; kill -9 $$"), errors.ConnectError, "was ended by signal 9"),
    (("true",), errors.ConnectError, "printed no password"),
    (("sh", "-c", f"echo; echo {CANARY}"), errors.ConnectError, "printed no password"),
    (("sh", "-c", f"printf '{CANARY}\\000'"), errors.ConfigError, "zero bytes"),
    (("sh", "-c", f"printf '{CANARY}\\377'"), errors.ConfigError, "no UTF-8"),
    (("sh", "-c", f"yes {CANARY} | tr -d '\\n' | head -c 200000"), errors.ConfigError, "over 65535"),
    (("sh", "-c", f"echo {CANARY}; exec sleep 60"), errors.ConnectError, "did not end within 0.3 s"),
    (("sh", "-c", f"echo {CANARY}; exec sleep 60 >&-"), errors.ConnectError, "did not end within 0.3 s"),
    (("sh", "-c", "while :; do echo; done"), errors.ConnectError, "did not end within 0.3 s"),
]


@pytest.mark.parametrize(("command", "kind", "said"), FAILING)
def test_each_failure_is_one_sentence_without_the_secret(
    command: tuple[str, ...], kind: type[errors.Wal2LakeError], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passwords, "TIMEOUT_S", 0.3 if "0.3" in said else 60.0)
    login = Login("host=/nowhere", command)
    for ask in (passwords.ask, lambda login: asyncio.run(passwords.ask_async(login))):
        with pytest.raises(kind, match=said) as failed:
            ask(login)
        assert type(failed.value) is kind
        assert CANARY not in "".join(traceback.format_exception(failed.value))


@pytest.mark.parametrize("said", [b"a token\n", b"a token", b"a token\r\nmore\n"])
def test_the_first_line_is_the_password(said: bytes, tmp_path: Path) -> None:
    (tmp_path / "said").write_bytes(said)
    assert passwords.ask(Login("", ("cat", str(tmp_path / "said")))) == passwords.Password("a token")


def test_a_password_and_a_command_exclude_each_other() -> None:
    for dsn in (f"host=h password={CANARY}", f"postgresql://u:{CANARY}@h/d", f"postgresql://h/d?password={CANARY}"):
        with pytest.raises(errors.ConfigError, match=r"a password in the DSN and a password command") as refused:
            conninfo(Login(dsn, ("true",)), "test")
        assert CANARY not in str(refused.value)
    with pytest.raises(errors.ConfigError, match="two password commands"):
        as_login(Login("", ("true",)), "true")


def test_a_login_travels_and_shows_nothing() -> None:
    login = as_login(f"password={CANARY}", f"print {CANARY}")
    assert pickle.loads(pickle.dumps(login)) == login
    assert CANARY not in f"{login} {login!r}"
    config = Config.from_dict({"source": {"dsn": f"password={CANARY}", "password_command": ["echo", CANARY]}})
    assert config.source.login.password_command == ("echo", CANARY)
    assert CANARY not in f"{config} {config!r}"


def test_a_command_is_a_list_or_a_text_split_as_a_shell_would() -> None:
    def command(value: object) -> tuple[str, ...]:
        return Config.from_dict({"source": {"password_command": value}}).source.password_command

    assert command("aws rds 'a b',c") == command(["aws", "rds", "a b,c"]) == ("aws", "rds", "a b,c")
    assert command("") == command([]) == ()
    for value, said in (("a 'b", "cannot be split"), ([" ", "b"], "no program"), (7, "list of texts"), ([7], "list")):
        with pytest.raises(errors.ConfigError, match=rf"source\.password_command.*{said}"):
            command(value)


def _command(pid: Path) -> str:
    return f"sh -c 'echo $$ > {pid}.new; mv {pid}.new {pid}; exec sleep 600'"


def _gone(pid: Path) -> bool:
    """No such process, or one that is dead and not waited for yet by whoever has it."""
    status = Path(f"/proc/{pid.read_text().strip()}/stat")
    return not status.exists() or status.read_text().rpartition(")")[2].split()[0] == "Z"


@pytest.mark.parametrize(("command", "code"), [(["slots", "list"], 130), (["capture"], 0)])
def test_ctrl_c_is_answered_while_the_command_runs(command: list[str], code: int, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    (tmp_path / "wal2lake.toml").write_text(f'[source]\ndsn = "host=/nowhere"\npassword_command = "{_command(pid)}"\n')
    with subprocess.Popen(
        [sys.executable, "-m", "wal2lake", *command], cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.PIPE
    ) as run:
        try:
            eventually(pid.exists, alive=lambda: run.poll() is None)
            run.send_signal(signal.SIGINT)
            assert run.wait(_PROMPT_S) == code, run.stderr and run.stderr.read()
        finally:
            run.kill()
    eventually(lambda: _gone(pid))


def test_a_loop_that_gives_up_ends_the_command_at_once(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    login = as_login("host=/nowhere", _command(pid))

    async def give_up() -> None:
        asking = asyncio.create_task(passwords.ask_async(login))
        while not pid.exists():
            await asyncio.sleep(0.01)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking

    asyncio.run(give_up())
    assert _gone(pid)


@pytest.mark.server
def test_programs_and_the_library_take_a_command(vault: Vault) -> None:
    flags = ["--dsn", vault.login.dsn, "--password-command", f"cat {vault.file}"]
    done = subprocess.run(
        [sys.executable, "-m", "wal2lake", "identify", *flags], capture_output=True, text=True, check=False
    )
    assert (done.returncode, "first" in done.stdout + done.stderr) == (0, False), done.stderr
    with closing(connect(as_login(vault.login.dsn, ["cat", str(vault.file)]))) as connection:
        assert connection.execute("SELECT current_user::text").fetchone() == ("rotating",)
