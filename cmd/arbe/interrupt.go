package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// signals are the Ctrl-C and SIGTERM that the process gets. One ends the context of the verb, unless the verb has taken them over, and
// a further one the process, because then the verb waits for something that does not end with its context. The last one decides the
// exit code. Nil are those of a verb that gets none.
type signals struct {
	end  context.CancelFunc // ends the verb's context
	exit func(code int)

	mu    sync.Mutex
	last  os.Signal
	ended bool
	taker chan<- os.Signal // nil if no verb has taken them over
}

// watchSignals returns the signals from now on, and the context that they end.
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
	switch {
	case s.taker != nil:
		select {
		case s.taker <- came:
		default: // two are waiting that the verb has not looked at
		}
	case s.ended:
		s.exit(codeOf(came))
	default:
		s.ended = true
		s.end()
	}
}

// takeOver gives a verb the signals that come until giveBack, and one that came before and has ended its context.
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

// came reports whether there was a signal.
func (s *signals) came() bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last != nil
}

// code is the exit code of a verb that was interrupted: by a signal or, without one, by a person in another way.
func (s *signals) code() int {
	if !s.came() {
		return exitInterrupted
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return codeOf(s.last)
}

// codeOf is the exit code by which shells know that a signal ended a program: 130 for Ctrl-C, 143 for SIGTERM.
func codeOf(s os.Signal) int {
	number, _ := s.(syscall.Signal)
	return 128 + int(number)
}

// handleInterrupts passes each Ctrl-C and SIGTERM to handle, instead of letting it end arbe's own calls. The context that it returns
// ends when handle calls leave, or with end. When the reader of the output goes away, writing fails from then on, instead of ending
// arbe alone.
func (a *app) handleInterrupts(ctx context.Context, handle func(ctx context.Context, interrupts <-chan os.Signal, leave func())) (_ context.Context, end func()) {
	signal.Ignore(syscall.SIGPIPE)
	interrupts, giveBack := a.signals.takeOver()
	ctx, leave := context.WithCancel(context.WithoutCancel(ctx))
	go handle(ctx, interrupts, leave)
	return ctx, func() { giveBack(); leave() }
}

// input is stdin, of which reads end with ctx. What such a read would have returned is lost.
func (a *app) input(ctx context.Context) io.Reader { return &interruptible{ctx, a.in} }

type interruptible struct {
	ctx context.Context
	in  io.Reader
}

func (r *interruptible) Read(p []byte) (int, error) {
	// The read may go on after this one has returned, so that it has a buffer of its own.
	own := make([]byte, len(p))
	n, err := answer(r.ctx, func() (int, error) { return r.in.Read(own) })
	copy(p, own[:n])
	return n, err
}
