// thread_files: what /proc tells of a thread of this process. Async-signal-safe.
#pragma once

#include <vigil/detail/config.hpp>

#include <cstddef>
#include <string_view>

namespace VIGIL_DETAIL {

// The text of /proc/self/task/<thread><name>, as far as it fits; empty, with errno, if it
// cannot be read.
std::string_view read_thread_file(int thread,
                                  std::string_view name,
                                  char* text,
                                  std::size_t size) noexcept;

// The word after the key in a text like that of /status; empty: it is not there.
std::string_view word_after(std::string_view key, std::string_view text) noexcept;

}  // namespace VIGIL_DETAIL
