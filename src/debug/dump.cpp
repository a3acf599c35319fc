#include "sched/fiber_dump.hpp"
#include "sched/process.hpp"

#include <vigil/debug.hpp>

namespace vigil {
inline namespace VIGIL_ABI {
namespace debug {

void dump(std::FILE* out) {
  internal::dump_writer writer(out);
  internal::process_dump(writer);
  std::fflush(out);
}

void holders(std::FILE* out) {
  internal::dump_writer writer(out);
  internal::process_list_holders(writer);
  std::fflush(out);
}

}  // namespace debug
}  // namespace VIGIL_ABI
}  // namespace vigil
