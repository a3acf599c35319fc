#include "postgres_client.hpp"

#include <vigil/blocking.hpp>
#include <vigil/fiber.hpp>
#include <vigil/group.hpp>
#include <vigil/io/io_context.hpp>
#include <vigil/io/use_fiber.hpp>
#include <vigil/sync.hpp>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <mutex>
#include <new>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/error.hpp>

#include <fcntl.h>

namespace pg {

namespace asio = boost::asio;
using namespace std::chrono_literals;
using vigil::io::use_fiber;

namespace {

// How long a cancelled query may take to end before the connection is given up.
constexpr auto longest_end = 10s;

// libpq's texts have several lines, and an end of line at the end.
std::string first_line(const char* text) {
  const std::string_view all(text);
  return std::string(all.substr(0, all.find('\n')));
}

struct free_cancel {
  void operator()(PGcancel* c) const noexcept { PQfreeCancel(c); }
};

std::vector<const char*> pointers(const std::vector<text_or_null>& arguments) {
  std::vector<const char*> all;
  for (const text_or_null& a : arguments)
    all.push_back(a ? a->c_str() : nullptr);
  return all;
}

}  // namespace

// --- connecting

connection::connection(const std::string& how, time_point until) {
  // PQconnectStart may look up a host name, but of a list of hosts, such as host=a,b,
  // only the first one. PQconnectPoll below looks up the others, and keeps the worker
  // meanwhile. Give addresses (hostaddr=) where that matters.
  using started = std::unique_ptr<PGconn, finish>;
  auto made = vigil::blocking_until(until, [how] { return started(PQconnectStart(how.c_str())); });
  if (!made) throw error("no connection in time", "");
  pq_ = std::move(*made);
  if (pq_ == nullptr) throw std::bad_alloc();
  PostgresPollingStatusType next = PGRES_POLLING_WRITING;
  if (PQstatus(pq_.get()) == CONNECTION_BAD) next = PGRES_POLLING_FAILED;
  for (; next != PGRES_POLLING_OK; next = PQconnectPoll(pq_.get())) {
    if (next == PGRES_POLLING_FAILED) fail("connecting");
    socket_ = duplicate(pq_.get());  // it may be a different socket each time
    const bool reads = next == PGRES_POLLING_READING;
    if (!wait(reads ? socket::wait_read : socket::wait_write, until))
      throw error("no connection in time", "");
  }
  socket_ = duplicate(pq_.get());
  if (PQsetnonblocking(pq_.get(), 1) != 0) fail("connecting");
}

// Duplicates the descriptor, since libpq closes its own.
connection::socket connection::duplicate(PGconn* c) {
  const int fd = ::fcntl(PQsocket(c), F_DUPFD_CLOEXEC, 0);
  if (fd < 0) throw error(std::string("no descriptor: ") + std::strerror(errno), "");
  socket s(vigil::io::io_context(), fd);
  s.non_blocking(true);
  return s;
}

void connection::fail(const char* during) {
  lost_ = lost_ || PQstatus(pq_.get()) == CONNECTION_BAD;
  throw error(std::string(during) + ": " + first_line(PQerrorMessage(pq_.get())), "");
}

// --- waiting

// Returns false if `until` came first.
bool connection::wait(socket::wait_type what, time_point until) {
  const auto [failed] = socket_->async_wait(what, asio::as_tuple(use_fiber.until(until)));
  if (failed && failed != asio::error::timed_out) {
    lost_ = true;
    throw error("the socket: " + failed.message(), "");
  }
  return !failed;
}

bool connection::wait_for_either(time_point until) {
  bool in_time = false;
  vigil::mutex m;
  vigil::group both;
  for (const auto what : {socket::wait_read, socket::wait_write}) {
    both.go([&, what] {
      const bool is_ready = wait(what, until);
      const std::lock_guard guard(m);
      in_time = in_time || is_ready;
      both.cancel();  // the other wait
    });
  }
  both.wait();
  return in_time;
}

// --- a query

// Cleans up when an exception ends the query.
class connection::unless_complete {
 public:
  explicit unless_complete(connection& c) noexcept : connection_(&c) {}

  unless_complete(const unless_complete&) = delete;
  unless_complete& operator=(const unless_complete&) = delete;

  ~unless_complete() {
    if (connection_ == nullptr) return;
    const bool was_lost = std::exchange(connection_->lost_, true);
    if (!was_lost) connection_->cancel_on_server();
  }

  void is_complete() noexcept { connection_ = nullptr; }

 private:
  connection* connection_;
};

std::optional<result> connection::query(const char* sql,
                                        const std::vector<text_or_null>& arguments,
                                        time_point until) {
  const auto values = pointers(arguments);
  const int n = static_cast<int>(values.size());
  return answer(
      [&] {
        return PQsendQueryParams(pq_.get(), sql, n, nullptr, values.data(), nullptr, nullptr, 0);
      },
      until);
}

bool connection::prepare(const char* name, const char* sql, time_point until) {
  return answer([&] { return PQsendPrepare(pq_.get(), name, sql, 0, nullptr); }, until).has_value();
}

std::optional<result> connection::execute(const char* name,
                                          const std::vector<text_or_null>& arguments,
                                          time_point until) {
  const auto values = pointers(arguments);
  const int n = static_cast<int>(values.size());
  return answer(
      [&] { return PQsendQueryPrepared(pq_.get(), name, n, values.data(), nullptr, nullptr, 0); },
      until);
}

template <class Send>
std::optional<result> connection::answer(Send send, time_point until) {
  if (lost_) throw error("the connection is lost", "");
  if (vigil::clock::now() >= until) return std::nullopt;
  if (send() == 0) fail("sending");
  unless_complete guard(*this);
  std::optional<result> last;
  const bool sent = flush(until);
  if (sent) last = read(until);
  const bool too_late = !last.has_value();
  if (too_late) last = end_early();
  guard.is_complete();

  const char* const state = PQresultErrorField(last->get(), PG_DIAG_SQLSTATE);
  constexpr std::string_view query_canceled = "57014";
  if (too_late && state != nullptr && state == query_canceled) return std::nullopt;
  const ExecStatusType status = PQresultStatus(last->get());
  if (status != PGRES_FATAL_ERROR && status != PGRES_BAD_RESPONSE) return last;
  lost_ = PQstatus(pq_.get()) == CONNECTION_BAD;
  const char* const text = PQresultErrorField(last->get(), PG_DIAG_MESSAGE_PRIMARY);
  throw error(text != nullptr ? text : first_line(PQresultErrorMessage(last->get())),
              state != nullptr ? state : "");
}

// Cancels repeatedly: a cancel that reaches the server before it has begun is lost.
std::optional<result> connection::end_early() {
  const time_point end = vigil::clock::now() + longest_end;
  if (flush(end)) {
    for (auto pause = 20ms; vigil::clock::now() < end; pause *= 2) {
      cancel_on_server();
      if (auto last = read(vigil::clock::now() + pause)) return last;
    }
  }
  throw error("a query that was cancelled does not come to its end", "");
}

// Sends the query and its arguments. The server may have to be read meanwhile.
bool connection::flush(time_point until) {
  for (;;) {
    const int left = PQflush(pq_.get());
    if (left < 0) fail("sending");
    if (left == 0) return true;
    if (!wait_for_either(until)) return false;
    if (PQconsumeInput(pq_.get()) == 0) fail("receiving");
  }
}

// Returns the last result and drops those before it; empty if `until` came first.
std::optional<result> connection::read(time_point until) {
  std::optional<result> last;
  for (;;) {
    while (PQisBusy(pq_.get()) != 0) {
      if (!wait(socket::wait_read, until)) return std::nullopt;
      if (PQconsumeInput(pq_.get()) == 0) fail("receiving");
    }
    PGresult* const next = PQgetResult(pq_.get());
    if (next == nullptr) break;
    last.emplace(next);
  }
  if (!last) fail("receiving");
  return last;
}

// Cancels over a separate connection, which blocks: no stop and no deadline ends it.
void connection::cancel_on_server() {
  const vigil::this_fiber::shield whatever_comes;
  const std::unique_ptr<PGcancel, free_cancel> request(PQgetCancel(pq_.get()));
  if (request == nullptr) return;
  vigil::blocking([&request] {
    char why_not[256];
    // If this fails, the query goes on, and the connection is given up.
    static_cast<void>(PQcancel(request.get(), why_not, sizeof why_not));
  });
}

// --- the pool

pool::pool(std::string how, std::size_t n)
    : how_(std::move(how)), free_(vigil::make_channel<std::unique_ptr<connection>>(n)) {
  for (std::size_t i = 0; i < n; ++i)
    free_.send(nullptr);
}

pool::lease pool::take(time_point until) {
  auto place = free_.recv_until(until);
  if (!place) throw error("no connection is free in time", "");
  if (*place == nullptr) {
    try {
      *place = std::make_unique<connection>(how_, until);
    } catch (...) {
      static_cast<void>(free_.try_send(nullptr));
      throw;
    }
  }
  return {*this, std::move(*place)};
}

pool::lease::~lease() {
  if (pool_ == nullptr) return;
  if (connection_->is_lost()) connection_.reset();
  static_cast<void>(pool_->free_.try_send(std::move(connection_)));  // there is room
}

}  // namespace pg
