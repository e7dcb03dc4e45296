package run

// Remembered returns how many runs this server remembers.
func (r *Runs) Remembered() int {
	r.posts.mu.Lock()
	defer r.posts.mu.Unlock()
	r.sights.mu.Lock()
	defer r.sights.mu.Unlock()
	return len(r.posts.byThread) + len(r.sights.byThread)
}
