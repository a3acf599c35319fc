// co::wait_all: joins one after another, which take no result.
#include <vigil/detail/task_waits.hpp>

namespace VIGIL_DETAIL {

// Not in a namespace without a name: it is a part of the coroutines' frames.
class end_wait : public one_case_wait<end_wait> {
 public:
  end_wait(const any_end& of, const wait_limit& limit)
      : one_case_wait(limit), of_(of), case_(*of.kind->join, of.object) {}

  select_case& one_case() noexcept { return case_; }

  // False if the limit has come.
  bool await_resume() {
    const bool has_ended = end_one();
    if (has_ended) of_.kind->leave(of_.object);
    return has_ended;
  }

 private:
  const any_end of_;
  select_case case_;
};

task<bool> wait_for_all(std::vector<any_end> ends, wait_limit limit) {
  check_ends(ends);
  const kept_limit kept(limit.absolute());
  for (const any_end& e : ends) {
    if (e.object == nullptr) continue;
    const bool has_ended = co_await end_wait(e, kept.limit);
    if (!has_ended) co_return false;
  }
  co_return true;
}

}  // namespace VIGIL_DETAIL
