#include "inspect/plain_frames.hpp"

#include "core/sched/report/dump_writer.hpp"

#include <algorithm>
#include <iterator>

namespace VIGIL_DETAIL {
namespace {

void write_plain_place(dump_writer& out, std::uintptr_t place, named_builds& builds) noexcept {
  if (const code_module* const m = builds.find(place)) {
    builds.name(out, *m);
    out.text("    at ? (").file(m->path).text("+0x").number(m->offset, 16).text(")\n");
  } else {
    out.text("    at ? (0x").number(place, 16).text(")\n");
  }
}

}  // namespace

const code_module* named_builds::find(std::uintptr_t place) noexcept {
  if (place < last_.begin || place >= last_.end) {
    if (!find_module(place, last_)) {
      last_.end = 0;
      return nullptr;
    }
  }
  last_.offset = place - last_.loaded;
  return &last_;
}

void named_builds::name(dump_writer& out, const code_module& m) noexcept {
  if (std::find(seen_, seen_ + count_, m.loaded) != seen_ + count_) return;
  if (count_ == std::size(seen_)) return;
  seen_[count_++] = m.loaded;
  const build_id id = build_id_of(m);
  if (id.size == 0) return;
  out.text("    (build ");
  for (std::size_t i = 0; i < id.size; ++i)
    out.number(id.bytes[i] >> 4, 16).number(id.bytes[i] & 0xf, 16);
  out.text(" of ").file(m.path).text(")\n");
}

void write_plain_frames(dump_writer& out, const frame_list& frames, named_builds& builds) noexcept {
  for (unsigned i = 0; i < frames.count; ++i)
    write_plain_place(out, frames.places[i], builds);
  if (frames.result != frames_result::whole) {
    out.text("    (").text(to_string(frames.result)).text(")\n");
  }
}

}  // namespace VIGIL_DETAIL
