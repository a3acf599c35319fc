// page_server: the thread of a live page, with the runtime and the io_context of its own
// in which it serves.
#pragma once

#include "inspect_page/listening_socket.hpp"
#include "inspect_page/page_http.hpp"
#include "inspect_page/page_jobs.hpp"
#include "inspect_page/page_request.hpp"
#include "inspect_page/waiting_peers.hpp"

#include <vigil/context.hpp>
#include <vigil/detail/config.hpp>
#include <vigil/inspect_page.hpp>
#include <vigil/runtime.hpp>

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <functional>
#include <future>
#include <string>
#include <string_view>
#include <thread>

namespace VIGIL_DETAIL {

// page_settings: more options, for the library's own tests and benchmarks.
struct page_settings {
  // The events that the recorder of the page's own runtime keeps; 0: it does not record.
  std::size_t recorder_events = 0;
  // The bytes that a dump or a recording may have.
  std::size_t result_limit = std::size_t{64} << 20;
  // How long the head of a request may take.
  std::chrono::nanoseconds patience = time_to_ask;
};

class page_server {
 public:
  // Returns when connections are accepted. Throws as inspect::serve promises.
  page_server(listening_socket&& socket,
              const inspect::page_options& options,
              const page_settings& settings = {});
  ~page_server();
  page_server(const page_server&) = delete;
  page_server& operator=(const page_server&) = delete;

  const std::string& address() const noexcept { return address_; }

  const std::string& token() const noexcept { return rules_.token; }

 private:
  void run(std::promise<void> started) noexcept;
  void serve(std::promise<void>& started, bool& is_serving);
  void answer_one(page_stream peer);
  page_answer answer(const page_request& request);
  page_answer answer_look(const page_request& request);
  page_answer answer_act(const page_request& request);
  page_answer answer_group(const page_request& request);
  page_answer act(std::string_view type, std::function<void(std::FILE*)> write);

  listening_socket socket_;
  const context stopping_;
  const page_rules rules_;
  const bool with_addresses_;
  const page_settings settings_;
  const std::string address_;
  job_slot look_slot_;
  job_slot act_slot_;
  waiting_peers peers_;
  runtime runtime_;
  std::thread thread_;  // last: it uses the rest
};

}  // namespace VIGIL_DETAIL
