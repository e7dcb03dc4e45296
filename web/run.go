package web

import (
	"cmp"
	"net/http"
	"strings"
	"time"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/lazyregexp"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
	"github.com/arbe-dev/arbe/web/transcript"
)

// rests reports whether the coding agent of a thread has finished a run and can continue.
func rests(t *arbev1.Thread) bool {
	return t.AgentId != "" && (t.Status == arbev1.ThreadStatus_THREAD_STATUS_COMPLETED || t.Status == arbev1.ThreadStatus_THREAD_STATUS_FAILED || t.Status == arbev1.ThreadStatus_THREAD_STATUS_CANCELLED)
}

// runText describes the duration and cost of a run: "worked for 4m 3s · $0.02". It returns "" if neither is known.
func runText(v transcript.RunEnd) string {
	var parts []string
	if v.Took >= time.Second {
		parts = append(parts, "worked for "+elapsedText(v.Took))
	}
	if u := v.Usage; u != nil {
		parts = append(parts, costText(*u), grouped(int(u.Input+u.Output+u.CacheRead+u.CacheWrite))+" tokens")
	}
	return strings.Join(parts, " · ")
}

// childKey returns the id of the element with a child's state. An entry may name any text as a child. Texts that cannot be a
// thread's id all share one element id.
func childKey(thread string) string {
	if isThreadID(thread) {
		return "child-" + thread
	}
	return "child-of-nothing"
}

var isThreadID = lazyregexp.New(`^[a-z0-9]{1,64}$`).MatchString

// childClass returns the status class of a child, or "" if its row is unknown. A child waits until its first run.
func childClass(t *arbev1.Thread) string {
	switch {
	case t == nil:
		return ""
	case t.Status == arbev1.ThreadStatus_THREAD_STATUS_IDLE:
		return "waiting"
	}
	return stateOf(t).Class
}

// childWord describes what a child is doing.
func childWord(t *arbev1.Thread) string {
	switch state := stateOf(t); {
	case state.Class == "running" && t.Running.GetRunEpoch() > 0:
		return clip(cmp.Or(t.LastRun.GetDoing(), "starting"), maxWord)
	case t.Status == arbev1.ThreadStatus_THREAD_STATUS_IDLE:
		return "getting ready"
	default:
		return state.Word
	}
}

// childText describes a child's last tool, duration and cost: "last tool bash · 4m 3s · $0.02".
func childText(t *arbev1.Thread) string {
	r := t.LastRun
	if r == nil {
		return ""
	}
	var parts []string
	if tool := clip(r.LastTool, maxWord); tool != "" && childWord(t) != "running "+tool {
		parts = append(parts, "last tool "+tool)
	}
	if r.FinishedAt != nil && r.StartedAt != nil {
		parts = append(parts, elapsedText(when(r.FinishedAt).Sub(when(r.StartedAt))))
	}
	if r.CostMicros > 0 || r.CostUnknown {
		parts = append(parts, costText(entry.TurnUsage{CostMicros: r.CostMicros, CostUnknown: r.CostUnknown}))
	}
	return strings.Join(parts, " · ")
}

// childResult returns the outcome of a child's last run, in one line.
func childResult(t *arbev1.Thread) string {
	if t.Status == arbev1.ThreadStatus_THREAD_STATUS_RUNNING {
		return ""
	}
	return clip(t.LastRun.GetResult(), maxNote)
}

// runPatchWords says how much a run changed.
func runPatchWords(v transcript.RunEnd) string {
	if v.Files == 0 {
		return "Show its changes"
	}
	return filesChanged(v.Files)
}

// stopRunning stops what runs in a thread now: its agent's run, a bot's turn or a command.
func (a *app) stopRunning(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("thread")
	got, err := a.services.threads.GetThread(r.Context(), &arbev1.GetThreadRequest{Id: id})
	if err != nil {
		return err
	}
	stopped := false
	switch now := got.Thread.Running; {
	case now.GetTurnId() != "":
		var res *arbev1.StopTurnResponse
		res, err = a.services.threads.StopTurn(r.Context(), &arbev1.StopTurnRequest{ThreadId: id, TurnId: now.TurnId})
		stopped = len(res.GetTurnIds()) > 0
	case now.GetCommandId() != "":
		_, err = a.services.threads.CancelCommand(r.Context(), &arbev1.CancelCommandRequest{ThreadId: id, CommandId: now.CommandId})
		stopped = true
	case got.Thread.AgentId != "": // its run is in progress, or queued
		var res *arbev1.CancelRunResponse
		res, err = a.services.runs.CancelRun(r.Context(), &arbev1.CancelRunRequest{ThreadId: id})
		stopped = res.GetStopped()
	}
	if err == nil && !stopped {
		err = fault.New(fault.Precondition, "nothing runs in this thread any more", "see its last entries for how it ended")
	}
	return a.doneInThread(w, r, err)
}

func (a *app) stopRun(w http.ResponseWriter, r *http.Request) error {
	_, err := a.services.runs.CancelRun(r.Context(), &arbev1.CancelRunRequest{ThreadId: r.PathValue("thread")})
	return a.doneInThread(w, r, err)
}
