// The numbers of the fields in protos/perfetto/trace/*.proto, and of their values.
#pragma once

#include <vigil/detail/config.hpp>

#include <cstdint>

namespace VIGIL_DETAIL {

namespace trace_field {
inline constexpr unsigned packet = 1;
}  // namespace trace_field

namespace packet_field {
inline constexpr unsigned timestamp = 8;
inline constexpr unsigned sequence = 10;
inline constexpr unsigned track_event = 11;
inline constexpr unsigned track_descriptor = 60;
}  // namespace packet_field

namespace descriptor_field {
inline constexpr unsigned uuid = 1;
inline constexpr unsigned name = 2;
inline constexpr unsigned process = 3;
inline constexpr unsigned thread = 4;
inline constexpr unsigned parent = 5;
inline constexpr unsigned counter = 8;
}  // namespace descriptor_field

namespace process_field {
inline constexpr unsigned pid = 1;
inline constexpr unsigned name = 6;
}  // namespace process_field

namespace thread_field {
inline constexpr unsigned pid = 1;
inline constexpr unsigned tid = 2;
inline constexpr unsigned name = 5;
}  // namespace thread_field

namespace event_field {
inline constexpr unsigned annotation = 4;
inline constexpr unsigned type = 9;
inline constexpr unsigned track = 11;
inline constexpr unsigned name = 23;
inline constexpr unsigned counter_value = 30;
inline constexpr unsigned flow = 47;
inline constexpr unsigned flow_end = 48;
}  // namespace event_field

namespace annotation_field {
inline constexpr unsigned unsigned_value = 3;
inline constexpr unsigned signed_value = 4;
inline constexpr unsigned text = 6;
inline constexpr unsigned name = 10;
}  // namespace annotation_field

inline constexpr std::uint64_t slice_begin = 1;
inline constexpr std::uint64_t slice_end = 2;
inline constexpr std::uint64_t instant = 3;
inline constexpr std::uint64_t counter = 4;

}  // namespace VIGIL_DETAIL
