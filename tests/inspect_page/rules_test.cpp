// The rules of a live page's security that need no connection.
#include "inspect_page/listening_socket.hpp"
#include "inspect_page/page_client.hpp"
#include "inspect_page/page_html.hpp"
#include "inspect_page/page_jobs.hpp"
#include "inspect_page/page_request.hpp"
#include "support/note.hpp"
#include "support/temporary_folder.hpp"

#include <vigil/vigil.hpp>

#include <stdexcept>
#include <string>
#include <system_error>

#include <doctest/doctest.h>

#include <sys/stat.h>

using namespace std::chrono_literals;
using namespace vigil::testing_support;
using vigil::detail::is_allowed_host;
using vigil::detail::listening_socket;
using vigil::detail::page_request;
using vigil::detail::page_rules;

TEST_SUITE("live page's rules") {
  TEST_CASE("a page is asked for by loopback addresses and as localhost") {
    for (const char* const host : {"localhost",
                                   "LocalHost:8091",
                                   "127.0.0.1",
                                   "127.0.0.1:1",
                                   "127.9.8.7:65535",
                                   "[::1]",
                                   "[::1]:8091",
                                   "[::ffff:127.0.0.1]:8091"}) {
      NOTE("host: ", host);
      CHECK(is_allowed_host(host, {}));
    }
    for (const char* const host : {"",
                                   ":8091",
                                   "evil.example",
                                   "localhost.evil.example",
                                   "localhost.",
                                   "127.0.0.1.evil.example",
                                   "evil.example:80",
                                   "10.0.0.1",
                                   "0.0.0.0",
                                   "127.1",
                                   "2130706433",
                                   "0x7f000001",
                                   "[::]",
                                   "[::2]:80",
                                   "[::1",
                                   "[::1]evil",
                                   "::1",
                                   "localhost:port",
                                   "localhost:80:80",
                                   "localhost:",
                                   "user@localhost"}) {
      NOTE("host: ", host);
      CHECK_FALSE(is_allowed_host(host, {}));
    }
  }

  TEST_CASE("a page that is exposed has the names that cannot be redirected, and one more") {
    const page_rules rules{.is_exposed = true, .host_name = "build7.example", .token = ""};
    for (const char* const host :
         {"10.0.0.1:8091", "[fe80::1]", "localhost", "build7.example", "Build7.Example:80"}) {
      NOTE("host: ", host);
      CHECK(is_allowed_host(host, rules));
    }
    CHECK_FALSE(is_allowed_host("evil.example", rules));
    CHECK_FALSE(is_allowed_host("build7.example.evil.example", rules));
  }

  TEST_CASE("an origin is the page's own, or there is none") {
    page_request r;
    r.host = "localhost:8091";
    CHECK(is_own_origin(r));
    r.origin = "http://localhost:8091";
    CHECK(is_own_origin(r));
    for (const char* const other : {"",
                                    "null",
                                    "http://evil.example",
                                    "http://localhost",
                                    "http://localhost:8092",
                                    "https://localhost:8091",
                                    "http://localhost:8091.evil.example"}) {
      NOTE("other: ", other);
      r.origin = other;
      CHECK_FALSE(is_own_origin(r));
    }
  }

  TEST_CASE("a token is random, and only itself is equal to it") {
    const std::string token = vigil::detail::random_digits();
    CHECK(token.size() == 32);
    CHECK(token != vigil::detail::random_digits());
    CHECK(vigil::detail::is_same_token(token, token));
    CHECK_FALSE(vigil::detail::is_same_token("", token));
    CHECK_FALSE(vigil::detail::is_same_token(token.substr(1), token));
    CHECK_FALSE(vigil::detail::is_same_token(token + "0", token));
    std::string other = token;
    other.back() = other.back() == '0' ? '1' : '0';
    CHECK_FALSE(vigil::detail::is_same_token(other, token));
  }

  TEST_CASE("an acceptor that others can reach is refused unless it may be exposed") {
    CHECK_THROWS_AS(listening_socket::taken_over(listen_at("0.0.0.0").release(), false),
                    std::invalid_argument);
    CHECK(listening_socket::taken_over(listen_at("0.0.0.0").release(), true).is_exposed());
    CHECK_FALSE(listening_socket::taken_over(listen_at("127.0.0.1").release(), false).is_exposed());
    CHECK_FALSE(listening_socket::taken_over(listen_at("127.0.0.9").release(), true).is_exposed());
    const descriptor v6(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in6 all{};
    all.sin6_family = AF_INET6;
    if (v6.get() >= 0 &&
        ::bind(v6.get(), reinterpret_cast<const sockaddr*>(&all), sizeof all) == 0) {
      REQUIRE(::listen(v6.get(), 1) == 0);
      CHECK_THROWS_AS(listening_socket::taken_over(::dup(v6.get()), false), std::invalid_argument);
    } else {
      MESSAGE("skipped: no IPv6 here");
    }
  }

  TEST_CASE("a socket that does not listen is refused") {
    descriptor idle(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    CHECK_THROWS_AS(listening_socket::taken_over(idle.release(), true), std::invalid_argument);
    CHECK_THROWS_AS(listening_socket::taken_over(-1, true), std::invalid_argument);
  }

  TEST_CASE("a Unix socket is made for its owner alone, and removed") {
    const temporary_folder folder;
    const std::string path = folder.file("owner.sock");
    {
      const listening_socket s = listening_socket::at_path(path.c_str());

      struct stat made {};

      REQUIRE(::lstat(path.c_str(), &made) == 0);
      CHECK(S_ISSOCK(made.st_mode));
      CHECK((made.st_mode & 0777) == 0600);
      CHECK_FALSE(s.is_exposed());
      // Somebody listens there.
      CHECK_THROWS_AS(listening_socket::at_path(path.c_str()), std::system_error);
    }
    CHECK(::access(path.c_str(), F_OK) != 0);
  }

  TEST_CASE("a Unix socket that was left behind is replaced, and another file is not") {
    const temporary_folder folder;
    const std::string path = folder.file("stale.sock");
    {
      listening_socket first = listening_socket::at_path(path.c_str());
      ::close(first.release());
      const listening_socket second = listening_socket::at_path(path.c_str());
      CHECK(second.address() == path);
    }
    std::FILE* const file = std::fopen(path.c_str(), "w");
    REQUIRE(file != nullptr);
    std::fclose(file);
    CHECK_THROWS_AS(listening_socket::at_path(path.c_str()), std::system_error);
    CHECK(::access(path.c_str(), F_OK) == 0);
    ::unlink(path.c_str());
    CHECK_THROWS_AS(listening_socket::at_path(std::string(200, 'x').c_str()),
                    std::invalid_argument);
    CHECK_THROWS_AS(listening_socket::at_path("/nowhere/at/all.sock"), std::system_error);
  }

  TEST_CASE("a result has a bound") {
    using vigil::detail::written_within;
    CHECK(written_within(4, [](std::FILE* f) { std::fputs("1234", f); }).value() == "1234");
    CHECK(written_within(0, [](std::FILE*) {}).value().empty());
    CHECK_FALSE(written_within(4, [](std::FILE* f) { std::fputs("12345", f); }));
    CHECK_FALSE(written_within(100'000, [](std::FILE* f) {
      for (int i = 0; i < 100'001; ++i)
        std::fputc('x', f);
    }));
    CHECK_FALSE(written_within(4, [](std::FILE* f) {
      std::fputs("12345", f);
      if (std::fflush(f) != 0) throw std::runtime_error("the file cannot be written");
    }));
    CHECK_THROWS_AS(written_within(4, [](std::FILE*) { throw std::runtime_error("no"); }),
                    std::runtime_error);
  }

  TEST_CASE("one job at a time; its slot is free when it has ended") {
    vigil::run([] {
      vigil::detail::job_slot slot;
      auto go_on = vigil::make_channel<void>();
      auto held = slot.take_for(0s);
      REQUIRE(held != nullptr);
      CHECK(slot.take_for(0s) == nullptr);
      // The fiber gives up, and the job goes on.
      const auto late = vigil::detail::done_elsewhere(std::move(held), 0s, [go_on] {
        static_cast<void>(go_on.recv());
        return std::string();
      });
      CHECK_FALSE(late.has_value());
      CHECK(slot.take_for(0s) == nullptr);
      go_on.close();
      held = slot.take_for(60s);
      CHECK(held != nullptr);
      CHECK(vigil::detail::done_elsewhere(std::move(held), 60s, [] { return std::string("x"); }) ==
            "x");
      held = slot.take_for(60s);
      const auto fail = []() -> std::string { throw std::runtime_error("no"); };
      CHECK_THROWS_AS(vigil::detail::done_elsewhere(std::move(held), 60s, fail),
                      std::runtime_error);
    });
  }

  TEST_CASE("the page's policy allows its own style and script, by a nonce") {
    const std::string policy = vigil::detail::page_policy("abc");
    CHECK(policy.find("default-src 'none'") != std::string::npos);
    CHECK(policy.find("script-src 'nonce-abc';") != std::string::npos);
    CHECK(policy.find("style-src 'nonce-abc';") != std::string::npos);
    CHECK(policy.find("frame-ancestors 'none'") != std::string::npos);
    CHECK(policy.find("unsafe") == std::string::npos);
    const std::string page = vigil::detail::page_document("abc");
    CHECK(page.find("<script nonce=\"abc\">") != std::string::npos);
    CHECK(page.find("<style nonce=\"abc\">") != std::string::npos);
    // All that the page shows is made as text.
    CHECK(page.find("innerHTML") == std::string::npos);
    CHECK(page.find("://") == page.find("://ui.perfetto.dev"));
  }
}
