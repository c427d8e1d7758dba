#!/usr/bin/env python3
"""Fails when a function declared in a header of src/ or bench/ is dead or should be static.

Dead: no source file calls it (functions that exist for tests are listed below with the reason).
Should be static: only its own file calls it, and no test. Usage: check_dead.py ROOT
"""
import collections
import pathlib
import re
import sys

# Functions that exist for tests: name -> why production code does not call them.
FOR_TESTS = {
    "pj_memory_count": "counts allocations of paths that must make none",
    "pj_memory_fail_after": "fault injection",
    "pj_chat_parse": "a template without a model folder",
    "pj_tokenizer_parse": "a tokenizer without a file",
    "pj_spool_reader_memory": "a spool without a file, also for the fuzzer",
    "pj_server_add": "a server without a port, also for the fuzzer",
    "pj_server_poll": "the server on the caller's thread, for the fuzzer",
    "pj_session_settle": "waits for the recovery of leftover spools",
    "pj_tokenizer_find": "the id of a token by its spelling",
    "pj_tokenizer_is_special": "flags that an added token was read with",
    "pj_token_stream_work": "counts decoded ids: the time of a stream must be linear",
    "pj_vk_is_validated": "whether the tests were watched by the validation layer",
    "pj_vk_memory_used": "that nothing is left",
    "pj_vk_download": "what a kernel computed",
}
DECLARED = re.compile(r"^(?!static|typedef|#|return)[a-z][\w ]*[ *]\**(pj_\w+)\(", re.M)
WORD = re.compile(r"\bpj_\w+")
COMMENT = re.compile(r"/\*.*?\*/|(?<!:)//[^\n]*", re.S)


def read(root, folders):
    """Without absent.c, the other half of a file that a build may lack."""
    return {path: COMMENT.sub("", path.read_text())
            for folder in folders for path in (root / folder).rglob("*.[chS]") if path.name != "absent.c"}


def uses(texts):
    found = collections.defaultdict(dict)
    for path, text in texts.items():
        for word, count in collections.Counter(WORD.findall(text)).items():
            found[word][path] = count
    return found


def verdicts(root):
    texts = read(root, ["src", "bench"])
    here, in_tests = uses(texts), uses(read(root, ["tests", "fuzz"]))
    for path, text in sorted(texts.items()):
        for name in DECLARED.findall(text) if path.suffix == ".h" else []:
            sources = {p: n for p, n in here[name].items() if p != path or n > 1}
            homes = {p for p in sources if re.search(rf"^[a-z].*\b{name}\(", texts[p], re.M)}
            if len(sources) > len(homes) or path in homes:
                continue
            if all(sources[p] == 1 for p in homes):
                if name not in FOR_TESTS:
                    yield f"{path.relative_to(root)}: nothing calls {name}" + (
                        " except tests" if name in in_tests else "")
            elif name not in in_tests:
                yield f"{path.relative_to(root)}: {name} should be static in its file"
    yield from (f"{name} needs no exception" for name in FOR_TESTS
                if name not in in_tests or len(here[name]) != 2)


def main():
    found = list(verdicts(pathlib.Path(sys.argv[1])))
    print("\n".join(found) or "dead functions: none")
    return 1 if found else 0


sys.exit(main())
