// The locks of the standard library come with vigil/sync.hpp: the guide's code needs no
// other header.
#include <vigil/sync.hpp>

namespace vigil::headers_test {

void locks() {
  vigil::mutex m;
  vigil::mutex other;
  vigil::shared_mutex shared;
  vigil::condition_variable changed;
  bool ready = false;
  {
    const std::lock_guard lock(m);
    ready = true;
  }
  {
    std::unique_lock lock(m);
    changed.wait(lock, [&] { return ready; });
  }
  { const std::scoped_lock lock(m, other); }
  { const std::shared_lock lock(shared); }
}

}  // namespace vigil::headers_test
