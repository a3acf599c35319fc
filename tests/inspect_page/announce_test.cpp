// The announcement of a live page on standard error. Each case serves in a process of
// its own: the descriptor is the whole process's.
#include "inspect_page/page_client.hpp"
#include "support/child.hpp"
#include "support/note.hpp"
#include "support/temporary_folder.hpp"

#include <cstddef>
#include <cstdio>
#include <optional>
#include <string>

#include <doctest/doctest.h>

#include <unistd.h>

using namespace vigil::testing_support;

namespace {

// A page, and what serving it has written to standard error.
struct announced_page {
  std::optional<vigil::inspect::live_page> page;
  std::string said;
};

template <class F>
announced_page announced(F serve) {
  announced_page a;
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const descriptor before(::dup(2));
  REQUIRE(::dup2(ends[1], 2) == 2);
  ::close(ends[1]);
  a.page.emplace(serve());
  std::fflush(stderr);
  ::dup2(before.get(), 2);  // the pipe has no writer any more
  char text[4096];
  for (ssize_t n; (n = ::read(ends[0], text, sizeof text)) > 0;)
    a.said.append(text, static_cast<std::size_t>(n));
  ::close(ends[0]);
  return a;
}

constexpr const char* token_begins = "#token=";

// The token in what was said, to the end of the line; "" if there is none.
std::string token_in(const std::string& said) {
  const std::size_t at = said.find(token_begins);
  if (at == std::string::npos) return "";
  const std::size_t begin = at + std::string(token_begins).size();
  return said.substr(begin, said.find('\n', begin) - begin);
}

// The printed token is the one with which a request may act.
void check_token(const announced_page& a) {
  const std::string token = token_in(a.said);
  REQUIRE(token.size() == 32);
  const auto dump_with = [&](const std::string& t) {
    return ask(*a.page, request("POST", "/dump.txt", "localhost", "X-Vigil-Token: " + t + "\r\n"));
  };
  CHECK(dump_with(token).status == 200);
  std::string other = token;
  other.back() = other.back() == '0' ? '1' : '0';
  CHECK(dump_with(other).status == 403);
}

}  // namespace

TEST_SUITE("live page's announcement") {
  TEST_CASE("child: a page at a port" * doctest::skip()) {
    const announced_page a = announced(
        [] { return vigil::inspect::serve_descriptor(listen_at("127.0.0.1").release()); });
    CHECK(a.said == "vigil: the live page is at http://" + host_of(*a.page) + "/" + token_begins +
                        token_in(a.said) + "\n");
    check_token(a);
  }

  TEST_CASE("child: a page at a Unix socket" * doctest::skip()) {
    const temporary_folder folder;
    const std::string path = folder.file("announced.sock");
    const announced_page a = announced([&] { return vigil::inspect::serve(path); });
    CHECK(a.said == "vigil: the live page listens at " + path + ", with " + token_begins +
                        token_in(a.said) + "\n");
    check_token(a);
  }

  TEST_CASE("child: pages that are to say nothing" * doctest::skip()) {
    const temporary_folder folder;
    CHECK(announced([] { return local_page(); }).said.empty());
    CHECK(announced([&] {
            return vigil::inspect::serve(folder.file("silent.sock"), {.announce = false});
          }).said.empty());
  }

  TEST_CASE("the address and the token are printed at the start, unless that is not wanted") {
    for (const char* const name : {"child: a page at a port",
                                   "child: a page at a Unix socket",
                                   "child: pages that are to say nothing"}) {
      const child_result child = run_child(name);
      NOTE("name: ", name);
      NOTE(child.output);
      CHECK(child.succeeded());
      CHECK(child.says("1 passed"));
    }
  }
}
