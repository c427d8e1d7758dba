#!/usr/bin/env python3
"""Generates shell completions from the program's own lists of options.

Usage: completions.py PROGRAM BASH ZSH FISH
"""
import re
import subprocess
import sys

PROGRAM = sys.argv[1]


def output(*words):
    return subprocess.run([PROGRAM, *words], capture_output=True, text=True, check=True).stdout


def read():
    """{command: (summary, [(option, name of its value or "", choices, help)])}"""
    found = {}
    for name, summary in re.findall(r"^  (\w+) +(\S.*)$", output("help").split("Commands:")[1], re.M):
        rows = [line.split("\t") for line in output(name, "--list-options").splitlines()]
        rows = [row for row in rows if len(row) == 4]  # `bench` lists its benchmarks instead
        found[name] = (summary, [(o, value, choices.split(), text) for o, value, choices, text in rows])
    return found


def benches():
    return re.findall(r"^  (\w+) ", output("bench", "--help"), re.M)


# What a positional argument or a value can be, found out while completing.
IDS = {"show", "compare", "export", "rm", "report", "check", "push"}
BASH_HEAD = """# bash completion of perjoule; made from the program's own options
_perjoule_models() { "${COMP_WORDS[0]}" models --json 2>/dev/null | grep -o '"name":"[^"]*"' | cut -d'"' -f4; }
_perjoule_runs() { echo last; "${COMP_WORDS[0]}" ls --json --limit 20 2>/dev/null | grep -o '"id":"[^"]*"' | cut -d'"' -f4; }
"""


def bash_values(commands):
    """case branches "command:--option) words=..." for options whose value is known"""
    lines = []
    for name, (_, options) in commands.items():
        for option, value, choices, _ in options:
            if choices:
                lines.append(f"        {name}:--{option}) words='{' '.join(choices)}' ;;")
            elif option == "model":
                lines.append(f"        {name}:--{option}) words=$(_perjoule_models) ;;")
            elif value and not re.match(r"FILE|DIR", value):
                lines.append(f"        {name}:--{option}) return ;;")
    return "\n".join(lines)


def bash(commands):
    options = "\n".join(f"        {name}) words='{' '.join('--' + o for o, *_ in rows)} --help' ;;"
                        for name, (_, rows) in commands.items())
    return f"""{BASH_HEAD}_perjoule() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD - 1]}} words=
    local command=${{COMP_WORDS[1]}}
    [ "$before" = -m ] && before=--model
    [ "$before" = -d ] && before=--depth
    if [ "$COMP_CWORD" -eq 1 ]; then
        words='{' '.join(commands)} --version --help'
    else
        case $command:$before in
{bash_values(commands)}
        esac
        if [ -z "$words" ]; then
            case $word:$command in
            -*) case $command in
{options}
                esac ;;
            *:help) words='{' '.join(commands)}' ;;
            *:bench) words='{' '.join(benches())}' ;;
            *:{'|*:'.join(sorted(IDS & set(commands)))}) words=$(_perjoule_runs) ;;
            esac
        fi
    fi
    if [ -n "$words" ]; then
        mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
        [[ ${{COMPREPLY[0]-}} == *: ]] && compopt -o nospace
    else
        compopt -o filenames
        mapfile -t COMPREPLY < <(compgen -f -- "$word")
    fi
}}
complete -F _perjoule perjoule
"""


def quote(text):
    return text.replace("\\", "\\\\").replace("'", "").replace("[", "(").replace("]", ")").replace(":", " ")


def zsh(commands):
    listing = "\n".join(f"        '{name}:{quote(summary)}'" for name, (summary, _) in commands.items())
    cases = ""
    for name, (_, options) in commands.items():
        args = " ".join(f"'--{o}[{quote(h)}]{zsh_value(o, v, c)}'" for o, v, c, h in options)
        cases += f"        {name}) _arguments {args} '*:file:_files' ;;\n"
    return f"""#compdef perjoule
# zsh completion of perjoule; made from the program's own options
_perjoule() {{
    local -a commands
    commands=(
{listing}
    )
    if (( CURRENT == 2 )); then
        _describe command commands
    else
        local name=$words[2]
        shift words; (( CURRENT-- ))
        case $name in
{cases}        esac
    fi
}}
_perjoule "$@"
"""


def zsh_value(option, value, choices):
    if not value:
        return ""
    if choices:
        return f":{option}:({' '.join(choices).replace(':', chr(92) + ':')})"
    return ":value:_files"


def fish(commands):
    lines = ["# fish completion of perjoule; made from the program's own options",
             "complete -c perjoule -f -n __fish_use_subcommand -l version -d 'print the version'"]
    for name, (summary, options) in commands.items():
        lines.append(f"complete -c perjoule -f -n __fish_use_subcommand -a {name} -d '{quote(summary)}'")
        for option, value, choices, text in options:
            given = f" -x -a '{' '.join(choices)}'" if choices else " -r" if value else ""
            lines.append(f"complete -c perjoule -n '__fish_seen_subcommand_from {name}' -l {option}"
                         f"{given} -d '{quote(text)}'")
    return "\n".join(lines) + "\n"


def main():
    commands = read()
    for path, write in zip(sys.argv[2:5], (bash, zsh, fish)):
        with open(path, "w", encoding="utf-8") as out:
            out.write(write(commands))


main()
