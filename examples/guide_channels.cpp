// The code of docs/guide/channels.md and docs/coming-from-go.md: each function
// is one passage there.
//
// Run:    build/release/examples/guide_channels
// Prints: what each passage does.
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

using namespace std::chrono_literals;

// The selects are laid out by hand: each case begins a line.
// clang-format off

namespace {

void hello() {
  //! [hello]
  auto words = vigil::make_channel<std::string>();
  vigil::go([words] {
    for (const char* word : {"one", "two", "three"})
      words.send(word);
    words.close();
  });
  for (const std::string& word : words)
    std::puts(word.c_str());
  //! [hello]
}

//! [halves]
void count(vigil::sender<int> out) {  // may send and close, not receive
  for (int n = 1; n <= 4; ++n)
    out.send(n);
  out.close();
}

int sum_of(vigil::receiver<int> in) {  // may receive, neither send nor close
  int sum = 0;
  for (const int n : in)
    sum += n;
  return sum;
}

int ten() {
  auto numbers = vigil::make_channel<int>();
  vigil::go(count, numbers);
  return sum_of(numbers);
}
//! [halves]

void results() {
  auto numbers = vigil::make_channel<int>(1);
  numbers.send(7);
  //! [results]
  if (std::optional<int> n = numbers.recv()) std::printf("got %d\n", *n);  // no value: closed

  auto got = numbers.try_recv();  // at this moment
  if (!got && !got.is_closed()) std::puts("nothing there");

  got = numbers.recv_for(10ms);  // or recv_until(deadline)
  if (got.is_timeout()) std::puts("nothing for 10 ms");

  numbers.close();
  switch (numbers.recv_for(10ms).status()) {
    case vigil::channel_status::ok: break;
    case vigil::channel_status::closed: std::puts("closed"); break;
    case vigil::channel_status::not_ready: break;  // from a try_ form
    case vigil::channel_status::timeout: break;    // from a _for or _until form
  }
  //! [results]
}

void a_value_that_is_not_sent() {
  //! [unsent]
  auto parcels = vigil::make_channel<std::unique_ptr<int>>();
  auto parcel = std::make_unique<int>(42);

  if (!parcels.try_send(std::move(parcel))) std::printf("nobody waits; still %d\n", *parcel);

  auto sent = parcels.send_for(std::move(parcel), 10ms);
  if (sent.is_timeout()) std::printf("nobody came; still %d\n", *parcel);

  parcels.close();
  try {
    parcels.send(std::move(parcel));
  } catch (const vigil::channel_closed&) {
    std::printf("closed; still %d\n", *parcel);
  }
  //! [unsent]
}

void close_reaches_everybody() {
  //! [close]
  auto quit = vigil::make_channel<void>();
  std::vector<vigil::fiber<>> workers;
  for (int i = 0; i < 3; ++i)
    workers.push_back(vigil::spawn([quit] { quit.recv(); }));
  quit.close();
  for (auto& worker : workers)
    worker.join();
  std::puts("all three have heard it");
  //! [close]
}

int merge(vigil::receiver<int> a, vigil::receiver<int> b) {
  //! [nil]
  int sum = 0;
  while (a || b) {
    vigil::select(
        vigil::on_recv(a, [&](std::optional<int> n) {
          if (n) sum += *n;
          else a = {};  // closed; as nil it is never ready
        }),
        vigil::on_recv(b, [&](std::optional<int> n) {
          if (n) sum += *n;
          else b = {};
        }));
  }
  //! [nil]
  return sum;
}

void choose() {
  auto requests = vigil::make_channel<std::string>(1);
  auto log = vigil::make_channel<std::string>(1);
  std::string line = "a line";
  for (int i = 0; i < 2; ++i) {
    //! [select]
    const std::size_t taken = vigil::select(
        vigil::on_recv(requests, [](std::optional<std::string> r) { std::puts(r->c_str()); }),
        vigil::on_send(log, std::move(line), [] { std::puts("logged"); }),
        vigil::otherwise([] { std::puts("nothing to do"); }));
    //! [select]
    std::printf("case %zu\n", taken);
  }
}

void as_in_go() {
  auto lines = vigil::make_channel<std::string>(1);
  auto replies = vigil::make_channel<std::string>();
  std::string reply = "yes";
  lines.send("a question");
  //! [from_go]
  vigil::select(
      vigil::on_recv(lines, [](std::optional<std::string> line) {
        if (line) std::puts(line->c_str());
      }),
      vigil::on_send(replies, std::move(reply), [] { std::puts("sent"); }),
      vigil::on_timeout(1s, [] { std::puts("too late"); }));
  //! [from_go]
}

void in_order() {
  auto quit = vigil::make_channel<void>();
  auto work = vigil::make_channel<int>(2);
  work.send(1);
  work.send(2);
  quit.close();
  //! [ordered]
  for (bool over = false; !over;) {
    vigil::select_ordered(
        vigil::on_recv(quit, [&over] { over = true; }),
        vigil::on_recv(work, [](std::optional<int> n) { std::printf("work %d\n", *n); }));
  }
  //! [ordered]
  std::printf("%zu not begun\n", work.size());
}

void any_number() {
  std::vector<vigil::channel<int>> inputs;
  for (int i = 0; i < 4; ++i)
    inputs.push_back(vigil::make_channel<int>(1));
  inputs[2].send(5);
  //! [list]
  vigil::case_list cases;
  for (const vigil::channel<int>& input : inputs)
    cases.add(vigil::on_recv(input, [](std::optional<int> n) { std::printf("got %d\n", *n); }));
  cases.add(vigil::on_timeout(1s));
  const std::size_t taken = vigil::select(cases);  // again and again, if you like
  //! [list]
  std::printf("from %zu\n", taken);
}

void plain_thread() {
  //! [thread]
  auto readings = vigil::make_channel<int>(8);
  std::thread sensor([readings, announced = vigil::runtime::current().make_work_guard()] {
    for (int n = 1; n <= 3; ++n)
      readings.send(n);  // sleeps this thread while the buffer is full
    readings.close();
  });
  for (const int n : readings)
    std::printf("reading %d\n", n);  // parks the fiber while it is empty
  sensor.join();
  //! [thread]
}

void drain_when_stopped() {
  auto inbox = vigil::make_channel<int>(8);
  inbox.send(1);
  inbox.send(2);
  auto reader = vigil::spawn([inbox] {
    //! [stopped]
    try {
      for (;;) std::printf("letter %d\n", *inbox.recv());  // waiting letters still come
    } catch (const vigil::stopped&) {
      std::puts("nothing is left");  // the first receive that would have to wait
      throw;
    }
    //! [stopped]
  });
  reader.request_stop();
}

}  // namespace

int main() {
  vigil::testing::run_virtual([] {
    hello();
    std::printf("%d\n", ten());
    results();
    a_value_that_is_not_sent();
    close_reaches_everybody();
    auto a = vigil::make_channel<int>(), b = vigil::make_channel<int>();
    vigil::go(count, a);
    vigil::go(count, b);
    std::printf("%d\n", merge(a, b));
    choose();
    as_in_go();
    in_order();
    any_number();
    drain_when_stopped();
  });
  return vigil::run(plain_thread);
}
