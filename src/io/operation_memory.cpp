// Each thread keeps two parts of an ended operation for the next one: the memory and the
// cancellation signal. A slot in which there has been a handler keeps its memory for the
// next handler; for a new slot Asio calls malloc.
#include "io/operation.hpp"

#include <new>
#include <utility>

namespace VIGIL_IO_DETAIL {

using boost::asio::cancellation_signal;

namespace {

// Outlives the parts: operations may begin while static objects are destroyed.
thread_local bool is_gone = false;

class spare_parts {
 public:
  spare_parts() = default;
  spare_parts(const spare_parts&) = delete;
  spare_parts& operator=(const spare_parts&) = delete;

  ~spare_parts() {
    ::operator delete(memory_);
    delete signal_;
    is_gone = true;
  }

  void* take_memory() noexcept { return is_gone ? nullptr : std::exchange(memory_, nullptr); }

  cancellation_signal* take_signal() noexcept {
    return is_gone ? nullptr : std::exchange(signal_, nullptr);
  }

  // False if there is one already.
  bool put_back(void* memory) noexcept {
    if (is_gone || memory_ != nullptr) return false;
    memory_ = memory;
    return true;
  }

  bool put_back(cancellation_signal* signal) noexcept {
    if (is_gone || signal_ != nullptr) return false;
    signal_ = signal;
    return true;
  }

 private:
  void* memory_ = nullptr;
  cancellation_signal* signal_ = nullptr;
};

thread_local spare_parts spare;

// Replaces what an operation has left in the slot, and keeps the memory of that.
struct nothing {
  void operator()(boost::asio::cancellation_type_t) noexcept {}
};

}  // namespace

// None is inlined: a fiber may be on another thread when it comes back.
[[gnu::noinline]] void* operation::operator new(std::size_t size) {
  void* const kept = spare.take_memory();
  return kept != nullptr ? kept : ::operator new(size);
}

[[gnu::noinline]] void operation::operator delete(void* p) noexcept {
  if (!spare.put_back(p)) ::operator delete(p);
}

[[gnu::noinline]] spare_signal::spare_signal() : signal_(spare.take_signal()) {
  if (signal_ == nullptr) signal_ = new cancellation_signal;
}

[[gnu::noinline]] spare_signal::~spare_signal() {
  if (signal_->slot().has_handler()) signal_->slot().emplace<nothing>();
  if (!spare.put_back(signal_)) delete signal_;
}

one_operation& memory_of(operation& o) noexcept {
  return o.memory;
}

}  // namespace VIGIL_IO_DETAIL
