package model

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/arbe-dev/arbe/internal/entry"
	"github.com/arbe-dev/arbe/internal/fault"
	"github.com/arbe-dev/arbe/internal/lazyregexp"
)

// DefaultContextWindow is the assumed context window of a model that is not in the catalog, in tokens.
const DefaultContextWindow = 32_000

// Info is what is known about a model.
type Info struct {
	// Known reports whether the catalog has the model. If not, ContextWindow is a guess and the rest is empty.
	Known bool
	// ContextWindow is how many tokens a request and its answer may have together, and MaxTokens the default limit of
	// an answer; 0 if unknown.
	ContextWindow int64
	MaxTokens     int64
	// Thinks and SeesImages say what it can do.
	Thinks     bool
	SeesImages bool
	// Price is nil if it is not known.
	Price *Price

	levels []string // its levels of thinking, lowest first; empty if it takes a number, or if they are unknown
}

// Money is an amount in US dollars, in millionths of a millionth: fine enough to be exact for single tokens.
type Money int64

// Dollar is one US dollar.
const Dollar Money = 1e12

// Micros returns the amount in millionths of a dollar, rounded up, so that many small amounts never count as nothing.
func (m Money) Micros() int64 {
	const micro = int64(Dollar / 1e6)
	return (int64(m) + micro - 1) / micro
}

// String returns the amount as "$0.02", with as many decimals as it takes to show two digits.
func (m Money) String() string {
	dollars := float64(m) / float64(Dollar)
	decimals := 2
	if dollars > 0 && dollars < 0.1 {
		decimals = min(1-int(math.Floor(math.Log10(dollars))), 12)
	}
	return "$" + strconv.FormatFloat(dollars, 'f', decimals, 64)
}

// Price is what one token costs.
type Price struct{ Input, Output, CacheRead, CacheWrite Money }

// Usage counts the tokens of a call. Input does not overlap with the caches, and Output includes thinking.
type Usage struct{ Input, Output, CacheRead, CacheWrite int64 }

// Total returns the sum of all tokens.
func (u Usage) Total() int64 { return u.Input + u.Output + u.CacheRead + u.CacheWrite }

// Of returns the cost of tokens.
func (p Price) Of(u Usage) Money {
	return Money(u.Input)*p.Input + Money(u.Output)*p.Output + Money(u.CacheRead)*p.CacheRead + Money(u.CacheWrite)*p.CacheWrite
}

// pi returns a usage in pi's shape. price is nil if it is not known.
func (u Usage) pi(price *Price) entry.PiUsage {
	pi := entry.PiUsage{Input: u.Input, Output: u.Output, CacheRead: u.CacheRead, CacheWrite: u.CacheWrite, TotalTokens: u.Total()}
	if price != nil {
		dollars := func(tokens int64, each Money) float64 { return float64(Money(tokens)*each) / float64(Dollar) }
		pi.Cost = &entry.PiCost{Input: dollars(u.Input, price.Input), Output: dollars(u.Output, price.Output),
			CacheRead: dollars(u.CacheRead, price.CacheRead), CacheWrite: dollars(u.CacheWrite, price.CacheWrite),
			Total: float64(price.Of(u)) / float64(Dollar)}
	}
	return pi
}

// catalogued is what the catalog knows about a provider. The names in JSON are catwalk's.
type catalogued struct {
	Large  string       `json:"default_large_model_id"`
	Small  string       `json:"default_small_model_id"`
	Models []modelEntry `json:"models"`
}

type modelEntry struct {
	ID              string   `json:"id"`
	In              float64  `json:"cost_per_1m_in,omitempty"`
	Out             float64  `json:"cost_per_1m_out,omitempty"`
	InCached        float64  `json:"cost_per_1m_in_cached,omitempty"`
	OutCached       float64  `json:"cost_per_1m_out_cached,omitempty"`
	ContextWindow   int64    `json:"context_window,omitempty"`
	MaxTokens       int64    `json:"default_max_tokens,omitempty"`
	Thinks          bool     `json:"can_reason,omitempty"`
	ReasoningLevels []string `json:"reasoning_levels,omitempty"`
	SeesImages      bool     `json:"supports_attachments,omitempty"`

	short string // the id without the end that pins a version
}

// catalogText is the part of catwalk's tables that arbe uses. Package embedded of catwalk has ten times as much. make generate
// writes the file.
//
//go:embed catalog.json
var catalogText []byte

// catalog is the catalog by provider. Decoding it takes a millisecond.
var catalog = sync.OnceValue(func() (providers map[Provider]catalogued) {
	if err := json.Unmarshal(catalogText, &providers); err != nil {
		panic(fmt.Sprintf("model: the embedded catalog is damaged: %v", err)) // cannot happen: a test reads it
	}
	for _, p := range providers {
		for i := range p.Models {
			p.Models[i].short = dated.ReplaceAllString(p.Models[i].ID, "")
		}
	}
	return providers
})

// dated is the end of an id that pins a version of a model.
var dated = lazyregexp.New(`-(20\d{6}|20\d\d-\d\d-\d\d|latest)$`)

// Lookup returns what the embedded catalog knows about a model. It makes no requests. An id that pins a version is
// found under the id without it, and the reverse.
func Lookup(p Provider, id string) Info {
	if p == Ollama { // runs on the operator's machine and bills nothing
		return Info{ContextWindow: DefaultContextWindow, Price: &Price{}}
	}
	models := catalog()[p].Models
	short := dated.ReplaceAllString(id, "")
	for _, same := range []func(modelEntry) bool{
		func(known modelEntry) bool { return known.ID == id },
		func(known modelEntry) bool { return known.short == short },
	} {
		for _, m := range models {
			if same(m) {
				info := Info{Known: true, ContextWindow: m.ContextWindow, MaxTokens: m.MaxTokens, Thinks: m.Thinks, SeesImages: m.SeesImages, Price: price(p, m), levels: m.ReasoningLevels}
				if info.ContextWindow <= 0 {
					info.ContextWindow = DefaultContextWindow
				}
				return info
			}
		}
	}
	return Info{ContextWindow: DefaultContextWindow}
}

// price reads the prices of a model. In catwalk, "in cached" is the price of writing to a cache and "out cached" the
// price of reading from it. Some entries have the price of reading in the first field: it is then lower than the price
// of plain input, which a price of writing never is. A missing price of a cache is the price of plain input.
func price(p Provider, m modelEntry) *Price {
	if m.In == 0 && m.Out == 0 && !(p == OpenRouter && strings.HasSuffix(m.ID, ":free")) {
		return nil // a missing price does not mean free
	}
	read, write := m.OutCached, m.InCached
	if write < m.In {
		if read == 0 {
			read = write
		}
		write = m.In
	}
	if read == 0 {
		read = m.In
	}
	each := func(million float64) Money { return Money(math.Round(million * float64(Dollar) / 1e6)) }
	return &Price{Input: each(m.In), Output: each(m.Out), CacheRead: each(read), CacheWrite: each(write)}
}

// defaultModel returns the id of a provider's default model; empty if there is none.
func defaultModel(p Provider) string { return catalog()[p].Large }

// DefaultModels returns the ids of a provider's models that the catalog recommends: a large one and a small, cheap one;
// empty if it knows none.
func DefaultModels(p Provider) (large, small string) {
	c := catalog()[p]
	return c.Large, c.Small
}

// Sees reports whether a model accepts images. A model that is not in the catalog is assumed to.
func Sees(e Endpoint, id string) bool {
	info := Lookup(e.Provider, id)
	return !info.Known || info.SeesImages
}

// Thinks reports whether a model thinks before it answers. If it is not in the catalog, its id decides.
func Thinks(p Provider, id string) bool {
	info := Lookup(p, id)
	return info.Thinks || !info.Known && responsesThinks(id)
}

// ParseRef reads a model ref: a provider or one of the names of configured endpoints, a slash, and the model's id. The
// error is a [fault.Invalid] that says what is wrong.
func ParseRef(text string, names ...string) (Ref, error) {
	text = strings.TrimSpace(text)
	endpoint, id, found := strings.Cut(text, "/")
	known := func(name string) bool {
		return slices.Contains(Providers, Provider(name)) || slices.Contains(names, name)
	}
	example := "write provider/model, such as anthropic/" + defaultModel(Anthropic)
	switch {
	case text == "":
		return Ref{}, fault.New(fault.Invalid, "model: it is empty", example)
	case !found || endpoint == "":
		return Ref{}, fault.Newf(fault.Invalid, example, "model: %q does not say which provider it is from", entry.Clip(text, 80))
	case id == "":
		return Ref{}, fault.Newf(fault.Invalid, example, "model: %q does not say which of the provider's models", entry.Clip(text, 80))
	case !known(endpoint):
		var all []string
		for _, p := range Providers {
			all = append(all, string(p))
		}
		return Ref{}, fault.Newf(fault.Invalid, "use one of "+strings.Join(append(all, names...), ", "), "model: there is no provider %q", entry.Clip(endpoint, 80))
	case !modelID.MatchString(id):
		return Ref{}, fault.Newf(fault.Invalid, "write the id as the provider does, without spaces", "model: %q is not the id of a model", entry.Clip(id, 80))
	}
	return Ref{endpoint, id}, nil
}
