"""Rich display in notebooks: of runs a table and a small chart, as HTML with inline SVG and no script. No energy is shown
without its interval."""
from __future__ import annotations

from html import escape
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

PHASES = {"pre_inference": "#8c8c8c", "prefill": "#4c78a8", "decode": "#f58518", "post_inference": "#b5b5b5",
          "idle": "#dddddd"}
COMPONENTS = 8  # bars shown by name; the rest are summed up in one
WIDTH, ROW = 520, 18


NORMAL_95 = 1.96
Figure = Tuple[Optional[float], Optional[float]]  # a value and its standard deviation; None: unavailable


def with_interval(value: Optional[float], sd: Optional[float], unit: str = "J", per_unit: float = 1) -> str:
    """An energy with half of its 95 % interval, both divided by `per_unit`."""
    if value is None:
        return "unavailable"
    half = "" if sd is None else f" \u00b1 {NORMAL_95 * sd / per_unit:.2g}"
    return f"{value / per_unit:.4g}{half} {unit}" + (" (interval unknown)" if sd is None else "")


def _bars(title: str, values: Sequence[Tuple[str, Optional[float], str, str]]) -> str:
    """Horizontal bars (label, value, the value as text, colour) with the text beside them."""
    largest = max((v for _, v, _, _ in values if v), default=0) or 1
    height = ROW * (len(values) + 1) + 4
    parts = [f'<svg width="{WIDTH}" height="{height}" role="img" aria-label="{escape(title)}" '
             f'style="font:12px sans-serif;fill:currentColor">', f'<text x="0" y="13" font-weight="bold">{escape(title)}</text>']
    for i, (label, value, said, colour) in enumerate(values, 1):
        y = i * ROW + 2
        width = 0 if value is None else max(1.0, 230 * max(value, 0) / largest)
        parts.append(f'<text x="0" y="{y + 12}">{escape(label)}</text>'
                     f'<rect x="190" y="{y + 2}" width="{width:.1f}" height="12" fill="{colour}"/>'
                     f'<text x="{196 + width:.1f}" y="{y + 12}">{said}</text>')
    return "".join(parts) + "</svg>"


def said(energy: Any, source: Optional[str] = None) -> str:
    """An energy (session.Energy) as text."""
    return "unavailable" if energy is None else f"{energy} ({source})" if source else str(energy)


def table(rows: Iterable[Tuple[str, Any]], caption: Optional[str] = None) -> str:
    """Named figures, one below the other."""
    cells = "".join(f"<tr><th style='text-align:left'>{escape(n)}</th><td>{escape(str(v))}</td></tr>" for n, v in rows)
    return f"<table>{f'<caption>{escape(caption)}</caption>' if caption else ''}{cells}</table>"


def window_table(window: Any, name: Optional[str] = None) -> str:
    """A measured window (session.WindowResult, None: it has not ended): its figures and those of its rails."""
    if window is None:
        return table([("time", "not measured yet"), ("energy", "unavailable")], name)
    return table([("time", f"{window.duration_ms / 1000:.4g} s"), ("energy", said(window.energy, window.energy_source)),
                  *((rail, said(energy)) for rail, energy in window.rails.items())], name)


def result_table(result: Any) -> str:
    """A run that has ended (session.Result)."""
    return table([("run", result.run_id), ("status", result.status), ("energy", said(result.energy, result.energy_source)),
                  ("above idle", said(result.energy_net)), ("per token", per_token(result.summary)),
                  *((name, f"{phase.duration_ms:.4g} ms, {said(phase.energy)}") for name, phase in result.phases.items())])


def _sums(rows: Sequence[Mapping[str, Any]], key: str, value: str) -> Dict[str, Figure]:
    """Sums of the known values and of their standard deviations: an upper bound, as their errors are mostly common."""
    out: Dict[str, Figure] = {}
    for row in rows:
        known, sd = out.get(row[key], (None, 0.0))
        if row[value] is not None:
            more = row.get("energy_sd_mj")
            known, sd = (known or 0) + row[value], None if sd is None or more is None else sd + more
        out[row[key]] = known, sd
    return out


def _energy_of(run: Mapping[str, Any]) -> str:
    return with_interval(run.get("total_energy_mj"), run.get("total_energy_sd_mj"), "J", 1000)


def per_token(run: Mapping[str, Any]) -> str:
    """Joules of the typical token, by which runs are compared, or of the mean one."""
    typical, mean = run.get("typical_token_energy_mj"), run.get("joules_per_token")
    if typical is not None:
        return with_interval(typical, run.get("typical_token_energy_sd_mj"), "J", 1000) + " (typical)"
    return with_interval(mean, run.get("joules_per_token_sd")) + ("" if mean is None else " (mean)")


def picture_of(run: Mapping[str, Any], phases: Sequence[Mapping[str, Any]],
               components: Sequence[Mapping[str, Any]]) -> str:
    """A run: its figures, energy (or time, where none was measured) of its phases and components."""
    has_energy = run.get("total_energy_mj") is not None
    what = "Energy" if has_energy else "Time"

    def bar(label: str, figure: Figure, colour: str) -> Tuple[str, Optional[float], str, str]:
        value, sd = figure
        if has_energy:
            return label, value, with_interval(value, sd, "J", 1000), colour
        return label, value, "unavailable" if value is None else f"{value:.4g} ms", colour

    by_phase = [bar(name, figure, PHASES.get(name, "#999"))
                for name, figure in _sums(phases, "phase", "energy_mj" if has_energy else "duration_ms").items()]
    sums = _sums(components, "component_name", "energy_mj" if has_energy else "time_ms")
    ordered = sorted(((name, figure) for name, figure in sums.items() if figure[0] is not None),
                     key=lambda each: -(each[1][0] or 0))
    by_component = [bar(name, figure, "#54a24b") for name, figure in ordered[:COMPONENTS]]
    if len(ordered) > COMPONENTS:
        others = [{"name": "others", "value": value, "energy_sd_mj": sd} for _, (value, sd) in ordered[COMPONENTS:]]
        by_component.append(bar(f"{len(others)} others", _sums(others, "name", "value")["others"], "#b5b5b5"))
    facts = [("run", run.get("id")), ("model", run.get("model_name")), ("status", run.get("status")),
             ("energy", f"{_energy_of(run)} ({run.get('energy_source')})"), ("per token", per_token(run))]
    parts: List[str] = [f"<div>{table(facts)}", _bars(f"{what} by phase", by_phase)]
    if by_component:
        parts.append("<br/>" + _bars(f"{what} by component", by_component))
    return "".join(parts) + "</div>"


def table_of(runs: Sequence[Mapping[str, Any]]) -> str:
    """A list of runs."""
    head = "".join(f"<th>{n}</th>" for n in ("run", "model", "status", "tokens", "energy", "per token", "source"))
    rows = []
    for r in runs:
        cells = (r["id"][:18], r.get("model_name"), r.get("status"), r.get("output_tokens"),
                 _energy_of(r), per_token(r),
                 r.get("energy_source"))
        rows.append("<tr>" + "".join(f"<td>{escape(str(c))}</td>" for c in cells) + "</tr>")
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
