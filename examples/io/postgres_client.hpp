// A client of PostgreSQL over libpq's non-blocking calls: fibers wait, workers do not.
//
//   pg::pool db("dbname=shop", 4);
//   {
//     auto lease = db.take(clock::now() + 1s);
//     auto rows = lease->query("select $1::int + 1", {"41"}, clock::now() + 50ms);
//     if (!rows) …  // too late: cancelled on the server; the connection is as before
//   }
//
// When its deadline comes, a query is cancelled on the server (with PQcancel, which
// blocks, on the side pool), and its answer is read to the end, so that the connection
// can be used again. If the query was complete by then, its result is returned.
//
// Errors: pg::error with the server's text and SQLSTATE. A lost connection says so, now
// and at each later call, and a pool makes a new one in its place. A fiber that is
// stopped or cancelled during a query cancels the query as well, and leaves a lost
// connection.
//
// Thread safety: one fiber at a time may use a connection; a pool is for all fibers.
#pragma once

#include <vigil/channel.hpp>
#include <vigil/clock.hpp>

#include <cstddef>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/asio/posix/stream_descriptor.hpp>

#include <libpq-fe.h>

namespace pg {

using time_point = vigil::clock::time_point;
using text_or_null = std::optional<std::string>;

class error : public std::runtime_error {
 public:
  error(const std::string& text, std::string sqlstate)
      : std::runtime_error(text), sqlstate_(std::move(sqlstate)) {}

  // Five characters, "42P01" for a missing table; empty if the error is not the server's.
  const std::string& sqlstate() const noexcept { return sqlstate_; }

 private:
  std::string sqlstate_;
};

class result {
 public:
  explicit result(PGresult* owned) noexcept : result_(owned) {}

  int rows() const noexcept { return PQntuples(result_.get()); }

  std::string_view at(int row, int column) const {
    return {PQgetvalue(result_.get(), row, column),
            static_cast<std::size_t>(PQgetlength(result_.get(), row, column))};
  }

  bool is_null(int row, int column) const { return PQgetisnull(result_.get(), row, column) != 0; }

  PGresult* get() const noexcept { return result_.get(); }

 private:
  struct clear {
    void operator()(PGresult* r) const noexcept { PQclear(r); }
  };

  std::unique_ptr<PGresult, clear> result_;
};

class connection {
 public:
  // Throws error, whose text says so if the time was over.
  connection(const std::string& how, time_point until);
  connection(const connection&) = delete;
  connection& operator=(const connection&) = delete;

  // Runs one statement, with $1, $2 … for the arguments. Empty if `until` came first.
  std::optional<result> query(const char* sql,
                              const std::vector<text_or_null>& arguments,
                              time_point until);

  // The same in two steps, for frequent statements.
  bool prepare(const char* name, const char* sql, time_point until);
  std::optional<result> execute(const char* name,
                                const std::vector<text_or_null>& arguments,
                                time_point until);

  bool is_lost() const noexcept { return lost_; }

  int server_process() const noexcept { return PQbackendPID(pq_.get()); }

 private:
  using socket = boost::asio::posix::stream_descriptor;

  struct finish {
    void operator()(PGconn* c) const noexcept { PQfinish(c); }
  };

  class unless_complete;

  static socket duplicate(PGconn* c);
  [[noreturn]] void fail(const char* during);
  template <class Send>
  std::optional<result> answer(Send send, time_point until);
  std::optional<result> end_early();
  bool wait(socket::wait_type what, time_point until);
  bool wait_for_either(time_point until);
  bool flush(time_point until);
  std::optional<result> read(time_point until);
  void cancel_on_server();

  std::unique_ptr<PGconn, finish> pq_;
  std::optional<socket> socket_;  // the same open file as libpq's
  bool lost_ = false;
};

// A pool of up to n connections, made as they are needed.
class pool {
 public:
  pool(std::string how, std::size_t n);
  pool(const pool&) = delete;
  pool& operator=(const pool&) = delete;

  // A connection, given back at the end.
  class lease {
   public:
    lease(pool& from, std::unique_ptr<connection> c) noexcept
        : pool_(&from), connection_(std::move(c)) {}

    lease(lease&& other) noexcept
        : pool_(std::exchange(other.pool_, nullptr)), connection_(std::move(other.connection_)) {}

    lease& operator=(lease&&) = delete;
    ~lease();

    connection* operator->() const noexcept { return connection_.get(); }

   private:
    pool* pool_;
    std::unique_ptr<connection> connection_;
  };

  // Waits for a free connection. Throws error, even if none is free in time.
  lease take(time_point until);

 private:
  const std::string how_;
  vigil::channel<std::unique_ptr<connection>> free_;  // null: a place for one
};

}  // namespace pg
