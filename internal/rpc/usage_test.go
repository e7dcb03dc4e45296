package rpc_test

import (
	"testing"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func TestAThreadSaysWhatItsModelsHaveUsed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ada := b.ada
	thread := ada.newThread(t, "")
	below := ada.newThread(t, thread)
	other := ada.newThread(t, "")
	used := func() *arbev1.ThreadUsage {
		t.Helper()
		res, err := ada.Threads.GetThread(t.Context(), &arbev1.GetThreadRequest{Id: thread, Usage: true})
		must(t, err)
		return res.Used
	}
	if u := used(); u.Calls != 0 || u.Usd != 0 || u.Model != "" {
		t.Errorf("a new thread has used %v", u)
	}
	call := func(in, turn, model string, tokens int, when string) {
		b.exec(t, `insert into turns (id, house_id, thread_id, agent_id, entry_id, reason, status, ended_at) values ($1, $2, $3, $4, $1, 'mention', 'answered', now())`,
			turn, ada.house.Id, in, ada.id)
		b.exec(t, `insert into model_calls (house_id, thread_id, turn_id, id, agent_id, model, input, output, cache_read, cache_write, cost_micros, cost_known, estimated, made_at)
			values ($1, $2, $3, '1', $4, $5, $6, 9, 500, 7, 150000, true, false, now() + $7::interval)`, ada.house.Id, in, turn, ada.id, model, tokens, when)
	}
	call(thread, "t1", "anthropic/claude-sonnet-4-6", 1_000, "-2 days")
	call(thread, "t2", "anthropic/claude-sonnet-4-6", 40_000, "-1 hour")
	call(below, "t3", "fake/one", 7, "0")
	call(other, "t4", "fake/one", 7, "0")
	u := used()
	if u.Calls != 3 || u.Usd < 0.449 || u.Usd > 0.451 || u.Model != "anthropic/claude-sonnet-4-6" || u.ContextTokens != 40_507 || u.ContextWindow < 200_000 {
		t.Errorf("the thread has used %v", u)
	}
	if res, err := ada.Threads.GetThread(t.Context(), &arbev1.GetThreadRequest{Id: thread}); err != nil || res.Used != nil {
		t.Errorf("unasked, it says %v: %v", res.Used, err)
	}
	call(thread, "t5", "lab/own", 70, "0")
	if u := used(); u.Model != "lab/own" || u.ContextTokens != 577 || u.ContextWindow != 0 {
		t.Errorf("with a model of which nothing is known, it has used %v", u)
	}
}
