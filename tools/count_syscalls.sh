#!/usr/bin/env bash
# Counts system calls from outside, with strace:
#
#   tools/count_syscalls.sh path/to/idle_program [path/to/vigil_bench]
#
# 1. an idle program with 1 000 pending one-hour timers makes no system call in
#    10 s, counted from 1 s after strace attached;
# 2. it makes none after 1 000 000 arm+stop from two workers either, and at most 2
#    wake-ups come in the second after that burst;
# 3. a lone fiber's sleep_for(10ms) makes at most 1.1 system calls, with one
#    worker and with two;
# 4. arm+stop of a timer that is not the earliest makes none.
#
# With vigil_bench, if it has been built with vigil-io:
# 5. where io_context waits for I/O a lone sleep makes at most 4 calls;
# 6. a server with 1 000 idle connections makes none in 10 s.
#
# Ends with 1 if one of these does not hold.
set -euo pipefail

program=${1:?usage: tools/count_syscalls.sh path/to/idle_program [path/to/vigil_bench]}
io_program=${2:-}
command -v strace >/dev/null || { echo 'count_syscalls.sh: install strace' >&2; exit 2; }

folder=$(mktemp -d)
running=
trap '[[ -z $running ]] || kill "$running" 2>/dev/null || true; rm -rf "$folder"' EXIT
status=0

verdict() { # text, whether it holds
  if (($2)); then echo "ok      $1"; else echo "FAILED  $1"; status=1; fi
}

# System calls of an idle program in 10 s, from 1 s after strace attached: the
# attaching itself restarts the waits.
idle_calls() { # mode
  : >"$folder/said" >"$folder/attached"
  "$program" "$1" >"$folder/said" &
  running=$!
  until grep -q ready "$folder/said"; do sleep 0.1; done
  # The thread of options::stuck_limit ends up to a second after the last work.
  sleep 1.5
  timeout -s INT 12 strace -f -ttt -o "$folder/calls" -p "$running" 2>"$folder/attached" &
  local tracer=$!
  until grep -q attached "$folder/attached"; do sleep 0.01; done
  local from
  from=$(date +%s.%N)
  wait "$tracer" || true
  kill "$running"
  wait "$running" 2>/dev/null || true
  running=
  # Lines begin with the thread and the time of the call. Calls that were under way are
  # shown as resumed or restarted.
  awk -v from="$from" '$2 >= from + 1 && $2 <= from + 11' "$folder/calls" |
    grep -c -v -e '<detached' -e '+++' -e '--- SIG' || true
}

calls=$(idle_calls idle)
verdict "idle, 1 000 pending timers: $calls system calls in 10 s" "$((calls == 0))"

calls=$(idle_calls burst)
verdict "idle, after 1 000 000 arm+stop: $calls system calls in 10 s" "$((calls == 0))"
wakes=$(sed -n 's/.*after the burst: \([0-9]*\),.*/\1/p' "$folder/said")
verdict "$(head -1 "$folder/said")" "$((wakes <= 2))"

# Counts the calls of all threads between the two marks.
between_marks() { # program and arguments
  strace -f -o "$folder/calls" "$@" >/dev/null || return
  if [[ $(grep -c 'getppid(' "$folder/calls") != 2 ]]; then
    echo "count_syscalls.sh: $* has not made its two marks" >&2
    return 1
  fi
  awk '/getppid\(/ { ++marks; next } marks == 1' "$folder/calls" |
    grep -c -v -e 'resumed>' -e '+++' -e '--- SIG' || true
}

sleeps=500
for workers in 1 2; do
  calls=$(between_marks "$program" sleep "$workers" "$sleeps")
  each=$(awk "BEGIN { printf \"%.3f\", $calls / $sleeps }")
  verdict "sleep_for(10ms), $workers worker(s): $each system calls each" \
    "$((calls * 10 <= sleeps * 11))"
done

calls=$(between_marks "$program" arm-stop 1000000)
verdict "1 000 000 arm+stop, not the earliest: $calls system calls" "$((calls == 0))"

if [[ -n $io_program ]]; then
  for workers in 1 2; do
    calls=$(between_marks "$io_program" --traced sleep "$workers" "$sleeps")
    each=$(awk "BEGIN { printf \"%.3f\", $calls / $sleeps }")
    verdict "sleep_for(10ms) beside I/O, $workers worker(s): $each system calls each" \
      "$((calls <= sleeps * 4))"
  done
  # One of them is the wait of the thread that looks at the clock.
  calls=$(between_marks "$io_program" --traced idle 1000 10)
  ((--calls)) || true
  verdict "1 000 idle connections: $calls system calls in 10 s" "$((calls == 0))"
fi

exit "$status"
