package model

import (
	"cmp"
	"context"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/arbe-dev/arbe/internal/fault"
)

// Found is an endpoint that the operator's machine offers, or one of a house.
type Found struct {
	Endpoint Endpoint
	// Own reports that it belongs to the house. Secret is then the name of the secret with its key; empty if it needs
	// none.
	Own    bool
	Secret string
	// Source says where it was found, in words: "ANTHROPIC_API_KEY", "Ollama at http://127.0.0.1:11434/v1".
	Source string
	// Models are the models that it listed; empty if it was not asked.
	Models []string
	// Default is the id of its default model; empty if there is none.
	Default string
	// Problem says why it cannot be used; nil if nothing is known against it. Keys are not tried.
	Problem error
}

// Environment has the endpoints that the operator's machine offers.
type Environment struct {
	// Found are the endpoints, preferred first.
	Found []Found
	// Default is the default model: ARBE_MODEL, or the default of the first usable endpoint. It is the zero Ref if
	// there is none.
	Default Ref
	// Problem says what is wrong with ARBE_MODEL; nil if nothing is.
	Problem error
}

// Probe asks an endpoint for its models, like [Client.Models].
type Probe func(context.Context, Endpoint) (Listing, error)

// probeTime limits a probe, because the start of the server waits for it.
const probeTime = 2 * time.Second

// FromEnvironment finds the models that the operator's machine offers, from the variables that the providers' own
// clients read: ANTHROPIC_API_KEY (with ANTHROPIC_BASE_URL), OPENAI_API_KEY (with OPENAI_BASE_URL, which alone is
// enough), OPENROUTER_API_KEY, GEMINI_API_KEY (with GOOGLE_GEMINI_BASE_URL); and an Ollama at OLLAMA_HOST or on this
// machine. A base URL speaks its provider's own dialect. Most servers at an OPENAI_BASE_URL speak chat, and
// ARBE_OPENAI_DIALECT says which one speaks responses. ARBE_MODEL chooses the default. Only an Ollama and an
// OPENAI_BASE_URL are asked for their models, with probe, for two seconds at most.
func FromEnvironment(ctx context.Context, getenv func(string) string, probe Probe) Environment {
	l := probing{get: func(name string) string { return strings.TrimSpace(getenv(name)) }, probe: probe}
	l.keyed(Anthropic, "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL")
	l.openAI(ctx)
	l.keyed(OpenRouter, "OPENROUTER_API_KEY", "")
	l.keyed(Google, "GEMINI_API_KEY", "GOOGLE_GEMINI_BASE_URL")
	l.ollama(ctx)
	l.choose()
	return l.env
}

// probing is a probe of a machine's environment.
type probing struct {
	get   func(name string) string
	probe Probe
	env   Environment
}

func (l *probing) add(f Found) {
	f.Endpoint = f.Endpoint.withDefaults()
	f.Problem = cmp.Or(f.Problem, f.Endpoint.Check())
	l.env.Found = append(l.env.Found, f)
}

// keyed adds a provider whose key, and perhaps base URL, is in these variables.
func (l *probing) keyed(p Provider, key, base string) {
	if l.get(key) == "" {
		return
	}
	f := Found{Endpoint: Endpoint{Provider: p, Key: l.get(key), KeyName: key, BaseURL: l.get(base), Trusted: true}, Source: key, Default: defaultModel(p)}
	if l.get(base) != "" {
		f.Source += " and " + base
	}
	l.add(f)
}

// ask asks an endpoint for its models. The first model that can chat becomes the default.
func (l *probing) ask(ctx context.Context, f *Found) error {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	e := f.Endpoint.withDefaults()
	if err := e.Check(); err != nil {
		return err
	}
	list, err := l.probe(ctx, e)
	if err != nil {
		return err
	}
	f.Models, f.Default = list.Models, ""
	for _, id := range list.Models {
		if !strings.Contains(id, "embed") {
			f.Default = id
			break
		}
	}
	return nil
}

func (l *probing) openAI(ctx context.Context) {
	base := l.get("OPENAI_BASE_URL")
	if base == "" {
		l.keyed(OpenAI, "OPENAI_API_KEY", "OPENAI_BASE_URL")
		return
	}
	f := Found{Endpoint: Endpoint{Provider: OpenAI, Key: l.get("OPENAI_API_KEY"), KeyName: "OPENAI_API_KEY", BaseURL: base, Trusted: true}, Source: "OPENAI_BASE_URL", Default: defaultModel(OpenAI)}
	switch word := l.get("ARBE_OPENAI_DIALECT"); word {
	case "", "chat", "responses":
		f.Endpoint.Dialect = dialectWords[word]
	default:
		f.Problem = fault.New(fault.Invalid, "ARBE_OPENAI_DIALECT is neither chat nor responses", "set one of them, or neither")
	}
	if f.Problem == nil && f.Endpoint.withDefaults().BaseURL != baseURLs[OpenAI] {
		f.Problem = l.ask(ctx, &f)
	}
	l.add(f)
}

func (l *probing) ollama(ctx context.Context) {
	f := Found{Endpoint: Endpoint{Provider: Ollama, BaseURL: ollamaURL(l.get("OLLAMA_HOST")), Trusted: true}}
	f.Source = "Ollama at " + f.Endpoint.BaseURL
	f.Problem = l.ask(ctx, &f)
	if f.Problem == nil && len(f.Models) == 0 {
		f.Problem = fault.New(fault.Precondition, "Ollama has no models", "pull one with ollama pull qwen3")
	}
	if f.Problem == nil || l.get("OLLAMA_HOST") != "" { // otherwise nobody configured an Ollama
		l.add(f)
	}
}

// choose sets the default: the operator's choice, or the first model that was found.
func (l *probing) choose() {
	env := &l.env
	if chosen := l.get("ARBE_MODEL"); chosen != "" {
		env.Default, env.Problem = ParseRef(chosen)
		if env.Problem == nil && !env.has(env.Default.Endpoint) {
			env.Problem = fault.Newf(fault.Precondition, "set its key in the environment, or a house's key for it", "ARBE_MODEL is %s, and nothing was found for %s", env.Default, env.Default.Endpoint)
		}
		return
	}
	for _, f := range env.Found {
		if f.Problem == nil && f.Default != "" {
			env.Default = Ref{f.Endpoint.Name, f.Default}
			return
		}
	}
}

func (e Environment) has(name string) bool {
	for _, f := range e.Found {
		if f.Endpoint.Name == name && f.Problem == nil {
			return true
		}
	}
	return false
}

// ollamaURL parses OLLAMA_HOST like Ollama's own client: the scheme, the port and the host may each be missing. A
// server that listens on all addresses is asked at the local one.
func ollamaURL(host string) string {
	scheme, rest, found := strings.Cut(host, "://")
	port := "11434"
	switch {
	case !found:
		scheme, rest = "http", host
	case scheme == "https":
		port = "443"
	case scheme == "http":
		port = "80"
	}
	rest, path, _ := strings.Cut(rest, "/")
	if name, given, err := net.SplitHostPort(rest); err == nil {
		rest, port = name, cmp.Or(given, port)
	}
	rest = strings.Trim(rest, "[]")
	switch rest {
	case "", "0.0.0.0", "::":
		rest = "127.0.0.1"
	}
	u := url.URL{Scheme: scheme, Host: net.JoinHostPort(rest, port), Path: strings.TrimRight("/"+path, "/") + "/v1"}
	return u.String()
}
