// postgres: a client of PostgreSQL whose queries have deadlines.
//
// Run:     examples/io/with_postgres.py build/release/examples/io/postgres
//          which starts its own server and ends it afterwards; or, with a server of
//          yours: postgres 'dbname=…'
// Prints:  the results of the queries, how a query of ten seconds ends after 50 ms, on
//          the server as well, and how a client sees that a server is killed. (That needs
//          VIGIL_POSTGRES_PROCESS, which with_postgres.py sets.)
#include "postgres_client.hpp"

#include <vigil/io/io_context.hpp>
#include <vigil/vigil.hpp>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

#include <signal.h>

using namespace std::chrono_literals;

namespace {

pg::time_point in(std::chrono::nanoseconds d) {
  return vigil::clock::now() + d;
}

std::string one(pg::pool& db, const char* sql, const std::vector<pg::text_or_null>& arguments) {
  const auto rows = db.take(in(1min))->query(sql, arguments, in(1min));
  return rows ? std::string(rows->at(0, 0)) : "too late";
}

void plain_queries(pg::pool& db) {
  std::printf("select: %s\n", one(db, "select 6 * 7", {}).c_str());
  std::printf(
      "arguments: %s\n",
      one(db, "select $1::int + $2::int || coalesce($3, ' and null')", {"40", "2", {}}).c_str());
  auto lease = db.take(in(1min));
  lease->prepare("squares", "select i, i * i from generate_series(1, $1::int) i", in(1min));
  const auto squares = lease->execute("squares", {"3"}, in(1min));
  for (int row = 0; squares && row < squares->rows(); ++row)
    std::printf("%s%s", row != 0 ? ", " : "prepared: ", std::string(squares->at(row, 1)).c_str());
  std::puts("");
  try {
    static_cast<void>(lease->query("select * from nowhere", {}, in(1min)));
  } catch (const pg::error& e) {
    std::printf("error: %s (%s)\n", e.what(), e.sqlstate().c_str());
  }
  const std::string megabyte(1'000'000, 'x');
  const auto length = lease->query("select length($1), $1", {megabyte}, in(1min));
  std::printf("there and back: %s bytes\n", std::string(length->at(0, 0)).c_str());
}

// More fibers than connections.
void in_parallel(pg::pool& db) {
  vigil::group_of<int> all;
  for (int i = 0; i < 20; ++i) {
    all.go([&db, i] {
      return std::stoi(
          one(db, "select $1::int + 0 * length(pg_sleep(0.01)::text)", {std::to_string(i)}));
    });
  }
  int sum = 0;
  for (const int n : all.wait())
    sum += n;
  std::printf(
      "20 fibers: %d, over %s connections\n",
      sum,
      one(db, "select count(*) from pg_stat_activity where backend_type = 'client backend'", {})
          .c_str());
}

std::string sleeping(pg::pool& db) {
  return one(db,
             "select count(*) from pg_stat_activity where state = 'active' and query like $1",
             {"select pg_sleep(1%"});
}

void too_late(pg::pool& db) {
  auto lease = db.take(in(1min));
  const int process = lease->server_process();
  const auto begin = vigil::clock::now();
  const auto rows = lease->query("select pg_sleep(10)", {}, begin + 50ms);
  const bool early = vigil::clock::now() - begin < 50ms;
  std::printf("pg_sleep(10) within 50 ms: %s\n", rows || early ? "?" : "too late");
  std::printf("active on the server: %s\n", sleeping(db).c_str());
  const auto after = lease->query("select pg_backend_pid()", {}, in(1min));
  std::printf("the same connection goes on: %s\n",
              after->at(0, 0) == std::to_string(process) ? "yes" : "no");
}

// Stops a fiber in the middle of a query.
void stopped(pg::pool& db) {
  auto f = vigil::spawn([&db] {
    auto lease = db.take(in(1min));
    static_cast<void>(lease->query("select pg_sleep(11)", {}, in(1h)));
  });
  while (sleeping(db) != "1")
    vigil::sleep_for(1ms);
  f.request_stop();
  try {
    f.join();
  } catch (const vigil::cancelled&) {
  }
  while (sleeping(db) != "0")
    vigil::sleep_for(1ms);
  std::puts("a fiber that is stopped: its query as well");
}

void server_killed(pg::pool& db, pid_t server) {
  auto asks = vigil::spawn([&db]() -> std::string {
    try {
      auto lease = db.take(in(1min));
      static_cast<void>(lease->query("select pg_sleep(12)", {}, in(1h)));
      return "?";
    } catch (const pg::error& e) {
      return e.what();
    }
  });
  while (sleeping(db) != "1")
    vigil::sleep_for(1ms);
  ::kill(server, SIGQUIT);  // "immediate shutdown"
  std::printf("server killed: %s\n", asks.join().c_str());
}

}  // namespace

int main(int argc, char** argv) {
  const std::string how = argc > 1 ? argv[1] : "";  // empty: the environment's
  return vigil::run([&] {
    pg::pool db(how, 3);
    try {
      plain_queries(db);
      in_parallel(db);
      too_late(db);
      stopped(db);
      if (const char* const server = std::getenv("VIGIL_POSTGRES_PROCESS"))
        server_killed(db, std::atoi(server));
    } catch (const pg::error& e) {
      std::printf("failed: %s\n", e.what());
      return 1;
    }
    return 0;
  });
}
