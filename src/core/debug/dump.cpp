#include "core/sched/report/dump.hpp"

#include <vigil/debug.hpp>

namespace VIGIL_PUBLIC::debug {

void dump(std::FILE* out) {
  detail::dump_writer writer(out);
  detail::process_dump(writer, detail::dump_place::program);
  std::fflush(out);
}

void holders(std::FILE* out) {
  detail::dump_writer writer(out);
  detail::process_list_holders(writer);
  std::fflush(out);
}

}  // namespace VIGIL_PUBLIC::debug
