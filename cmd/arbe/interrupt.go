package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// watchSignals begins to handle signals. It also returns the context that they end.
func watchSignals() (*signals, context.Context) {
	ctx, end := context.WithCancel(context.Background())
	s := &signals{end: end, exit: os.Exit}
	coming := make(chan os.Signal, 2)
	signal.Notify(coming, os.Interrupt, syscall.SIGTERM)
	go func() {
		for came := range coming {
			s.take(came)
		}
	}()
	return s, ctx
}

func (s *signals) take(came os.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = came
	if s.coming != nil {
		s.endComing()
		s.coming = nil
	}
	switch {
	case s.taker != nil:
		select {
		case s.taker <- came:
		default: // two signals already wait for the verb
		}
	case s.ended:
		s.exit(codeOf(came))
	default:
		s.ended = true
		s.end()
	}
}

// takeOver gives a verb the signals that come until giveBack. If a signal has already ended the verb's context, the verb gets
// that signal too.
func (s *signals) takeOver() (coming <-chan os.Signal, giveBack func()) {
	if s == nil {
		return nil, func() {}
	}
	taker := make(chan os.Signal, 2)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taker = taker
	if s.ended {
		taker <- s.last
	}
	return taker, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.taker = nil
	}
}

// next returns a context that ends with the next signal, whoever handles it, for work that may never end. If a signal has
// already ended the verb's context, this one has ended too.
func (s *signals) next() context.Context {
	if s == nil {
		return context.Background()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.coming == nil {
		s.coming, s.endComing = context.WithCancel(context.Background())
		if s.ended && s.taker == nil {
			s.endComing()
		}
	}
	return s.coming
}

// stages returns contexts that end with the first and the second signal. A third one ends the process.
func (s *signals) stages(ctx context.Context) (first, second context.Context) {
	coming, _ := s.takeOver() // for as long as the process lasts
	first, endFirst := context.WithCancel(context.WithoutCancel(ctx))
	second, endSecond := context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		<-coming
		endFirst()
		<-coming
		endSecond()
		s.exit(codeOf(<-coming))
	}()
	return first, second
}

// came reports whether a signal came.
func (s *signals) came() bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last != nil
}

// code returns the exit code of a verb that was interrupted, by a signal or by a person in another way.
func (s *signals) code() int {
	if !s.came() {
		return exitInterrupted
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return codeOf(s.last)
}

// codeOf returns the exit code that tells a shell which signal ended a program: 130 for Ctrl-C, 143 for SIGTERM.
func codeOf(s os.Signal) int {
	number, _ := s.(syscall.Signal)
	return 128 + int(number)
}

// handleInterrupts passes each Ctrl-C and SIGTERM to handle, so that it does not end arbe's own calls. The returned context
// ends when handle calls leave, or with end. From then on, a write to an output without a reader fails, because SIGPIPE would
// end only arbe.
func (a *app) handleInterrupts(ctx context.Context, handle func(ctx context.Context, interrupts <-chan os.Signal, leave func())) (_ context.Context, end func()) {
	signal.Ignore(syscall.SIGPIPE)
	interrupts, giveBack := a.signals.takeOver()
	ctx, leave := context.WithCancel(context.WithoutCancel(ctx))
	go handle(ctx, interrupts, leave)
	return ctx, func() { giveBack(); leave() }
}

// input returns stdin with reads that end with ctx. The data of a read that ended this way is lost.
func (a *app) input(ctx context.Context) io.Reader { return &interruptible{ctx, a.in} }

type interruptible struct {
	ctx context.Context
	in  io.Reader
}

func (r *interruptible) Read(p []byte) (int, error) {
	// The read may continue after this method has returned, so it needs its own buffer.
	own := make([]byte, len(p))
	n, err := answer(r.ctx, func() (int, error) { return r.in.Read(own) })
	copy(p, own[:n])
	return n, err
}
