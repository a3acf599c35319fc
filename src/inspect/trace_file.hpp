// write_trace_file: writes a trace to a numbered file of its own. An earlier one, of this
// process or of another, is evidence and stays as it is. The file has its name once it is
// whole, since the program may end before.
//
// The number N is taken while there is PATH N.pftrace or PATH N.pftrace.part, and the
// process that has made the .part is the only one that may make the other. So the rename
// replaces nothing.
#pragma once

#include <vigil/detail/config.hpp>

#include <cstddef>
#include <string>

namespace VIGIL_DETAIL {

struct numbered_file {
  std::string name;
  std::size_t number;
};

// Takes the first free number from `first` on. Throws std::system_error with the file's
// name in its text; then nothing is left of the file. The calling thread must block
// SIGXFSZ, as detached threads do.
numbered_file write_trace_file(const std::string& path,
                               std::size_t first,
                               const std::string& bytes);

}  // namespace VIGIL_DETAIL
