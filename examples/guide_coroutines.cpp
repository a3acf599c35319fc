// The code of docs/guide/coroutines.md: each function is one passage there.
//
// Run:    build/release/examples/guide_coroutines
// Prints: what each passage does.
#include <vigil/co.hpp>
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <cstdio>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

using namespace std::chrono_literals;

namespace {

//! [task]
namespace co = vigil::co;

vigil::task<int> price_of(std::string item) {
  co_await co::sleep_for(10ms);  // as if it asked somebody
  co_return static_cast<int>(item.size());
}

vigil::task<int> total(std::vector<std::string> items) {
  int sum = 0;
  for (const std::string& item : items)
    sum += co_await price_of(item);  // runs as a part of this task
  co_return sum;
}

//! [task]

void started() {
  //! [spawn]
  vigil::task_handle<int> t = vigil::spawn(total({"tea", "bread"}));
  std::printf("total %d\n", t.join());  // in a task: co_await co::join(t)
  //! [spawn]
}

//! [at_once]
vigil::task<int> total_at_once(std::vector<std::string> items) {
  std::vector<vigil::task_handle<int>> prices;
  for (const std::string& item : items)
    prices.push_back(vigil::spawn(price_of(item)));
  int sum = 0;
  for (auto& price : prices)
    sum += co_await co::join(price);
  co_return sum;
}

//! [at_once]

void all_at_once() {
  const auto start = vigil::clock::now();
  const int sum = vigil::spawn(total_at_once({"tea", "bread", "milk"})).join();
  const auto took =
      std::chrono::duration_cast<std::chrono::milliseconds>(vigil::clock::now() - start);
  std::printf("total %d after %d ms\n", sum, static_cast<int>(took.count()));
}

//! [in_place]
struct message {
  std::string text;
  int number = 0;
};

vigil::task<> asks(vigil::sender<message> out, vigil::receiver<int> answers) {
  co_await co::send(out, std::in_place, "how many?", 1);  // not message{"how many?", 1}
  const auto show = [&](std::optional<int> n) { std::printf("answer %d\n", n.value_or(0)); };
  co_await co::select(vigil::on_recv(answers, show),
                      vigil::on_send(out, std::in_place, "hello?", 2));
}

//! [in_place]

void asking() {
  const auto questions = vigil::make_channel<message>();
  const auto answers = vigil::make_channel<int>();
  auto t = vigil::spawn(asks(questions, answers));
  std::puts(questions.recv()->text.c_str());
  answers.send(12);
  t.join();
}

//! [channels]
vigil::task<> doubles(vigil::receiver<int> in, vigil::sender<int> out) {
  while (const std::optional<int> n = co_await co::recv(in))
    co_await co::send(out, 2 * *n);
  out.close();
}

//! [channels]

void pipeline() {
  auto in = vigil::make_channel<int>();
  auto out = vigil::make_channel<int>();
  auto t = vigil::spawn(doubles(in, out));
  auto sender = vigil::spawn([in] {  // a fiber
    for (int i = 1; i <= 3; ++i)
      in.send(i);
    in.close();
  });
  for (const int n : out)
    std::printf("%d\n", n);
  t.join();
  sender.join();
}

//! [select]
vigil::task<> listens(vigil::receiver<std::string> lines, vigil::context ctx) {
  for (bool over = false; !over;) {
    co_await co::select(
        vigil::on_recv(lines, [](std::optional<std::string> s) { std::puts(s->c_str()); }),
        vigil::on_timeout(50ms, [] { std::puts("quiet"); }),
        vigil::on_done(ctx, [&] { over = true; }));
  }
  std::puts("over");
}

//! [select]

void selecting() {
  auto lines = vigil::make_channel<std::string>();
  auto [ctx, cancel] = vigil::with_timeout(vigil::background(), 120ms);
  auto t = vigil::spawn(listens(lines, ctx));
  vigil::sleep_for(30ms);
  lines.send("hello");
  t.join();
}

//! [stop]
vigil::task<> patient() {
  try {
    co_await co::sleep_for(1h);
  } catch (const vigil::stopped&) {
    std::puts("asked to stop");
    throw;
  }
}

//! [stop]

void stopping() {
  auto t = vigil::spawn(patient());
  vigil::sleep_for(1ms);
}  // the handle asks the task to stop, and waits for it

void lambda() {
  auto ch = vigil::make_channel<int>();
  //! [lambda]
  auto t = vigil::spawn([](vigil::channel<int> from) -> vigil::task<> {
    std::printf("got %d\n", *co_await co::recv(from));
  }(ch));
  //! [lambda]
  ch.send(7);
  t.join();
}

}  // namespace

int main() {
  vigil::testing::run_virtual([] {
    started();
    all_at_once();
    asking();
    pipeline();
    selecting();
    stopping();
    lambda();
  });
}
