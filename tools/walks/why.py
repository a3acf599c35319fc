"""What each part does in a walk, for walk.py, and why a walk has more parts than its goal."""

WHY = {
    # what users call
    "time": "the call: makes a limit of the duration",
    "channel": "the typed calls of the other fiber, which sends or receives",
    "context": "the call, and the lifetime of what it cancels",
    "io/deadline_stream": "the call: one reader at a time, the deadline, first a try that does not wait",
    "semaphore": "which reader and which writer holds a stream",
    # waits
    "caller": "the fiber or thread that waits, and its limit; throws what ended the wait",
    "waiter": "the ticket: claimed once, so it decides how the wait ends",
    "wake_list": "waiters that were claimed under a lock and are readied after it",
    "park_check": "where vigil-lock-check, if it is there, looks at the fiber",
    "park": "arms the deadline, looks for a stop, leaves the stack; readies a waiter's fiber",
    "note": "the one-shot sleep of a thread",
    "cancel_tree": "marks the node and those below it, and ends the waits that are queued there",
    "wait_queue": "the lock of a queue of waiters",
    "case_table": "takes a case back once the wait is over, or says that it has won",
    "wait_case": "what a lock or a count does as a case: take, queue, leave",
    "mutex": "the set-up of a stream is under one",
    # running
    "worker": "chooses the next fiber, enters it, and does what the one that left asked for",
    "idler": "a worker without work: looks around, lies down, sleeps",
    "clock_turns": "whether it is time to look at the clock, and whether a deadline has come",
    "own_queue": "the fiber that goes next on this worker, and those behind it",
    "switch": "leaves one stack for another",
    "stack": "the warm stacks: a worker that lies down gives some back, and rings if nobody waits for the next step",
    "stack_pool_decay": "how many of them stay",
    "scheduler": "queues a fiber that was readied, and wakes a worker for it if one has to",
    "run_queue": "the worker's own fibers",
    "injection_queue": "fibers that were readied elsewhere, and those that only this worker may run",
    "ready_work": "the last look for work before sleep",
    "idle": "the idle workers: which of them sleeps until when, and which is woken",
    "watch": "the place where the worker sleeps; here a note alone",
    # timers
    "timer_board": "the next deadline and the parked timer fiber, where workers see them",
    "runner_pool": "whether callbacks wait for a runner",
    "timer_service": "the front door of the timers, through which workers go",
    "heap_keeper": "files entries in the intake, merges them into the heap, pops those that are due",
    "timer_heap": "the order of the deadlines",
    "runtime_timer": "the words that decide the timer's fate",
    "intake": "where a worker files what it arms, and counts it",
    "timer_owner": "counts what happens to timers, for each worker",
    "timer_fiber": "fires what is due: claims the ticket and readies the fiber",
    "delay_counters": "notes how late it fired",
    # channels
    "select_core": "the call: tries each case, and waits if none is ready",
    "selecting": "looks at the cases, queues in each, takes out the others",
    "channel_cases": "what a select does with a channel's case",
    "channel_core": "the channel's queues and lock; the hand-over from one fiber to the other",
    # I/O
    "io/movable_deadline": "the deadline of one side, which may move during a wait",
    "io/readiness": "waits until Asio's handler says that bytes may be there",
    "io/outside_wait": "counts the wait, so that the run does not take it for a deadlock",
    "io/operation": "waits for the operation of Asio, and takes its end from the handler",
    "io/io_watch": "the watch inside the io_context: the worker sleeps there and runs the handlers",
    "io/io_alarm": "sets the timerfd that ends the worker's sleep at the next deadline",
    "io/error": "an error code becomes an exception, or says that the wait was cancelled",
}

# Of the walks that have more parts than their goal: what would have to be merged.
MISSED = {
    "value": (
        "A select and its cases have three files: `select_core` is the call of a fiber, "
        "`selecting` serves tasks as well, and `channel_cases` is one table of several."
    ),
    "deadline": (
        "To come to the goal, the worker would have to take back `clock_turns` and "
        "`own_queue`, the three parts of lying down (`idler`, `idle`, `ready_work`) would have "
        "to be one, `watch` and `note` another, `timer_board` would go back to `scheduler`, and the warm stacks would be given back by a "
        "thread of their own."
    ),
    "byte": (
        "A wait under a deadline alone comes to `caller`, `park`, `timer_service`, "
        "`heap_keeper`, `worker`, `switch` and `scheduler`, so nothing but the stream would be "
        "left beside them. The worker that sleeps adds `idler`, `idle`, `ready_work`, `note` "
        "and the watch; the stream adds who holds it and a deadline that may move. "
        "`io_alarm` and `io_watch` could be one part, of some 400 lines."
    ),
    "cancel": (
        "Seven of them are those of the wait itself, a receive from a channel. The cancel adds "
        "the context and the tree; `wake_list` could be a part of the tree if only that used it."
    ),
}
