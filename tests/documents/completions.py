"""Completions for bash, zsh and fish, of the commands as they are: no Python starts at a press of the tab key."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from tests.documents.commands import HELP, Command, Option, commands, groups, root_options

_WRITTEN = "# Written from the commands by python -m tests.documents.reference."


def _choices(option: Option) -> list[str]:
    return option.value.split("|") if "|" in option.value else []


def _options(command: Command) -> list[Option]:
    """Those with a dash; --help is each command's."""
    return [*(option for option in command.options if not option.is_argument), HELP]


def _summary(text: str) -> str:
    """The first sentence or clause, on one line."""
    return " ".join(text.split("\n\n", maxsplit=1)[0].split()).partition(". ")[0].rstrip(".")


def _root_options() -> list[Option]:
    return [*root_options(), HELP]


def _below(group: str) -> list[Command]:
    return [command for command in commands() if command.name.startswith(f"{group} ")]


def _first_words() -> dict[str, str]:
    """What may follow wal2lake, with what it is for."""
    found: dict[str, str] = {}
    for command in commands():
        first = command.name.partition(" ")[0]
        found[first] = groups().get(first) or command.help
    return found


def bash() -> str:
    """For share/bash-completion/completions."""
    roots = [name for option in _root_options() for name in option.names]
    cases = [("", [*_first_words(), *roots])]
    cases += [(group, [command.name.partition(" ")[2] for command in _below(group)]) for group in groups()]
    cases += [(c.name, [name for option in _options(c) for name in option.names]) for c in commands()]
    known = [*(f" {word}" for word in _first_words()), *(c.name for group in groups() for c in _below(group))]
    values = [
        (" | ".join(f'"{command.name} {name}"' for name in option.names), _choices(option))
        for command in commands()
        for option in _options(command)
        if _choices(option)
    ]
    return "\n".join([
        _WRITTEN,
        "_wal2lake() {",
        "    local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} command= words= word",
        '    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do',
        '        case "$command $word" in',
        f"            {' | '.join(map(shlex.quote, known))}) command=${{command:+$command }}$word ;;",
        "        esac",
        "    done",
        '    case "$command" in',
        *(f'        "{name}") words="{" ".join(words)}" ;;' for name, words in cases),
        "    esac",
        '    case "$command $before" in',
        *(f'        {names}) words="{" ".join(words)}" ;;' for names, words in values),
        "    esac",
        '    COMPREPLY=($(compgen -W "$words" -- "$current"))',
        "}",
        "complete -o default -F _wal2lake wal2lake",
    ]) + "\n"  # fmt: skip


def zsh() -> str:
    """For share/zsh/site-functions, which is on zsh's fpath."""
    first = _first_words() | {name: option.help for option in _root_options() for name in option.names}
    described = "\n".join(f"        {_zsh_word(f'{word}:{_summary(text)}')}" for word, text in first.items())
    lines = ["#compdef wal2lake", _WRITTEN, "_wal2lake() {", "    local command=${words[2]}", "    local -a found",
             "    if (( CURRENT == 2 )); then", f"        found=(\n{described}\n        )",
             "        _describe command found", "        return", "    fi", "    case $command in"]  # fmt: skip
    for group in groups():
        below = " ".join(
            _zsh_word(f"{command.name.partition(' ')[2]}:{_summary(command.help)}") for command in _below(group)
        )
        lines += [
            f"        ({group})",
            f"            if (( CURRENT == 3 )); then found=({below}); _describe command found; return; fi",
            '            command="$command ${words[3]}"; shift words; (( CURRENT-- )) ;;',
        ]
    lines += ["    esac", "    shift words", "    (( CURRENT-- ))", '    case "$command" in']
    for command in commands():
        specs = " ".join(_zsh_specs(command))
        lines.append(f"        ('{command.name}') _arguments {specs} '*:file:_files' ;;")
    return "\n".join([*lines, "    esac", "}", '_wal2lake "$@"']) + "\n"


def _zsh_specs(command: Command) -> Iterable[str]:
    for option in _options(command):
        action = "" if not option.value else f":{option.value.lower()}:"
        action += f"({' '.join(_choices(option))})" if _choices(option) else "_files" if option.value == "PATH" else ""
        for name in option.names:
            told = _summary(option.help).replace("\\", "").replace("[", "(").replace("]", ")").replace(":", "\\:")
            yield _zsh_word(f"{name}[{told}]{action}")


def _zsh_word(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def fish() -> str:
    """For share/fish/vendor_completions.d."""
    lines = [_WRITTEN, "complete -c wal2lake -f"]
    for word, text in _first_words().items():
        lines.append(_fish("__fish_use_subcommand", ["-a", word], text))
    lines += [_fish("__fish_use_subcommand", list(_fish_option(option)), option.help) for option in _root_options()]
    for group in groups():
        names = [command.name.partition(" ")[2] for command in _below(group)]
        none = f"__fish_seen_subcommand_from {group}; and not __fish_seen_subcommand_from {' '.join(names)}"
        for command, name in zip(_below(group), names, strict=True):
            lines.append(_fish(none, ["-a", name], command.help))
    for command in commands():
        condition = _fish_condition(command.name)
        lines += [_fish(condition, list(_fish_option(option)), option.help) for option in _options(command)]
    return "\n".join(lines) + "\n"


def _fish_condition(name: str) -> str:
    group, _, rest = name.rpartition(" ")
    if group:
        return f"__fish_seen_subcommand_from {group}; and __fish_seen_subcommand_from {rest}"
    return f"__fish_seen_subcommand_from {name}; and not __fish_seen_subcommand_from {' '.join(groups())}"


def _fish_option(option: Option) -> Iterable[str]:
    for name in option.names:
        yield from ("-l", name[2:]) if name.startswith("--") else ("-s", name[1:])
    if _choices(option):
        yield from ("-x", "-a", " ".join(_choices(option)))
    elif option.value:
        yield "-rF" if option.value == "PATH" else "-x"


def _fish(condition: str, words: list[str], text: str) -> str:
    quoted = ["'" + word.replace("\\", "\\\\").replace("'", "\\'") + "'" for word in (condition, _summary(text))]
    return f"complete -c wal2lake -n {quoted[0]} {' '.join(map(shlex.quote, words))} -d {quoted[1]}"
