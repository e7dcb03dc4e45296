package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// handleInterrupts passes each Ctrl-C and SIGTERM to handle, so that they do not end arbe's own calls. The returned context
// ends when handle calls leave, or with end. If the reader of the output goes away, writing fails from then on; arbe itself
// does not end.
func handleInterrupts(ctx context.Context, handle func(ctx context.Context, interrupts <-chan os.Signal, leave func())) (_ context.Context, end func()) {
	signal.Ignore(syscall.SIGPIPE)
	ctx, leave := context.WithCancel(context.WithoutCancel(ctx))
	interrupts := make(chan os.Signal, 2)
	signal.Notify(interrupts, os.Interrupt, syscall.SIGTERM)
	go handle(ctx, interrupts, leave)
	return ctx, func() { signal.Stop(interrupts); leave() }
}
