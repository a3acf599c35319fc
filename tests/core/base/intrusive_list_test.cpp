#include "core/base/intrusive_list.hpp"

#include "core/base/random.hpp"

#include <deque>
#include <vector>

#include <doctest/doctest.h>

using namespace vigil::detail;

namespace {

struct element {
  int value = 0;
  list_hook<element> hook;
  element* next = nullptr;
};

using elements = list<element, &element::hook>;
using element_chain = chain<element, &element::next>;

std::vector<int> values(const elements& l) {
  std::vector<int> v;
  for (element* e = l.front(); e != nullptr; e = elements::next(*e))
    v.push_back(e->value);
  return v;
}

}  // namespace

TEST_SUITE("intrusive_list") {
  TEST_CASE("elements leave from anywhere and the others keep their order") {
    vigil::detail::random dice(7);
    std::vector<element> pool(64);
    elements l;
    std::vector<int> model;
    for (int i = 0; i < 64; ++i)
      pool[static_cast<std::size_t>(i)].value = i;
    for (int step = 0; step < 20'000; ++step) {
      element& e = pool[dice.below(64)];
      if (e.hook.linked) {
        l.remove(e);
        std::erase(model, e.value);
      } else {
        l.push_back(e);
        model.push_back(e.value);
      }
      REQUIRE(l.size() == model.size());
      if (step % 100 == 0) REQUIRE(values(l) == model);
    }
    while (element* const e = l.pop_front()) {
      REQUIRE(e->value == model.front());
      model.erase(model.begin());
      CHECK(!e->hook.linked);
    }
    CHECK(model.empty());
  }

  TEST_CASE("a chain is first in, first out, and moves onto another whole") {
    std::vector<element> pool(6);
    element_chain a;
    element_chain b;
    for (int i = 0; i < 6; ++i) {
      auto& e = pool[static_cast<std::size_t>(i)];
      e.value = i;
      (i < 3 ? a : b).push_back(e);
    }
    a.splice_back(b);
    CHECK(b.empty());
    CHECK(a.size() == 6);
    for (int i = 0; i < 6; ++i)
      CHECK(a.pop_front()->value == i);
    CHECK(a.pop_front() == nullptr);
    a.splice_back(b);
    CHECK(a.empty());
    a.push_front(pool[0]);
    a.push_back(pool[1]);
    CHECK(a.pop_front() == &pool[0]);
    CHECK(a.pop_front() == &pool[1]);
  }
}
