package server_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func TestMetrics(t *testing.T) {
	t.Parallel()
	cfg := settings(t)
	cfg.MetricsAddr = "127.0.0.1:0"
	s := start(t, cfg)
	c := client(t, cfg)
	thread := newThread(t, c)
	say(t, c, thread, "hello")
	if _, err := c.Threads.GetThread(t.Context(), &arbev1.GetThreadRequest{Id: "nowhere"}); err == nil {
		t.Fatal("there is a thread named nowhere")
	}
	ask(t, s, "/threads/nowhere")
	ask(t, s, "/api/stream/nowhere")

	get := func(url string) (int, string) {
		t.Helper()
		res, err := http.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, string(text)
	}
	status, text := get(s.MetricsURL() + "/metrics")
	if status != http.StatusOK {
		t.Fatalf("it answers %d %s", status, text)
	}
	t.Run("count calls by procedure and code", func(t *testing.T) {
		for _, line := range []string{
			`arbe_rpc_requests_total{code="ok",procedure="arbe.v1.EntryService/Append"} 1`,
			`arbe_rpc_requests_total{code="not_found",procedure="arbe.v1.ThreadService/GetThread"} 1`,
			`arbe_rpc_duration_seconds_count{procedure="arbe.v1.EntryService/Append"} 1`,
			`arbe_http_requests_total{door="stream",status="401"} 1`,
		} {
			if !strings.Contains(text, line) {
				t.Errorf("there is no line %s", line)
			}
		}
	})
	t.Run("tell of every part of the server", func(t *testing.T) {
		for _, name := range []string{"arbe_build_info{", `arbe_log_batch_appends_bucket{le="1"} `, "arbe_log_batch_appends_sum ", "arbe_log_entries_total ", "arbe_log_tails ", "arbe_live_pictures ", "arbe_commands_running ",
			"arbe_db_connections_acquired ", "arbe_db_listener_reconnects_total ", `arbe_jobs{kind="run_command",state="queued"} `, "go_goroutines ", "process_resident_memory_bytes "} {
			if !strings.Contains(text, "\n"+name) {
				t.Errorf("there is no %s", name)
			}
		}
	})
	t.Run("name nobody and nothing", func(t *testing.T) {
		for _, id := range []string{thread, "nowhere", "hello", login(t, cfg).Token} {
			if strings.Contains(text, id) {
				t.Errorf("they hold %q", id)
			}
		}
	})
	t.Run("are not on the address that everybody reaches, and health is on both", func(t *testing.T) {
		if page := ask(t, s, "/metrics"); page.status == http.StatusOK || strings.Contains(page.body, "arbe_build_info") {
			t.Errorf("it answers %d %.100s", page.status, page.body)
		}
		for _, path := range []string{"/healthz", "/readyz"} {
			if status, text := get(s.MetricsURL() + path); status != http.StatusOK || text != "ok\n" {
				t.Errorf("%s answers %d %q", path, status, text)
			}
		}
	})
}
