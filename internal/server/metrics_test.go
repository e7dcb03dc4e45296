package server_test

import (
	"encoding/json"
	"io"
	"net/http"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/arbe-dev/arbe/internal/model/modeltest"
	"github.com/arbe-dev/arbe/internal/outbound"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

func TestMetrics(t *testing.T) {
	t.Parallel()
	cfg := served(t)
	cfg.MetricsAddr = "127.0.0.1:0"
	models := modeltest.New(t, nil)
	var err error
	if cfg.ModelHosts, err = outbound.ParseHosts(strings.TrimPrefix(models.URL, "http://")); err != nil {
		t.Fatal(err)
	}
	s := start(t, cfg)
	c := client(t, cfg)
	thread := newThread(t, c)
	output(t, cfg, thread, "echo done; exit 3")
	house := homeOf(t, cfg)
	if _, err := c.Models.SetModelEndpoint(t.Context(), &arbev1.SetModelEndpointRequest{HouseId: house, Name: "scripted", BaseUrl: models.URL + "/v1", Key: "sk-of-the-house-0123456789"}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Models.SetDefaultModel(t.Context(), &arbev1.SetDefaultModelRequest{HouseId: house, Model: "scripted/fake-answer"}); err != nil {
		t.Fatal(err)
	}
	for piece, err := range c.Ask(t.Context(), arbe.Question{House: house, Text: "of the metrics"}) {
		if err != nil {
			t.Fatal(err)
		}
		if a := piece.Answer; a != nil && a.Outcome != "answered" {
			t.Fatalf("the bot's turn ends with %+v", a)
		}
	}
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
	var text string
	// A client may get a bot's answer just before the server counts it.
	for until := time.Now().Add(2 * time.Minute); !strings.Contains(text, "\narbe_turn_seconds_count") && time.Now().Before(until); time.Sleep(20 * time.Millisecond) {
		var status int
		if status, text = get(s.MetricsURL() + "/metrics"); status != http.StatusOK {
			t.Fatalf("it answers %d %s", status, text)
		}
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
	t.Run("count work and how long it took", func(t *testing.T) {
		for _, line := range []string{
			`arbe_command_seconds_count{outcome="failed"} 1`, `arbe_command_wait_seconds_count 1`,
			`arbe_sandbox_build_seconds_count{driver="local",outcome="ok"} 1`,
			`arbe_turn_seconds_count{outcome="answered"} 1`,
			`arbe_model_call_seconds_count{outcome="ok",provider="compatible"} `,
			`arbe_model_tokens_total{kind="output",provider="compatible"} `,
			`arbe_model_cost_usd_total{provider="compatible"} 0`,
			`arbe_http_first_byte_seconds_count{door="stream"} 1`,
			`arbe_job_oldest_seconds{kind="run_command"} 0`,
			`arbe_spool_bytes 0`,
		} {
			if !strings.Contains(text, "\n"+line) {
				t.Errorf("there is no line %s", line)
			}
		}
		for _, name := range []string{"arbe_artifact_bytes", "arbe_database_bytes", "arbe_log_bytes", "arbe_log_bytes_of_largest_house", "arbe_log_bytes_of_largest_member"} {
			if !regexp.MustCompile(`(?m)^` + name + ` [0-9]`).MatchString(text) {
				t.Errorf("there is no %s", name)
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
	t.Run("are what the alerts and the dashboard ask for", func(t *testing.T) {
		for _, file := range []string{"alerts.yaml", "dashboard.json"} {
			asked := regexp.MustCompile(`\b(arbe|process)_[a-z_]+[a-z]`).FindAllString(read(t, deploy+file), -1)
			if len(asked) < 7 {
				t.Errorf("%s asks for %v", file, asked)
			}
			for _, name := range asked {
				if !regexp.MustCompile(`(?m)^` + name + `(\{| )`).MatchString(text) {
					t.Errorf("%s asks for %s, which does not exist", file, name)
				}
			}
		}
		if !json.Valid([]byte(read(t, deploy+"dashboard.json"))) {
			t.Error("dashboard.json is no JSON")
		}
	})
	t.Run("are what the rules of Prometheus may ask", func(t *testing.T) {
		if _, err := exec.LookPath("promtool"); err != nil {
			t.Skip("promtool is not installed (apt-get install prometheus)")
		}
		execute(t, "promtool", "check", "rules", deploy+"alerts.yaml")
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
