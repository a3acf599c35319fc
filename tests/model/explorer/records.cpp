// Replaces base/record_pool.cpp: no record is used twice in a run, so the use of one that
// was given back is found.
#include "core/base/record_pool.hpp"

#include <new>

namespace VIGIL_DETAIL {
namespace {

constexpr std::align_val_t line{64};

}  // namespace

void* record_pool::take() {
  return ::operator new(size_, line);
}

void record_pool::give(void* record) noexcept {
  ::operator delete(record, line);
}

void* record_pool::cache::take(record_pool& pool) {
  return pool.take();
}

void record_pool::cache::give(record_pool& pool, void* record) noexcept {
  pool.give(record);
}

void record_pool::cache::flush(record_pool&) noexcept {}

}  // namespace VIGIL_DETAIL
