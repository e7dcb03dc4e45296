package sandbox

import (
	"sync"
)

// refusals passes refused connections from drivers to the function that reports them. It is safe for concurrent use.
type refusals struct {
	mu       sync.Mutex
	to       func(Refusal)
	building map[string]func(Refusal) // by the boxes that are being prepared
}

func (r *refusals) pass(refused Refusal) {
	r.mu.Lock()
	to := r.to
	if refused.Launch == "" {
		to = r.building[refused.Ref]
	}
	r.mu.Unlock()
	if to != nil {
		to(refused)
	}
}

// during passes the refused connections of a box that is being prepared to a function, until stop is called.
func (r *refusals) during(ref string, to func(Refusal)) (stop func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.building == nil {
		r.building = map[string]func(Refusal){}
	}
	r.building[ref] = to
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.building, ref)
	}
}
