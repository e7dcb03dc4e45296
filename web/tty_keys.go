package web

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/arbe-dev/arbe/internal/fault"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// Keys may reach another server than the one that reads the output. So each request asks for the position of the input, and
// writes there. A tab numbers its requests, sends one at a time, and repeats a request that was not answered. The server
// remembers the last number of each tab, so that no key is typed twice. A server that does not know the tab drops a repeated
// request, because its keys may have been typed already.

const (
	// typingTime is how long a request waits for room in the command's input.
	typingTime = 20 * time.Second
	// maxTyped limits the bytes of one request, and maxTypingTabs the tabs that a keyboard remembers.
	maxTyped, maxTypingTabs = 256 << 10, 100
)

// typeKeys types what a tab sends, or notes that the tab is still there.
func (a *app) typeKeys(w http.ResponseWriter, r *http.Request) error {
	if err := parseForm(r); err != nil {
		return err
	}
	key := a.ttyKeyOf(r)
	if t := a.ttys.find(key); t != nil {
		t.used(r.PostFormValue("left") != "")
	}
	data := []byte(r.PostFormValue("keys"))
	if len(data) > maxTyped {
		return tooLarge(maxTyped)
	}
	if len(data) > 0 {
		number, err := strconv.ParseInt(r.PostFormValue("n"), 10, 64)
		tab := r.PostFormValue("tab")
		if err != nil || tab == "" || len(tab) > 64 {
			return fault.New(fault.Invalid, "n and tab: the keys have no number or no tab", "load the page again")
		}
		if err := a.typeInto(r.Context(), key, tab, number, r.PostFormValue("again") != "", data); err != nil {
			return err
		}
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// typeInto types the keys of a tab's request. It fails if the command takes no more input now; the tab then repeats the request.
func (a *app) typeInto(ctx context.Context, key ttyKey, tab string, number int64, again bool, data []byte) error {
	t := a.keyboards.find(key)
	if t == nil {
		// Anybody can send any address, so check that they may write to the command before they get a keyboard.
		if _, err := a.services.threads.WriteInput(ctx, joining(key)); err != nil {
			return err
		}
		t = a.keyboards.add(key)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	before, known := t.tabs[tab]
	switch {
	case known && number <= before.number:
		return nil
	case !known && again:
		t.tabs[tab] = typed{number: number}
		return nil
	case !known && len(t.tabs) >= maxTypingTabs:
		clear(t.tabs)
	}
	n, err := a.write(ctx, key, data[min(before.bytes, len(data)):])
	if n += before.bytes; err == nil {
		t.tabs[tab] = typed{number: number}
		return nil
	}
	t.tabs[tab] = typed{number: before.number, bytes: n}
	return err
}

// write writes to a command's input, and returns how many bytes it took.
func (a *app) write(ctx context.Context, key ttyKey, data []byte) (taken int, err error) {
	began := time.Now()
	for taken < len(data) {
		at, err := a.services.threads.WriteInput(ctx, joining(key))
		if err != nil {
			return taken, err
		}
		got, err := a.services.threads.WriteInput(ctx, &arbev1.WriteInputRequest{
			ThreadId: key.thread, CommandId: key.command, Position: at.GetPosition(), Data: data[taken:],
		})
		if err != nil {
			return len(data), err // it may have been typed, and must not be typed twice
		}
		if got.GetClosed() {
			return taken, fault.New(fault.Precondition, "the command reads no more", "open another terminal")
		}
		n := int(min(max(got.GetPosition()-at.GetPosition(), 0), int64(len(data)-taken)))
		if taken += n; n == 0 && time.Since(began) > typingTime {
			return taken, fault.New(fault.Unavailable, "the command does not read its input", "wait for it, or stop it")
		}
	}
	return taken, nil
}

// joining asks for the position of a command's input.
func joining(key ttyKey) *arbev1.WriteInputRequest {
	return &arbev1.WriteInputRequest{ThreadId: key.thread, CommandId: key.command, Join: true}
}

// sendReplies types the terminal's answers until the tty ends.
func (a *app) sendReplies(t *tty) {
	for {
		select {
		case <-t.ctx.Done():
			return
		case reply := <-t.replies:
			k := a.keyboards.add(t.key)
			k.mu.Lock()
			_, _ = a.write(t.ctx, t.key, reply) // without an answer, programs use defaults
			k.mu.Unlock()
		}
	}
}
