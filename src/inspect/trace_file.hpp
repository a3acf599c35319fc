// write_trace_file: writes a trace to a file that has its name once it is whole, since
// the program may end before.
#pragma once

#include <vigil/detail/config.hpp>

#include <string>

namespace vigil::inline VIGIL_ABI::detail {

// Writes NAME.part and renames it. Throws std::system_error with the file's name in its
// text; then nothing is left of the file. The calling thread must block SIGXFSZ, as
// detached threads do.
void write_trace_file(const std::string& name, const std::string& bytes);

}  // namespace vigil::inline VIGIL_ABI::detail
