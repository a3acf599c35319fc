// A live page over real sockets: each address, and what is refused.
#include "core/machine/process_threads.hpp"
#include "inspect_page/page_client.hpp"
#include "support/dumped.hpp"
#include "support/in_runtime.hpp"
#include "support/note.hpp"
#include "support/temporary_folder.hpp"
#include "support/text_of.hpp"

#include <vigil/co.hpp>
#include <vigil/inspect.hpp>
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/value.hpp>
#include <doctest/doctest.h>

#include <link.h>
#include <sys/stat.h>

namespace json = boost::json;
using namespace std::chrono_literals;
using namespace vigil::testing_support;

namespace {

json::value data(const vigil::inspect::live_page& page, const char* target) {
  const http_answer a = get(page, target);
  REQUIRE(a.status == 200);
  CHECK(a.field("Content-Type") == "application/json");
  return json::parse(a.body);
}

// The group of fibers with this wait and name of the oldest one; null if there is none.
const json::object* group_of(const json::value& fibers, const char* wait) {
  for (const json::value& g : fibers.at("groups").as_array()) {
    if (const auto* w = g.as_object().if_contains("waits_for"); w && *w == wait)
      return &g.as_object();
  }
  return nullptr;
}

// Runs `body` on a plain thread, beside three fibers that receive, one that sleeps for an
// hour and a timer that is due in two.
template <class F>
void beside_fibers(F body) {
  vigil::run({.workers = 2, .recorder_events = 1'024}, [&] {
    auto open = vigil::make_channel<int>();
    std::vector<vigil::fiber<void>> all;
    for (int i = 0; i < 3; ++i) {
      all.push_back(vigil::spawn({.name = "<b>\xff" + std::to_string(i)},
                                 [&] { static_cast<void>(open.recv()); }));
    }
    all.push_back(vigil::spawn({.name = "sleeper"}, [] { vigil::sleep_for(1h); }));
    const vigil::timer later = vigil::after_func(2h, [] {});
    // One that has begun to wait may not have parked yet.
    for (std::string text;
         count_of(text, "[parked: channel receive") != 3 || count_of(text, "[parked: sleep") != 1;
         text = dumped())
      vigil::this_fiber::yield();
    vigil::blocking(body);
    open.close();
    all.back().request_stop();
  });
}

}  // namespace

TEST_SUITE("live page") {
  TEST_CASE("fibers are grouped by birth and wait, with their ages") {
    const auto page = local_page();
    beside_fibers([&] {
      const json::value fibers = data(page, "/fibers.json");
      CHECK(fibers.at("count") == 5);  // with main
      const json::object* const receivers = group_of(fibers, "channel receive");
      REQUIRE(receivers != nullptr);
      CHECK(receivers->at("count") == 3);
      const std::string name(receivers->at("oldest").at("name").as_string());
      CHECK(name.starts_with("<b>\xef\xbf\xbd"));
      CHECK(receivers->at("oldest_nanoseconds").as_int64() >=
            receivers->at("mean_nanoseconds").as_int64());
      CHECK(receivers->at("mean_nanoseconds").as_int64() >=
            receivers->at("newest_nanoseconds").as_int64());
      CHECK(receivers->at("newest_nanoseconds").as_int64() > 0);
      const std::string file(receivers->at("started_at").at("file").as_string());
      CHECK(file.ends_with("live_page_test.cpp"));
      REQUIRE(group_of(fibers, "sleep") != nullptr);
      CHECK(group_of(fibers, "sleep")->at("count") == 1);
    });
  }

  TEST_CASE("tasks are grouped as fibers are") {
    const auto page = local_page();
    vigil::testing::run_virtual([&] {
      for (int i = 0; i < 4; ++i)
        vigil::go([]() -> vigil::task<> { co_await vigil::co::sleep_for(1h); }());
      auto open = vigil::make_channel<int>();
      auto receiver = vigil::spawn(
          [](vigil::channel<int> c) -> vigil::task<> { co_await vigil::co::recv(c); }(open));
      vigil::testing::settle();
      json::value tasks;
      std::thread([&] { tasks = data(page, "/tasks.json"); }).join();
      CHECK(tasks.at("count") == 5);
      CHECK(tasks.at("parked") == 5);
      CHECK(tasks.at("runnable") == 0);
      CHECK(tasks.at("running") == 0);
      CHECK(tasks.at("in_no_group") == 0);
      REQUIRE(tasks.at("groups").as_array().size() == 2);
      CHECK(tasks.at("groups").at(0).at("waits_for") == "sleep");
      CHECK(tasks.at("groups").at(0).at("count") == 4);
      CHECK(tasks.at("groups").at(0).at("oldest").at("id") == 1);
      REQUIRE(group_of(tasks, "channel receive") != nullptr);
      const json::value& site = group_of(tasks, "channel receive")->at("started_at");
      CHECK(std::string_view(site.at("file").as_string()).ends_with("live_page_test.cpp"));
      open.close();
    });
  }

  TEST_CASE("the next deadlines are those of waits and of timers, in order") {
    const auto page = local_page();
    beside_fibers([&] {
      const json::value deadlines = data(page, "/deadlines.json");
      REQUIRE(deadlines.as_array().size() == 2);
      const json::value& first = deadlines.at(0);
      CHECK(first.at("fiber").at("name") == "sleeper");
      CHECK(first.at("waits_for") == "sleep");
      CHECK(first.at("due_in_nanoseconds").as_int64() <= std::chrono::nanoseconds(1h).count());
      const json::value& second = deadlines.at(1);
      const std::string file(second.at("timer").at("made_at").at("file").as_string());
      CHECK(file.ends_with("live_page_test.cpp"));
      CHECK(second.at("timer").at("repeats") == false);
      CHECK(second.at("due_in_nanoseconds").as_int64() > std::chrono::nanoseconds(1h).count());
    });
  }

  TEST_CASE("workers, lateness and metrics have their addresses; all of it has one") {
    const auto page = local_page();
    beside_fibers([&] {
      const json::value workers = data(page, "/workers.json");
      REQUIRE(workers.as_array().size() == 1);  // the page's own runtime is not shown
      CHECK(workers.at(0).at("workers").as_array().size() == 2);
      CHECK(workers.at(0).at("fibers_alive") == 5);
      CHECK(workers.at(0).at("timers_pending") == 2);
      const json::value lateness = data(page, "/lateness.json");
      CHECK(lateness.at(0).at("timers").at("buckets").as_array().size() == 32);
      const json::value all = data(page, "/state.json");
      for (const char* const part : {"fibers", "tasks", "workers", "deadlines", "lateness"})
        CHECK(all.as_object().contains(part));
      const http_answer metrics = get(page, "/metrics");
      CHECK(metrics.status == 200);
      CHECK(metrics.field("Content-Type") == vigil::inspect::openmetrics_type);
      CHECK(metrics.body.find("vigil_fiber_waiting{") != std::string::npos);
      CHECK(metrics.body.find("runtime=\"0\"") == std::string::npos);
      CHECK(metrics.body.ends_with("# EOF\n"));
    });
  }

  TEST_CASE("a worker shows the fiber that it runs") {
    const auto page = local_page();
    vigil::run({.workers = 1}, [&] {
      // The main fiber keeps the only worker.
      const json::value workers = data(page, "/workers.json");
      const json::value& only = workers.at(0).at("workers").at(0);
      CHECK(only.at("runs").at("name") == "main");
      CHECK(only.at("switches").as_int64() > 0);
      const json::value again = data(page, "/workers.json");
      const json::value& ran = again.at(0).at("workers").at(0).at("runs").at("ran");
      CHECK(ran.at("at_most_nanoseconds").as_int64() > 0);
      CHECK(again.at(0).at("longest_running").at("name") == "main");
      CHECK(again.at(0).at("oldest_ready_nanoseconds").as_int64() >= 0);
      const json::value& later = again.at(0).at("workers").at(0);
      CHECK(later.at("busy_nanoseconds").as_int64() > only.at("busy_nanoseconds").as_int64());
    });
  }

  TEST_CASE("a dump, as text and as JSON, needs the token") {
    const auto page = local_page();
    beside_fibers([&] {
      const http_answer text = act(page, "/dump.txt");
      CHECK(text.status == 200);
      CHECK(text.body.find("(sleeper) [parked: sleep") != std::string::npos);
      CHECK(text.body.find("    at ") != std::string::npos);
      const http_answer object = act(page, "/dump.json");
      CHECK(object.status == 200);
      CHECK(json::parse(object.body).at("fibers").as_array().size() >= 5);
      for (const char* const target : {"/dump.txt", "/dump.json", "/stuck.txt", "/record"}) {
        NOTE("target: ", target);
        CHECK(post(page, target, "").status == 403);
        CHECK(post(page, target, "X-Vigil-Token: 0123456789abcdef0123456789abcdef\r\n").status ==
              403);
        CHECK(post(page, target, with_token(page) + with_token(page)).status == 403);
        CHECK(get(page, target).status == 405);
        CHECK(get(page, target).field("Allow") == "POST");
      }
    });
  }

  TEST_CASE("addresses are told only if they are asked for") {
    const auto plain = local_page();
    const auto open = page_at("127.0.0.1", {.addresses = true});
    beside_fibers([&] {
      const auto has_address = [](const http_answer& a) {
        return a.body.find("\"address\":\"0x") != std::string::npos;
      };
      CHECK_FALSE(has_address(act(plain, "/dump.json")));
      CHECK(has_address(act(open, "/dump.json")));
      CHECK_FALSE(has_address(get(open, "/state.json")));
    });
  }

  TEST_CASE("a request that acts comes from the page itself") {
    const auto page = local_page();
    const std::string token = with_token(page);
    CHECK(post(page, "/dump.txt", token + "Origin: http://" + host_of(page) + "\r\n").status ==
          200);
    CHECK(post(page, "/dump.txt", token + "Origin: http://evil.example\r\n").status == 403);
    CHECK(post(page, "/dump.txt", token + "Origin: null\r\n").status == 403);
  }

  TEST_CASE("a recording is a trace, with the fibers' names") {
    const auto page = local_page();
    beside_fibers([&] {
      const http_answer a = act(page, "/record");
      CHECK(a.status == 200);
      CHECK(a.body.find("worker 0") != std::string::npos);
      CHECK(a.body.find("timer fiber") != std::string::npos);
    });
    const http_answer none = act(page, "/record");
    CHECK(none.status == 409);
    CHECK(none.body.find("VIGIL_RECORDER_EVENTS") != std::string::npos);
  }

  TEST_CASE("another host name is refused, whatever is asked for") {
    const auto page = local_page();
    for (const char* const target : {"/", "/state.json", "/metrics", "/nothing"}) {
      NOTE("target: ", target);
      CHECK(ask(page, request("GET", target, "evil.example")).status == 403);
    }
    CHECK(ask(page, request("POST", "/dump.txt", "evil.example", with_token(page))).status == 403);
    CHECK(ask(page, request("GET", "/", "localhost", "Host: evil.example\r\n")).status == 403);
    CHECK(ask(page, "GET / HTTP/1.0\r\n\r\n").status == 403);
    CHECK(ask(page, request("GET", "http://evil.example/", "localhost")).status == 404);
  }

  TEST_CASE("every answer is kept nowhere, framed nowhere, and read by no other origin") {
    const auto page = local_page();
    const std::string origin = "Origin: http://evil.example\r\n";
    for (const http_answer& a : {ask(page, request("GET", "/", "localhost", origin)),
                                 ask(page, request("GET", "/state.json", "localhost", origin)),
                                 ask(page, request("OPTIONS", "/dump.txt", "localhost", origin)),
                                 ask(page, request("GET", "/", "evil.example", origin)),
                                 act(page, "/dump.txt"),
                                 get(page, "/nothing")}) {
      NOTE("a.head: ", a.head);
      CHECK(a.field("Cache-Control") == "no-store");
      CHECK(a.field("X-Content-Type-Options") == "nosniff");
      CHECK(a.field("X-Frame-Options") == "DENY");
      CHECK(a.field("Referrer-Policy") == "no-referrer");
      CHECK(a.field("Cross-Origin-Resource-Policy") == "same-origin");
      const std::string policy = a.field("Content-Security-Policy");
      CHECK(policy.find("default-src 'none'") != std::string::npos);
      CHECK(policy.find("frame-ancestors 'none'") != std::string::npos);
      CHECK(policy.find("unsafe") == std::string::npos);
      CHECK(a.head.find("Access-Control") == std::string::npos);
    }
  }

  TEST_CASE("the page has a fresh nonce each time") {
    const auto page = local_page();
    const http_answer one = get(page, "/");
    const http_answer two = get(page, "/");
    CHECK(one.field("Content-Type") == "text/html; charset=utf-8");
    const auto nonce = [](const http_answer& a) {
      const std::size_t at = a.body.find("<script nonce=\"") + 15;
      return a.body.substr(at, a.body.find('"', at) - at);
    };
    CHECK(nonce(one).size() == 32);
    CHECK(nonce(one) != nonce(two));
    CHECK(one.field("Content-Security-Policy").find("script-src 'nonce-" + nonce(one) + "'") !=
          std::string::npos);
    CHECK(one.body.find(page.token()) == std::string::npos);
  }

  TEST_CASE("HEAD has the fields alone; other methods and addresses are refused") {
    const auto page = local_page();
    const http_answer head = ask(page, request("HEAD", "/state.json", "localhost"));
    CHECK(head.status == 200);
    CHECK(head.body.empty());
    CHECK(std::stoi(head.field("Content-Length")) > 0);
    CHECK(ask(page, request("PUT", "/", "localhost")).status == 405);
    CHECK(ask(page, request("OPTIONS", "/", "localhost")).status == 405);
    CHECK(get(page, "/nothing").status == 404);
    CHECK(act(page, "/state.json").status == 405);
    CHECK(act(page, "/nothing").status == 404);
  }

  TEST_CASE("a query changes nothing where it means nothing") {
    const auto page = local_page();
    for (const char* const target : {"/?x", "/state.json?", "/metrics?x=1", "/metrics?x=/?y"}) {
      NOTE("target: ", target);
      CHECK(get(page, target).status == 200);
    }
    CHECK(act(page, "/dump.txt?x=1").status == 200);
    CHECK(get(page, "/dump.txt?x=1").status == 405);
    CHECK(get(page, "/nothing?x=1").status == 404);
  }

  TEST_CASE("a request that is too large, malformed or has a body is refused") {
    const auto page = local_page();
    CHECK(ask(page, request("GET", "/", "localhost", "X: " + std::string(9000, 'x') + "\r\n"))
              .status == 431);
    CHECK(ask(page, "GET /" + std::string(20'000, 'x') + " HTTP/1.1\r\n\r\n").status == 431);
    CHECK(ask(page, "hello\r\n\r\n").status == 400);
    CHECK(ask(page, request("GET", "/", "localhost", "a\r\n")).status == 400);
    const std::string token = with_token(page);
    CHECK(post(page, "/dump.txt", token + "Content-Length: 0\r\n").status == 200);
    CHECK(post(page, "/dump.txt", token + "Content-Length: 5\r\n\r\nhello").status == 413);
    CHECK(post(page, "/dump.txt", token + "Content-Length: 99999999999\r\n").status == 413);
    CHECK(post(page, "/dump.txt", token + "Transfer-Encoding: chunked\r\n").status == 413);
  }

  TEST_CASE("a request that does not arrive in time is ended") {
    const auto page = local_page();
    const auto begin = std::chrono::steady_clock::now();
    const descriptor slow = connect_to(page);
    send_text(slow, "GET / HTTP/1.1\r\nHost: localhost\r\n");
    // Each byte is a sign of life, and counts for nothing.
    while (!is_readable(slow, 100))
      send_text(slow, "x");
    CHECK(answer_from(slow).status == 408);
    CHECK(std::chrono::steady_clock::now() - begin >= 5s);
  }

  TEST_CASE("one dump at a time; a second one is told to come again") {
    const auto page = local_page();

    // A dump looks up the names of functions, for which the loader must hold still.
    struct asking {
      const vigil::inspect::live_page& page;
      std::vector<descriptor> all;
      std::size_t refused = 0;
    } two{page, {}};

    ::dl_iterate_phdr(
        [](dl_phdr_info*, std::size_t, void* argument) {
          auto& a = *static_cast<asking*>(argument);
          for (int i = 0; i < 2; ++i) {
            a.all.push_back(connect_to(a.page));
            send_text(a.all.back(),
                      request("POST", "/dump.txt", host_of(a.page), with_token(a.page)));
          }
          pollfd both[2] = {{a.all[0].get(), POLLIN, 0}, {a.all[1].get(), POLLIN, 0}};
          ::poll(both, 2, -1);
          a.refused = both[0].revents != 0 ? 0 : 1;
          return 1;
        },
        &two);
    const http_answer second = answer_from(two.all[two.refused]);
    CHECK(second.status == 429);
    CHECK(second.field("Retry-After") == "1");
    CHECK(answer_from(two.all[1 - two.refused]).status == 200);
    CHECK(act(page, "/dump.txt").status == 200);
  }

  TEST_CASE("a page at a Unix socket") {
    const temporary_folder folder;
    const std::string path = folder.file("page.sock");
    std::optional page(vigil::inspect::serve(path, {.announce = false}));

    struct stat made {};

    REQUIRE(::lstat(path.c_str(), &made) == 0);
    CHECK((made.st_mode & 0777) == 0600);
    CHECK(page->address() == path);
    CHECK(get(*page, "/state.json").status == 200);
    CHECK(ask(*page, request("GET", "/", "evil.example")).status == 403);
    page.reset();
    CHECK(::access(path.c_str(), F_OK) != 0);
  }

  TEST_CASE("a page for other machines has to be wanted, and answers to addresses") {
    CHECK_THROWS_AS(static_cast<void>(page_at("0.0.0.0")), std::invalid_argument);
    const auto page = page_at("0.0.0.0", {.expose_to_network = true, .host_name = "b7.example"});
    CHECK(ask(page, request("GET", "/", "10.1.2.3:80")).status == 200);
    CHECK(ask(page, request("GET", "/", "b7.example")).status == 200);
    CHECK(ask(page, request("GET", "/", "evil.example")).status == 403);
  }

  TEST_CASE("an acceptor of Asio is taken over") {
    using boost::asio::ip::tcp;
    boost::asio::io_context context;
    tcp::acceptor acceptor(context, {boost::asio::ip::address_v4::loopback(), 0});
    const auto page = vigil::inspect::serve(std::move(acceptor), {.announce = false});
    CHECK(get(page, "/").status == 200);
  }

  TEST_CASE("it answers although every worker is busy") {
    const auto page = local_page();
    vigil::run({.workers = 1}, [&] {
      // No switch from here to the end: the runtime is stuck.
      const vigil::this_fiber::no_park stuck;
      CHECK(get(page, "/state.json").status == 200);
      CHECK(act(page, "/dump.txt").status == 200);
    });
  }

  TEST_CASE("it ends when its context is done, and only the sockets are left") {
    auto [stopping, stop] = vigil::with_cancel(vigil::background());
    const auto page = page_at("127.0.0.1", {.stopping = stopping});
    const descriptor waiting = connect_to(page);
    CHECK(get(page, "/").status == 200);
    stop();
    CHECK(answer_from(waiting).status == 0);
    // The acceptor is closed before the connections are.
    const std::string host = host_of(page);
    const descriptor late(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in a{};
    a.sin_family = AF_INET;
    a.sin_port = htons(static_cast<std::uint16_t>(std::atoi(host.c_str() + host.find(':') + 1)));
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(::connect(late.get(), reinterpret_cast<const sockaddr*>(&a), sizeof a) != 0);
  }

  TEST_CASE("it ends in the middle of a request") {
    std::optional page(local_page());
    const descriptor waiting = connect_to(*page);
    send_text(waiting, "GET / HTTP/1.1\r\n");
    page.reset();
    CHECK(answer_from(waiting).status == 0);
  }

  TEST_CASE("it keeps no program alive") {
    std::optional<vigil::inspect::live_page> page;
    vigil::run({.exit = vigil::exit_when::all_done}, [&] {
      page.emplace(local_page());
      vigil::go([] { vigil::this_fiber::yield(); });
    });
    CHECK(data(*page, "/workers.json").as_array().empty());
    CHECK(data(*page, "/fibers.json").at("count") == 0);
  }

  TEST_CASE("a deadlock is found beside it") {
    const auto page = local_page();
    CHECK(get(page, "/").status == 200);
    vigil::options settings;
    // `automatic` is fatal only if the process has no thread that could help; a sanitizer
    // has one.
#ifdef VIGIL_TEST_UNDER_SANITIZER
    settings.deadlock = vigil::on_deadlock::fatal;
#endif
#ifndef VIGIL_TEST_UNDER_SANITIZER
    // One of an earlier case that is still listed could help, too.
    while (!vigil::detail::process_has_only(1))
      std::this_thread::yield();
#endif
    const auto wait_for_ever = [] { static_cast<void>(vigil::make_channel<int>().recv()); };
    CHECK_THROWS_AS(vigil::run(settings, wait_for_ever), vigil::deadlock);
    CHECK(get(page, "/").status == 200);
  }

  TEST_CASE("virtual time goes on beside it") {
    const auto page = local_page();
    vigil::testing::run_virtual([&] {
      vigil::sleep_for(24h);
      const auto sleeper = vigil::spawn([] { vigil::sleep_for(1h); });
      vigil::sleep_for(1min);
      const json::value deadlines = data(page, "/deadlines.json");
      REQUIRE(deadlines.as_array().size() == 1);
      CHECK(deadlines.at(0).at("due_in_nanoseconds") == std::chrono::nanoseconds(59min).count());
    });
  }
}
