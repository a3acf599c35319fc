#include "core/base/object_names.hpp"

#include <cstdint>

namespace VIGIL_DETAIL {

constinit name_table object_names{};

unsigned number_of_name(const char* text) noexcept {
  if (text == nullptr) return 0;
  const auto first = static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(text) % most_names);
  for (unsigned i = 0; i < most_names; ++i) {
    const unsigned place = (first + i) % most_names;
    atomic<const char*>& name = object_names.names[place];
    // ordering: the texts are constants.
    const char* seen = name.load(order::relaxed);
    if (seen == nullptr &&
        name.compare_exchange_strong(seen, text, order::relaxed, order::relaxed)) {
      return place + 1;
    }
    if (seen == text) return place + 1;
  }
  return 0;
}

const char* name_by_number(unsigned number) noexcept {
  if (number == 0 || number > most_names) return nullptr;
  return object_names.names[number - 1].load(order::relaxed);  // ordering: as above
}

}  // namespace VIGIL_DETAIL
