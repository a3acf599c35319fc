// select with on_done.
#include "core/cancel/cancel_test.hpp"

using namespace vigil::testing_support;

TEST_SUITE("select with on_done") {
  TEST_CASE("takes the case when the context is done, with its function") {
    in_virtual([] {
      const auto start = clock::now();
      auto it = with_timeout(background(), 1s);
      const auto c = make_channel<int>();
      bool done = false;
      CHECK(vigil::select(vigil::on_recv(c), vigil::on_done(it.ctx, [&] { done = true; })) == 1);
      CHECK(done);
      CHECK(since(start) == 1s);
      CHECK(vigil::select(vigil::on_done(it.ctx), vigil::on_timeout(1s)) == 0);
      CHECK(since(start) == 1s);
    });
  }

  TEST_CASE("is not taken while the context is open, nor ever for one that is never done") {
    in_virtual([] {
      auto it = with_cancel(background());
      CHECK(vigil::select(vigil::on_done(it.ctx), vigil::otherwise()) == 1);
      CHECK(vigil::select(vigil::on_done(vigil::without_cancel(it.ctx)), vigil::on_timeout(1s)) ==
            1);
      it.cancel();
      CHECK(vigil::select(vigil::on_done(it.ctx), vigil::otherwise()) == 0);
      CHECK(vigil::select_ordered(vigil::on_done(it.ctx), vigil::on_timeout(0s)) == 0);
    });
  }

  TEST_CASE("has its turn among ready cases") {
    in_virtual([] {
      auto it = with_cancel(background());
      it.cancel();
      const auto c = make_channel<int>(1);
      c.send(1);
      int done = 0;
      for (int i = 0; i < 1000; ++i) {
        vigil::select(vigil::on_recv(c, [&] { c.send(1); }),
                      vigil::on_done(it.ctx, [&] { ++done; }));
      }
      CHECK(done > 380);
      CHECK(done < 620);
    });
  }
}
