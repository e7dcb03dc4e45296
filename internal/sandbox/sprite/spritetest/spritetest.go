//go:build linux

// Package spritetest is a double of Sprites on loopback, for tests. It follows the published API as far as the driver uses
// it, really runs commands, and fails as a test asks it to.
package spritetest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	sprites "github.com/superfly/sprites-go"

	"github.com/arbe-dev/arbe/internal/sandbox/sandboxtest/hostbox"
)

// Token is the token of the double's organization.
const Token = "double/token"

// Double is an organization. It is safe for concurrent use.
type Double struct {
	URL string

	t    testing.TB
	host *hostbox.Host
	// busy counts running programs and boxes that are being deleted.
	busy sync.WaitGroup

	mu     sync.Mutex
	made   int
	boxes  map[string]*box // by name
	faults []*Fault
	calls  []string
	// most limits the boxes of the organization: 0 means no limit, and a negative number no boxes.
	most int
	// never keeps new boxes from starting.
	never bool
}

// box is a Sprite. The double's lock guards it.
type box struct {
	machine *hostbox.Box
	shown   sprites.SpriteInfo
	policy  *sprites.NetworkPolicy
	never   bool
	// tasks are when its tasks end, by their names. inside serves them.
	tasks  map[string]time.Time
	inside *httptest.Server
}

// Fault describes how requests fail.
type Fault struct {
	// On is a regular expression that matches the method and path of the requests to fail, with or without the query.
	On *regexp.Regexp
	// Times is how many requests fail; 0 means all.
	Times int
	// Status, Header and Body are the answer. If Status is 0, the connection is cut.
	Status int
	Header http.Header
	Body   string
	// After lets the request take effect and fails only its answer. Cut delivers half of the answer.
	After, Cut bool
	// Hang holds the answer until the request ends.
	Hang bool
}

// New returns an organization that is closed when the test ends.
func New(t testing.TB) *Double {
	d := &Double{t: t, host: hostbox.New(t), boxes: map[string]*box{}}
	server := httptest.NewServer(http.HandlerFunc(d.serve))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
		for _, b := range d.boxes {
			b.machine.Stop()
			b.inside.Close()
		}
		d.busy.Wait()
		for _, b := range d.boxes {
			if err := b.machine.Remove(); err != nil {
				t.Error(err)
			}
		}
	})
	d.URL = server.URL
	return d
}

// Fail makes requests fail until end is called.
func (d *Double) Fail(f Fault) (end func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.faults = append(d.faults, &f)
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.faults = slices.DeleteFunc(d.faults, func(other *Fault) bool { return other == &f })
	}
}

// Limit limits the number of boxes.
func (d *Double) Limit(most int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.most = most
}

// NeverStart keeps new boxes from starting.
func (d *Double) NeverStart() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.never = true
}

// Sleep lets a box sleep for so long that its processes are lost.
func (d *Double) Sleep(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	b := d.boxes[name]
	b.machine.Stop()
	b.shown.Status = "cold"
}

// Boxes returns the boxes by name, as the API shows them.
func (d *Double) Boxes() map[string]sprites.SpriteInfo {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := map[string]sprites.SpriteInfo{}
	for name, b := range d.boxes {
		all[name] = b.shown
	}
	return all
}

// Policy returns the network policy of a box; nil if it has none.
func (d *Double) Policy(name string) *sprites.NetworkPolicy {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.boxes[name].policy
}

// Calls returns the requests whose method and address match, in order.
func (d *Double) Calls(on string) []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var list []string
	for _, call := range d.calls {
		if regexp.MustCompile(on).MatchString(call) {
			list = append(list, call)
		}
	}
	return list
}

// hit returns the fault for a request; nil if there is none.
func (d *Double) hit(r *http.Request) *Fault {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls = append(d.calls, r.Method+" "+r.URL.String())
	for i, f := range d.faults {
		if !f.On.MatchString(r.Method+" "+r.URL.Path) && !f.On.MatchString(r.Method+" "+r.URL.RequestURI()) {
			continue
		}
		hit := *f
		if f.Times > 0 {
			if f.Times--; f.Times == 0 {
				d.faults = slices.Delete(d.faults, i, i+1)
			}
		}
		return &hit
	}
	return nil
}

func (d *Double) serve(w http.ResponseWriter, r *http.Request) {
	f := d.hit(r)
	isExec := strings.HasSuffix(r.URL.Path, "/exec")
	switch {
	case f == nil:
		d.answer(w, r, nil)
		return
	case f.Hang:
		<-r.Context().Done()
	case isExec && (f.After || f.Cut):
		d.answer(w, r, f)
		return
	}
	recorder := httptest.NewRecorder()
	if f.After || f.Cut {
		d.answer(recorder, r, nil)
	}
	switch {
	case f.Cut:
		w.Header().Set("Content-Length", strconv.Itoa(recorder.Body.Len()))
		w.WriteHeader(recorder.Code)
		_, _ = w.Write(recorder.Body.Bytes()[:recorder.Body.Len()/2])
		panic(http.ErrAbortHandler)
	case f.Status == 0:
		panic(http.ErrAbortHandler)
	}
	for name, values := range f.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(f.Status)
	_, _ = w.Write([]byte(f.Body))
}

// refuse answers with an error as the API does.
func refuse(w http.ResponseWriter, status int, code, message string) {
	reply(w, status, sprites.APIError{ErrorCode: code, Message: message})
}

func reply(w http.ResponseWriter, status int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(value)
}

func (d *Double) answer(w http.ResponseWriter, r *http.Request, f *Fault) {
	if r.Header.Get("Authorization") != "Bearer "+Token {
		refuse(w, http.StatusUnauthorized, "unauthorized", "invalid token")
		return
	}
	path, ours := strings.CutPrefix(r.URL.Path, "/v1/sprites")
	name, call, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	switch {
	case !ours:
		http.NotFound(w, r)
	case path == "" && r.Method == http.MethodPost:
		d.create(w, r)
	case path == "" && r.Method == http.MethodGet:
		d.list(w, r)
	case call == "exec" && r.Method == http.MethodGet:
		d.exec(w, r, name, f)
	default:
		d.sprite(w, r, name, strings.TrimSpace(r.Method+" "+call))
	}
}

// create creates a box.
func (d *Double) create(w http.ResponseWriter, r *http.Request) {
	var request sprites.CreateSpriteRequest
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil || request.Name == "" {
		refuse(w, http.StatusBadRequest, "invalid_request", "name is required")
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, ok := d.boxes[request.Name]; ok {
		refuse(w, http.StatusConflict, "conflict", "sprite already exists")
		return
	}
	if d.most != 0 && len(d.boxes) >= d.most {
		refuse(w, http.StatusTooManyRequests, sprites.ErrCodeConcurrentLimitExceeded, "too many sprites")
		return
	}
	d.made++
	machine, err := d.host.Create(fmt.Sprintf("sprite-%d", d.made))
	if err != nil {
		refuse(w, http.StatusInternalServerError, "internal", err.Error())
		return
	}
	inside, err := d.serveTasks(request.Name, machine)
	if err != nil {
		refuse(w, http.StatusInternalServerError, "internal", err.Error())
		return
	}
	d.boxes[request.Name] = &box{machine: machine, never: d.never, tasks: map[string]time.Time{}, inside: inside, shown: sprites.SpriteInfo{
		ID: fmt.Sprintf("sprite-%d", d.made), Name: request.Name, Organization: "double", Status: "cold", Labels: request.Labels, CreatedAt: time.Now(),
	}}
	reply(w, http.StatusCreated, sprites.CreateSpriteResponse{Name: request.Name})
}

// list answers with pages of two, so that most lists have several.
func (d *Double) list(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	d.mu.Lock()
	defer d.mu.Unlock()
	answer := sprites.SpriteList{Sprites: []sprites.SpriteInfo{}}
	var names []string
	for name := range d.boxes {
		if strings.HasPrefix(name, query.Get("prefix")) && name > query.Get("continuation_token") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for i, name := range names {
		if i == 2 {
			answer.HasMore, answer.NextContinuationToken = true, names[1]
			break
		}
		answer.Sprites = append(answer.Sprites, d.boxes[name].shown)
	}
	reply(w, http.StatusOK, answer)
}

// sprite answers a request about a box.
func (d *Double) sprite(w http.ResponseWriter, r *http.Request, name, call string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	b, ok := d.boxes[name]
	if !ok {
		refuse(w, http.StatusNotFound, "not_found", "sprite not found")
		return
	}
	switch call {
	case "GET":
		reply(w, http.StatusOK, b.shown)
	case "DELETE":
		delete(d.boxes, name)
		b.machine.Stop()
		go b.inside.Close() // a request in it may wait for the lock
		d.busy.Go(func() { _ = b.machine.Remove() })
		w.WriteHeader(http.StatusNoContent)
	case "PUT":
		var request sprites.UpdateSpriteRequest
		if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
			refuse(w, http.StatusBadRequest, "invalid_request", err.Error())
			return
		}
		if request.ClearLabels || len(request.Labels) > 0 {
			b.shown.Labels = request.Labels
		}
		reply(w, http.StatusOK, b.shown)
	case "POST policy/network":
		policy := new(sprites.NetworkPolicy)
		if err := json.NewDecoder(r.Body).Decode(policy); err != nil {
			refuse(w, http.StatusBadRequest, "invalid_request", err.Error())
			return
		}
		b.policy = policy
		w.WriteHeader(http.StatusNoContent)
	default:
		http.NotFound(w, r)
	}
}
