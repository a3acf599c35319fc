// waiting_peers: the connections of a page, and which of them makes room for a new one.
//
// The danger. As many clients as there are places may ask slowly, or not take what they
// asked for, and keep all others out until their time is over.
//
// The rule. If all places are taken, the connection that has waited for its peer for
// longest ends. Bytes of a request that is not whole are no progress.
#pragma once

#include <vigil/detail/config.hpp>

#include <cstddef>
#include <list>

namespace VIGIL_DETAIL {

// Thread safety: none; for the fibers of one worker.
class waiting_peers {
 public:
  // One connection, from its beginning to its end.
  class member {
   public:
    // Ends another connection that waits for its peer, if there are too many. The socket
    // outlives the member.
    member(waiting_peers& all, int socket);
    ~member();
    member(const member&) = delete;
    member& operator=(const member&) = delete;

    // From now on it waits for its peer, or goes on to: the peer has made progress.
    void waits_for_peer();
    // From now on the peer waits.
    void works() noexcept;

   private:
    friend waiting_peers;

    waiting_peers& all_;
    const int socket_;
  };

  explicit waiting_peers(std::size_t places) noexcept : places_(places) {}

 private:
  void end_one_but(const member& fresh) noexcept;

  const std::size_t places_;
  std::size_t members_ = 0;
  std::list<member*> waiting_;  // the one that has waited for longest first
};

}  // namespace VIGIL_DETAIL
