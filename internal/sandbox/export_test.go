package sandbox

// Waiting returns how many callers wait for the builds of this server.
func (r *Resolver) Waiting() (n int) {
	r.builds.running.mu.Lock()
	defer r.builds.running.mu.Unlock()
	for _, b := range r.builds.running.byID {
		n += b.waiting
	}
	return n
}
