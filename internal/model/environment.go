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

// Found is one way to models: one that the operator's machine offers, or one of a house.
type Found struct {
	Endpoint Endpoint
	// Own says that it is the house's own. Secret is then the name of the secret with its key; empty if it wants none.
	Own    bool
	Secret string
	// Source says where it was found, in words: "ANTHROPIC_API_KEY", "Ollama at http://127.0.0.1:11434/v1".
	Source string
	// Models are the models that it said it has; empty if it was not asked.
	Models []string
	// Default is the id of the model to use unless someone chooses; empty if there is none.
	Default string
	// Problem says why it cannot be used; nil if it can, as far as is known. Keys are not tried.
	Problem error
}

// Environment is what the operator's machine offers.
type Environment struct {
	// Found are the endpoints, the preferred one first.
	Found []Found
	// Default is the model to use unless someone chooses: ARBE_MODEL, or the default of the first endpoint that can be
	// used. It is the zero Ref if there is none.
	Default Ref
	// Problem says what is wrong with ARBE_MODEL; nil if nothing is.
	Problem error
}

// Probe asks an endpoint which models it has, as [Client.Models].
type Probe func(context.Context, Endpoint) (Listing, error)

// probeTime is how long a probe may take: a start of the server waits for it.
const probeTime = 2 * time.Second

// FromEnvironment finds the models that the operator's machine offers, from the variables that the providers' own
// clients read: ANTHROPIC_API_KEY (with ANTHROPIC_BASE_URL), OPENAI_API_KEY (with OPENAI_BASE_URL, which alone is
// enough), OPENROUTER_API_KEY, GEMINI_API_KEY (with GOOGLE_GEMINI_BASE_URL); and an Ollama at OLLAMA_HOST or on this
// machine. A base URL speaks its provider's own dialect. Most servers at an OPENAI_BASE_URL speak chat, and
// ARBE_OPENAI_DIALECT says which one speaks responses. ARBE_MODEL chooses the default. Only an Ollama and an
// OPENAI_BASE_URL are asked for their models, with probe, for two seconds at most.
func FromEnvironment(ctx context.Context, getenv func(string) string, probe Probe) Environment {
	get := func(name string) string { return strings.TrimSpace(getenv(name)) }
	var env Environment
	add := func(f Found) {
		f.Endpoint = f.Endpoint.withDefaults()
		f.Problem = cmp.Or(f.Problem, f.Endpoint.Check())
		env.Found = append(env.Found, f)
	}
	keyed := func(p Provider, key, base string) {
		if get(key) == "" {
			return
		}
		f := Found{Endpoint: Endpoint{Provider: p, Key: get(key), KeyName: key, BaseURL: get(base), Trusted: true}, Source: key, Default: defaultModel(p)}
		if get(base) != "" {
			f.Source += " and " + base
		}
		add(f)
	}
	ask := func(f *Found) error {
		ctx, cancel := context.WithTimeout(ctx, probeTime)
		defer cancel()
		e := f.Endpoint.withDefaults()
		if err := e.Check(); err != nil {
			return err
		}
		list, err := probe(ctx, e)
		if err != nil {
			return err
		}
		f.Models, f.Default = list.Models, ""
		for _, id := range list.Models {
			if !strings.Contains(id, "embed") { // which cannot talk
				f.Default = id
				break
			}
		}
		return nil
	}

	keyed(Anthropic, "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL")
	if base := get("OPENAI_BASE_URL"); base == "" {
		keyed(OpenAI, "OPENAI_API_KEY", "OPENAI_BASE_URL")
	} else {
		f := Found{Endpoint: Endpoint{Provider: OpenAI, Key: get("OPENAI_API_KEY"), KeyName: "OPENAI_API_KEY", BaseURL: base, Trusted: true}, Source: "OPENAI_BASE_URL", Default: defaultModel(OpenAI)}
		switch word := get("ARBE_OPENAI_DIALECT"); word {
		case "", "chat", "responses":
			f.Endpoint.Dialect = dialectWords[word]
		default:
			f.Problem = fault.New(fault.Invalid, "ARBE_OPENAI_DIALECT is neither chat nor responses", "set one of them, or neither")
		}
		if f.Problem == nil && f.Endpoint.withDefaults().BaseURL != baseURLs[OpenAI] {
			f.Problem = ask(&f)
		}
		add(f)
	}
	keyed(OpenRouter, "OPENROUTER_API_KEY", "")
	keyed(Google, "GEMINI_API_KEY", "GOOGLE_GEMINI_BASE_URL")

	ollama := Found{Endpoint: Endpoint{Provider: Ollama, BaseURL: ollamaURL(get("OLLAMA_HOST")), Trusted: true}}
	ollama.Source = "Ollama at " + ollama.Endpoint.BaseURL
	ollama.Problem = ask(&ollama)
	if ollama.Problem == nil && len(ollama.Models) == 0 {
		ollama.Problem = fault.New(fault.Precondition, "Ollama has no models", "pull one with ollama pull qwen3")
	}
	if ollama.Problem == nil || get("OLLAMA_HOST") != "" { // without either there is none, which is no problem
		add(ollama)
	}

	if chosen := get("ARBE_MODEL"); chosen != "" {
		env.Default, env.Problem = ParseRef(chosen)
		if env.Problem == nil && !env.has(env.Default.Endpoint) {
			env.Problem = fault.Newf(fault.Precondition, "set its key in the environment, or a house's key for it", "ARBE_MODEL is %s, and nothing was found for %s", env.Default, env.Default.Endpoint)
		}
		return env
	}
	for _, f := range env.Found {
		if f.Problem == nil && f.Default != "" {
			env.Default = Ref{f.Endpoint.Name, f.Default}
			break
		}
	}
	return env
}

func (e Environment) has(name string) bool {
	for _, f := range e.Found {
		if f.Endpoint.Name == name && f.Problem == nil {
			return true
		}
	}
	return false
}

// ollamaURL reads OLLAMA_HOST as Ollama's own client does: the scheme, the port and the host may each be missing. A
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
