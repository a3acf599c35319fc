// plain_frames: frames without the names of functions, since finding those takes locks.
// Async-signal-safe.
#pragma once

#include "inspect/frame_list.hpp"
#include "inspect/symbols.hpp"

#include <vigil/detail/config.hpp>

#include <cstddef>
#include <cstdint>

namespace VIGIL_DETAIL {

class dump_writer;

// The files of a dump's frames, whose builds it names.
class named_builds {
 public:
  // The file that a place is in, or nullptr; until the next call.
  const code_module* find(std::uintptr_t place) noexcept;

  // Names the build before the file's first frame, so that vigil-symbols can compare it.
  void name(dump_writer& out, const code_module& m) noexcept;

  void forget() noexcept {
    count_ = 0;
    last_.end = 0;
  }

 private:
  std::size_t count_ = 0;
  std::uintptr_t seen_[64] = {};
  // The file of the last frame is often that of the next one, and finding one takes
  // system calls.
  code_module last_;
};

VIGIL_FOR_IO void write_plain_frames(dump_writer& out,
                                     const frame_list& frames,
                                     named_builds& builds) noexcept;

}  // namespace VIGIL_DETAIL
