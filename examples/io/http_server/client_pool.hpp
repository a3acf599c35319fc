// client_pool: requests to one server, over connections that are kept in between.
//
//   web::client_pool<memory_stream> pool([&] { return acceptor.connect(); });
//   web::reply a = pool.ask("GET /hello HTTP/1.1\r\nHost: test\r\n\r\n");
//
// A server closes a connection that has been idle for some time, and a request that is
// sent at that moment is lost. So a connection is used again only if its last answer has
// announced an idle time ("Keep-Alive: timeout=N") of which a second is left; the pool
// closes it when that second begins, and at once if nothing was announced.
//
// Behaviour: Node's agent with keepAlive, except that Node also keeps a connection for
// which no time was announced.
//
// Thread safety: any number of fibers may call all functions at a time, except
// construction and destruction.
#pragma once

#include "client.hpp"

#include <vigil/timeout_list.hpp>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <boost/beast/core/string.hpp>

namespace web {

// The seconds in the value of a Keep-Alive field: 5 for "timeout=5, max=100"; 0 if it
// names none.
inline long announced_seconds(std::string_view field) {
  constexpr std::string_view name = "timeout=";
  constexpr long most = 1'000'000'000;  // thirty years
  while (!field.empty()) {
    const std::size_t end = std::min(field.find(','), field.size());
    std::string_view part = field.substr(0, end);
    field.remove_prefix(std::min(end + 1, field.size()));
    part.remove_prefix(std::min(part.find_first_not_of(" \t"), part.size()));
    part = part.substr(0, part.find_last_not_of(" \t") + 1);
    if (!boost::beast::iequals(part.substr(0, name.size()), name)) continue;
    part.remove_prefix(name.size());
    long seconds = 0;
    const auto [rest, error] = std::from_chars(part.data(), part.data() + part.size(), seconds);
    if (rest != part.data() + part.size()) return 0;
    if (error == std::errc::result_out_of_range) return most;
    return error == std::errc() ? std::clamp(seconds, 0L, most) : 0;
  }
  return 0;
}

template <class Stream>
class client_pool {
 public:
  // `connect` makes a connection; it may wait and throw. At most `most_kept` are kept.
  explicit client_pool(std::function<Stream()> connect, std::size_t most_kept = 64)
      : connect_(std::move(connect)),
        most_kept_(most_kept),
        closing_([this](vigil::timeout_list::entry& e) { close(e); }) {
    kept_.reserve(most_kept);
  }

  client_pool(const client_pool&) = delete;
  client_pool& operator=(const client_pool&) = delete;

  // Sends a whole request and returns its answer. Throws what client and `connect` throw;
  // the request is never sent a second time.
  reply ask(std::string_view request, bool is_head = false) {
    std::unique_ptr<connection> c = take();
    if (c == nullptr) {
      c = std::make_unique<connection>(connect_());
      connects_.fetch_add(1);
    }
    client<Stream>& peer = **c;
    peer.send(request);
    reply answer = peer.receive(is_head);
    while (answer.result_int() < 200 && answer.result() != http::status::switching_protocols)
      answer = peer.receive(is_head);  // the one before was interim
    keep(std::move(c), answer);
    return answer;
  }

  // The connections that are kept at this moment.
  std::size_t kept() const {
    const std::lock_guard guard(lock_);
    return kept_.size();
  }

  // How often the pool has connected.
  std::uint64_t connects() const { return connects_.load(); }

 private:
  using connection = vigil::expiring<client<Stream>>;

  struct free_one {
    std::unique_ptr<connection> peer;
    vigil::clock::time_point until;  // when the last second of its announced time begins
  };

  // The last one that was used; nullptr if there is none. One whose time is over is being
  // closed, and close() may wait for the lock, so remove() must be called without it.
  std::unique_ptr<connection> take() {
    for (;;) {
      std::unique_ptr<connection> c;
      vigil::clock::time_point until;
      {
        const std::lock_guard guard(lock_);
        if (kept_.empty()) return nullptr;
        c = std::move(kept_.back().peer);
        until = kept_.back().until;
        kept_.pop_back();
      }
      // The closing may be late: then the time says it.
      if (vigil::timeout_list::remove(c->entry()) && vigil::clock::now() < until) return c;
    }
  }

  void keep(std::unique_ptr<connection> c, const reply& answer) {
    const std::chrono::seconds time(announced_seconds(answer["Keep-Alive"]) - 1);
    const bool is_open = answer.result_int() >= 200 && answer.keep_alive() && !answer.need_eof();
    if (time.count() <= 0 || !is_open || (*c)->has_more()) return;
    const std::lock_guard guard(lock_);
    if (kept_.size() == most_kept_) return;
    closing_.add(c->entry(), time);
    kept_.push_back({std::move(c), vigil::clock::now() + time});
  }

  void close(vigil::timeout_list::entry& e) {
    std::unique_ptr<connection> closed;
    const std::lock_guard guard(lock_);
    const auto is_it = [&e](const free_one& c) { return &c.peer->entry() == &e; };
    const auto it = std::find_if(kept_.begin(), kept_.end(), is_it);
    if (it == kept_.end()) return;  // take() has it
    closed = std::move(it->peer);
    kept_.erase(it);
  }

  const std::function<Stream()> connect_;
  const std::size_t most_kept_;
  std::atomic<std::uint64_t> connects_{0};
  mutable std::mutex lock_;  // held across no wait
  std::vector<free_one> kept_;
  vigil::timeout_lists closing_;  // is destroyed first
};

}  // namespace web
