#include "core/machine/detached_thread.hpp"

#include "core/machine/without_signals.hpp"

#include <memory>
#include <system_error>
#include <utility>

#include <pthread.h>

namespace VIGIL_DETAIL {
namespace {

void* run_detached(void* argument) noexcept {
  const std::unique_ptr<std::function<void()>> f(static_cast<std::function<void()>*>(argument));
  (*f)();
  return nullptr;
}

}  // namespace

void start_detached(std::function<void()> f) {
  auto own = std::make_unique<std::function<void()>>(std::move(f));
  pthread_attr_t how;
  int error = ::pthread_attr_init(&how);
  if (error == 0) {
    ::pthread_attr_setdetachstate(&how, PTHREAD_CREATE_DETACHED);
    pthread_t thread{};
    const without_signals meanwhile;
    error = ::pthread_create(&thread, &how, &run_detached, own.get());
    ::pthread_attr_destroy(&how);
  }
  if (error != 0)
    throw std::system_error(error, std::generic_category(), "vigil: no thread can be had");
  own.release();
}

}  // namespace VIGIL_DETAIL
