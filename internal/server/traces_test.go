package server_test

import (
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/arbe-dev/arbe/internal/model/modeltest"
	"github.com/arbe-dev/arbe/internal/outbound"
	"github.com/arbe-dev/arbe/internal/server"
	"github.com/arbe-dev/arbe/proto/arbe"
	arbev1 "github.com/arbe-dev/arbe/proto/arbe/v1"
)

// tracesCollector takes spans over OTLP/HTTP.
type tracesCollector struct {
	*httptest.Server
	mu    sync.Mutex
	spans map[string]*otlp.Span // by id
	raw   []byte
}

func collectTraces(t *testing.T) *tracesCollector {
	c := &tracesCollector{spans: map[string]*otlp.Span{}}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(r.Body)
		var sent collector.ExportTraceServiceRequest
		if err != nil || proto.Unmarshal(text, &sent) != nil || r.Header.Get("Content-Type") != "application/x-protobuf" {
			t.Errorf("the collector got %d bytes of %s that are no spans (%v)", len(text), r.Header.Get("Content-Type"), err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.raw = append(c.raw, text...)
		for _, resource := range sent.ResourceSpans {
			for _, scope := range resource.ScopeSpans {
				for _, s := range scope.Spans {
					c.spans[hex.EncodeToString(s.SpanId)] = s
				}
			}
		}
	}))
	t.Cleanup(c.Close)
	return c
}

// chains returns the spans with a name, each as the names of the spans from the beginning of its trace to it.
func (c *tracesCollector) chains(name string) (all []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.spans {
		if s.Name != name {
			continue
		}
		var chain []string
		for trace := string(s.TraceId); s != nil && string(s.TraceId) == trace; s = c.spans[hex.EncodeToString(s.ParentSpanId)] {
			chain = append(chain, s.Name)
		}
		slices.Reverse(chain)
		all = append(all, strings.Join(chain, " > "))
	}
	slices.Sort(all)
	return all
}

// What a person says, the bot's model calls that follow from it, and the command that the model asks for are one trace,
// although two jobs lie between them.
func TestTracesFollowWhatIsSaid(t *testing.T) {
	t.Parallel()
	traces := collectTraces(t)
	cfg := served(t)
	cfg.TracesURL = traces.URL + "/v1/traces"
	models := modeltest.New(t, func(r *modeltest.Request) modeltest.Reply {
		if r.Last().Role == "tool" {
			return modeltest.Reply{Text: "a confidential answer"}
		}
		return modeltest.Reply{Calls: []modeltest.Call{{Name: "run_command", Arguments: `{"command":"echo confidential"}`}}}
	})
	var err error
	if cfg.ModelHosts, err = outbound.ParseHosts(strings.TrimPrefix(models.URL, "http://")); err != nil {
		t.Fatal(err)
	}
	s, err := server.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	stopped := sync.OnceValue(s.Stop)
	defer stopped()
	c, house := client(t, cfg), homeOf(t, cfg)
	if _, err := c.Models.SetModelEndpoint(t.Context(), &arbev1.SetModelEndpointRequest{HouseId: house, Name: "scripted", BaseUrl: models.URL + "/v1", Key: "sk-of-the-house-0123456789"}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Models.SetDefaultModel(t.Context(), &arbev1.SetDefaultModelRequest{HouseId: house, Model: "scripted/one"}); err != nil {
		t.Fatal(err)
	}
	for piece, err := range c.Ask(t.Context(), arbe.Question{House: house, Text: "a confidential question"}) {
		if err != nil {
			t.Fatal(err)
		}
		if a := piece.Answer; a != nil && a.Outcome != "answered" {
			t.Fatalf("the bot's turn ends with %+v", a)
		}
	}
	if err := stopped(); err != nil { // sends the last spans
		t.Fatal(err)
	}

	const turn = "arbe.v1.EntryService/Say > say > decide > job turn"
	for name, want := range map[string][]string{
		"job turn":        {turn},
		"model call":      {turn + " > model call", turn + " > model call"},
		"job run_command": {turn + " > tool run_command > transaction > job run_command"},
		"command":         {turn + " > tool run_command > transaction > job run_command > command"},
	} {
		if got := traces.chains(name); !slices.Equal(got, want) {
			t.Errorf("the spans %q are\n%s\nand not\n%s", name, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	for _, secret := range []string{"confidential", "sk-of-the-house", login(t, cfg).Token} {
		if strings.Contains(string(traces.raw), secret) {
			t.Errorf("the spans contain %q", secret)
		}
	}
}

func TestTracesOfRequests(t *testing.T) {
	t.Parallel()
	traces := collectTraces(t)
	cfg := served(t)
	cfg.TracesURL = traces.URL + "/v1/traces"
	s, err := server.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	stopped := sync.OnceValue(s.Stop)
	defer stopped()
	link, err := client(t, cfg).Agents.CreateLoginLink(t.Context(), &arbev1.CreateLoginLinkRequest{})
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), "GET", s.URL()+link.Path, nil)
	if err != nil {
		t.Fatal(err)
	}
	const theirs = "0af7651916cd43dd8448eb211c80319c"
	req.Header.Set("Traceparent", "00-"+theirs+"-b7ad6b7169203331-00")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if err := stopped(); err != nil {
		t.Fatal(err)
	}
	t.Run("are continued by the services that a page calls", func(t *testing.T) {
		if got := traces.chains("arbe.v1.AgentService/GetLoginLink"); !slices.Equal(got, []string{"GET web > arbe.v1.AgentService/GetLoginLink"}) {
			t.Errorf("they are %q", got)
		}
	})
	t.Run("are only linked to what a stranger says they follow from, and are recorded whatever it asks for", func(t *testing.T) {
		found := false
		for _, s := range traces.spans {
			if hex.EncodeToString(s.TraceId) == theirs {
				t.Errorf("%s is in the stranger's trace", s.Name)
			}
			found = found || len(s.Links) == 1 && hex.EncodeToString(s.Links[0].TraceId) == theirs
		}
		if !found {
			t.Error("no span is linked")
		}
	})
	t.Run("name no token of a link", func(t *testing.T) {
		_, token, _ := strings.Cut(link.Path, "token=")
		if token == "" || strings.Contains(string(traces.raw), token) {
			t.Errorf("the spans contain the token %q", token)
		}
	})
}

// A collector that does not answer must not keep a server from starting, answering or stopping.
func TestTracesWithoutACollector(t *testing.T) {
	t.Parallel()
	cfg := served(t)
	cfg.LogLevel = 12 // the failure is expected
	cfg.TracesURL = "http://127.0.0.1:1/v1/traces"
	s, err := server.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	c := client(t, cfg)
	say(t, c, newThread(t, c), "hello")
	began := time.Now()
	s.Stop()
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("it stops after %v", took)
	}
}
