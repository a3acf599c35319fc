#include "inspect/group_report.hpp"

#include "core/base/foreign_memory.hpp"
#include "core/sched/report/dump.hpp"
#include "core/sched/report/dump_writer.hpp"
#include "core/sched/report/fiber_table.hpp"
#include "core/sched/worker/running_runtimes.hpp"
#include "inspect/fiber_report.hpp"
#include "inspect/report.hpp"
#include "inspect/symbols.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <functional>
#include <memory>

namespace VIGIL_DETAIL {
namespace {

struct member {
  stack where;
  nanos since = 0;
};

// The oldest fibers of one row, in order; those of which it is not known come last.
struct oldest_members {
  void visit(const stack& at) noexcept {
    fiber_view v;
    if (!take_view(at, v) || table.find(v) != row) return;
    const member m{at, v.is_parked() && v.since != 0 ? v.since : never};
    const auto later = [](const member& a, const member& b) { return a.since < b.since; };
    const auto end = all.begin() + static_cast<std::ptrdiff_t>(count);
    const auto place = std::upper_bound(all.begin(), end, m, later);
    if (place == all.end()) return;
    std::move_backward(
        place, count < all.size() ? end : end - 1, count < all.size() ? end + 1 : end);
    *place = m;
    count = std::min(count + 1, all.size());
  }

  fiber_table& table;
  const fiber_row* row;
  std::array<member, lines_at_most> all = {};
  std::size_t count = 0;
};

const fiber_row* find_row(fiber_table& table, std::string_view key) {
  const fiber_row* const* const rows = table.by_count();
  for (std::size_t i = 0; i < table.rows(); ++i) {
    if (group_key(rows[i]->oldest) == key) return rows[i];
  }
  return nullptr;
}

}  // namespace

std::string group_key(const fiber_view& v) {
  std::string parts = copied_text(v.file).get();
  for (const std::string& part : {std::to_string(v.line),
                                  std::to_string(v.runtime),
                                  std::string(to_string(v.state)),
                                  std::string(v.is_parked() ? to_string(v.reason) : "")}) {
    parts.append(1, '\0').append(part);
  }
  char digits[2 * sizeof(std::size_t) + 1];
  std::snprintf(digits, sizeof digits, "%zx", std::hash<std::string>{}(parts));
  return digits;
}

std::string group_text(std::string_view key, bool with_addresses) {
  std::string text;
  dump_writer out(text);
  fiber_report report;
  {
    const handler_scope inside;
    const slab_hold hold;
    const auto table = std::make_unique<fiber_table>();
    table->add_all();
    const fiber_row* const row = find_row(*table, key);
    if (row == nullptr) return text;
    oldest_members oldest{.table = *table, .row = row};
    for_each_stack_in_use([](const stack& where,
                             void* to) noexcept { static_cast<oldest_members*>(to)->visit(where); },
                          &oldest);
    std::array<stack, lines_at_most> where;
    for (std::size_t i = 0; i < oldest.count; ++i)
      where[i] = oldest.all[i].where;
    const bool with_frames = row->oldest.state != fiber_state::running;
    report = collect_these({where.data(), oldest.count}, with_frames);
    out.number(row->count).text(row->count == 1 ? " fiber" : " fibers");
    if (row->count > oldest.count) out.text("; the ").number(oldest.count).text(" oldest:");
    out.text("\n");
  }
  symbol_reader names;
  write_text(out, report, names, with_addresses);
  out.flush();
  return text;
}

}  // namespace VIGIL_DETAIL
