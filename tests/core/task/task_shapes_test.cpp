// The shapes of coroutines that g++ 12 miscompiles (the box in docs/guide/coroutines.md),
// and those that hold. tools/check_coroutines.py finds the first; this file tests it.
#include "core/task/task_test.hpp"

#include <string>
#include <type_traits>

using namespace vigil::testing_support;
using vigil::context;

namespace {

// Each object that was made is destroyed once, or the count is not zero at the end. The
// mark is not followed, so a second destructor can be counted.
class counted {
 public:
  explicit counted(int* c) noexcept : count_(c) { ++*count_; }

  counted(const counted& other) noexcept : counted(other.count_) {}

  counted& operator=(const counted&) = delete;

  ~counted() { --*count_; }

 private:
  int* count_;
};

// An aggregate, and the same with a constructor.
struct message {
  counted life;
  int number;
};

struct letter {
  letter(counted c, int n) : life(c), number(n) {}

  counted life;
  int number;
};

struct text {
  std::string words;
  int number;
};

task<int> number_of(message m) {
  co_return m.number;
}

message either(bool first, const counted& c) {
  return first ? message{c, 1} : message{c, 2};
}

// Runs it to its end with a channel that has room; returns how many of the objects that
// were made are not destroyed, negative if some were destroyed twice.
template <class T>
int left_by(T (*runs)(channel<message>, counted)) {
  int count = 0;
  vigil::testing::run_virtual({}, [&] {
    const auto ch = make_channel<message>(16);
    spawn(runs(ch, counted(&count))).join();
    while (ch.try_recv()) {
    }
  });
  return count;
}

// Right in C++, and right by clang++.
task<> sends_aggregate(channel<message> to, counted c) {
  co_await co::send(to, message{c, 1});  // check_coroutines: what the box says
}

task<> awaits_with_aggregate(channel<message>, counted c) {
  static_cast<void>(co_await number_of(message{c, 1}));  // check_coroutines: what the box says
  static_cast<void>(co_await number_of({c, 1}));         // check_coroutines: what the box says
}

task<> fills_aggregate(channel<message>, counted c) {
  const message m{c, co_await number_of(either(true, c))};  // check_coroutines: the box
  CHECK(m.number == 1);
}

task<> selects_with_captures(channel<message> to, counted c) {
  co_await co::select(vigil::on_send(to, either(true, c)),
                      // check_coroutines: what the box says
                      vigil::on_timeout(1h, [c] { static_cast<void>(c); }));
}

task<> chooses(channel<message> to, counted c) {
  const bool first = to.size() == 0;
  // check_coroutines: what the box says
  co_await co::send(to, first ? either(true, c) : either(false, c));
}

task<> goes_on_if(channel<message> from, counted) {
  if (co_await co::recv_for(from, 0ms)) from.close();  // check_coroutines: what the box says
}

task<> goes_on_while(channel<message> from, counted) {
  while (co_await co::recv_for(from, 0ms))  // check_coroutines: what the box says
    from.close();
}

task<> goes_on_for(channel<message> from, counted) {
  for (; co_await co::recv_for(from, 0ms);)  // check_coroutines: what the box says
    from.close();
}

task<> goes_on_do(channel<message> from, counted) {
  do {
    co_await co::yield();
  } while (co_await co::recv_for(from, 0ms));  // check_coroutines: what the box says
}

task<int> switches(channel<message>, counted c) {
  switch (co_await number_of(either(true, c))) {  // check_coroutines: what the box says
    case 1:
      co_return 2;
    default:
      co_return 3;
  }
}

// The shapes that the box recommends are right by both compilers.
task<> sends_in_place(channel<message> to, counted c) {
  const context ctx = vigil::background();
  co_await co::send(to, std::in_place, c, 1);
  co_await co::send(to, ctx, std::in_place, c, 2);
  CHECK(co_await co::send_for(to, 1s, std::in_place, c, 3));
  CHECK((co_await co::send_for(to, 1s, std::in_place, either(true, c))).status() ==
        vigil::channel_status::ok);
  int sent = 0;
  const auto count_it = [&sent] { ++sent; };
  co_await co::select(vigil::on_send(to, std::in_place, c, 4), vigil::on_timeout(1h));
  co_await co::select(vigil::on_send(to, count_it, std::in_place, c, 5), vigil::on_timeout(1h));
  CHECK(sent == 1);
  CHECK(to.size() == 6);
}

task<> sends_named(channel<message> to, counted c) {
  message named{c, 1};
  co_await co::send(to, named);
  co_await co::send(to, std::move(named));
  co_await co::send(to, either(false, c));
  CHECK(to.size() == 3);
}

task<> sends_what_has_a_constructor(channel<message>, counted c) {
  const auto to = make_channel<letter>(2);
  co_await co::send(to, letter(c, 1));
  co_await co::send(to, std::in_place, c, 2);
  CHECK(to.size() == 2);
}

task<> names_each_part(channel<message> to, counted c) {
  const int n = co_await number_of(either(true, c));
  const message m{c, n};
  auto done = [c] { static_cast<void>(c); };
  co_await co::select(vigil::on_send(to, std::move(done), std::in_place, m));
  const bool first = to.size() == 0;
  message chosen = first ? either(true, c) : either(false, c);
  co_await co::send(to, std::move(chosen));
  CHECK(to.size() == 2);
}

task<> declares_in_the_condition(channel<message> from, counted c) {
  if (const auto v = co_await co::recv_for(from, 0ms)) from.close();
  while (const auto v = co_await co::recv_for(from, 0ms))
    from.close();
  switch (const int n = co_await number_of(either(true, c)); n) {
    case 1:
      break;
    default:
      FAIL_CHECK("another number");
  }
}

#if defined(__clang__)
constexpr bool is_right = true;
constexpr bool is_gcc_12 = false;
#else
constexpr bool is_right = false;
constexpr bool is_gcc_12 = __GNUC__ == 12;
#endif

}  // namespace

TEST_SUITE("task: shapes") {
  TEST_CASE("what the guide's box recommends destroys each object once") {
    CHECK(left_by(sends_in_place) == 0);
    CHECK(left_by(sends_named) == 0);
    CHECK(left_by(sends_what_has_a_constructor) == 0);
    CHECK(left_by(names_each_part) == 0);
    CHECK(left_by(declares_in_the_condition) == 0);
  }

  TEST_CASE("what the box warns of is right in C++") {
    if (!is_right) return;
    CHECK(left_by(sends_aggregate) == 0);
    CHECK(left_by(awaits_with_aggregate) == 0);
    CHECK(left_by(fills_aggregate) == 0);
    CHECK(left_by(selects_with_captures) == 0);
    CHECK(left_by(chooses) == 0);
    CHECK(left_by(goes_on_if) == 0);
    CHECK(left_by(goes_on_while) == 0);
    CHECK(left_by(goes_on_for) == 0);
    CHECK(left_by(goes_on_do) == 0);
    CHECK(left_by(switches) == 0);
  }

  // If this fails, the compiler has been mended: the box and the lint can go.
  TEST_CASE("what the box warns of destroys twice with g++ 12") {
    if (!is_gcc_12) return;
    CHECK(left_by(sends_aggregate) == -1);
    CHECK(left_by(awaits_with_aggregate) == -2);
    CHECK(left_by(fills_aggregate) == -1);
    CHECK(left_by(selects_with_captures) == -1);
  }

  TEST_CASE("a value that is made in place reaches the receiver, or is lost with the wait") {
    in_virtual([] {
      const auto ch = make_channel<text>(2);
      const auto pointers = make_channel<std::unique_ptr<text>>(1);
      const auto sends = [](channel<text> to, channel<std::unique_ptr<text>> other) -> task<> {
        co_await co::send(to, std::in_place, "first", 1);
        CHECK(co_await co::send_for(to, 5ms, std::in_place, std::string(40, 'x'), 2));
        CHECK((co_await co::send_for(to, 5ms, std::in_place, "late", 3)).is_timeout());
        co_await co::send(other, std::in_place, new text);
      };
      spawn(sends(ch, pointers)).join();
      CHECK(ch.recv()->words == "first");
      CHECK(ch.recv()->words == std::string(40, 'x'));
      CHECK(pointers.recv()->get() != nullptr);
      CHECK(ch.size() == 0);
    });
  }

  TEST_CASE("a fiber's select sends a value that is made in place") {
    in_virtual([] {
      const auto ch = make_channel<text>(3);
      int sent = 0;
      vigil::select(vigil::on_send(ch, std::in_place, "one", 1));
      vigil::select(vigil::on_send(
          ch, [&] { ++sent; }, std::in_place, "two", 2));
      vigil::case_list list;
      list.add(vigil::on_send(
          ch, [&] { ++sent; }, std::in_place, "three", 3));
      vigil::select(list);
      CHECK(sent == 2);
      CHECK(ch.recv()->words == "one");
      CHECK(ch.recv()->words == "two");
      CHECK(ch.recv()->words == "three");
      CHECK_THROWS_AS(
          [&] {
            ch.close();
            vigil::select(vigil::on_send(ch, std::in_place, "four", 4));
          }(),
          vigil::channel_closed);
    });
  }

  TEST_CASE("a channel of functions takes one as a value, and in place") {
    in_virtual([] {
      struct function {
        function(void (*f)()) : called(f) {}  // NOLINT(google-explicit-constructor)

        void operator()() const { called(); }

        void (*called)();
      };
      const auto ch = make_channel<function>(2);
      static int calls = 0;
      calls = 0;
      vigil::select(vigil::on_send(
          ch, +[] { ++calls; }));
      vigil::select(vigil::on_send(
          ch, [] { calls += 10; }, std::in_place, +[] { ++calls; }));
      CHECK(calls == 10);
      (*ch.recv())();
      (*ch.recv())();
      CHECK(calls == 12);
    });
  }
}
