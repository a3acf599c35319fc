// The values that the programs of the target `channels` send.
#pragma once

#include "fuzz/channel_model.hpp"

#include <cstdint>
#include <memory>
#include <type_traits>

namespace fuzz {

// The values of a program, one kind for each way in which a channel moves them.
using owned = std::unique_ptr<value_id>;

struct wide {
  std::uint64_t id;
  std::uint64_t ignored;
};

template <class T>
T value_of(value_id id) {
  if constexpr (std::is_same_v<T, owned>) return std::make_unique<value_id>(id);
  if constexpr (std::is_same_v<T, wide>) return {id, 0};
  if constexpr (std::is_integral_v<T>) return id;
}

inline value_id id_of(const owned& v) {
  return *v;
}

inline value_id id_of(const wide& v) {
  return static_cast<value_id>(v.id);
}

inline value_id id_of(std::uint64_t v) {
  return static_cast<value_id>(v);
}

}  // namespace fuzz
