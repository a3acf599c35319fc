// Replaces the C++ library's memory for exceptions: part of the program's memory, so that
// a checkpoint has those that are under way.
#include "explorer/engine.hpp"
#include "explorer/original.hpp"

#include <cstddef>
#include <cstring>

#include <cxxabi.h>

namespace model {
namespace {

// The C++ library's own part, before the object that is thrown (unwind-cxx.h).
constexpr std::size_t header_size = 128;
// More than a dependent exception is.
constexpr std::size_t dependent_size = 128;

void* cleared(std::size_t size) {
  const inside_engine guard(*the_engine);
  void* const at = allocate(size);
  std::memset(at, 0, size);
  return at;
}

}  // namespace
}  // namespace model

namespace __cxxabiv1 {
extern "C" {

void* __cxa_allocate_exception(std::size_t size) noexcept {
  if (model::engine_of_program() != nullptr)
    return static_cast<std::byte*>(model::cleared(model::header_size + size)) + model::header_size;
  static auto* const original = model::original_of<void*(std::size_t)>("__cxa_allocate_exception");
  return original(size);
}

// None of it is used twice in a run.
void __cxa_free_exception(void* thrown) noexcept {
  if (model::is_in_arena(thrown)) return;
  static auto* const original = model::original_of<void(void*)>("__cxa_free_exception");
  original(thrown);
}

__cxa_dependent_exception* __cxa_allocate_dependent_exception() noexcept {
  if (model::engine_of_program() != nullptr)
    return static_cast<__cxa_dependent_exception*>(model::cleared(model::dependent_size));
  static auto* const original =
      model::original_of<__cxa_dependent_exception*()>("__cxa_allocate_dependent_exception");
  return original();
}

void __cxa_free_dependent_exception(__cxa_dependent_exception* thrown) noexcept {
  if (model::is_in_arena(thrown)) return;
  static auto* const original =
      model::original_of<void(__cxa_dependent_exception*)>("__cxa_free_dependent_exception");
  original(thrown);
}

}  // extern "C"
}  // namespace __cxxabiv1
