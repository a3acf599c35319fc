#include "inspect_page/page_html.hpp"

namespace VIGIL_DETAIL {

const constinit std::string_view page_style = R"css(
:root { color-scheme: light dark; --line: #8886; --bar: #3a7bd5; --quiet: #888; }
body { margin: 0; font: 14px/1.45 system-ui, sans-serif; }
header { position: sticky; top: 0; display: flex; gap: 12px; align-items: center;
  flex-wrap: wrap; padding: 8px 16px; border-bottom: 1px solid var(--line);
  background: Canvas; }
h1 { font-size: 18px; margin: 0; }
h2 { font-size: 15px; margin: 0 0 6px; }
h3 { font-size: 13px; margin: 8px 0 4px; font-weight: 600; }
#summary { flex: 1; }
#state { color: var(--quiet); }
main { padding: 12px 16px; display: grid; gap: 20px; }
section { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: 2px 12px 2px 0; border-bottom: 1px solid var(--line);
  vertical-align: top; }
th { color: var(--quiet); font: 14px/1.45 system-ui, sans-serif; }
th button { all: unset; cursor: pointer; }
th button:focus-visible, .group:focus-visible { outline: 2px solid var(--bar); }
th[aria-sort=ascending] button::after { content: " \25B4"; }
th[aria-sort=descending] button::after { content: " \25BE"; }
.group { cursor: pointer; }
.group:hover { background: #8882; }
.object { overflow-wrap: anywhere; }
.place { overflow-wrap: break-word; }
.detail canvas { border: 1px solid var(--line); max-width: 100%; }
.detail p { margin: 6px 0; }
.detail pre { box-sizing: border-box; width: 0; min-width: 100%; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
td.place, pre { font-family: ui-monospace, monospace; font-size: 12px; }
/* The columns are the same in each row, however long its text is. */
.worker { display: grid; grid-template-columns: 90px auto minmax(0, 1fr); gap: 2px 10px;
  margin: 2px 0; line-height: 24px; }
.worker .label { white-space: nowrap; }
.worker canvas { border: 1px solid var(--line); }
.worker .now { overflow-wrap: anywhere; }
.bar { display: flex; gap: 8px; align-items: center; font-size: 12px; }
.bar .label { width: 80px; text-align: right; }
.bar .fill { background: var(--bar); height: 10px; }
pre { border: 1px solid var(--line); padding: 8px; max-height: 60vh; overflow: auto; }
/* A row becomes a block, with a line for each cell under the cell's head. */
@media (max-width: 900px) {
  table, tbody, thead, .group, #deadlines tr, .detail, .detail td { display: block; }
  thead tr { display: flex; flex-wrap: wrap; gap: 2px 14px; }
  th { border: 0; padding: 0; }
  tbody tr { border-bottom: 1px solid var(--line); padding: 4px 0; }
  tr:not(.detail) > td { display: flex; gap: 10px; border: 0; padding: 0; text-align: left;
    white-space: normal; }
  tr:not(.detail) > td::before { content: attr(data-head); color: var(--quiet); flex: none;
    width: 130px; font: 14px/1.45 system-ui, sans-serif; }
  td:empty { display: none !important; }
  .worker { grid-template-columns: 90px minmax(0, 1fr); }
  .worker canvas { box-sizing: border-box; max-width: 100%; }
  .worker .now { grid-column: 2; }
}
)css";

}  // namespace VIGIL_DETAIL
