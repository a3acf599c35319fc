// The numbers of the fields in protos/perfetto/trace/*.proto, and of their values.
#pragma once

#include <vigil/detail/config.hpp>

#include <cstdint>

namespace VIGIL_DETAIL {

namespace trace_field {
enum : unsigned { packet = 1 };
}

namespace packet_field {
enum : unsigned { timestamp = 8, sequence = 10, track_event = 11, track_descriptor = 60 };
}

namespace descriptor_field {
enum : unsigned { uuid = 1, name = 2, process = 3, thread = 4, parent = 5, counter = 8 };
}

namespace process_field {
enum : unsigned { pid = 1, name = 6 };
}

namespace thread_field {
enum : unsigned { pid = 1, tid = 2, name = 5 };
}

namespace event_field {
enum : unsigned {
  annotation = 4,
  type = 9,
  track = 11,
  name = 23,
  counter_value = 30,
  flow = 47,
  flow_end = 48
};
}

namespace annotation_field {
enum : unsigned { unsigned_value = 3, signed_value = 4, text = 6, name = 10, elements = 12 };
}

inline constexpr std::uint64_t slice_begin = 1;
inline constexpr std::uint64_t slice_end = 2;
inline constexpr std::uint64_t instant = 3;
inline constexpr std::uint64_t counter = 4;

}  // namespace VIGIL_DETAIL
