package main

import (
	"github.com/spf13/cobra"

	"github.com/arbe-dev/arbe/internal/fault"
)

func thread(a *app) *cobra.Command {
	return group(a, "thread", "Create, list, show, fork and delete threads; read and write their logs",
		threadCreate, threadList, threadShow, threadFork, threadDelete, threadEntries)
}

// theThread is the thread a verb works on: the one that is named, or $ARBE_THREAD.
func (a *app) theThread(named string) (string, error) {
	if id := first(named, a.getenv("ARBE_THREAD")); id != "" {
		return id, nil
	}
	return "", fault.New(fault.Invalid, "no thread is named", "give its id, or set ARBE_THREAD; arbe thread list shows them")
}

// firstOf is the first argument; empty when there is none.
func firstOf(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[0]
}
