package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// handleInterrupts passes each Ctrl-C and SIGTERM to handle, instead of letting it end arbe's own calls. The context that it returns
// ends when handle calls leave, or with end. When the reader of the output goes away, writing fails from then on, instead of ending
// arbe alone.
func handleInterrupts(ctx context.Context, handle func(ctx context.Context, interrupts <-chan os.Signal, leave func())) (_ context.Context, end func()) {
	signal.Ignore(syscall.SIGPIPE)
	ctx, leave := context.WithCancel(context.WithoutCancel(ctx))
	interrupts := make(chan os.Signal, 2)
	signal.Notify(interrupts, os.Interrupt, syscall.SIGTERM)
	go handle(ctx, interrupts, leave)
	return ctx, func() { signal.Stop(interrupts); leave() }
}
