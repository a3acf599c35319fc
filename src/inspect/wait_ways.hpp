// wait_ways: all that can end a parked fiber's wait: objects, and fibers.
//
// caller  has stopped all threads. So what a parked fiber waits for is there, and may be
//         read in place.
#pragma once

#include "core/cancel/object_view.hpp"
#include "core/machine/stack.hpp"
#include "core/sched/fiber/fiber.hpp"
#include "inspect/scanned_memory.hpp"

#include <vigil/detail/config.hpp>

#include <cstddef>
#include <cstdint>
#include <map>

namespace VIGIL_DETAIL {

// An object on the heap whose limits are known: a channel, a context, or a group. A
// thread or fiber can act on it if it has a pointer into `block`.
struct known_object {
  memory_range block;
  memory_range ring;  // the values of a channel
};

class object_table {
 public:
  explicit object_table(own_memory& memory)
      : objects_(&memory), by_begin_(&memory), links_(&memory) {}

  // Each returns the object's number. A second call returns that of the first.
  std::size_t add(const channel_core& c);
  std::size_t add(const cancel_context& c);
  std::size_t add_group(const void* group);

  // The object with this address in its block, or target_list::none.
  std::size_t find(const void* address) const noexcept;

  const own_vector<known_object>& all() const noexcept { return objects_; }

  // The queue of waits that begins with this `birth`.
  void add_queue(const birth& queue, bool is_shared_mutex);

  // Where the library's own links among objects and waits lie: nobody acts by them.
  const own_vector<memory_range>& links() const noexcept { return links_; }

 private:
  std::size_t add(const known_object& o);

  own_vector<known_object> objects_;
  std::pmr::map<std::uintptr_t, std::size_t> by_begin_;
  own_vector<memory_range> links_;
};

struct wait_way {
  enum class kind : std::uint8_t {
    object,  // `number` in the table
    place,   // something with a queue of waits, at `address`
    end_of,  // the end of the fiber whose control block lies at `address`
  };

  kind type = kind::place;
  std::size_t number = 0;
  const void* address = nullptr;
  // If not 0: only the fiber with this number ends the wait, as the holder of a lock.
  std::uint64_t holder = 0;
  std::uint64_t holder_noted = 0;  // holder_word; 0: the number is that of some runtime
};

// Whether a stop does not end such a wait.
bool is_for_lock(wait_reason reason) noexcept;

// Adds the ways, and the objects. False if there may be others. `root`: the context of
// the fiber's runtime, which only the shutdown ends.
bool read_wait_ways(const fiber& f,
                    const cancel_node* root,
                    object_table& objects,
                    own_vector<wait_way>& out);

}  // namespace VIGIL_DETAIL
