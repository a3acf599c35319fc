#include "inspect_page/waiting_peers.hpp"

#include <algorithm>

#include <sys/socket.h>

namespace VIGIL_DETAIL {

waiting_peers::member::member(waiting_peers& all, int socket) : all_(all), socket_(socket) {
  waits_for_peer();
  if (all_.members_++ >= all_.places_) all_.end_one_but(*this);
}

waiting_peers::member::~member() {
  works();
  --all_.members_;
}

void waiting_peers::member::waits_for_peer() {
  works();
  all_.waiting_.push_back(this);
}

void waiting_peers::member::works() noexcept {
  all_.waiting_.remove(this);
}

// Its reads and writes fail from now on, so that its own fiber closes it.
void waiting_peers::end_one_but(const member& fresh) noexcept {
  const auto longest =
      std::find_if(waiting_.begin(), waiting_.end(), [&](const member* m) { return m != &fresh; });
  if (longest == waiting_.end()) return;  // all others work
  ::shutdown((*longest)->socket_, SHUT_RDWR);
  waiting_.erase(longest);
}

}  // namespace VIGIL_DETAIL
