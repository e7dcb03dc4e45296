package model

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"sync"

	"github.com/arbe-dev/arbe/internal/lazyregexp"
)

// DefaultContextWindow is the assumed context window of a model that is not in the catalog, in tokens.
const DefaultContextWindow = 32_000

// Info describes a model.
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

// catalogued is the catalog's part about a provider. The names in JSON are catwalk's.
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

// Lookup describes a model by the embedded catalog. It makes no requests. An id that pins a version is found under the
// id without it, and the reverse.
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
