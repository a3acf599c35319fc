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
th { color: var(--quiet); font-weight: normal; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.place, pre { font-family: ui-monospace, monospace; font-size: 12px; }
.worker { display: flex; gap: 10px; align-items: center; margin: 2px 0; }
.worker .label { width: 90px; white-space: nowrap; }
.worker canvas { border: 1px solid var(--line); }
.bar { display: flex; gap: 8px; align-items: center; font-size: 12px; }
.bar .label { width: 80px; text-align: right; }
.bar .fill { background: var(--bar); height: 10px; }
pre { border: 1px solid var(--line); padding: 8px; max-height: 60vh; overflow: auto; }
)css";

}  // namespace VIGIL_DETAIL
