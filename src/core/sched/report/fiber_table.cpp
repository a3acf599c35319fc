#include "core/sched/report/fiber_table.hpp"

#include "core/base/foreign_memory.hpp"
#include "core/sched/report/dump.hpp"
#include "core/sched/report/dump_extension.hpp"
#include "core/sched/report/dump_writer.hpp"

#include <algorithm>
#include <new>

namespace VIGIL_DETAIL {
namespace {

wait_reason reason_of(const fiber_view& v) noexcept {
  return v.is_parked() ? v.reason : wait_reason::none;
}

// The text of a file is compared by its address: that of one place is one.
bool is_of_row(const fiber_view& a, const fiber_view& b) noexcept {
  return a.file == b.file && a.line == b.line && a.state == b.state && a.sched == b.sched &&
         reason_of(a) == reason_of(b);
}

std::size_t hash_of(const fiber_view& v) noexcept {
  std::size_t h = reinterpret_cast<std::uintptr_t>(v.file);
  for (const std::size_t part : {reinterpret_cast<std::uintptr_t>(v.sched),
                                 std::size_t{v.line},
                                 std::size_t(v.state),
                                 std::size_t(reason_of(v))})
    h = (h ^ part) * 0x9e37'79b9'7f4a'7c15;
  return h ^ (h >> 32);
}

nanos age_of(const fiber_view& v) noexcept {
  if (!v.is_parked() || v.since == 0) return -1;
  return v.now > v.since ? v.now - v.since : 0;
}

}  // namespace

std::size_t fiber_table::slot_of(const fiber_view& v) noexcept {
  std::size_t i = hash_of(v) % slots;
  while (row_in_[i] != 0 && !is_of_row(row(row_in_[i] - 1u).oldest, v))
    i = (i + 1) % slots;
  return i;
}

fiber_row* fiber_table::find(const fiber_view& v) noexcept {
  const std::size_t index = row_in_[slot_of(v)];
  return index != 0 ? &row(index - 1) : nullptr;
}

fiber_row* fiber_table::add(const fiber_view& v, const stack& where) noexcept {
  ++all_;
  std::uint16_t& index = row_in_[slot_of(v)];
  const bool is_new = index == 0;
  if (is_new) {
    if (rows_ == most_rows) return nullptr;
    index = static_cast<std::uint16_t>(++rows_);
    ::new (static_cast<void*>(room_ + (rows_ - 1) * sizeof(fiber_row))) fiber_row;
  }
  fiber_row& r = row(index - 1u);
  const nanos age = age_of(v);
  r.has_other_objects |= !is_new && v.object != r.oldest.object;
  if (is_new || age > r.longest) {
    r.oldest = v;
    r.where = where;
  }
  ++r.count;
  r.longest = std::max(r.longest, age);
  if (age >= 0) {
    r.newest = r.with_age == 0 ? age : std::min(r.newest, age);
    ++r.with_age;
    r.sum += static_cast<double>(age);
  }
  return &r;
}

void fiber_table::add_all() noexcept {
  for_each_stack_in_use(
      [](const stack& where, void* table) noexcept {
        fiber_view v;
        if (take_view(where, v)) static_cast<fiber_table*>(table)->add(v, where);
      },
      this);
}

void fiber_table::clear() noexcept {
  all_ = rows_ = 0;
  std::fill_n(row_in_, slots, std::uint16_t{0});
}

const fiber_row* const* fiber_table::by_count() noexcept {
  for (std::size_t i = 0; i < rows_; ++i)
    order_[i] = &row(i);
  std::sort(order_, order_ + rows_, [](const fiber_row* a, const fiber_row* b) {
    return a->count != b->count ? a->count > b->count : a->oldest.id < b->oldest.id;
  });
  return order_;
}

namespace {

void write_row(dump_writer& out, const fiber_row& r, const dump_extension* extension) noexcept {
  const fiber_view& v = r.oldest;
  out.text("  ").number(r.count).text(" [").text(v.state_words());
  if (v.is_parked()) {
    out.text(": ").text(to_string(v.reason));
    if (extension != nullptr) extension->write_object(out, r.where, v);
    if (r.has_other_objects) out.text(", and others");
  }
  if (r.longest >= 0) out.text(", for at most ").seconds(r.longest);
  out.text("] started at ").file(copied_text(v.file).get());
  if (v.line != 0) out.text(":").number(v.line);
  out.text("\n");
}

}  // namespace

void write_table(dump_writer& out, fiber_table& table, const dump_extension* extension) noexcept {
  constexpr std::size_t rows_written = 50;
  const fiber_row* const* const rows = table.by_count();
  if (table.rows() == 0 || rows[0]->count <= lines_at_most) return;
  const std::size_t written = std::min(table.rows(), rows_written);
  std::uint64_t others = table.all();
  for (std::size_t i = 0; i < written; ++i) {
    others -= rows[i]->count;
    write_row(out, *rows[i], extension);
  }
  if (others == 0) return;
  out.text("  ").number(others).text(" in smaller rows\n");
}

}  // namespace VIGIL_DETAIL
