package arbe

import (
	"context"
	"time"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// mostTyped limits the keys of one call.
const mostTyped = 64 << 10

// typeKeys sends the typed keys and the terminal's sizes until ctx or the command ends.
func (r *run) typeKeys(ctx context.Context) {
	t := r.terminal
	// In is read while a call waits for the server, because In may tell the caller to leave.
	keys := make(chan []byte, 256)
	go func() {
		for {
			typed := make([]byte, 4096)
			n, err := t.In.Read(typed)
			if n > 0 {
				select {
				case keys <- typed[:n]:
				case <-ctx.Done():
					return
				}
			}
			if err != nil {
				return
			}
		}
	}()
	tick := time.NewTicker(stayEvery)
	defer tick.Stop()
	req := &arbev1.WriteInputRequest{ThreadId: r.req.ThreadId, CommandId: r.req.Id, Size: t.Size, Join: r.joins}
	for closed := r.sendKeys(ctx, req); !closed; closed = r.sendKeys(ctx, req) {
		req.Size = nil
		if len(req.Data) > 0 { // the server did not have room for all of it
			continue
		}
		select {
		case req.Data = <-keys:
			req.Data = appendWaiting(req.Data, keys)
		case req.Size = <-t.Resized:
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// appendWaiting appends the other keys that were typed, so that a paste takes few calls.
func appendWaiting(data []byte, keys <-chan []byte) []byte {
	for len(data) < mostTyped {
		select {
		case more := <-keys:
			data = append(data, more...)
		default:
			return data
		}
	}
	return data
}

// sendKeys sends a request until the server has answered it, and removes the data that the server has taken. closed reports
// that nothing more can be typed.
func (r *run) sendKeys(ctx context.Context, req *arbev1.WriteInputRequest) (closed bool) {
	req.Again = false
	var got *arbev1.WriteInputResponse
	err := r.again(ctx, func() (err error) {
		got, err = r.client.Threads.WriteInput(ctx, req)
		req.Again = req.Again || err != nil
		return err
	})
	if err != nil || got.GetClosed() {
		return true
	}
	if req.Join {
		req.Join, req.Position = false, got.GetPosition()
		return false
	}
	taken := min(max(got.GetPosition()-req.Position, 0), int64(len(req.Data)))
	req.Position, req.Data = req.Position+taken, req.Data[taken:]
	return false
}
