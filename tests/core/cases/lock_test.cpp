// The cases of locks: what lock() does, beside other cases of a select.
#include "core/cases/cases_test.hpp"

using namespace vigil::testing_support;
using vigil::on_lock;
using vigil::on_lock_shared;
using vigil::select_ordered;

namespace {

bool is_free(vigil::mutex& m) {
  if (!m.try_lock()) return false;
  m.unlock();
  return true;
}

bool is_free(vigil::shared_mutex& m) {
  if (!m.try_lock()) return false;
  m.unlock();
  return true;
}

// Checks a lock that has one owner.
template <class Mutex>
void check_lock() {
  using lock_type = std::unique_lock<Mutex>;
  in_virtual([] {
    Mutex m;
    // A free one is taken at once, and stays with the caller or with the lock of f.
    CHECK(select(on_lock(m)) == 0);
    CHECK_FALSE(is_free(m));
    CHECK(select(on_lock(m), otherwise()) == 1);
    m.unlock();
    bool owned = false;
    select(on_lock(m, [&](lock_type own) { owned = own.owns_lock(); }), on_timeout(1s));
    CHECK(owned);
    CHECK(is_free(m));
    select(on_lock(m, [&] { CHECK_FALSE(is_free(m)); }));
    CHECK_FALSE(is_free(m));
    m.unlock();

    // A taken one is waited for.
    m.lock();
    go([&] {
      sleep_for(2s);
      m.unlock();
    });
    const auto start = vigil::clock::now();
    const auto never = make_channel<int>();
    CHECK(select(on_recv(never), on_lock(m), on_timeout(1h)) == 1);
    CHECK(vigil::clock::now() - start == 2s);
    CHECK_FALSE(is_free(m));
    m.unlock();
    CHECK(is_free(m));
  });
}

template <class Mutex>
void check_function_that_throws() {
  in_virtual([] {
    Mutex m;
    const auto fails = [] { throw 7; };
    CHECK_THROWS_AS(select(on_lock(m, fails)), int);
    CHECK(is_free(m));
    CHECK_THROWS_AS(select(on_lock(m, [](std::unique_lock<Mutex>) { throw 7; })), int);
    CHECK(is_free(m));
    m.lock();
    go([&] {
      sleep_for(1s);
      m.unlock();
    });
    CHECK_THROWS_AS(select(on_lock(m, fails), on_timeout(1h)), int);
    CHECK(is_free(m));
  });
}

// The lock serves those behind a case that was not taken, and is as it was.
template <class Mutex>
void check_lost() {
  in_virtual([] {
    Mutex m;
    m.lock();
    const auto c = make_channel<int>();
    int behind = 0;
    auto loses = spawn([&] { return select(on_lock(m), on_recv(c)); });
    settle();
    auto waits_behind = spawn([&] {
      m.lock();
      ++behind;
      m.unlock();
    });
    settle();
    c.send(1);
    CHECK(loses.join() == 1);
    CHECK(select(on_lock(m), on_timeout(1s)) == 1);
    CHECK(select(on_lock(m), on_timeout(0s)) == 1);
    CHECK(behind == 0);
    m.unlock();
    waits_behind.join();
    CHECK(is_free(m));

    m.lock();
    auto [ctx, cancel] = vigil::with_cancel(vigil::background());
    auto ends_with_context =
        spawn([&, ctx = ctx] { return select(on_lock(m), vigil::on_done(ctx)); });
    settle();
    cancel();
    CHECK(ends_with_context.join() == 1);
    auto is_stopped = spawn([&] { select(on_lock(m)); });
    settle();
    is_stopped.request_stop();
    CHECK_THROWS_AS(is_stopped.join(), vigil::cancelled);
    m.unlock();
    CHECK(is_free(m));
  });
}

// Those that wait by lock() and those that wait by select are served as they came.
template <class Mutex>
void check_order() {
  for_each_seed(20, [] {
    Mutex m;
    m.lock();
    std::vector<int> order;
    crowd all;
    for (int i = 0; i < 6; ++i) {
      all.add([&, i] {
        if (i % 2 == 0) {
          m.lock();
        } else {
          select(on_lock(m), on_timeout(1h));
        }
        order.push_back(i);
        sleep_for(10ms);  // so that nobody overtakes
        m.unlock();
      });
      settle();
      sleep_for(2ms);
    }
    m.unlock();
    all.join();
    CHECK(order == std::vector<int>{0, 1, 2, 3, 4, 5});
    CHECK(is_free(m));
  });
}

template <class Mutex>
void check_twice_in_one_select() {
  in_virtual([] {
    Mutex m;
    CHECK(select_ordered(on_lock(m), on_lock(m)) == 0);
    auto other = spawn([&] { return select(on_lock(m), on_lock(m)); });
    settle();
    m.unlock();
    CHECK(other.join() < 2);
    CHECK_FALSE(is_free(m));
    m.unlock();
    CHECK(is_free(m));
  });
}

template <class Mutex>
void check_two_selects() {
  for_each_seed(10, [] {
    Mutex a;
    Mutex b;
    int inside_a = 0;
    int inside_b = 0;
    int taken = 0;
    crowd all;
    for (int i = 0; i < 4; ++i) {
      all.add([&] {
        const auto use = [&taken](int& inside) {
          CHECK(++inside == 1);
          sleep_for(1ms);
          --inside;
          ++taken;
        };
        for (int n = 0; n < 10; ++n) {
          select(on_lock(a, [&](std::unique_lock<Mutex>) { use(inside_a); }),
                 on_lock(b, [&](std::unique_lock<Mutex>) { use(inside_b); }));
        }
      });
    }
    all.join();
    CHECK(taken == 40);
    CHECK(is_free(a));
    CHECK(is_free(b));
  });
}

template <class Mutex>
void check_among_threads() {
  in_runtime({}, [](vigil::runtime&) {
    Mutex m;
    const auto c = make_channel<int>(1);
    int inside = 0;
    int count = 0;
    const auto in = [&] {
      CHECK(++inside == 1);
      ++count;
      --inside;
    };
    constexpr int each = 300;
    std::thread plain([&] {
      for (int i = 0; i < each; ++i)
        select(on_lock(m, [&](std::unique_lock<Mutex>) { in(); }));
    });
    crowd all;
    for (int f = 0; f < 3; ++f) {
      all.add([&, f] {
        for (int i = 0; i < each; ++i) {
          bool done = false;
          while (!done) {
            if (f == 0) {
              const std::lock_guard own(m);
              in();
              done = true;
            } else {
              select(on_lock(m,
                             [&](std::unique_lock<Mutex>) {
                               in();
                               done = true;
                             }),
                     on_recv(c),
                     vigil::on_send(c, 1));
              if (!done) vigil::this_fiber::yield();  // the lock may be another's on this worker
            }
          }
        }
      });
    }
    all.join();
    plain.join();
    CHECK(count == 4 * each);
    CHECK(is_free(m));
  });
}

}  // namespace

TEST_SUITE("lock cases") {
  TEST_CASE_TEMPLATE(
      "a lock is taken by a select as by lock()", Mutex, vigil::mutex, vigil::shared_mutex) {
    check_lock<Mutex>();
  }

  TEST_CASE_TEMPLATE(
      "a function that throws gives the lock back", Mutex, vigil::mutex, vigil::shared_mutex) {
    check_function_that_throws<Mutex>();
  }

  TEST_CASE_TEMPLATE("a case that was not taken leaves the lock as it was",
                     Mutex,
                     vigil::mutex,
                     vigil::shared_mutex) {
    check_lost<Mutex>();
  }

  TEST_CASE_TEMPLATE("selects and lock() are served in the order in which they came",
                     Mutex,
                     vigil::mutex,
                     vigil::shared_mutex) {
    check_order<Mutex>();
  }

  TEST_CASE_TEMPLATE(
      "the same lock in two cases is taken once", Mutex, vigil::mutex, vigil::shared_mutex) {
    check_twice_in_one_select<Mutex>();
  }

  TEST_CASE_TEMPLATE("selects over the same two locks exclude one another",
                     Mutex,
                     vigil::mutex,
                     vigil::shared_mutex) {
    check_two_selects<Mutex>();
  }

  TEST_CASE_TEMPLATE(
      "threads and fibers exclude one another", Mutex, vigil::mutex, vigil::shared_mutex) {
    check_among_threads<Mutex>();
  }

  TEST_CASE("an unlock hands the mutex to a select: no newcomer comes between") {
    in_virtual([] {
      vigil::mutex m;
      m.lock();
      auto waits = spawn([&] { return select(on_lock(m), on_timeout(1h)); });
      settle();
      m.unlock();
      CHECK_FALSE(m.try_lock());
      CHECK(waits.join() == 0);
      CHECK_FALSE(m.try_lock());
      m.unlock();
      CHECK(m.try_lock());
      m.unlock();
    });
  }

  TEST_CASE("readers come in together, and a writer's case keeps new ones out") {
    in_virtual([] {
      vigil::shared_mutex m;
      m.lock();
      std::vector<vigil::fiber<std::size_t>> readers;
      for (int i = 0; i < 3; ++i)
        readers.push_back(spawn([&] { return select(on_lock_shared(m), on_timeout(1h)); }));
      settle();
      m.unlock();
      for (auto& r : readers)
        CHECK(r.join() == 0);
      CHECK(select(on_lock(m), on_timeout(1s)) == 1);
      auto writer = spawn([&] { return select(on_lock(m), on_timeout(1s)); });
      settle();
      CHECK_FALSE(m.try_lock_shared());
      CHECK(select(on_lock_shared(m), otherwise()) == 1);
      auto reader = spawn([&] { return select(on_lock_shared(m)); });
      settle();
      // The writer gives up, and the reader behind it comes in.
      CHECK(writer.join() == 1);
      CHECK(reader.join() == 0);
      for (int i = 0; i < 4; ++i)
        m.unlock_shared();
      CHECK(is_free(m));
    });
  }

  TEST_CASE("a case to read does not wait behind the one to write of its own select") {
    in_virtual([] {
      vigil::shared_mutex m;
      m.lock_shared();
      auto gives_up = vigil::spawn([&] { return m.try_lock_for(1ms); });
      vigil::testing::settle();
      auto f = vigil::spawn([&] {
        return vigil::select_ordered(
            vigil::on_lock(m), vigil::on_lock_shared(m), vigil::on_timeout(1h));
      });
      CHECK_FALSE(gives_up.join());
      CHECK(f.join() == 1);
      m.unlock_shared();
      m.unlock_shared();
      CHECK(m.try_lock());
      m.unlock();
    });
  }

  TEST_CASE("one select may wait to read and to write the same lock") {
    in_virtual([] {
      vigil::shared_mutex m;
      vigil::mutex other;
      m.lock();
      other.lock();
      auto both = spawn([&] {
        const std::size_t taken = select(on_lock(m), on_lock_shared(m), on_lock(other));
        taken == 0 ? m.unlock() : m.unlock_shared();
        return taken;
      });
      settle();
      m.unlock();
      CHECK(both.join() < 2);
      CHECK(is_free(m));
      other.unlock();
      CHECK(is_free(other));
    });
  }

  TEST_CASE("the noted holder is the fiber that has selected") {
    in_virtual([] {
      vigil::detail::locks_are_watched |= vigil::detail::lock_watch::notes_holders;
      vigil::mutex m;
      vigil::shared_mutex s;
      const auto& m_core = vigil::detail::core_access::of(m);
      const auto& s_core = vigil::detail::core_access::of(s);
      m.lock();
      const std::uint64_t self = m_core.holder;
      CHECK(self != 0);
      auto other = spawn([&] {
        select(on_lock(m));
        CHECK(m_core.holder != 0);
        CHECK(m_core.holder != self);
        m.unlock();
      });
      settle();
      m.unlock();
      other.join();
      CHECK(m_core.holder == 0);
      select(
          on_lock(s, [&](std::unique_lock<vigil::shared_mutex>) { CHECK(s_core.holder == self); }));
      select(on_lock_shared(s), on_timeout(1s));
      CHECK(s_core.holder == 0);
      s.unlock_shared();
      vigil::detail::locks_are_watched &= ~vigil::detail::lock_watch::notes_holders;
    });
  }

  TEST_CASE("a list of cases takes locks again and again") {
    in_virtual([] {
      vigil::mutex m;
      vigil::case_list list;
      int times = 0;
      list.add(on_lock(m, [&](std::unique_lock<vigil::mutex>) { ++times; }));
      for (int i = 0; i < 3; ++i)
        CHECK(select(list) == 0);
      CHECK(times == 3);
      list.switch_off(0);
      list.add(on_timeout(1s));
      CHECK(select(list) == 1);
    });
  }
}
