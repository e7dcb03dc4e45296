// Package setting declares the operator's settings. Each setting is declared once, in the package that uses it, with its
// name, its default, a line of help and the field that it sets. A package that assembles others joins their settings with
// [Within].
package setting

import (
	"math"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/arbe-dev/arbe/internal/fault"
)

// Setting is a setting of a C, which is usually a package's Config.
type Setting[C any] struct {
	// Name is its key in a file. With dashes instead of underscores it is its flag.
	Name string
	// Env is the name of its environment variable: ARBE_ and the name in capitals, unless another was chosen.
	Env string
	// Default is its value if nothing else sets one. An empty one leaves the field at its zero value.
	Default string
	// Usage is one line of help.
	Usage string
	// Secret reports that its value is masked when it is shown.
	Secret bool

	set func(c *C, text string) error
}

// Value is a setting whose text is parsed by set. Its errors need not name the setting.
func Value[C any](name, byDefault, usage string, set func(c *C, text string) error) Setting[C] {
	return Setting[C]{Name: name, Env: "ARBE_" + strings.ToUpper(name), Default: byDefault, Usage: usage, set: set}
}

// Set sets the field. An empty text leaves it unchanged. If the text is not a valid value, the error is a
// [fault.Invalid] that names the setting.
func (s Setting[C]) Set(c *C, text string) error {
	if text == "" {
		return nil
	}
	err := s.set(c, text)
	if f := fault.From(err); f != nil {
		f.Message = s.Name + ": " + f.Message
		return f
	}
	return nil
}

// At returns the setting with another environment variable.
func (s Setting[C]) At(env string) Setting[C] { s.Env = env; return s }

// Masked returns the setting as a secret.
func (s Setting[C]) Masked() Setting[C] { s.Secret = true; return s }

// Within returns the settings of a part of C.
func Within[C, P any](part func(*C) *P, settings ...Setting[P]) []Setting[C] {
	list := make([]Setting[C], len(settings))
	for i, s := range settings {
		list[i] = Setting[C]{s.Name, s.Env, s.Default, s.Usage, s.Secret, func(c *C, text string) error { return s.set(part(c), text) }}
	}
	return list
}

// parsed is a setting whose field gets the result of parse. example is a valid value.
func parsed[C, T any](name, byDefault, usage, example string, field func(*C) *T, parse func(string) (T, bool)) Setting[C] {
	return Value(name, byDefault, usage, func(c *C, text string) error {
		value, ok := parse(text)
		if !ok {
			return fault.Newf(fault.Invalid, "write it as "+example, "%q is not a value for it", text)
		}
		*field(c) = value
		return nil
	})
}

// Text is any text.
func Text[C any](name, byDefault, usage string, field func(*C) *string) Setting[C] {
	return parsed(name, byDefault, usage, "", field, func(text string) (string, bool) { return text, true })
}

// Count is a whole number above 0 of at most 31 bits, because the database's integers hold no more.
func Count[C any, T int | int64](name, byDefault, usage string, field func(*C) *T) Setting[C] {
	return parsed(name, byDefault, usage, "4096", field, func(text string) (T, bool) {
		n, err := strconv.ParseInt(text, 10, 32)
		return T(n), err == nil && n > 0
	})
}

// Number is a number above 0.
func Number[C any](name, byDefault, usage string, field func(*C) *float64) Setting[C] {
	return parsed(name, byDefault, usage, "1.5", field, func(text string) (float64, bool) {
		n, err := strconv.ParseFloat(text, 64)
		return n, err == nil && n > 0 && !math.IsInf(n, 0)
	})
}

// Duration is a duration above 0.
func Duration[C any](name, byDefault, usage string, field func(*C) *time.Duration) Setting[C] {
	return parsed(name, byDefault, usage, "90m", field, func(text string) (time.Duration, bool) {
		d, err := time.ParseDuration(text)
		return d, err == nil && d > 0
	})
}

// Pause is a duration that may be 0.
func Pause[C any](name, byDefault, usage string, field func(*C) *time.Duration) Setting[C] {
	return parsed(name, byDefault, usage, "30s", field, func(text string) (time.Duration, bool) {
		d, err := time.ParseDuration(text)
		return d, err == nil && d >= 0
	})
}

// units are the units of sizes, in bytes.
var units = map[string]int64{"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}

// Size is a number of bytes, such as 100MiB.
func Size[C any](name, byDefault, usage string, field func(*C) *int64) Setting[C] {
	return parsed(name, byDefault, usage, "100MiB", field, func(text string) (int64, bool) {
		number, unit := text, int64(1)
		for suffix, bytes := range units {
			if before, found := strings.CutSuffix(text, suffix); found {
				number, unit = before, bytes
			}
		}
		n, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64)
		return n * unit, err == nil && n > 0 && n <= 1<<62/unit
	})
}

// Names is a list that is separated by commas or spaces.
func Names[C any](name, byDefault, usage string, field func(*C) *[]string) Setting[C] {
	return parsed(name, byDefault, usage, "", field, func(text string) ([]string, bool) { return Split(text), true })
}

// Split returns the names in a list that is separated by commas or spaces.
func Split(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}

// Paths is a list of paths, such as PATH.
func Paths[C any](name, byDefault, usage string, field func(*C) *[]string) Setting[C] {
	return parsed(name, byDefault, usage, "", field, func(text string) ([]string, bool) {
		return strings.FieldsFunc(text, func(r rune) bool { return r == filepath.ListSeparator }), true
	})
}

// dollars reads an amount of US dollars.
func dollars(text string, least float64) (float64, bool) {
	usd, err := strconv.ParseFloat(text, 64)
	return usd, err == nil && usd >= least && usd <= 1e9 // false for NaN
}

// leastDollars is the smallest amount: a millionth.
const leastDollars = 1e-6

// Dollars is an amount of US dollars above 0.
func Dollars[C any](name, byDefault, usage string, field func(*C) *float64) Setting[C] {
	return parsed(name, byDefault, usage, "50 or 0.5, in US dollars", field, func(text string) (float64, bool) { return dollars(text, leastDollars) })
}

// Micros is an amount of US dollars above 0 whose field is in millionths of one.
func Micros[C any](name, byDefault, usage string, field func(*C) *int64) Setting[C] {
	return parsed(name, byDefault, usage, "50 or 0.5, in US dollars", field, func(text string) (int64, bool) {
		usd, ok := dollars(text, leastDollars)
		return int64(math.Round(usd * 1e6)), ok
	})
}

// MicrosOrNone is like Micros, and may be 0.
func MicrosOrNone[C any](name, byDefault, usage string, field func(*C) *int64) Setting[C] {
	return parsed(name, byDefault, usage, "50 or 0.5, in US dollars", field, func(text string) (int64, bool) {
		usd, ok := dollars(text, 0)
		return int64(math.Round(usd * 1e6)), ok
	})
}

// MicrosIfSet is like MicrosOrNone. Its field is nil unless it is set.
func MicrosIfSet[C any](name, usage string, field func(*C) **int64) Setting[C] {
	return parsed(name, "", usage, "50 or 0.5, in US dollars", field, func(text string) (*int64, bool) {
		usd, ok := dollars(text, 0)
		micros := int64(math.Round(usd * 1e6))
		return &micros, ok
	})
}

// Defaults returns a C with the defaults of its settings. An invalid default is a mistake in the program, and panics.
func Defaults[C any](settings []Setting[C]) (c C) {
	for _, s := range settings {
		if err := s.Set(&c, s.Default); err != nil {
			panic(err)
		}
	}
	return c
}
