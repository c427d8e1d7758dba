"""What tools/device-check.sh found: rows, written as a Markdown table and as JSON after every check."""
import contextlib
import json
import pathlib
import time

RESULTS = ("ok", "bad", "info", "skipped")


class Report:
    def __init__(self, folder, seconds):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.began = time.monotonic()
        self.until = self.began + seconds
        self.rows, self.facts = [], {}

    def left(self):
        """Seconds until what is being checked must be done."""
        return self.until - time.monotonic()

    @contextlib.contextmanager
    def allow(self, seconds):
        """Limits what is checked inside to so many seconds, and to what is left of the whole."""
        until = self.until
        self.until = min(until, time.monotonic() + seconds)
        try:
            yield
        finally:
            self.until = until

    def add(self, part, check, result, text, **figures):
        assert result in RESULTS, result
        self.rows.append({"part": part, "check": check, "result": result, "text": text, "figures": figures})
        print(f"{result:8}{part}: {check}: {text}", flush=True)
        self.write()

    def judge(self, part, check, holds, text, **figures):
        self.add(part, check, "ok" if holds else "bad", text, **figures)

    def failed(self):
        return sum(row["result"] == "bad" for row in self.rows)

    def markdown(self):
        cell = lambda text: str(text).replace("|", "\\|").replace("\n", " ")
        lines = [f"{self.facts.get('device', 'no device')}, {self.facts.get('driver') or 'no driver'}", "",
                 "| part | check | result | |", "|---|---|---|---|"]
        lines += [f"| {cell(r['part'])} | {cell(r['check'])} | {r['result']} | {cell(r['text'])} |" for r in self.rows]
        return "\n".join(lines) + "\n"

    def write(self):
        """The table and the figures so far: a machine may be taken away at any time."""
        (self.folder / "device-check.md").write_text(self.markdown())
        whole = {"facts": self.facts, "seconds": round(time.monotonic() - self.began, 1), "failed": self.failed(), "rows": self.rows}
        (self.folder / "device-check.json").write_text(json.dumps(whole, indent=1) + "\n")
