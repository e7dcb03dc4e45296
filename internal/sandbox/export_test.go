package sandbox

import "time"

// Waiting returns how many callers wait for the builds of this server.
func (r *Resolver) Waiting() (n int) {
	r.builds.running.mu.Lock()
	defer r.builds.running.mu.Unlock()
	for _, b := range r.builds.running.byID {
		n += b.waiting
	}
	return n
}

// ParseDefaults reads what a repository says about its sandboxes, and returns the fields that it uses and does not know.
func ParseDefaults(text string) (used, unused []string, err error) {
	d, err := parseDefaults([]byte(text), ".")
	return d.used, d.unused, err
}

// SaveBegins does what the beginning of a save does to the records of uses.
func (s *Sandboxes) SaveBegins(id string) { s.touched.Delete(id) }

// PlaceWithin sets how long the use of a sandbox waits for the files of messages. Call it before the resolver is used.
func (r *Resolver) PlaceWithin(d time.Duration) { r.files.patience = d }
