#!/usr/bin/env python3
"""Writes shell completions from what the program says of itself.

Usage: completions.py PROGRAM BASH ZSH FISH
"""
import re
import subprocess
import sys

PROGRAM = sys.argv[1]


def output(*words):
    return subprocess.run([PROGRAM, *words], capture_output=True, text=True, check=True).stdout


def read():
    """{command: (summary, [(option, takes a value, help)])}"""
    found = {}
    for name, summary in re.findall(r"^  (\w+) +(\S.*)$", output("help").split("Commands:")[1], re.M):
        text = output(name, "--help").split("\nOptions:\n")[-1].split("\nExamples:")[0]
        options = re.findall(r"^ +(?:-\w, )?--([\w-]+)( [A-Z0-9][^ \n]*)?(?:\n)? +(\S.*)$", text, re.M)
        found[name] = (summary, [(o, bool(v), h) for o, v, h in options])
    return found


def bash(commands):
    cases = "".join(
        f"        {name}) words='{' '.join('--' + o for o, _, _ in options)}' ;;\n"
        for name, (_, options) in commands.items())
    return f"""# bash completion of perjoule; made from the program's own options
_perjoule() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} words
    if [ "$COMP_CWORD" -eq 1 ]; then
        words='{' '.join(commands)} --version --help'
    else
        case ${{COMP_WORDS[1]}} in
{cases}        esac
    fi
    case $word in
    -*) mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word") ;;
    *) if [ "$COMP_CWORD" -eq 1 ]; then mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
       else mapfile -t COMPREPLY < <(compgen -f -- "$word"); fi ;;
    esac
}}
complete -o filenames -F _perjoule perjoule
"""


def quote(text):
    return text.replace("\\", "\\\\").replace("'", "").replace("[", "(").replace("]", ")").replace(":", " ")


def zsh(commands):
    listing = "\n".join(f"        '{name}:{quote(summary)}'" for name, (summary, _) in commands.items())
    cases = ""
    for name, (_, options) in commands.items():
        args = " ".join(f"'--{o}[{quote(h)}]{':value:_files' if v else ''}'" for o, v, h in options)
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


def fish(commands):
    lines = ["# fish completion of perjoule; made from the program's own options",
             "complete -c perjoule -f -n __fish_use_subcommand -l version -d 'print the version'"]
    for name, (summary, options) in commands.items():
        lines.append(f"complete -c perjoule -f -n __fish_use_subcommand -a {name} -d '{quote(summary)}'")
        for option, value, text in options:
            lines.append(f"complete -c perjoule -n '__fish_seen_subcommand_from {name}' -l {option}"
                         f"{' -r' if value else ''} -d '{quote(text)}'")
    return "\n".join(lines) + "\n"


def main():
    commands = read()
    for path, write in zip(sys.argv[2:5], (bash, zsh, fish)):
        with open(path, "w", encoding="utf-8") as out:
            out.write(write(commands))


main()
