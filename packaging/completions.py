#!/usr/bin/env python3
"""Generates shell completions from the program's own lists of options.

Usage: completions.py PROGRAM BASH ZSH FISH

Options and their fixed values are written into the scripts; models, runs, tags, experiments and engines are queried
from the program at completion time (from the database given by --db on the command line).
"""
import os
import re
import subprocess
import sys
from typing import NamedTuple

PROGRAM = sys.argv[1]


class Option(NamedTuple):
    name: str
    letter: str  # letter of the short form, or ""
    value: str  # placeholder of its value, or ""
    choices: list
    text: str
    kind: str  # kind of its value: one of KINDS, "files", "other", or "" without a value


# Values queried from the program. Every script has a shell function perjoule_KIND for each.
KINDS = ("models", "runs", "tags", "experiments", "engines", "stored_models")
# Kind of a command's positional arguments; "files" for commands not listed.
ARGUMENTS = {"show": "runs", "compare": "runs", "export": "runs", "rm": "runs", "report": "runs", "check": "runs",
             "calibrate": "models"}
OF_THE_STORE = {"tag": "tags", "experiment": "experiments", "engine": "engines", "model": "stored_models"}


def output(*words):
    wide = {**os.environ, "COLUMNS": "100"}
    return subprocess.run([PROGRAM, *words], capture_output=True, text=True, check=True, env=wide).stdout


def kind_of(command, option, value):
    if not value:
        return ""
    if re.match(r"FILE|DIR|PLAN", value):
        return "files"
    if value == "MODEL" and option in ("model", "draft"):
        return "models"
    if option in OF_THE_STORE and (command in ("ls", "compare", "report") or option in ("tag", "experiment")):
        return OF_THE_STORE[option]
    return "other"


def read():
    """{command: (summary, [Option])}"""
    found = {}
    for name, summary in re.findall(r"^  (\w+) +(\S.*)$", output("help"), re.M):
        rows = [line.split("\t") for line in output(name, "--list-options").splitlines()]
        letters = {o: letter for letter, o in re.findall(r"^  -(\w), --([\w-]+)", output(name, "--help"), re.M)}
        found[name] = (summary, [Option(o, letters.get(o, ""), value, choices.split(), text, kind_of(name, o, value))
                                 for o, value, choices, text in (r for r in rows if len(r) == 4)])  # bench has subcommands
    return found


def benches():
    return re.findall(r"^  (\w+) ", output("bench", "--help"), re.M)


# ---- queries shared by all three shells ---------------------------------------------------------

# Extract values, one per line, from the program's JSON with grep: quotes inside JSON strings are escaped, so these
# patterns match only members. $1 is the program, the rest --db and its value, or nothing.
ASKS = r"""perjoule_models() { "$1" models --json 2>/dev/null | grep -o '"name":"[^"]*"' | cut -d'"' -f4; }
perjoule_stored() { "$@" --json --limit 200 2>/dev/null; }
perjoule_runs() { echo last; perjoule_stored "$1" ls "${@:2}" | grep -o '"id":"[^"]*"' | cut -d'"' -f4 | head -n 50; }
perjoule_tags() { perjoule_stored "$1" ls "${@:2}" | grep -o '"tags":\["[^]]*\]' | cut -d: -f2- | grep -o '"[^"]*"' | tr -d '"' | sort -u; }
perjoule_experiments() { perjoule_stored "$1" ls "${@:2}" | grep -o '"experiment_name":"[^"]*"' | cut -d'"' -f4 | sort -u; }
perjoule_engines() { perjoule_stored "$1" ls "${@:2}" | grep -o '"engine":"[^"]*"' | cut -d'"' -f4 | sort -u; }
perjoule_stored_models() { perjoule_stored "$1" ls "${@:2}" | grep -o '"model_name":"[^"]*"' | cut -d'"' -f4 | sort -u; }
""".replace("perjoule_", "_perjoule_")
# fish spells positional parameters differently
FISH_ASKS = re.sub(r"^(\w+)\(\) \{ (.*?);? \}$", r"function \1; \2; end", ASKS, flags=re.M).replace(
    '"${@:2}"', "$argv[2..]").replace('"$@"', "$argv").replace('"$1"', "$argv[1]")


def words_of(kind):
    return f'$(_perjoule_{kind} "$program" "${{db[@]}}")' if kind in KINDS else ""


# ---- bash ---------------------------------------------------------------------------------------


def in_lines(words):
    return "$'" + "\\n".join(words) + "'"


def bash_values(commands):
    """case branches "command:--option) words=..." for options whose value is known"""
    lines = []
    for name, (_, options) in commands.items():
        for o in options:
            pattern = f"{name}:--{o.name}" + (f"|{name}:-{o.letter}" if o.letter else "")
            if o.choices:
                lines.append(f"        {pattern}) words={in_lines(o.choices)} ;;")
            elif o.kind in KINDS:
                lines.append(f"        {pattern}) words={words_of(o.kind)} ;;")
            elif o.kind == "files":
                lines.append(f"        {pattern}) _perjoule_files \"$word\"; return ;;")
            elif o.kind:
                lines.append(f"        {pattern}) return ;;")
    return "\n".join(lines)


def bash(commands):
    options = "\n".join(f"            {name}) words={in_lines(['--' + o.name for o in rows] + ['--help'])} ;;"
                        for name, (_, rows) in commands.items())
    arguments = "\n".join(f"            {name}:*) words={words_of(kind)} ;;" for name, kind in ARGUMENTS.items())
    return f"""# bash completion of perjoule; made from the program's own options
{ASKS}_perjoule_files() {{
    compopt -o filenames 2>/dev/null
    while IFS= read -r each; do COMPREPLY+=("$each"); done < <(compgen -f -- "$1")
}}
_perjoule() {{
    local words='' words_so_far=() each glue='' i program=${{COMP_WORDS[0]/#\\~/$HOME}} db=()
    COMPREPLY=()
    # readline splits at : and =, which are parts of a model's name, a source's settings, or --option=value
    for ((i = 0; i <= COMP_CWORD; i++)); do
        each=${{COMP_WORDS[i]}}
        if [[ $i -gt 0 && ( $each =~ ^[:=]+$ || -n $glue ) ]]; then
            words_so_far[${{#words_so_far[@]}} - 1]+=$each
        else
            words_so_far+=("$each")
        fi
        [[ $each =~ ^[:=]+$ ]] && glue=1 || glue=''
    done
    local last=$((${{#words_so_far[@]}} - 1))
    local word=${{words_so_far[last]}} before=${{words_so_far[last - 1]}} command=${{words_so_far[1]}}
    for ((i = 2; i < last; i++)); do
        case ${{words_so_far[i]}} in
        --db) db=(--db "${{words_so_far[i + 1]/#\\~/$HOME}}") ;;
        --db=*) db=(--db "${{words_so_far[i]#--db=}}") ;;
        esac
    done
    local whole=$word
    case $word in --*=*) before=${{word%%=*}} word=${{word#*=}} ;; esac
    if [ "$last" -eq 1 ]; then
        words={in_lines([*commands, '--version', '--help'])}
    else
        case $command:$before in
{bash_values(commands)}
        esac
        if [ -z "$words" ]; then
            case $command:$word in
            *:-*) case $command in
{options}
                esac ;;
            help:*) words={in_lines(commands)} ;;
            bench:*) words={in_lines(benches())} ;;
{arguments}
            esac
        fi
    fi
    [ -n "$words" ] || {{ _perjoule_files "$word"; return; }}
    # what readline holds as the word begins after the last : or =
    local cut=${{whole%"${{whole##*[:=]}}"}} lead=${{whole%"$word"}}
    while IFS= read -r each; do
        printf -v each %q "$each"
        [[ -n $each && $each == "$word"* ]] && each=$lead$each && COMPREPLY+=("${{each#"$cut"}}")
    done <<<"$words"
    [[ ${{COMPREPLY[0]-}} == *: ]] && compopt -o nospace 2>/dev/null
    return 0
}}
complete -F _perjoule perjoule
"""


# ---- zsh ----------------------------------------------------------------------------------------


def quote(text):
    return text.replace("\\", "\\\\").replace("'", "").replace("[", "(").replace("]", ")").replace(":", " ")


def zsh_value(option):
    if not option.value:
        return ""
    if option.choices:
        return f":{option.name}:({' '.join(option.choices).replace(':', chr(92) + ':')})"
    if option.kind in KINDS:
        return f":{option.name}:_perjoule_offer {option.kind}"
    return f":{option.name}:_files" if option.kind == "files" else f":{option.name}: "


def zsh_option(o):
    value, text = zsh_value(o), f"[{quote(o.text)}]"
    return f"'--{o.name}={text}{value}'" if value else f"'--{o.name}{text}'"


def zsh_letter(o):
    return f"'-{o.letter}[{quote(o.text)}]{zsh_value(o)}'" if o.letter else ""


def zsh(commands):
    listing = "\n".join(f"        '{name}:{quote(summary)}'" for name, (summary, _) in commands.items())
    cases = ""
    for name, (_, options) in commands.items():
        args = " ".join(filter(None, [zsh_option(o) for o in options] + [zsh_letter(o) for o in options]))
        rest = f"_perjoule_offer {ARGUMENTS[name]}" if name in ARGUMENTS else "_files"
        if name in ("bench", "help"):
            rest = f"({' '.join(benches() if name == 'bench' else commands)})"
        cases += f"        {name}) _arguments {args} '*:{name}:{rest}' ;;\n"
    return f"""#compdef perjoule
# zsh completion of perjoule; made from the program's own options
{ASKS}
_perjoule_offer() {{
    local -a found db
    local at=${{words[(I)--db]}}
    (( at )) && db=(--db ${{~words[at + 1]}})
    found=(${{(f)"$(_perjoule_$argv[-1] ${{~program}} $db)"}})
    compadd -- $found
}}
_perjoule() {{
    local -a commands
    commands=(
{listing}
    )
    local program=$words[1]
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


# ---- fish ---------------------------------------------------------------------------------------


def fish_offer(kind):
    return f"(_perjoule_offer {kind})"


def fish(commands):
    lines = ["# fish completion of perjoule; made from the program's own options", FISH_ASKS.rstrip(),
             "function _perjoule_offer",
             "    set -l line (commandline -opc)",
             "    set -l program (string replace -r '^~' $HOME -- $line[1])",
             "    set -l at (contains -i -- --db $line)",
             "    and set -l db --db $line[(math $at + 1)]",
             "    _perjoule_$argv[1] $program $db",
             "end",
             "complete -c perjoule -f -n __fish_use_subcommand -l version -d 'print the version'"]
    for name, (summary, options) in commands.items():
        lines.append(f"complete -c perjoule -f -n __fish_use_subcommand -a {name} -d '{quote(summary)}'")
        here = f"complete -c perjoule -n '__fish_seen_subcommand_from {name}'"
        if name in ARGUMENTS:
            lines.append(f"{here} -f -a '{fish_offer(ARGUMENTS[name])}'")
        if name in ("bench", "help"):
            lines.append(f"{here} -f -a '{' '.join(benches() if name == 'bench' else commands)}'")
        for o in options:
            offered = " ".join(o.choices) or (fish_offer(o.kind) if o.kind in KINDS else "")
            given = f" -x -a '{offered}'" if offered else " -x" if o.kind == "other" else " -r" if o.value else ""
            letter = f" -s {o.letter}" if o.letter else ""
            lines.append(f"{here} -l {o.name}{letter}{given} -d '{quote(o.text)}'")
    return "\n".join(lines) + "\n"


def main():
    commands = read()
    for path, write in zip(sys.argv[2:5], (bash, zsh, fish)):
        with open(path, "w", encoding="utf-8") as out:
            out.write(write(commands))


main()
