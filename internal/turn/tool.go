package turn

import (
	"context"
	"errors"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/arbe-dev/arbe/internal/approval"
	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/model"
	"github.com/arbe-dev/arbe/internal/trace"
	"github.com/arbe-dev/arbe/internal/wait"
)

const (
	// atOnce is how many tools of one step run at the same time.
	atOnce = 5
	// maxResult limits the text of a tool's result, in bytes. The model reads it again with each further step.
	maxResult = 48 << 10
	// toolPatience is how long a tool is retried while something that it needs is unavailable.
	toolPatience = time.Minute
)

// ElsewhereError reports that only servers of a certain machine can run a tool. The turn must run there.
type ElsewhereError struct{ Machine string }

func (e *ElsewhereError) Error() string {
	return "the turn must go on on another machine: " + e.Machine
}

// offered returns the tools that a bot may use.
func offered(all []Tool, names []string) []Tool {
	return slices.DeleteFunc(slices.Clone(all), func(t Tool) bool { return !slices.Contains(names, t.Name) })
}

// runCalls runs the calls of a step and writes each result as soon as it is available. It returns when all results are
// written, except those of calls that await people's decisions; asking reports whether there are any. The error comes
// from writing a result or a request for approval, or from ctx.
func (r *run) runCalls(ctx context.Context, calls []call) (asking bool, err error) {
	asked, err := r.asked(ctx, calls)
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var group sync.WaitGroup
	var waits atomic.Bool
	slots := make(chan struct{}, atOnce)
	errs := make(chan error, len(calls))
	for _, c := range calls {
		group.Go(func() {
			if err := take(ctx, slots); err != nil {
				errs <- err
				return
			}
			defer func() { <-slots }()
			if err := r.runCall(ctx, c, asked[r.turn.callID(c.step, c.n)]); errors.Is(err, ErrAsking) {
				waits.Store(true)
			} else if err != nil {
				errs <- err
				cancel()
			}
		})
	}
	group.Wait()
	close(errs)
	err = <-errs // the first is the cause
	return err == nil && waits.Load(), err
}

// take waits for a slot and takes it.
func take(ctx context.Context, slots chan<- struct{}) error {
	select {
	case slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// runCall runs one call and writes its result. q is the approval that it asked for; nil if it asked for none. If people
// have not decided yet, the error is [ErrAsking].
func (r *run) runCall(ctx context.Context, c call, q *approval.Pending) error {
	began := time.Now()
	id := r.turn.callID(c.step, c.n)
	var got Result
	tool, err := r.tool(c)
	arguments := c.Arguments
	if n := r.uses(c.Name, id); err == nil && tool.Most > 0 && n > tool.Most {
		err = fault.Newf(fault.Exhausted, "go on with what you have", "a turn may call %s %d times", tool.Name, tool.Most)
	}
	if err == nil {
		var refused, failed error
		if arguments, refused, failed = r.permit(ctx, id, tool, c, q); failed != nil {
			return failed
		}
		err = refused
	}
	if err == nil {
		call := Call{Scope: r.scope(), Thread: r.turn.Thread, Turn: r.turn.ID, ID: id, Arguments: arguments, Uninstructed: tool.Sandbox && !r.instructed.Load()}
		got, err = r.callPatiently(ctx, tool, call, began)
	}
	if _, elsewhere := errors.AsType[*ElsewhereError](err); elsewhere {
		return err
	}
	if ctx.Err() != nil {
		return ctx.Err() // the next server repeats the call, or the turn's end says that it was stopped
	}
	_, err = r.log.Append(ctx, r.ref, entry.NewDraft(id, r.turn.Bot, r.resultOf(c, got, err, time.Since(began))))
	return err
}

// callPatiently calls a tool, and repeats the call while something that the tool needs is unavailable. Nobody knows then
// whether the tool had its effect. Repeating this call is harmless, but a model that sees a failure would make another one.
func (r *run) callPatiently(ctx context.Context, tool Tool, call Call, began time.Time) (got Result, err error) {
	got, err = r.call(ctx, tool, call)
	for pause := 100 * time.Millisecond; fault.CodeOf(err) == fault.Unavailable && time.Since(began) < toolPatience; pause = min(2*pause, 2*time.Second) {
		if !wait.For(ctx, pause) {
			break
		}
		got, err = r.call(ctx, tool, call)
	}
	return got, err
}

// resultOf returns the entry of a call's result.
func (r *run) resultOf(c call, got Result, failed error, took time.Duration) entry.PiToolResult {
	result := entry.PiToolResult{Turn: r.turn.ID, ToolCallID: c.ID, ToolName: c.Name, Timestamp: time.Now().UnixMilli(), DurationMS: took.Milliseconds()}
	result.Details = r.details(got)
	text := got.Text
	if result.IsError = got.Failed || failed != nil; failed != nil {
		text = strings.TrimSpace(text + "\n" + fault.From(failed).Error())
	}
	if text == "" {
		text = "(nothing)"
	}
	result.Content = append([]entry.PiBlock{entry.PiText(middle(text, maxResult, ""))}, got.Images...)
	return result
}

// details returns the details of a tool's result, with the instructions of the workspace if the model has not read
// their current text.
func (r *run) details(got Result) *entry.PiDetails {
	if got.Instructions == "" || r.instructed.Swap(true) || r.transcript.instructions() == got.Instructions {
		return got.Details
	}
	var d entry.PiDetails
	if got.Details != nil {
		d = *got.Details
	}
	d.Instructions = got.Instructions
	return &d
}

// tool returns the tool of a call, after checking the call's arguments.
func (r *run) tool(c call) (Tool, error) {
	at := slices.IndexFunc(r.tools, func(t Tool) bool { return t.Name == c.Name })
	if at < 0 {
		var names []string
		for _, t := range r.tools {
			names = append(names, t.Name)
		}
		return Tool{}, fault.Newf(fault.Invalid, "use one of: "+strings.Join(names, ", "), "there is no tool %q", entry.Clip(c.Name, 80))
	}
	return r.tools[at], model.CheckArguments(r.tools[at].Tool, c.Arguments)
}

// call runs a call. It turns a tool's panic into a failure, because a panic would end the server.
func (r *run) call(ctx context.Context, tool Tool, c Call) (got Result, err error) {
	defer func() {
		if p := recover(); p != nil {
			r.Logger.ErrorContext(ctx, "a tool panicked", "tool", tool.Name, "panic", p, "stack", string(debug.Stack()))
			err = fault.Newf(fault.Internal, "go on without it", "the tool %s broke", tool.Name)
		}
	}()
	ctx, span := trace.Start(ctx, trace.Internal, "tool "+tool.Name)
	defer func() { span.End(err) }()
	return tool.Run(ctx, c)
}

// uses returns how many calls of a tool this server has begun for the turn, including this one.
func (r *run) uses(tool, call string) int {
	r.callsMu.Lock()
	defer r.callsMu.Unlock()
	if r.called == nil {
		r.called = map[string]map[string]bool{}
	}
	if r.called[tool] == nil {
		r.called[tool] = map[string]bool{}
	}
	r.called[tool][call] = true
	return len(r.called[tool])
}
