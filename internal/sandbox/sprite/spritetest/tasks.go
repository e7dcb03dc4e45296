//go:build linux

package spritetest

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/arbe-dev/arbe/internal/sandbox/sandboxtest/hostbox"
)

// longestTask is the longest time that a task may have.
const longestTask = time.Hour

// serveTasks serves the API that a box has inside, as far as it is about tasks.
func (d *Double) serveTasks(name string, machine *hostbox.Box) (*httptest.Server, error) {
	listener, err := machine.Listen("/.sprite/api.sock")
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("PUT /v1/tasks/{task}", func(w http.ResponseWriter, r *http.Request) {
		var request struct{ Expire string }
		err := json.NewDecoder(r.Body).Decode(&request)
		lasts, parseErr := time.ParseDuration(request.Expire)
		if err != nil || parseErr != nil || lasts <= 0 || lasts > longestTask {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		if b, ok := d.boxes[name]; ok {
			b.tasks[r.PathValue("task")] = time.Now().Add(lasts)
		}
		_, _ = w.Write([]byte("{}"))
	})
	mux.HandleFunc("DELETE /v1/tasks/{task}", func(w http.ResponseWriter, r *http.Request) {
		d.mu.Lock()
		defer d.mu.Unlock()
		b, ok := d.boxes[name]
		if !ok || b.tasks[r.PathValue("task")].Before(time.Now()) {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		delete(b.tasks, r.PathValue("task"))
		w.WriteHeader(http.StatusNoContent)
	})
	server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: mux}}
	server.Start()
	return server, nil
}

// Tasks returns when the tasks of a box end, by their names.
func (d *Double) Tasks(name string) map[string]time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.boxes[name].tasks)
}

// Rest does what Sprites does once nobody has used a box for some time: it pauses the box, unless the box has a task at that
// moment.
func (d *Double) Rest(name string, at time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	b := d.boxes[name]
	for _, end := range b.tasks {
		if end.After(at) {
			return
		}
	}
	b.shown.Status = "warm"
}
