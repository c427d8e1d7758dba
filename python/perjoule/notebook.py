"""Rich display of a run in notebooks: a table and a small chart, as HTML with inline SVG and no script."""
from __future__ import annotations

from html import escape
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

PHASES = {"pre_inference": "#8c8c8c", "prefill": "#4c78a8", "decode": "#f58518", "post_inference": "#b5b5b5",
          "idle": "#dddddd"}
COMPONENTS = 8  # bars shown by name; the rest are summed up in one
WIDTH, ROW = 520, 18


def per_token(run: Mapping[str, Any]) -> str:
    """Joules of the typical token, by which runs are compared, or of the mean one."""
    typical, mean = run.get("typical_token_energy_mj"), run.get("joules_per_token")
    if typical is not None:
        return f"{typical / 1000:.4g} J (typical)"
    return "unavailable" if mean is None else f"{mean:.4g} J (mean)"


def _joules(mj: Optional[float]) -> str:
    return "unavailable" if mj is None else f"{mj / 1000:.4g} J"


def _bars(title: str, values: Sequence[Tuple[str, Optional[float], str]], unit: str) -> str:
    """Horizontal bars (label, value, colour) with their values written beside them."""
    largest = max((v for _, v, _ in values if v), default=0) or 1
    height = ROW * (len(values) + 1) + 4
    parts = [f'<svg width="{WIDTH}" height="{height}" role="img" aria-label="{escape(title)}" '
             f'style="font:12px sans-serif;fill:currentColor">', f'<text x="0" y="13" font-weight="bold">{escape(title)}</text>']
    for i, (label, value, colour) in enumerate(values, 1):
        y = i * ROW + 2
        width = 0 if value is None else max(1.0, 230 * max(value, 0) / largest)
        said = "unavailable" if value is None else f"{value:.4g} {unit}"
        parts.append(f'<text x="0" y="{y + 12}">{escape(label)}</text>'
                     f'<rect x="190" y="{y + 2}" width="{width:.1f}" height="12" fill="{colour}"/>'
                     f'<text x="{196 + width:.1f}" y="{y + 12}">{said}</text>')
    return "".join(parts) + "</svg>"


def _sums(rows: Sequence[Mapping[str, Any]], key: str, value: str) -> Dict[str, Optional[float]]:
    out: Dict[str, Optional[float]] = {}
    for row in rows:
        known = row[value]
        out[row[key]] = None if known is None and out.get(row[key]) is None else (out.get(row[key]) or 0) + (known or 0)
    return out


def picture_of(run: Mapping[str, Any], phases: Sequence[Mapping[str, Any]],
               components: Sequence[Mapping[str, Any]]) -> str:
    """A run: its figures, energy (or time, where none was measured) of its phases and components."""
    has_energy = run.get("total_energy_mj") is not None
    value, unit, scale = ("energy_mj", "J", 1000) if has_energy else ("duration_ms", "ms", 1)
    what = "Energy" if has_energy else "Time"
    by_phase = [(name, None if v is None else v / scale, PHASES.get(name, "#999"))
                for name, v in _sums(phases, "phase", value).items()]
    sums = _sums(components, "component_name", "energy_mj" if has_energy else "time_ms")
    ordered = sorted(((n, v) for n, v in sums.items() if v is not None), key=lambda x: -x[1])
    by_component = [(n, v / scale, "#54a24b") for n, v in ordered[:COMPONENTS]]
    if len(ordered) > COMPONENTS:
        by_component.append((f"{len(ordered) - COMPONENTS} others", sum(v for _, v in ordered[COMPONENTS:]) / scale, "#b5b5b5"))
    facts = [("run", run.get("id")), ("model", run.get("model_name")), ("status", run.get("status")),
             ("energy", f"{_joules(run.get('total_energy_mj'))} ({run.get('energy_source')})"),
             ("per token", per_token(run))]
    cells = "".join(f"<tr><th style='text-align:left'>{escape(n)}</th><td>{escape(str(v))}</td></tr>" for n, v in facts)
    parts: List[str] = [f"<div><table>{cells}</table>", _bars(f"{what} by phase", by_phase, unit)]
    if by_component:
        parts.append("<br/>" + _bars(f"{what} by component", by_component, unit))
    return "".join(parts) + "</div>"


def table_of(runs: Sequence[Mapping[str, Any]]) -> str:
    """A list of runs."""
    head = "".join(f"<th>{n}</th>" for n in ("run", "model", "status", "tokens", "energy", "per token", "source"))
    rows = []
    for r in runs:
        cells = (r["id"][:18], r.get("model_name"), r.get("status"), r.get("output_tokens"),
                 _joules(r.get("total_energy_mj")), per_token(r),
                 r.get("energy_source"))
        rows.append("<tr>" + "".join(f"<td>{escape(str(c))}</td>" for c in cells) + "</tr>")
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
