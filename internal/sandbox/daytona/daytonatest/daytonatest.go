//go:build linux

// Package daytonatest is a double of Daytona on loopback, for tests. It follows the published API as far as the driver uses
// it, really runs commands, and fails as a test asks it to.
//
// Where the API's description is silent, it does what was observed with the official SDK: names are unique, creating and
// starting take a moment, a script is its shell's input, both outputs come as one text, and deleting a box that is changing
// is refused.
package daytonatest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/sandbox/sandboxtest/hostbox"
)

// Key is the key of the double's first account.
const Key = "dtn_double"

// Double is the service, with the account of [Key]. It is safe for concurrent use.
type Double struct {
	URL string

	t    testing.TB
	host *hostbox.Host
	// removing are the boxes that are being deleted.
	removing sync.WaitGroup

	mu   sync.Mutex
	made int
	// accounts are those of keys.
	accounts map[string]string
	boxes    map[string]*box // by id
	faults   []*Fault
	calls    []string
	// callers is how many requests came with each key, and changed is closed at the end of the next one.
	callers map[string]int
	changed chan struct{}
	// starts is what becomes of new boxes: "started", or the state in which they stay.
	starts string
	// most limits the boxes of the account: 0 means no limit, and a negative number no boxes.
	most int
}

// box is a sandbox. The double's lock guards it.
type box struct {
	account string
	machine *hostbox.Box
	fields  map[string]any
	labels  map[string]string
	state   string
	created time.Time
	// pending is the number of requests until the state becomes next.
	pending int
	next    string
}

// Fault describes how requests fail.
type Fault struct {
	// On is a regular expression that matches the method and path of the requests to fail.
	On *regexp.Regexp
	// Key is the one of the requests that it hits; empty for all.
	Key string
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

// New returns an account that is closed when the test ends.
func New(t testing.TB) *Double {
	d := &Double{t: t, host: hostbox.New(t), boxes: map[string]*box{}, starts: "started", accounts: map[string]string{Key: "first"}, callers: map[string]int{}, changed: make(chan struct{})}
	server := httptest.NewServer(http.HandlerFunc(d.serve))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
		d.removing.Wait()
		for _, b := range d.boxes {
			if err := b.machine.Remove(); err != nil {
				t.Error(err)
			}
		}
	})
	d.URL = server.URL + "/api"
	return d
}

// SetKey gives a key to an account; empty revokes it.
func (d *Double) SetKey(key, account string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.accounts, key)
	if account != "" {
		d.accounts[key] = account
	}
}

// accountOf returns the account of a request's key; empty if it has none.
func (d *Double) accountOf(r *http.Request) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.accounts[keyOf(r)]
}

func keyOf(r *http.Request) string {
	return strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
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

// NewBoxes makes new boxes stay in a state.
func (d *Double) NewBoxes(state string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.starts = state
}

// Limit limits the number of boxes.
func (d *Double) Limit(most int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.most = most
}

// SetState sets the state of a box, and other fields.
func (d *Double) SetState(id, state string, fields map[string]any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	b := d.boxes[id]
	b.state, b.pending = state, 0
	for name, value := range fields {
		b.fields[name] = value
	}
	if state == "stopped" || state == "archived" {
		b.machine.Stop()
	}
}

// Boxes returns the ids of the boxes.
func (d *Double) Boxes() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var ids []string
	for id := range d.boxes {
		ids = append(ids, id)
	}
	return ids
}

// BoxesOf returns the ids of the boxes of an account that are not being deleted.
func (d *Double) BoxesOf(account string) []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var ids []string
	for id, b := range d.boxes {
		if b.account == account && b.state != "destroying" {
			ids = append(ids, id)
		}
	}
	return ids
}

// State returns the state of a box; empty if there is none.
func (d *Double) State(id string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if b, ok := d.boxes[id]; ok {
		return b.state
	}
	return ""
}

// CallsWith returns how many requests came with a key.
func (d *Double) CallsWith(key string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.callers[key]
}

// Await waits until what a test looks for has come with a request.
func (d *Double) Await(ctx context.Context, come func() bool) error {
	for {
		d.mu.Lock()
		changed := d.changed
		d.mu.Unlock()
		if come() {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (d *Double) change() {
	d.mu.Lock()
	defer d.mu.Unlock()
	close(d.changed)
	d.changed = make(chan struct{})
}

// Field returns a field of a box as the API shows it.
func (d *Double) Field(id, name string) any {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.boxes[id].fields[name]
}

// Calls returns the requests whose method and path match, in order.
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
func (d *Double) hit(call, key string) *Fault {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls = append(d.calls, call)
	d.callers[key]++
	for i, f := range d.faults {
		if !f.On.MatchString(call) || f.Key != "" && f.Key != key {
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
	defer d.change()
	f := d.hit(r.Method+" "+r.URL.Path, keyOf(r))
	if f == nil {
		d.answer(w, r)
		return
	}
	if f.Hang {
		<-r.Context().Done()
	}
	recorder := httptest.NewRecorder()
	if f.After || f.Cut {
		d.answer(recorder, r)
	}
	switch {
	case f.Cut:
		w.Header().Set("Content-Type", "application/json")
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
	if f.Body == "" {
		refuse(w, f.Status, http.StatusText(f.Status))
		return
	}
	if strings.HasPrefix(f.Body, "{") {
		w.Header().Set("Content-Type", "application/json")
	}
	w.WriteHeader(f.Status)
	_, _ = w.Write([]byte(f.Body))
}

// refuse answers with an error as the API does.
func refuse(w http.ResponseWriter, status int, message string) {
	reply(w, status, map[string]any{"statusCode": status, "message": message, "error": http.StatusText(status)})
}

func reply(w http.ResponseWriter, status int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(value)
}

func (d *Double) answer(w http.ResponseWriter, r *http.Request) {
	account := d.accountOf(r)
	if account == "" {
		refuse(w, http.StatusUnauthorized, "Invalid credentials")
		return
	}
	switch path, rest := r.URL.Path, ""; {
	case strings.HasPrefix(path, "/toolbox/"):
		rest = strings.TrimPrefix(path, "/toolbox/")
		id, call, _ := strings.Cut(rest, "/")
		d.toolbox(w, r, account, id, r.Method+" /"+call)
	case path == "/api/sandbox" && r.Method == http.MethodPost:
		d.create(w, r, account)
	case path == "/api/sandbox/paginated" && r.Method == http.MethodGet:
		d.list(w, r, account)
	case strings.HasPrefix(path, "/api/sandbox/"):
		name, call, _ := strings.Cut(strings.TrimPrefix(path, "/api/sandbox/"), "/")
		d.sandbox(w, r, account, name, strings.TrimSpace(r.Method+" "+call))
	default:
		refuse(w, http.StatusNotFound, "Cannot "+r.Method+" "+path)
	}
}

// Close makes boxes that are created from now on reach only these addresses of this machine, as in an organization whose
// plan limits the network.
func (d *Double) Close(only ...netip.AddrPort) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.host.Only = only
}

// create creates a box.
func (d *Double) create(w http.ResponseWriter, r *http.Request, account string) {
	var request struct {
		Name      string            `json:"name"`
		Snapshot  string            `json:"snapshot"`
		Labels    map[string]string `json:"labels"`
		CPU       *int              `json:"cpu"`
		BuildInfo *struct {
			DockerfileContent string `json:"dockerfileContent"`
		} `json:"buildInfo"`
		NetworkBlockAll    bool `json:"networkBlockAll"`
		AutoStopInterval   int  `json:"autoStopInterval"`
		AutoDeleteInterval int  `json:"autoDeleteInterval"`
	}
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, ok := d.find(account, request.Name); ok {
		refuse(w, http.StatusConflict, "Sandbox with name "+request.Name+" already exists")
		return
	}
	if d.most != 0 && len(d.boxes) >= d.most {
		refuse(w, http.StatusForbidden, fmt.Sprintf("Total CPU limit exceeded. Maximum allowed: %d.", d.most))
		return
	}
	if request.BuildInfo == nil && request.CPU != nil {
		refuse(w, http.StatusBadRequest, "Cannot specify Sandbox resources when using a snapshot")
		return
	}
	d.made++
	id := fmt.Sprintf("00000000-0000-4000-8000-%012d", d.made)
	machine, err := d.host.Create(fmt.Sprintf("daytona-%d", d.made))
	if err == nil && request.NetworkBlockAll {
		machine.Isolate()
	}
	if err == nil && d.starts == "started" {
		err = machine.Start()
	}
	if err != nil {
		refuse(w, http.StatusInternalServerError, err.Error())
		return
	}
	b := &box{
		account: account, machine: machine, labels: request.Labels, state: "creating", next: d.starts, pending: 1, created: time.Now(),
		fields: map[string]any{
			"id": id, "name": request.Name, "organizationId": "org", "user": "daytona", "env": map[string]string{}, "public": false,
			"networkBlockAll": request.NetworkBlockAll, "target": "eu", "cpu": 1, "gpu": 0, "memory": 1, "disk": 3, "snapshot": request.Snapshot,
			"autoStopInterval": request.AutoStopInterval, "autoDeleteInterval": request.AutoDeleteInterval,
			"toolboxProxyUrl": strings.TrimSuffix(d.URL, "/api") + "/toolbox",
		},
	}
	if request.BuildInfo != nil {
		b.fields["dockerfile"] = request.BuildInfo.DockerfileContent
	}
	d.boxes[id] = b
	reply(w, http.StatusOK, b.show())
}

// show returns a box as the API shows it.
func (b *box) show() map[string]any {
	shown := map[string]any{"state": b.state, "labels": b.labels, "createdAt": b.created.UTC().Format(time.RFC3339Nano)}
	for name, value := range b.fields {
		shown[name] = value
	}
	return shown
}

// find returns a box of an account by its id or name.
func (d *Double) find(account, name string) (*box, bool) {
	if b, ok := d.boxes[name]; ok && b.account == account {
		return b, true
	}
	for _, b := range d.boxes {
		if b.account == account && b.fields["name"] == name {
			return b, true
		}
	}
	return nil, false
}

func (d *Double) list(w http.ResponseWriter, r *http.Request, account string) {
	query := r.URL.Query()
	var labels map[string]string
	page, _ := strconv.Atoi(query.Get("page"))
	limit, _ := strconv.Atoi(query.Get("limit"))
	if json.Unmarshal([]byte(query.Get("labels")), &labels) != nil || page < 1 || limit < 1 || limit > 200 {
		refuse(w, http.StatusBadRequest, "labels, page or limit")
		return
	}
	limit = min(limit, 2) // so that every list has several pages
	d.mu.Lock()
	defer d.mu.Unlock()
	found := []*box{}
	for _, b := range d.boxes {
		matches := b.account == account
		for name, value := range labels {
			matches = matches && b.labels[name] == value
		}
		if matches {
			found = append(found, b)
		}
	}
	slices.SortFunc(found, func(a, b *box) int { return b.created.Compare(a.created) })
	items := []map[string]any{}
	for _, b := range found[min(len(found), (page-1)*limit):min(len(found), page*limit)] {
		items = append(items, b.show())
	}
	reply(w, http.StatusOK, map[string]any{"items": items, "total": len(found), "page": page, "totalPages": (len(found) + limit - 1) / limit})
}

// sandbox answers a request about a box.
func (d *Double) sandbox(w http.ResponseWriter, r *http.Request, account, name, call string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	b, ok := d.find(account, name)
	if !ok {
		refuse(w, http.StatusNotFound, "Sandbox with ID or name "+name+" not found")
		return
	}
	if b.pending > 0 {
		if b.pending--; b.pending == 0 {
			b.state = b.next
		}
	}
	id, _ := b.fields["id"].(string)
	verb, argument, _ := strings.Cut(call, "/")
	switch verb {
	case "GET":
		reply(w, http.StatusOK, b.show())
		if b.state == "destroying" {
			delete(d.boxes, id)
		}
		return
	case "DELETE":
		if b.pending > 0 {
			refuse(w, http.StatusConflict, "Sandbox state change in progress")
			return
		}
		b.machine.Stop()
		d.removing.Go(func() { _ = b.machine.Remove() }) // later, as the service does
		b.state = "destroying"
	case "POST start":
		if b.state != "stopped" && b.state != "archived" {
			refuse(w, http.StatusBadRequest, "Sandbox is not in a valid state to be started")
			return
		}
		if err := b.machine.Start(); err != nil {
			refuse(w, http.StatusInternalServerError, err.Error())
			return
		}
		b.state, b.next, b.pending = "starting", "started", 1
	case "POST stop":
		if b.state != "started" {
			refuse(w, http.StatusBadRequest, "Sandbox is not started")
			return
		}
		b.machine.Stop()
		b.state, b.next, b.pending = "stopping", "stopped", 1
	case "POST last-activity":
		b.fields["lastActivityAt"] = time.Now().Format(time.RFC3339Nano)
		w.WriteHeader(http.StatusCreated)
		return
	case "POST autostop":
		b.fields["autoStopInterval"], _ = strconv.Atoi(argument)
	case "POST autodelete":
		b.fields["autoDeleteInterval"], _ = strconv.Atoi(argument)
	case "PUT labels":
		var request struct {
			Labels map[string]string `json:"labels"`
		}
		if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
			refuse(w, http.StatusBadRequest, err.Error())
			return
		}
		b.labels = request.Labels
		reply(w, http.StatusOK, map[string]any{"labels": b.labels})
		return
	default:
		refuse(w, http.StatusNotFound, "Cannot "+r.Method+" "+r.URL.Path)
		return
	}
	reply(w, http.StatusOK, b.show())
}

// errStopped is the answer of the toolboxes' proxy for a box that is not running.
var errStopped = errors.New("bad request: failed to resolve container IP after 3 attempts: no IP address found. Is the Sandbox started?")
