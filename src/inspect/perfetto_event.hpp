// track_event: an event of a track, in Perfetto's format, with its notes.
#pragma once

#include "inspect/perfetto_fields.hpp"
#include "inspect/proto_writer.hpp"
#include "inspect/valid_utf8.hpp"

#include <vigil/detail/config.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace VIGIL_DETAIL {

class track_event {
 public:
  track_event(std::uint64_t type, std::uint64_t track) {
    out_.number(event_field::type, type).number(event_field::track, track);
  }

  track_event& name(std::string_view text) {
    out_.text(event_field::name, valid_utf8(text));
    return *this;
  }

  track_event& note(std::string_view name, std::string_view text) {
    out_.message(event_field::annotation,
                 proto_writer()
                     .text(annotation_field::name, name)
                     .text(annotation_field::text, valid_utf8(text)));
    return *this;
  }

  track_event& note(std::string_view name, std::uint64_t value) {
    out_.message(event_field::annotation,
                 proto_writer()
                     .text(annotation_field::name, name)
                     .number(annotation_field::unsigned_value, value));
    return *this;
  }

  track_event& note(std::string_view name, std::int64_t value) {
    out_.message(event_field::annotation,
                 proto_writer()
                     .text(annotation_field::name, name)
                     .number(annotation_field::signed_value, static_cast<std::uint64_t>(value)));
    return *this;
  }

  track_event& note(std::string_view name, const std::vector<std::string>& texts) {
    proto_writer array;
    array.text(annotation_field::name, name);
    for (const std::string& text : texts)
      array.message(annotation_field::elements,
                    proto_writer().text(annotation_field::text, valid_utf8(text)));
    out_.message(event_field::annotation, array);
    return *this;
  }

  track_event& flow(unsigned field, std::uint64_t id) {
    out_.fixed64(field, id);
    return *this;
  }

  track_event& value(std::uint64_t v) {
    out_.number(event_field::counter_value, v);
    return *this;
  }

  const proto_writer& message() const noexcept { return out_; }

 private:
  proto_writer out_;
};

}  // namespace VIGIL_DETAIL
