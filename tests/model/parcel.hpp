// The values that the programs of the channels' model tests send.
#pragma once

#include <vigil/vigil.hpp>

#include <utility>

namespace programs {

// A value that is in one hand at a time. Its destructor records the end in plain memory:
// an end that is not ordered after the others is a data race.
class parcel {
 public:
  parcel(int id, int& ended) noexcept : id_(id), ended_(&ended) {}

  parcel(parcel&& other) noexcept : id_(other.id_), ended_(std::exchange(other.ended_, nullptr)) {}

  parcel& operator=(parcel&&) = delete;

  ~parcel() {
    if (ended_ != nullptr) ++*ended_;
  }

  bool is_here() const noexcept { return ended_ != nullptr; }

  int id() const noexcept { return id_; }

 private:
  int id_;
  int* ended_;
};

// Waits for ever if need be, and reads no clock; a close is a result.
template <class Channel>
vigil::channel_status send(const Channel& to, parcel& p) {
  return to.send_until(std::move(p), vigil::clock::time_point::max()).status();
}

}  // namespace programs
