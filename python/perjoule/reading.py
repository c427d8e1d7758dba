"""Stored runs: perjoule.open(database).runs(), as rows for pandas and polars, compared and reported.

Figures that a run lacks are None (a missing value in a table), never 0.
"""
from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
import subprocess
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Mapping, Optional, Sequence, Union, overload

if TYPE_CHECKING:
    from typing import SupportsIndex

from .notebook import per_token, picture_of, table_of, with_interval

# of steps, and of sections outside them: kernels of a CUDA program
COMPONENTS = (
    "WITH this(id) AS (SELECT ?) SELECT * FROM components_of_runs WHERE run_id = (SELECT id FROM this) UNION ALL "
    "SELECT s.run_id, s.phase, NULL, NULL, NULL, NULL, NULL, c.id, c.component_name, c.time_ms, c.energy_mj, "
    "c.net_energy_mj, c.energy_sd_mj, c.method, c.flops_estimate, c.bytes_estimate, c.activation_mean, "
    "c.activation_std, c.activation_max, c.activation_sparsity FROM pipeline_sections s CROSS JOIN component_metrics c ON c.section_id = s.id WHERE "
    "s.run_id = (SELECT id FROM this) AND c.layer_metric_id IS NULL AND c.token_id IS NULL AND c.step_id IS NULL")

TABLES = {
    # tables of to_pandas and to_polars: name -> query with the run's id
    "tokens": "SELECT position, sequence, text, phase, start_ms, duration_ms, energy_mj, net_energy_mj, energy_sd_mj, "
              "net_energy_sd_mj, power_snapshot_mw, method FROM tokens WHERE run_id = ? ORDER BY position, sequence",
    "components": COMPONENTS,
    "phases": "SELECT phase, start_ms, duration_ms, energy_mj, net_energy_mj, energy_sd_mj, net_energy_sd_mj, method "
              "FROM run_phases WHERE run_id = ? ORDER BY start_ms",
    "sections": "SELECT phase, section_name, start_ms, duration_ms, energy_mj, net_energy_mj, energy_sd_mj, "
                "net_energy_sd_mj FROM pipeline_sections WHERE run_id = ? ORDER BY start_ms",
    "power": "SELECT timestamp_ms, cpu_power_mw, gpu_power_mw, ane_power_mw, dram_power_mw, total_power_mw, phase FROM "
             "power_samples WHERE run_id = ? ORDER BY timestamp_ms",
    # the errors of parts of one run are mostly common, so their sum is an upper bound
    "energy_by_component": "SELECT phase, component_name, count(*) AS count, sum(time_ms) AS time_ms, "
                           "sum(energy_mj) AS energy_mj, sum(flops_estimate) AS flops, sum(bytes_estimate) AS bytes, "
                           "sum(energy_sd_mj) AS energy_sd_mj FROM (" + COMPONENTS + ") "
                           "GROUP BY phase, component_name",
}


def _installed() -> Optional[str]:
    """The program that came with this package, also where its environment is not on the PATH."""
    from importlib.metadata import PackageNotFoundError, files

    try:
        for file in files("perjoule") or []:
            path = os.path.normpath(os.fspath(file.locate()))
            if file.name == "perjoule" and os.path.isfile(path) and os.access(path, os.X_OK):
                return path
    except PackageNotFoundError:  # run from its sources
        pass
    return None


def program() -> str:
    """The perjoule program: PERJOULE_PROGRAM, the one that came with this package, or the one on the PATH."""
    found = os.environ.get("PERJOULE_PROGRAM") or _installed() or shutil.which("perjoule")
    if not found:
        raise FileNotFoundError("this package was installed without the perjoule program (only wheels for Linux contain it) and "
                                "there is none on the PATH: install it, or set PERJOULE_PROGRAM")
    return found


def _ask(arguments: Sequence[str], database: str) -> str:
    done = subprocess.run([program(), *arguments, "--db", database], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip() or f"perjoule {arguments[0]} failed with {done.returncode}")
    return done.stdout


class StoredRun:
    """One run of a database: a mapping of its columns, with tables below."""

    def __init__(self, database: "Database", row: Mapping[str, Any]):
        self._database, self._row = database, dict(row)
        for name in ("tags", "settings", "model", "conditions"):
            if isinstance(self._row.get(name), str):
                try:
                    self._row[name] = json.loads(self._row[name])
                except ValueError:
                    pass

    @property
    def id(self) -> str:
        return str(self._row["id"])

    def __getitem__(self, name: str) -> Any:
        return self._row[name]

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["_row"][name]
        except KeyError:
            raise AttributeError(name) from None

    def keys(self) -> List[str]:
        return list(self._row)

    def __iter__(self) -> Iterator[str]:
        return iter(self._row)

    def __len__(self) -> int:
        return len(self._row)

    def __contains__(self, name: object) -> bool:
        return name in self._row

    def get(self, name: str, default: Any = None) -> Any:
        return self._row.get(name, default)

    def rows(self, table: str = "tokens") -> List[Dict[str, Any]]:
        """The rows of one of TABLES."""
        if table not in TABLES:
            raise ValueError(f"a table is one of {', '.join(TABLES)}, not {table!r}")
        return self._database._rows(TABLES[table], self.id)

    def requests(self) -> List[Dict[str, Any]]:
        """The requests of a server's run, each with its allocated energy; None where that is unavailable."""
        settings = self._row.get("settings")
        listed = settings.get("requests", []) if isinstance(settings, dict) else []
        query = "SELECT sequence, sum(energy_mj) AS mj, count(*) - count(energy_mj) AS unknown FROM tokens WHERE run_id = ? GROUP BY 1"
        shares = {row["sequence"]: row["mj"] if not row["unknown"] else None for row in self._database._rows(query, self.id)}
        return [{**request, "energy_mj": shares.get(i)} for i, request in enumerate(listed)]

    def to_pandas(self, table: str = "tokens") -> Any:
        import pandas  # type: ignore[import-untyped,import-not-found,unused-ignore]

        rows = self.rows(table)
        return pandas.DataFrame(rows) if rows else pandas.DataFrame(columns=self._columns(table))

    def to_polars(self, table: str = "tokens") -> Any:
        import polars  # type: ignore[import-not-found,unused-ignore]

        rows = self.rows(table)
        return polars.DataFrame(rows, infer_schema_length=None) if rows else polars.DataFrame(schema=self._columns(table))

    def _columns(self, table: str) -> List[str]:
        return self._database._columns(TABLES[table], self.id)

    def compare(self, *others: Union["StoredRun", str]) -> Mapping[str, Any]:
        """The comparison of this run with others, as returned by the API."""
        return self._database.compare(self, *others)

    def report(self, path: str) -> str:
        """Writes the report that `perjoule report` makes; returns its path."""
        return self._database.report(path, self)

    def __repr__(self) -> str:
        energy = f"energy {with_interval(self._row.get('total_energy_mj'), self._row.get('total_energy_sd_mj'), 'J', 1000)}"
        if self._row.get("joules_per_token") is not None:
            energy = f"{per_token(self._row)} per token"
        return f"<run {self.id}: {self._row.get('model_name')}, {self._row.get('status')}, {energy}>"

    def _repr_html_(self) -> str:
        return picture_of(self._row, self.rows("phases"), self.rows("energy_by_component"))


class Runs(List["StoredRun"]):
    """Runs, newest first."""

    @overload
    def __getitem__(self, index: "SupportsIndex") -> StoredRun: ...

    @overload
    def __getitem__(self, index: slice) -> "Runs": ...

    def __getitem__(self, index: Union["SupportsIndex", slice]) -> Union[StoredRun, "Runs"]:
        return Runs(super().__getitem__(index)) if isinstance(index, slice) else super().__getitem__(index)

    def to_pandas(self) -> Any:
        import pandas  # type: ignore[import-untyped,import-not-found,unused-ignore]

        return pandas.DataFrame([dict(r._row) for r in self])

    def to_polars(self) -> Any:
        """One row per run; objects and lists, whose members differ from run to run, as JSON."""
        import polars  # type: ignore[import-not-found,unused-ignore]

        nested = {k for r in self for k, v in r._row.items() if isinstance(v, (dict, list))}
        flat = [{k: json.dumps(v) if k in nested and v is not None else v for k, v in r._row.items()} for r in self]
        return polars.DataFrame(flat, infer_schema_length=None)

    def _repr_html_(self) -> str:
        return table_of([r._row for r in self])


class Database:
    """A perjoule database, opened for reading."""

    def __init__(self, path: str):
        if str(path).startswith(("postgres://", "postgresql://")):
            raise ValueError("runs in PostgreSQL are read by the program (perjoule ls, show, export), not here")
        self.path = os.path.abspath(os.path.expanduser(os.fspath(path)))
        if not os.path.exists(self.path):
            raise FileNotFoundError(f"{self.path} does not exist: no run has been stored there")
        try:
            self._rows("SELECT id FROM profiling_runs LIMIT 1")
        except sqlite3.Error as e:
            raise ValueError(f"{self.path} is not a perjoule database: {e}") from None

    def _rows(self, query: str, *values: Any) -> List[Dict[str, Any]]:
        connection = sqlite3.connect(f"file:{self.path}?mode=ro", uri=True)
        try:
            connection.row_factory = sqlite3.Row
            return [dict(row) for row in connection.execute(query, values)]
        finally:
            connection.close()

    def _columns(self, query: str, *values: Any) -> List[str]:
        connection = sqlite3.connect(f"file:{self.path}?mode=ro", uri=True)
        try:
            return [column[0] for column in connection.execute(query, values).description]
        finally:
            connection.close()

    def runs(self, tag: Optional[str] = None, model: Optional[str] = None, experiment: Optional[str] = None,
             status: Optional[str] = None, limit: Optional[int] = None) -> Runs:
        """The runs that match, newest first."""
        wanted = [("EXISTS (SELECT 1 FROM run_tags t WHERE t.run_id = r.id AND t.tag = ?)", tag),
                  ("r.model_name = ?", model), ("r.experiment_name = ?", experiment), ("r.status = ?", status)]
        conditions = [(sql, value) for sql, value in wanted if value is not None]
        where = " AND ".join(sql for sql, _ in conditions) or "1"
        query = f"SELECT * FROM profiling_runs r WHERE {where} ORDER BY r.created_ns DESC LIMIT ?"
        rows = self._rows(query, *(value for _, value in conditions), -1 if limit is None else limit)
        return Runs(StoredRun(self, row) for row in rows)

    def run(self, id: str = "last") -> StoredRun:
        """A run by its id, a unique prefix of it, "last", or "last~N": the N-th before the last."""
        if not isinstance(id, str):
            raise TypeError(f"a run is named by its id, not by {id!r}")
        counted = re.fullmatch(r"last(?:~([0-9]{1,9}))?", id)
        if counted:
            found = self._rows("SELECT * FROM profiling_runs ORDER BY created_ns DESC LIMIT 1 OFFSET ?",
                               int(counted.group(1) or 0))
        else:
            begin = id.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
            found = self._rows("SELECT * FROM profiling_runs WHERE id LIKE ? ESCAPE '\\' LIMIT 2", begin + "%")
        if len(found) != 1:
            raise KeyError(f"{'several runs begin' if found else 'no run begins'} with {id!r}")
        return StoredRun(self, found[0])

    def compare(self, *runs: Union[StoredRun, str]) -> Mapping[str, Any]:
        ids = [r if isinstance(r, str) else r.id for r in runs]
        said: Mapping[str, Any] = json.loads(_ask(["compare", *ids, "--json"], self.path))
        return said

    def report(self, path: str, *runs: Union[StoredRun, str]) -> str:
        ids = [r if isinstance(r, str) else r.id for r in runs]
        _ask(["report", *ids, "-o", path], self.path)
        return path

    def __iter__(self) -> Iterator[StoredRun]:
        return iter(self.runs())

    def __repr__(self) -> str:
        return f"<perjoule database {self.path}>"


def compare(*runs: Union[StoredRun, str], database: Optional[str] = None) -> Mapping[str, Any]:
    """Compares stored runs, given as such or by their ids, as `perjoule compare` does. `database`: of ids; default as in
    open()."""
    stored = [r._database for r in runs if isinstance(r, StoredRun)]
    if any(base.path != stored[0].path for base in stored):
        raise ValueError("these runs are in different databases: perjoule import brings them together")
    base = stored[0] if stored and database is None else open(database)
    return base.compare(*runs)


def open(database: Optional[str] = None) -> Database:
    """Opens a database for reading; default PERJOULE_DB, else the user's own."""
    if database is None:
        database = os.environ.get("PERJOULE_DB")
    if database is None:
        home = os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")
        database = os.path.join(home, "perjoule", "perjoule.db")
    return Database(database)
