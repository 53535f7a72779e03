"""How the report looks, and what it can do: style sheet and script, inside the file."""

from __future__ import annotations

STYLE = """
:root { color-scheme: light dark; --paper: #fbfbfa; --card: #fff; --ink: #1c1e21; --soft: #62676e; --line: #e2e3e5;
  --met: #1a7f4b; --not: #c2342b; --none: #858b93; --accent: #3a5fcd; --warn: #fff4d6; }
@media (prefers-color-scheme: dark) { :root { --paper: #15171a; --card: #1d2024; --ink: #e6e7e9; --soft: #9aa0a8;
  --line: #33373d; --met: #4cc38a; --not: #ff7b6e; --none: #7d848d; --accent: #8fa8ff; --warn: #3a3116; }
  figure img { filter: invert(0.9) hue-rotate(180deg) brightness(1.35); } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 76rem; padding: 2.5rem 1.5rem 4rem; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
h1 { font-size: 1.9rem; margin: 0; letter-spacing: -0.02em; }
h2 { font-size: 1.25rem; margin: 2.8rem 0 0.8rem; padding-top: 0.9rem; border-top: 1px solid var(--line); }
p { margin: 0.3rem 0 0.8rem; max-width: 60rem; } .soft { color: var(--soft); }
nav { margin: 0.9rem 0 0; display: flex; flex-wrap: wrap; gap: 0.3rem 1.1rem; }
a { color: var(--accent); text-decoration: none; } a:hover { text-decoration: underline; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(9rem, 1fr)); gap: 0.8rem; margin: 1.4rem 0 0; }
.tile { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 0.8rem 1.1rem; }
.tile b { display: block; font-size: 1.9rem; line-height: 1.2; font-variant-numeric: tabular-nums; }
.note { background: var(--warn); border-radius: 8px; padding: 0.6rem 1rem; margin-top: 1.2rem; max-width: none; }
.scroll { overflow-x: auto; background: var(--card); border: 1px solid var(--line); border-radius: 10px; }
table { border-collapse: collapse; width: 100%; font-size: 0.87rem; font-variant-numeric: tabular-nums; }
th, td { padding: 0.32rem 0.8rem; text-align: right; white-space: nowrap; border-top: 1px solid var(--line); }
th { color: var(--soft); font-weight: 600; border-top: 0; }
th:first-child, td:first-child, .words { text-align: left; } .words { white-space: normal; min-width: 27rem; }
tbody tr:hover { background: color-mix(in srgb, var(--accent) 7%, transparent); }
table.sortable th { cursor: pointer; } table.sortable th:hover { color: var(--accent); }
.met { color: var(--met); } .not { color: var(--not); font-weight: 600; } .none { color: var(--none); }
svg.gauge { display: block; } svg .bound { stroke: var(--soft); } svg .fine { fill: var(--met); opacity: 0.13; }
svg.met circle { fill: var(--met); } svg.met .span { stroke: var(--met); }
svg.not circle { fill: var(--not); } svg.not .span { stroke: var(--not); }
figure { margin: 1.2rem 0; background: var(--card); border: 1px solid var(--line); border-radius: 10px;
  padding: 1rem; overflow-x: auto; }
figure img { display: block; max-width: 100%; height: auto; margin: auto; }
details { margin: 0.1rem 0; } summary { cursor: pointer; padding: 0.15rem 0; }
details[open] { margin: 0.6rem 0 1rem; }
details .scroll { margin-top: 0.4rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0.15rem 1.5rem; margin: 0; font-size: 0.92rem; }
dt { color: var(--soft); } dd { margin: 0; }
pre { overflow-x: auto; font-size: 0.8rem; background: var(--card); border: 1px solid var(--line);
  border-radius: 8px; padding: 0.8rem; }
ul { padding-left: 1.2rem; } li { margin: 0.15rem 0; overflow-wrap: anywhere; }
@media print { body { max-width: none; padding: 0; } }
"""

# A click on a head sorts by that column, a second one the other way round: numbers by their value, words as such.
SCRIPT = """
document.querySelectorAll("table.sortable th").forEach((head) => head.addEventListener("click", () => {
  const column = head.cellIndex, body = head.closest("table").tBodies[0];
  const down = head.dataset.down = head.dataset.down === "1" ? "0" : "1";
  const value = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent;
  const order = (a, b) => value(a).localeCompare(value(b), "en", { numeric: true });
  [...body.rows].sort((a, b) => (down === "1" ? order(a, b) : order(b, a))).forEach((row) => body.append(row));
}));
"""
