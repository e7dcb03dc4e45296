package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/wait"
)

// follow sends the thread's entries after an offset to inbox until ctx ends. If the run is over, it calls over and
// returns.
func follow(ctx context.Context, d *door, offset string, inbox chan<- []entry.Entry, over func(error)) {
	pause := minPause
	for ctx.Err() == nil {
		began := time.Now()
		p, err := d.read(ctx, offset, true)
		switch {
		case errors.Is(err, errOver):
			over(err)
			return
		case err != nil:
			if ctx.Err() == nil {
				fmt.Fprintln(os.Stderr, "arbe-runner: reading the thread:", err)
			}
			wait.For(ctx, pause)
			pause = min(2*pause, maxPause)
			continue
		}
		pause, offset = minPause, p.next
		if len(p.entries) == 0 {
			if time.Since(began) < minPause { // the door did not wait
				wait.For(ctx, minPause)
			}
			continue
		}
		select {
		case inbox <- p.entries:
		case <-ctx.Done():
		}
	}
}

// readAll returns all entries of the thread, and the offset after them. It retries until it succeeds or the run is
// over.
func readAll(ctx context.Context, d *door) (entries []entry.Entry, offset string, err error) {
	offset = "-1"
	for pause := minPause; ; {
		p, err := d.read(ctx, offset, false)
		switch {
		case errors.Is(err, errOver) || ctx.Err() != nil:
			return nil, "", err
		case err != nil:
			if _, no := errors.AsType[refused](err); no {
				return nil, "", err
			}
			fmt.Fprintln(os.Stderr, "arbe-runner: reading the thread:", err)
			wait.For(ctx, pause)
			pause = min(2*pause, maxPause)
			continue
		}
		pause = minPause
		entries, offset = append(entries, p.entries...), p.next
		if p.end {
			return entries, offset, nil
		}
	}
}
