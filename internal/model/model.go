// Package model makes calls of language models, whatever their provider: one call at a time, streamed.
//
// [Client.Stream] asks a model once and returns its answer in pi's shape ([entry.PiAssistant]), with its usage and
// cost. The loop around it (running the tools that an answer calls, and asking again) belongs to the caller, who can
// store each step before the next. Stream returns everything that was written, even if a call fails or is stopped.
//
// An [Endpoint] has the address of models and the key for them. The key is added to the request's header at the last moment,
// and to nothing else: no error, log or dump of a request contains it. [FromEnvironment] finds the endpoints of the
// operator's machine, [Lookup] knows prices and limits, and [CheckArguments] checks a tool call before it is run.
//
// Each [Dialect] is a file with the JSON of its requests and events: messages.go, chat.go, responses.go and gemini.go. A request
// goes from [Request] through a prompt (prompt.go), which is the same for all, to the dialect, and over the wire (wire.go). An
// answer comes back as events, which are checked (event.go, walk.go) before the dialect reads them into blocks (answer.go).
package model

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/lazyregexp"
	"github.com/arbe-dev/arbe/internal/outbound"
)

// Provider is a kind of service with models.
type Provider string

// The providers.
const (
	Anthropic  Provider = "anthropic"
	OpenAI     Provider = "openai"
	Google     Provider = "google"
	OpenRouter Provider = "openrouter"
	Ollama     Provider = "ollama"
	// Compatible is any server that speaks one of the dialects. Its [Endpoint] has a name, which refs begin with.
	Compatible Provider = "compatible"
)

// Providers lists the providers that a [Ref] can name without a configured endpoint.
var Providers = []Provider{Anthropic, OpenAI, Google, OpenRouter, Ollama}

var (
	endpointName = lazyregexp.New(`^[a-z0-9][a-z0-9_-]{0,63}$`)
)

// Dialect is a protocol of models, named as pi names it.
type Dialect string

// The dialects.
const (
	Messages  Dialect = "anthropic-messages"
	Chat      Dialect = "openai-completions"
	Responses Dialect = "openai-responses"
	Gemini    Dialect = "google-generative-ai"
)

// dialectWords are the words with which people choose a dialect.
var dialectWords = map[string]Dialect{"chat": Chat, "messages": Messages, "responses": Responses, "gemini": Gemini}

// Word returns the word with which people choose the dialect: chat, messages, responses or gemini.
func (d Dialect) Word() string {
	for word, one := range dialectWords {
		if one == d {
			return word
		}
	}
	return ""
}

// ParseDialect returns the dialect of a word; empty for an empty word. The error is a [fault.Invalid].
func ParseDialect(word string) (Dialect, error) {
	if d := dialectWords[word]; d != "" || word == "" {
		return d, nil
	}
	return "", fault.Newf(fault.Invalid, "use chat, messages (Anthropic's), responses (OpenAI's) or gemini (Google's)", "dialect: there is no dialect %q", entry.Clip(word, 40))
}

// dialectOf returns the dialect at an address of a known form: a provider's own, or one with the usual ending for
// Anthropic's dialect. For any other address it returns chat, which most servers speak.
func dialectOf(baseURL string) Dialect {
	u, err := url.Parse(baseURL)
	if err != nil {
		return Chat
	}
	host, path := strings.ToLower(u.Hostname()), strings.TrimRight(u.Path, "/")
	switch {
	case host == "api.anthropic.com", strings.HasSuffix(path, "/anthropic"), strings.HasSuffix(path, "/anthropic/v1"):
		return Messages
	case host == "api.openai.com":
		return Responses
	case host == "generativelanguage.googleapis.com" && !strings.HasSuffix(path, "/openai"):
		return Gemini
	}
	return Chat
}

// Endpoint is the address of a service with models, and the key for it.
type Endpoint struct {
	Provider Provider
	// Name is its name in refs. Defaults to the provider's name; required for Compatible.
	Name string
	// BaseURL is an http or https address without the dialect's own path: "https://api.openai.com/v1". Defaults to the
	// provider's own; required for Compatible.
	BaseURL string
	// Key is the API key; empty if the endpoint needs none.
	Key string `json:"-"`
	// KeyName is people's name for the key: the name of the secret or variable that holds it. Empty if there is none.
	KeyName string `json:"-"`
	// Dialect is the dialect that it speaks. Defaults to the provider's: for OpenAI, responses at its own address and
	// chat at any other, because few compatible servers speak responses.
	Dialect Dialect
	// Trusted reports that the operator named the address, which may therefore be on this machine or its network.
	// Otherwise only public addresses are used.
	Trusted bool
	// Shared reports that it belongs to the installation: its calls count against the installation's budget.
	Shared bool
}

// baseURLs are the providers' own addresses.
var baseURLs = map[Provider]string{
	Anthropic:  "https://api.anthropic.com",
	OpenAI:     "https://api.openai.com/v1",
	Google:     "https://generativelanguage.googleapis.com",
	OpenRouter: "https://openrouter.ai/api/v1",
	Ollama:     "http://127.0.0.1:11434/v1",
}

// Root returns the endpoint's address without the version, as clients want it that append paths such as /v1/messages.
func (e Endpoint) Root() string {
	root := e.withDefaults().BaseURL
	return strings.TrimSuffix(strings.TrimSuffix(root, "/v1"), "/v1beta")
}

// withDefaults fills in what is not set.
func (e Endpoint) withDefaults() Endpoint {
	own := e.BaseURL == ""
	if own {
		e.BaseURL = baseURLs[e.Provider]
		e.Trusted = e.Trusted || e.Provider == Ollama
	}
	e.BaseURL = strings.TrimRight(e.BaseURL, "/")
	if e.Name == "" {
		e.Name = string(e.Provider)
	}
	if e.Dialect == "" {
		switch {
		case e.Provider == Anthropic:
			e.Dialect = Messages
		case e.Provider == Google:
			e.Dialect = Gemini
		case e.Provider == OpenAI && e.BaseURL == baseURLs[OpenAI]:
			e.Dialect = Responses
		default:
			e.Dialect = Chat
		}
	}
	return e
}

// root is the address to which the dialect's paths are added. The paths of messages and Gemini begin with a version,
// which people nevertheless put into the address.
func (e Endpoint) root() string {
	switch {
	case e.Dialect == Messages:
		return strings.TrimSuffix(e.BaseURL, "/v1")
	case e.Dialect == Gemini:
		return strings.TrimSuffix(e.BaseURL, "/v1beta")
	}
	return e.BaseURL
}

// metadata are addresses at which clouds give their machines' credentials to anybody who asks.
var metadata = []netip.Prefix{
	netip.MustParsePrefix("169.254.0.0/16"),     // AWS, Google, Azure and others; all of link-local
	netip.MustParsePrefix("fe80::/10"),          // link-local
	netip.MustParsePrefix("fd00:ec2::254/128"),  // AWS
	netip.MustParsePrefix("fd20:ce::254/128"),   // Google
	netip.MustParsePrefix("100.100.100.200/32"), // Alibaba
	netip.MustParsePrefix("192.0.0.192/32"),     // Oracle
	netip.MustParsePrefix("168.63.129.16/32"),   // Azure
}

func isMetadata(ip netip.Addr) bool {
	ip = ip.WithZone("").Unmap()
	return slices.ContainsFunc(metadata, func(p netip.Prefix) bool { return p.Contains(ip) })
}

// numberHost matches hosts that some resolvers read as IPv4 addresses, such as 2852039166 and 0xa9.0xfe.43518. They
// could spell a refused address differently. No host name ends in a number.
var numberHost = lazyregexp.New(`(^|\.)([0-9]+|0x[0-9a-f]*)$`)

// Check returns a [fault.Invalid] that names the field if an endpoint is not valid. It contacts nothing: a name that
// resolves to a forbidden address is refused when connecting.
func (e Endpoint) Check() error {
	e = e.withDefaults()
	invalid := func(next, format string, args ...any) error { return fault.Newf(fault.Invalid, next, format, args...) }
	if _, known := baseURLs[e.Provider]; !known && e.Provider != Compatible {
		return invalid("use anthropic, openai, google, openrouter, ollama or compatible", "provider: %q is not known", entry.Clip(string(e.Provider), 80))
	}
	if e.Provider == Compatible && (e.Name == string(Compatible) || slices.Contains(Providers, Provider(e.Name))) || !endpointName.MatchString(e.Name) {
		return invalid("use small letters, digits and hyphens, and not the name of a provider", "name: %q cannot name an endpoint", entry.Clip(e.Name, 80))
	}
	if strings.ContainsFunc(e.Key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return invalid("paste the key alone, on one line", "key: it has a space, a line break or another character that no key has")
	}
	return e.checkAddress()
}

// checkAddress checks the base URL.
func (e Endpoint) checkAddress() error {
	invalid := func(next, format string, args ...any) error { return fault.Newf(fault.Invalid, next, format, args...) }
	u, err := url.Parse(e.BaseURL)
	const example = "write it like https://models.example.com/v1"
	switch {
	case e.BaseURL == "":
		return invalid(example, "base URL: it is empty")
	case err != nil || u.Scheme == "":
		return invalid(example, "base URL: it is not an address")
	case u.Scheme != "https" && u.Scheme != "http":
		return invalid(example, "base URL: it begins with %q, not with https", entry.Clip(u.Scheme, 20))
	case u.Hostname() == "":
		return invalid(example, "base URL: it names no server")
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return invalid("give the key as the key", "base URL: it has a user, a query or a fragment")
	}
	return e.checkHost(u.Hostname())
}

// checkHost refuses hosts that no model server of a house can have.
func (e Endpoint) checkHost(name string) error {
	invalid := func(next, format string, args ...any) error { return fault.Newf(fault.Invalid, next, format, args...) }
	host := strings.ToLower(strings.TrimSuffix(name, "."))
	ip, err := netip.ParseAddr(host)
	isIP := err == nil
	switch {
	case isIP && isMetadata(ip) || host == "metadata" || strings.HasPrefix(host, "metadata.") || host == "instance-data" || strings.HasPrefix(host, "instance-data."):
		return invalid("give the address of a model server", "base URL: %s is a cloud's metadata service", entry.Clip(host, 80))
	case !isIP && numberHost.MatchString(host):
		return invalid("write it as four decimal numbers, or as a name", "base URL: %s is an address in an unusual form", entry.Clip(host, 80))
	case e.Trusted:
		return nil
	case isIP && !outbound.Public(ip), host == "localhost", strings.HasSuffix(host, ".localhost"):
		return invalid("use an address on the internet, or let the operator name its host in ARBE_MODEL_PRIVATE_HOSTS", "base URL: %s is not on the public internet", entry.Clip(host, 80))
	}
	return nil
}

// Title is people's name for the endpoint: "Anthropic", or the name that its house gave it.
func (e Endpoint) Title() string {
	e = e.withDefaults()
	if title := titles[e.Provider]; title != "" && e.Name == string(e.Provider) {
		return title
	}
	return e.Name
}

// titles are the providers' names in their own spelling.
var titles = map[Provider]string{Anthropic: "Anthropic", OpenAI: "OpenAI", Google: "Google", OpenRouter: "OpenRouter", Ollama: "Ollama"}

// String returns the endpoint without its key.
func (e Endpoint) String() string {
	e = e.withDefaults()
	return fmt.Sprintf("%s at %s", e.Name, e.BaseURL)
}

// GoString returns the endpoint without its key.
func (e Endpoint) GoString() string { return "model.Endpoint(" + e.String() + ")" }
