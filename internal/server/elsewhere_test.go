package server_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/jackc/pgx/v5"

	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/server"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// usesElsewhere uses the files and ports of a thread's sandbox through a server that does not reach it.
func usesElsewhere(t *testing.T, here, there server.Config, thread string) {
	c := client(t, there)
	large := bytes.Repeat([]byte("0123456789abcdef"), 100_000) // more than one piece
	output(t, here, thread, "git init -q . && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m first && echo changed > new && printf 0123456789abcdef%.0s $(seq 100000) > large")
	read := func(path string) (kind, content string, err error) {
		stream, err := c.Sandboxes.ReadSandboxPath(t.Context(), &arbev1.ReadSandboxPathRequest{ThreadId: thread, Path: path})
		if err != nil {
			return "", "", err
		}
		defer stream.Close()
		for stream.Receive() {
			if f := stream.Msg().GetFile(); f != nil {
				kind = f.Kind
			}
			content += string(stream.Msg().GetContent())
		}
		return kind, content, stream.Err()
	}
	if kind, content, err := read("new"); err != nil || kind != "file" || content != "changed\n" {
		t.Errorf("a file is %q, %q, %v", kind, content, err)
	}
	if _, content, err := read("large"); err != nil || content != string(large) {
		t.Errorf("a large file has %d bytes, %v", len(content), err)
	}
	if kind, _, err := read("."); err != nil || kind != "folder" {
		t.Errorf("the working tree is %q, %v", kind, err)
	}
	if _, _, err := read("absent"); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("a file that is not there: %v", err)
	}
	changes, err := c.Sandboxes.GetSandboxChanges(t.Context(), &arbev1.GetSandboxChangesRequest{ThreadId: thread})
	if err != nil || !strings.Contains(string(changes.Patch), "+changed") {
		t.Errorf("the changes are %.200q, %v", changes.GetPatch(), err)
	}

	if _, err := dialPort(t, c, thread, 3999); arbe.Reason(err) != string(fault.NobodyListens) {
		t.Errorf("a port on which nothing listens: %v", err)
	}
	serveSite(t, here, thread, 3000)
	conn, err := dialPort(t, c, thread, 3000)
	if err != nil {
		t.Fatal(err)
	}
	if got := askSite(t, conn, "/"); got == "" {
		t.Error("the site says nothing")
	}
	previewsElsewhere(t, there, thread)
	if woken, err := c.WakeSandbox(t.Context(), thread, nil); err != nil || woken.SandboxId == "" || woken.Started {
		t.Errorf("waking it: %v, %v", woken, err)
	}
}

// previewsElsewhere uses the preview of port 3000, at which the site listens, through a server that does not reach the sandbox.
func previewsElsewhere(t *testing.T, there server.Config, thread string) {
	t.Helper()
	c, addr := client(t, there), strings.TrimPrefix(login(t, there).Host, "http://")
	p := openPreview(t, c, addr, thread, 3000)
	if res, text := p.send(t, http.MethodGet, "/x?y=1", http.Header{"Cookie": {"a=1; arbe_session=secret"}}, nil); res.StatusCode != http.StatusOK ||
		!strings.Contains(text, "GET /x?y=1\n") || !strings.Contains(text, "Host: localhost:3000") || strings.Contains(text, "secret") {
		t.Errorf("it answers %s %q", res.Status, text)
	}
	if res, _ := p.send(t, http.MethodGet, "/redirect", nil, nil); !strings.HasPrefix(res.Header.Get("Location"), p.origin.String()) {
		t.Errorf("it redirects to %q", res.Header.Get("Location"))
	}
	first := make([]byte, len("data: first"))
	if _, err := io.ReadFull(p.begin(t, http.MethodGet, "/events", nil, nil).Body, first); err != nil || string(first) != "data: first" {
		t.Errorf("the events begin with %q, %v", first, err)
	}
	sent := bytes.Repeat([]byte("0123456789abcdef"), 100_000)
	if res, text := p.send(t, http.MethodPost, "/sent", nil, bytes.NewReader(sent)); res.StatusCode != http.StatusOK || !strings.Contains(text, fmt.Sprint(len(sent))) {
		t.Errorf("an upload is answered with %s %.200q", res.Status, text)
	}
	// Several requests at once, some of which the browser gives up.
	var all sync.WaitGroup
	for n := range 10 {
		all.Go(func() {
			if n%2 == 0 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(n)*time.Millisecond)
				defer cancel()
				req, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/events", nil)
				req.Host = p.origin.Host
				req.AddCookie(p.pass)
				if res, err := http.DefaultTransport.RoundTrip(req); err == nil {
					res.Body.Close()
				}
				return
			}
			if res, text := p.send(t, http.MethodGet, fmt.Sprint("/", n), nil, nil); !strings.HasPrefix(text, fmt.Sprintf("GET /%d\n", n)) {
				t.Errorf("%d is answered with %s %q", n, res.Status, text)
			}
		})
	}
	all.Wait()
	stranger := &previewer{addr: addr, origin: p.origin}
	if res, text := stranger.send(t, http.MethodGet, "/", nil, nil); res.StatusCode != http.StatusUnauthorized || strings.Contains(text, "GET /") {
		t.Errorf("without a pass it answers %s %q", res.Status, text)
	}
	if res, _ := p.send(t, http.MethodGet, "/x", http.Header{"Sec-Fetch-Site": {"cross-site"}, "Origin": {"https://other.test"}}, nil); res.StatusCode != http.StatusForbidden {
		t.Errorf("another page's request is answered with %s", res.Status)
	}
}

// boxesOf returns the number of sandboxes on a server's machine.
func boxesOf(t *testing.T, cfg server.Config) int {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(cfg.DataDir, "local", "boxes", "*", "box.json"))
	if err != nil {
		t.Fatal(err)
	}
	return len(found)
}

// houseOn returns a new house with a sandbox on the machine of one server. Either server may build a sandbox.
func houseOn(t *testing.T, here, there server.Config) (house string) {
	t.Helper()
	c := client(t, there)
	for range 20 {
		made, err := c.Houses.CreateHouse(t.Context(), &arbev1.CreateHouseRequest{Name: "Leaving"})
		if err != nil {
			t.Fatal(err)
		}
		th, err := c.Threads.CreateThread(t.Context(), &arbev1.CreateThreadRequest{HouseId: made.House.Id})
		if err != nil {
			t.Fatal(err)
		}
		before := boxesOf(t, here)
		output(t, there, th.Thread.Id, "sleep 1000 > /dev/null 2>&1 & echo kept > file")
		if boxesOf(t, here) > before {
			return made.House.Id
		}
	}
	t.Fatal("one server builds all sandboxes")
	return ""
}

// deletesElsewhere deletes a house through a server that does not reach the house's sandbox.
func deletesElsewhere(t *testing.T, url string, here, there server.Config) {
	t.Helper()
	before := boxesOf(t, here)
	house := houseOn(t, here, there)
	deletesHouse(t, there, house)
	awaitHouseGone(t, url, house)
	if n := boxesOf(t, here); n != before {
		t.Errorf("%d sandboxes are on its machine, want %d", n, before)
	}
}

// deletesHouse deletes a house through a server.
func deletesHouse(t *testing.T, cfg server.Config, house string) {
	t.Helper()
	if _, err := client(t, cfg).Houses.DeleteHouse(t.Context(), &arbev1.DeleteHouseRequest{Id: house, Name: "Leaving"}); err != nil {
		t.Fatal(err)
	}
}

// awaitHouseGone waits until the database has nothing of a house.
func awaitHouseGone(t *testing.T, url, house string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	for deadline := time.Now().Add(3 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		var left int
		err := conn.QueryRow(t.Context(), "select (select count(*) from houses where id = $1) + (select count(*) from sandboxes where house_id = $1)", house).Scan(&left)
		if err != nil {
			t.Fatal(err)
		}
		if left == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d rows of the house are left", left)
		}
	}
}
